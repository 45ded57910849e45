"""The Spark data source `penstock`: the records of tiered topics as a DataFrame without a broker, and rows as records.

    spark.dataSource.register(PenstockDataSource)
    spark.read.format("penstock").option("store", "file:///data/store").option("topic", "flights").load()

docs/spark.md lists options and columns; frames/ has the readers.
Spark calls these methods in separate Python processes, so no state is kept between calls.

Spark 4 gives the options of CREATE TABLE to `schema`, and none to `reader` when the table is read. The metadata of the
first column, which Spark keeps in the catalog, therefore holds them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace

import pyspark

try:  # before the other modules import them
    from pyspark.sql.datasource import (  # noqa: F401
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        Filter,
    )
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow  # noqa: F401
except ImportError:
    # 4.1 has no admission control of streams, 4.0 no filters either. The line names both versions, so no cause follows.
    text = f"the data source penstock needs PySpark 4.2 or later, and {pyspark.__version__} is installed"
    raise ImportError(f"{text}: pip install 'penstock-server[spark]'") from None
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from spark_ingest.errors import IngestRefused
from spark_ingest.frames.batch_reader import PenstockReader
from spark_ingest.frames.read_options import ReadOptions, parse_options
from spark_ingest.frames.sink_options import WriteOptions, parse_write_options
from spark_ingest.frames.stream_options import parse_stream_options, without_stream_options
from spark_ingest.frames.stream_reader import PenstockStreamReader
from spark_ingest.frames.typed_rows import typed_schema
from spark_ingest.frames.typed_schema import published_fields, typed_ddl
from spark_ingest.output.stores import open_output_store
from spark_ingest.protocol.history import History

_OPTIONS = "penstock.options"


class PenstockDataSource(DataSource):  # type: ignore[misc]
    """The data source `penstock`."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str | StructType:
        """Returns the columns without a schema that was given to Spark itself. Raises IngestRefused."""
        options = parse_options(without_stream_options(self.options))
        is_table = "provider" in self.options
        if options.ddl_members is not None:
            if is_table:
                raise IngestRefused("a table of the catalog takes no 'schema'", hint="give 'output', or none of both")
            return typed_ddl(options.columns, options.ddl_members)
        if options.output is not None:
            schema = _published_schema(options)
        elif is_table:
            schema = from_arrow_schema(options.schema)
        else:
            return options.ddl
        if not is_table:
            return schema
        first, *rest = schema
        metadata = {**first.metadata, _OPTIONS: dict(self.options)}
        return StructType([StructField(first.name, first.dataType, metadata=metadata), *rest])

    def reader(self, schema: StructType) -> DataSourceReader:
        return PenstockReader(parse_options(self._all_options(schema)), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return PenstockStreamReader(parse_stream_options(self._all_options(schema)), schema, time.monotonic)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Returns a writer that counts the topic's partitions once. Raises IngestRefused, ClientError."""
        from spark_ingest.frames.sink import PenstockWriter, client_of  # with the client, which no read needs

        write_options = _write_options(self.options, schema, overwrite)
        if write_options.partitions is None:
            with client_of(write_options) as client:
                write_options = replace(write_options, partitions=client.partition_count(write_options.topic))
        return PenstockWriter(write_options, write_options.write_id or secrets.token_hex(16))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Returns a writer of batches. Raises IngestRefused."""
        from spark_ingest.frames.sink import PenstockStreamWriter  # with the client, which no read needs

        write_options = _write_options(self.options, schema, overwrite)
        if write_options.write_id is not None:
            raise IngestRefused("a stream takes no 'writeId'", hint="Spark keeps the id of its query in the checkpoint")
        return PenstockStreamWriter(write_options, "")

    def _all_options(self, schema: StructType) -> dict[str, str]:
        metadata = [field.metadata.get(_OPTIONS, {}) for field in schema]
        return {**(metadata[0] if metadata else {}), **self.options}


def _write_options(options: Mapping[str, str], schema: StructType, overwrite: bool) -> WriteOptions:
    if overwrite:
        raise IngestRefused("a topic cannot be overwritten", hint='use mode("append"), or outputMode("append")')
    return parse_write_options(options, [(field.name, field.dataType.simpleString()) for field in schema])


def _published_schema(options: ReadOptions) -> StructType:
    """Returns the wanted columns of the record, and the columns of the table in the newest commit of the job."""
    assert options.output is not None
    head = History(open_output_store(options.output, is_written=False), options.job).head()
    table = head.schemas.get(options.topic or "") if head else None
    if table is None:
        text = f"the job {options.job!r} has published no schema of {options.topic!r} in {options.output}"
        raise IngestRefused(text, hint="run `penstock ingest run` first, or give a 'schema'")
    record_fields = from_arrow_schema(typed_schema(options.columns)).jsonValue()["fields"]
    return StructType.fromJson({"type": "struct", "fields": [*record_fields, *published_fields(table.members)]})
