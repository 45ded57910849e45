"""`spark.read.format("penstock")`: the records of tiered topics as a DataFrame, without a broker.

    spark.dataSource.register(PenstockDataSource)
    spark.read.format("penstock").option("store", "file:///data/store").option("topic", "flights").load()

The thin side towards Spark; what is read and how is direct_read.py's. Options and columns: docs/ingest.md.
Spark calls all of this in Python processes of its own, so nothing is kept between two calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from spark_ingest.output.stores import open_source
from spark_ingest.source.cut import Slice
from spark_ingest.spark.direct_read import parts_of, read_part
from spark_ingest.spark.read_options import Wanted, wanted_of

if TYPE_CHECKING:
    import pyarrow as pa


class PenstockDataSource(DataSource):  # type: ignore[misc]
    """Tiered topics, for batch reads."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        return wanted_of(self.options).ddl

    def reader(self, schema: Any) -> DataSourceReader:
        return PenstockReader(wanted_of(self.options))


@dataclass
class Part(InputPartition):  # type: ignore[misc]
    """What one Spark task reads."""

    topic: str
    slices: tuple[Slice, ...]


class PenstockReader(DataSourceReader):  # type: ignore[misc]
    """Plans a read and reads its parts."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def partitions(self) -> list[Part]:
        store = open_source(self._wanted.store)
        parts = [Part(topic, slices) for topic, slices in parts_of(store, self._wanted)]
        return parts or [Part("", ())]  # for an empty list Spark calls read() with something of its own

    def read(self, partition: Part) -> Iterator[pa.RecordBatch]:
        return read_part(open_source(self._wanted.store), self._wanted, partition.topic, partition.slices)
