"""`spark.read.format("penstock")`: the partitions of a read, in Spark's data source API. Adapts direct_read.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_ingest.frames.direct_read import plan_partitions, read_partition
from spark_ingest.frames.filters import narrowed
from spark_ingest.frames.read_options import ReadOptions
from spark_ingest.frames.typed_rows import TypedRows
from spark_ingest.output.stores import open_source_store
from spark_ingest.source.slices import Slice

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class PenstockPartition(InputPartition):  # type: ignore[misc]
    """The input of one Spark task."""

    topic: str
    slices: tuple[Slice, ...]


class PenstockReader(DataSourceReader):  # type: ignore[misc]
    """Plans the partitions of a read and reads them."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises IngestRefused for a schema that records cannot be read with."""
        self._options = options
        self._schema = None if is_raw(options, schema) else schema
        if self._schema is not None:
            typed_rows(self._schema)

    @property
    def pushFilters(self) -> Callable[[list[Filter]], Iterable[Filter]]:  # noqa: N802
        return _PushFilters(self)

    def narrow(self, filters: list[Filter]) -> None:
        """Reads less: only what can pass the filters."""
        self._options = narrowed(self._options, filters, "" if self._schema is None else "_")

    def partitions(self) -> list[PenstockPartition]:
        store = open_source_store(self._options.store)
        parts = [PenstockPartition(topic, slices) for topic, slices in plan_partitions(store, self._options)]
        return parts or [PenstockPartition("", ())]  # given an empty list, Spark calls read() with None

    def read(self, partition: PenstockPartition) -> Iterator[pa.RecordBatch]:
        store, typed = open_source_store(self._options.store), typed_rows(self._schema)
        return read_partition(store, self._options, partition.topic, partition.slices, typed)


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


def is_raw(options: ReadOptions, schema: StructType) -> bool:
    """Returns whether no option makes a typed read and Spark itself was given no schema."""
    if options.is_typed:
        return False
    return bool(_arrow(schema) == options.schema)


def typed_rows(schema: StructType | None) -> TypedRows | None:
    return None if schema is None else TypedRows(schema.jsonValue(), _arrow(schema))


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")
