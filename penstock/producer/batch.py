"""The batches of records sent in one request each, the queue of a partition's batches, and the Delivery of each record.

Synchronous and without I/O: the producer decides when to send; this file decides which records are sent together, and
in which order. A Delivery costs two references per record and no future: all records of a batch share its event, and a
record's position follows from its rank in the batch.
Invariant: a queue returns batches in the order in which their records came; a batch that is put back (after a split)
goes to the front.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from itertools import pairwise
from typing import Any, NamedTuple

from penstock.producer.lines import Line, as_record_line
from penstock.producer.preparation import OutgoingRecord


class BatchPosition(NamedTuple):
    base_offset: int | None
    timestamp: int | None


class Batch:
    """Holds the lines of its records until it is complete; afterwards an outcome, or the parts of its split."""

    __slots__ = (
        "_outcome",
        "completed",
        "created_at",
        "is_failure_seen",
        "is_plain",
        "is_sent",
        "kept",
        "lines",
        "partition",
        "parts",
        "size_bytes",
        "topic",
    )

    def __init__(self, topic: str, partition: int, created_at: float) -> None:
        self.topic = topic
        self.partition = partition
        self.created_at = created_at  # loop time, seconds
        self.lines: list[bytes] = []
        self.is_plain = True
        self.size_bytes = 0
        self.completed = asyncio.Event()
        self.parts: list[tuple[int, Batch]] = []  # (rank of the part's first record here, part)
        self.is_failure_seen = False
        self.is_sent = False  # at least once
        self.kept: list[OutgoingRecord] = []  # one per line; empty without interceptors
        self._outcome: BatchPosition | Exception | None = None

    def __repr__(self) -> str:
        state = "open" if self._outcome is None else type(self._outcome).__name__
        return f"<Batch {self.topic}/{self.partition} {len(self.lines)} records {self.size_bytes} bytes {state}>"

    @property
    def is_complete(self) -> bool:
        return self._outcome is not None

    @property
    def failure(self) -> Exception | None:
        return self._outcome if isinstance(self._outcome, Exception) else None

    def add(self, line: Line) -> int:
        """Appends a record. Returns by how many bytes the batch grew."""
        text, is_plain = line
        before_bytes = self.size_bytes
        if is_plain != self.is_plain:
            if is_plain:
                text = as_record_line(text)
            else:
                self._use_record_lines()
        self.lines.append(text)
        self.size_bytes += len(text) + 1
        return self.size_bytes - before_bytes

    def body(self) -> bytes:
        return b"\n".join(self.lines)

    def keep(self, record: OutgoingRecord) -> None:
        """Keeps the last added record for the interceptors."""
        self.kept.append(record)

    def complete(self, outcome: BatchPosition | Exception) -> list[OutgoingRecord]:
        """Sets the outcome of every record and releases the lines, because deliveries may long outlive them.

        Returns the records kept for interceptors, and releases them too.
        """
        assert self._outcome is None
        self._outcome = outcome
        self.lines = []
        kept_records, self.kept = self.kept, []
        self.completed.set()
        return kept_records

    def outcome(self) -> BatchPosition:
        """Returns the position of the records. Raises their error, or InvalidStateError before that is known."""
        if self._outcome is None:
            raise asyncio.InvalidStateError("the record is not acknowledged yet")
        if isinstance(self._outcome, Exception):
            self.is_failure_seen = True
            raise self._outcome.with_traceback(None)
        return self._outcome

    def split(self, at: list[int]) -> list[Batch]:
        """Splits this batch into parts that begin at these ranks; its deliveries follow their record into its part."""
        assert at[0] == 0
        bounds = [*at, len(self.lines)]
        for start, end in pairwise(bounds):
            part = Batch(self.topic, self.partition, self.created_at)
            part.is_plain = self.is_plain
            part.lines = self.lines[start:end]
            part.kept = self.kept[start:end]
            part.size_bytes = sum(map(len, part.lines)) + len(part.lines)
            self.parts.append((start, part))
        self.lines, self.kept = [], []
        self.completed.set()
        return [part for _, part in self.parts]

    async def wait_complete(self) -> None:
        await self.completed.wait()
        for _, part in self.parts:
            await part.wait_complete()

    def part_of(self, rank: int) -> tuple[Batch, int]:
        start, part = next((start, part) for start, part in reversed(self.parts) if start <= rank)
        return part, rank - start

    def _use_record_lines(self) -> None:
        self.lines = [as_record_line(line) for line in self.lines]
        self.size_bytes = sum(map(len, self.lines)) + len(self.lines)
        self.is_plain = False


class PartitionQueue:
    """Queues the batches of one partition that wait to be sent. The last one is still open for more records."""

    __slots__ = ("_closed_bytes", "_is_due", "_ready", "batch_bytes", "open_batch", "partition", "topic")

    def __init__(self, topic: str, partition: int, batch_bytes: int) -> None:
        self.topic = topic
        self.partition = partition
        self.batch_bytes = batch_bytes
        self.open_batch: Batch | None = None
        self._ready: deque[Batch] = deque()
        self._closed_bytes = 0  # of batches that are ready or in flight
        self._is_due = False

    def __repr__(self) -> str:
        return f"<PartitionQueue {self.topic}/{self.partition} ready={len(self._ready)} open={self.open_batch!r}>"

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the records without a result."""
        return self._closed_bytes + (0 if self.open_batch is None else self.open_batch.size_bytes)

    def new_batch(self, now: float) -> Batch:
        """Closes the open batch, if there is one, and opens the next."""
        self.close_batch()
        self.open_batch = Batch(self.topic, self.partition, now)
        self._is_due = False
        return self.open_batch

    def mark_due(self, batch: Batch) -> None:
        """Marks that the linger of this batch is over. It stays open, and may grow, until a sender takes it."""
        if batch is self.open_batch:
            self._is_due = True

    def close_batch(self) -> None:
        if self.open_batch is not None:
            self._ready.append(self.open_batch)
            self._closed_bytes += self.open_batch.size_bytes
            self.open_batch = None

    def has_ready(self) -> bool:
        return bool(self._ready) or (self.open_batch is not None and self._is_due)

    def peek(self) -> Batch | None:
        """Returns what take() would return."""
        if self._ready:
            return self._ready[0]
        return self.open_batch if self._is_due else None

    def take(self) -> Batch | None:
        if not self._ready and self.open_batch is not None and self._is_due:
            self.close_batch()
        return self._ready.popleft() if self._ready else None

    def put_back(self, batches: list[Batch]) -> None:
        self._ready.extendleft(reversed(batches))

    def release(self, batch: Batch) -> None:
        """Subtracts the bytes of a completed batch."""
        self._closed_bytes -= batch.size_bytes
        assert self._closed_bytes >= 0


