"""`spark.readStream.format("penstock")`: the batches of a stream, in Spark's data source API.

Adapts stream_plan.py. Spark keeps one of these objects in a process beside the driver, and copies of it in its workers,
which only read. Everything that a batch is made of is in its two offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark_ingest.frames.batch_reader import PenstockPartition, is_raw, typed_rows
from spark_ingest.frames.direct_read import read_partition
from spark_ingest.frames.stream_offsets import from_json, to_json
from spark_ingest.frames.stream_options import StreamOptions
from spark_ingest.frames.stream_plan import StreamPlan
from spark_ingest.output.stores import open_source_store

if TYPE_CHECKING:
    import pyarrow as pa


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans the batches of a stream and reads their partitions. `clock` returns seconds."""

    def __init__(self, options: StreamOptions, schema: StructType, clock: Callable[[], float]) -> None:
        """Raises IngestRefused for a schema that records cannot be read with."""
        self._options = options
        self._clock = clock
        self._schema = None if is_raw(options.read, schema) else schema
        typed_rows(self._schema)
        self._plan: StreamPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None}  # workers only read

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Returns one limit of the options; latestOffset applies both."""
        if self._options.records_max is not None:
            return ReadMaxRows(self._options.records_max)
        return ReadAllAvailable() if self._options.bytes_max is None else ReadMaxBytes(self._options.bytes_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        is_limited = not isinstance(limit, ReadAllAvailable)
        return to_json(self._open_plan().next_offset(from_json(start), is_limited=is_limited))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return to_json(self._open_plan().ends())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._open_plan().stop_at_present_end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[PenstockPartition]:
        tasks = self._open_plan().tasks(from_json(start), from_json(end))
        return [PenstockPartition(topic, slices) for topic, slices in tasks]

    def read(self, partition: PenstockPartition) -> Iterator[pa.RecordBatch]:
        read = self._options.read
        store = open_source_store(read.store)
        return read_partition(store, read, partition.topic, partition.slices, typed_rows(self._schema))

    def _open_plan(self) -> StreamPlan:
        if self._plan is None:
            self._plan = StreamPlan(self._options, open_source_store(self._options.read.store), self._clock)
        return self._plan
