"""`df.write.format("penstock")` and `df.writeStream.format("penstock")`: rows as records of a topic, each stored once.

Executors send the rows of their tasks to the gateway while the tasks run. A request has the positions of its rows, by
which the partition recognises what another attempt of the task, or a replay of the batch, has stored before
(docs/guarantees.md). There is nothing to commit, and nothing to undo: rows of a failed write stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.errors import ProblemError
from penstock.sync import Client
from spark_ingest.errors import IngestRefused
from spark_ingest.frames.sink_options import WriteOptions
from spark_ingest.frames.sink_rows import SinkRequest, lines_by_partition, requests

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # which Spark sets for the tasks of a stream

_HINT = "the rows come in another order at each attempt: set sortRows=true"


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """The records that a task has stored, and those that an earlier attempt had stored."""

    stored: int
    repeated: int


class _Task(NamedTuple):
    """The source of a task's rows, its number, and the batch of the stream."""

    source: str
    number: int
    epoch: int


class _Writer:
    """Sends the rows of tasks. `write_id` names the write; a stream has the id of its query instead."""

    def __init__(self, options: WriteOptions, write_id: str) -> None:
        self._options = options
        self._write_id = write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stores the rows of a task. Raises ClientError, ValueError, RowsDiffer."""
        options, task = self._options, self._task()
        stored = repeated = 0
        with client_of(options) as client:
            partitions = options.partitions or client.partition_count(options.topic)
            lines = lines_by_partition(iterator, task.number, partitions)
            for partition, of_partition in sorted(lines.items()):
                ordered = sorted(of_partition) if options.sorts_rows else of_partition
                for request in requests(ordered, partition, task.epoch, options.request_bytes):
                    if _send(client, options.topic, task.source, request):
                        stored += request.rows
                    else:
                        repeated += request.rows
        return Written(stored, repeated)

    def _task(self) -> _Task:
        context = TaskContext.get()
        assert context is not None
        number, (write, epoch) = context.partitionId(), self._write_of(context)
        return _Task(f"spark/{write}/{number}", number, epoch)

    def _write_of(self, context: TaskContext) -> tuple[str, int]:
        """Returns the id of the write and its batch."""
        return self._write_id, 0


class PenstockWriter(_Writer, DataSourceArrowWriter):  # type: ignore[misc]
    """Stores the rows of one write."""


class PenstockStreamWriter(_Writer, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Stores the rows of the batches of a stream."""

    def _write_of(self, context: TaskContext) -> tuple[str, int]:
        query, epoch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or epoch is None:
            raise IngestRefused("Spark did not name the query and the batch of this task")
        return query, int(epoch)


class RowsDiffer(IngestRefused):
    """Another attempt of a task has stored other rows in the same place. Its rows need an order: use sortRows."""

    code = "rows_differ"


def _send(client: Client, topic: str, source: str, request: SinkRequest) -> bool:
    """Returns whether this call stored the rows. Raises RowsDiffer, ClientError."""
    positions, target = (request.first, request.last), f"{topic} partition {request.partition}"
    try:
        answer = client.post_records(
            topic,
            request.body,
            partition=request.partition,
            ndjson="records",
            source=source,
            source_positions=positions,
        )
    except ProblemError as problem:
        if problem.code != "source_position_stored":
            raise
        if int(problem.members["source_position"]) < request.last:
            raise RowsDiffer(f"{target}: an earlier attempt sent its rows in other requests", hint=_HINT) from problem
        return False
    [result] = answer["results"]
    if result["count"] != request.rows and result.get("duplicate"):
        text = f"{target}: an earlier attempt stored {result['count']} rows here, this one has {request.rows}"
        raise RowsDiffer(text, hint=_HINT)
    return not result.get("duplicate", False)


def client_of(options: WriteOptions) -> Client:
    """Returns a client of the node."""
    return Client(options.url, token=options.token, cacert=options.cacert)
