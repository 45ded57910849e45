"""Collects the records of small requests of one turn of the event loop in one batch for each partition.

A batch costs its header, a checksum, an index entry and a write wherever it goes: here, at the replicas, in the store,
at every reader. Records that came one by one cost that once a turn. Kafka's producers collect records before they
send (`RecordAccumulator`); HTTP clients mostly do not. Requests share a batch only where they differ in nothing but
their records (docs/decisions/0021).
Invariants: records of one partition keep the order in which they joined, also between a shared batch and one that is
not; the records of one request are in one batch, side by side; a batch is sent at the end of the turn in which it was
opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from engine.format.batch import RowFields
from engine.producers.append_validator import Appended
from engine.settings import TopicSettings
from engine.shard.served_topics import Topic
from replication.replica.acks import Acks

BATCH_BYTES_MAX = 64 * 1024  # of a shared batch: a reader of one record reads all of it
REQUEST_BYTES_MAX = 4 * 1024  # of the body of a request that shares: the batches of larger ones are worth their cost

Sent = Awaitable[Appended | None]


class Share(NamedTuple):
    """The records of one request in a shared batch. `sent` is done when the batch is on its way.

    Its result is the outcome to wait for if the request is alone in the batch.
    """

    first: int
    record_count: int
    sent: asyncio.Future[Sent | Appended | None]


class SharedBatch:
    """A batch that more requests may join in this turn."""

    __slots__ = ("acks", "now_ms", "partition", "rows", "settings", "shares", "size_bytes", "timeout_ms", "topic")

    def __init__(self, topic: Topic, partition: int, acks: Acks, timeout_ms: int, now_ms: int) -> None:
        self.topic = topic
        self.partition = partition
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.now_ms = now_ms
        self.settings: TopicSettings = topic.settings
        self.rows: list[RowFields] = []
        self.shares: list[Share] = []
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"SharedBatch({self.topic.record.name}/{self.partition}, {len(self.shares)} requests)"

    def takes(self, topic: Topic, acks: Acks, timeout_ms: int, now_ms: int, size_bytes: int) -> bool:
        """Returns whether a request may join: nothing but its records differs, and there is room."""
        return (
            self.settings is topic.settings
            and self.acks is acks
            and self.timeout_ms == timeout_ms
            and self.size_bytes + size_bytes <= _size_max(self.settings)
            and (self.now_ms == now_ms or self.settings.timestamp_type == "create")
        )

    def settle(self, appended: Appended | None) -> None:
        """Gives each request its positions; None with acks=0."""
        for first, count, sent in self.shares:
            if not sent.done():
                sent.set_result(appended and Appended(appended.base_offset + first, count))

    def fail(self, error: BaseException) -> None:
        for share in self.shares:
            if not share.sent.done():
                share.sent.set_exception(error)


class Accumulator:
    """The open batches of a process: those of the present turn."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._open: dict[tuple[str, int], SharedBatch] = {}
        self._send: dict[tuple[str, int], Callable[[SharedBatch], None]] = {}

    def __repr__(self) -> str:
        return f"Accumulator({len(self._open)} open, size_bytes={self.size_bytes})"

    def join(
        self,
        topic: Topic,
        partition: int,
        rows: list[RowFields],
        size_bytes: int,
        acks: Acks,
        timeout_ms: int,
        now_ms: int,
        send: Callable[[SharedBatch], None],
    ) -> asyncio.Future[Sent | Appended | None]:
        """Adds the records of a request, of at most `size_bytes`. Returns the future of its share.

        `send` is called with the batch at the end of the turn, or as soon as another append to the partition comes.
        """
        key = (topic.record.topic_id, partition)
        batch = self._open.get(key)
        if batch is not None and not batch.takes(topic, acks, timeout_ms, now_ms, size_bytes):
            self.close(*key)
            batch = None
        loop = asyncio.get_running_loop()
        if batch is None:
            batch = self._open[key] = SharedBatch(topic, partition, acks, timeout_ms, now_ms)
            self._send[key] = send
            loop.call_soon(self._end_turn, key, batch)
        future: asyncio.Future[Sent | Appended | None] = loop.create_future()
        batch.shares.append(Share(len(batch.rows), len(rows), future))
        batch.rows += rows
        batch.size_bytes += size_bytes
        self.size_bytes += size_bytes
        return future

    def close(self, topic_id: str, partition: int) -> None:
        """Sends the open batch of a partition, if there is one, so that what follows is behind it."""
        batch = self._open.pop((topic_id, partition), None)
        if batch is not None:
            self.size_bytes -= batch.size_bytes
            self._send.pop((topic_id, partition))(batch)

    def _end_turn(self, key: tuple[str, int], batch: SharedBatch) -> None:
        if self._open.get(key) is batch:
            self.close(*key)


def share_bytes_max(topic: Topic, body_bytes: int) -> int:
    """Returns the size of records from a body of this size that still share a batch with others; 0: none do."""
    return _size_max(topic.settings) // 2 if body_bytes <= REQUEST_BYTES_MAX else 0


def _size_max(settings: TopicSettings) -> int:
    return min(BATCH_BYTES_MAX, settings.batch_bytes_max // 2, settings.batch_decoded_bytes_max // 2)