class RecordPosition(NamedTuple):
    """Says where a record was stored. With acks=0 the node does not report it, so offset is None."""

    topic: str
    partition: int
    offset: int | None
    timestamp: int | None


class Delivery:
    """Awaits one record, any number of times or never: returns its RecordPosition or raises its ClientError."""

    __slots__ = ("_rank", "batch")

    def __init__(self, batch: Batch, rank: int) -> None:
        self.batch = batch
        self._rank = rank

    def __await__(self) -> Generator[Any, None, RecordPosition]:
        self._follow_splits()
        while not self.batch.is_complete:
            yield from self.batch.completed.wait().__await__()
            self._follow_splits()
        return self.result()

    def __repr__(self) -> str:
        return f"<Delivery {self._rank} of {self.batch!r}>"

    def done(self) -> bool:
        self._follow_splits()
        return self.batch.is_complete

    def result(self) -> RecordPosition:
        """Returns the position, without waiting. Raises the record's ClientError, or InvalidStateError if not done."""
        self._follow_splits()
        return position_in(self.batch, self._rank)

    def _follow_splits(self) -> None:
        while self.batch.parts:
            self.batch, self._rank = self.batch.part_of(self._rank)


def position_in(batch: Batch, rank: int) -> RecordPosition:
    """Returns the position of a record. Raises the batch's ClientError, or InvalidStateError before it is complete."""
    position = batch.outcome()
    offset = None if position.base_offset is None else position.base_offset + rank
    return RecordPosition(batch.topic, batch.partition, offset, position.timestamp)
