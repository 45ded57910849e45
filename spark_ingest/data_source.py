"""`spark.read.format("penstock")`: the records of tiered topics as a DataFrame, without a broker.

    spark.dataSource.register(PenstockDataSource)
    spark.read.format("penstock").option("store", "file:///data/store").option("topic", "flights").load()

Adapts direct_read.py to Spark's data source API. docs/spark.md lists options and columns.
Spark calls these methods in separate Python processes, so no state is kept between calls.

Spark 4 gives the options of CREATE TABLE to `schema`, and none to `reader` when the table is read. The metadata of the
first column, which Spark keeps in the catalog, therefore holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from spark_ingest.errors import IngestRefused
from spark_ingest.output.stores import open_output_store, open_source_store
from spark_ingest.protocol.history import History
from spark_ingest.source.slices import Slice
from spark_ingest.spark.direct_read import plan_partitions, read_partition
from spark_ingest.spark.filters import narrowed
from spark_ingest.spark.read_options import ReadOptions, parse_options
from spark_ingest.spark.typed_rows import TypedRows, typed_schema
from spark_ingest.spark.typed_schema import published_fields, typed_ddl

if TYPE_CHECKING:
    import pyarrow as pa


_OPTIONS = "penstock.options"


class PenstockDataSource(DataSource):  # type: ignore[misc]
    """The data source `penstock`."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str | StructType:
        """Returns the columns without a schema that was given to Spark itself. Raises IngestRefused."""
        wanted = parse_options(self.options)
        is_table = "provider" in self.options
        if wanted.ddl_members is not None:
            if is_table:
                raise IngestRefused("a table of the catalog takes no 'schema'", hint="give 'output', or none of both")
            return typed_ddl(wanted.columns, wanted.ddl_members)
        if wanted.output is not None:
            schema = _published_schema(wanted)
        elif is_table:
            schema = from_arrow_schema(wanted.schema)
        else:
            return wanted.ddl
        if not is_table:
            return schema
        first, *rest = schema
        metadata = {**first.metadata, _OPTIONS: dict(self.options)}
        return StructType([StructField(first.name, first.dataType, metadata=metadata), *rest])

    def reader(self, schema: StructType) -> DataSourceReader:
        return PenstockReader(parse_options(self._all_options(schema)), schema)

    def _all_options(self, schema: StructType) -> dict[str, str]:
        kept = [one.metadata.get(_OPTIONS, {}) for one in schema]
        return {**(kept[0] if kept else {}), **self.options}


@dataclass
class PenstockPartition(InputPartition):  # type: ignore[misc]
    """The input of one Spark task."""

    topic: str
    slices: tuple[Slice, ...]


class PenstockReader(DataSourceReader):  # type: ignore[misc]
    """Plans the partitions of a read and reads them."""

    def __init__(self, wanted: ReadOptions, schema: StructType) -> None:
        """Raises IngestRefused for a schema that records cannot be read with."""
        self._wanted = wanted
        self._schema = None if _is_raw(wanted, schema) else schema
        if self._schema is not None:
            _typed_rows(self._schema)

    @property
    def pushFilters(self) -> Callable[[list[Filter]], Iterable[Filter]]:  # noqa: N802
        return _PushFilters(self)

    def narrow(self, filters: list[Filter]) -> None:
        """Reads less: only what can pass the filters."""
        self._wanted = narrowed(self._wanted, filters, "" if self._schema is None else "_")

    def partitions(self) -> list[PenstockPartition]:
        store = open_source_store(self._wanted.store)
        parts = [PenstockPartition(topic, slices) for topic, slices in plan_partitions(store, self._wanted)]
        return parts or [PenstockPartition("", ())]  # given an empty list, Spark calls read() with None

    def read(self, partition: PenstockPartition) -> Iterator[pa.RecordBatch]:
        store, typed = open_source_store(self._wanted.store), _typed_rows(self._schema)
        return read_partition(store, self._wanted, partition.topic, partition.slices, typed)


class _PushFilters:
    """Narrows a reader by filters; Spark still evaluates them all.

    While `spark.sql.python.filterPushdown.enabled` is off, Spark fails every query of a reader with `pushFilters`; it
    looks at `__func__`. This reader may be used all the same: without filters it reads more, and no result differs.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: PenstockReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        self._reader.narrow(filters)
        return filters


def _is_raw(wanted: ReadOptions, schema: StructType) -> bool:
    """True without a typed option and without a schema that was given to Spark itself."""
    if wanted.is_typed:
        return False
    return bool(_arrow(schema) == wanted.schema)


def _typed_rows(schema: StructType | None) -> TypedRows | None:
    return None if schema is None else TypedRows(schema.jsonValue(), _arrow(schema))


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def _published_schema(wanted: ReadOptions) -> StructType:
    """Returns the wanted columns of the record, and the columns of the table in the newest commit of the job."""
    assert wanted.output is not None
    head = History(open_output_store(wanted.output, is_written=False), wanted.job).head()
    table = head.schemas.get(wanted.topic or "") if head else None
    if table is None:
        text = f"the job {wanted.job!r} has published no schema of {wanted.topic!r} in {wanted.output}"
        raise IngestRefused(text, hint="run `penstock ingest run` first, or give a 'schema'")
    own = from_arrow_schema(typed_schema(wanted.columns)).jsonValue()["fields"]
    return StructType.fromJson({"type": "struct", "fields": [*own, *published_fields(table.members)]})
