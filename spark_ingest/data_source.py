"""`spark.read.format("penstock")`: the records of tiered topics as a DataFrame, without a broker.

    spark.dataSource.register(PenstockDataSource)
    spark.read.format("penstock").option("store", "file:///data/store").option("topic", "flights").load()

Adapts direct_read.py to Spark's data source API. docs/ingest.md lists options and columns.
Spark calls these methods in separate Python processes, so no state is kept between calls.

Spark 4 gives the options of CREATE TABLE to `schema`, and none to `reader` when the table is read. The metadata of the
first column, which Spark keeps in the catalog, therefore holds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from spark_ingest.output.stores import open_source_store
from spark_ingest.source.slices import Slice
from spark_ingest.spark.direct_read import plan_partitions, read_partition
from spark_ingest.spark.read_options import ReadOptions, parse_options

if TYPE_CHECKING:
    import pyarrow as pa


_OPTIONS = "penstock.options"


class PenstockDataSource(DataSource):  # type: ignore[misc]
    """The batch data source `penstock`."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str | StructType:
        wanted = parse_options(self.options)
        if "provider" not in self.options:  # not a table
            return wanted.ddl
        first, *rest = from_arrow_schema(wanted.schema)
        return StructType([StructField(first.name, first.dataType, metadata={_OPTIONS: dict(self.options)}), *rest])

    def reader(self, schema: StructType) -> DataSourceReader:
        kept = [one.metadata.get(_OPTIONS, {}) for one in schema]
        return PenstockReader(parse_options({**(kept[0] if kept else {}), **self.options}))


@dataclass
class PenstockPartition(InputPartition):  # type: ignore[misc]
    """The input of one Spark task."""

    topic: str
    slices: tuple[Slice, ...]


class PenstockReader(DataSourceReader):  # type: ignore[misc]
    """Plans the partitions of a read and reads them."""

    def __init__(self, wanted: ReadOptions) -> None:
        self._wanted = wanted

    def partitions(self) -> list[PenstockPartition]:
        store = open_source_store(self._wanted.store)
        parts = [PenstockPartition(topic, slices) for topic, slices in plan_partitions(store, self._wanted)]
        return parts or [PenstockPartition("", ())]  # given an empty list, Spark calls read() with None

    def read(self, partition: PenstockPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(open_source_store(self._wanted.store), self._wanted, partition.topic, partition.slices)
