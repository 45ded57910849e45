"""Collects the small requests of one turn of the event loop: one append for each partition, of few batches.

A batch costs its header, a checksum, an index entry and a write wherever it goes: here, at the replicas, in the store,
at every reader. Records that came one by one cost that once a turn. Kafka's producers collect records before they
send (`RecordAccumulator`); HTTP clients mostly do not. Requests share a batch only where they differ in nothing but
their records (docs/decisions/0021). A request with an `Idempotency-Key` or a sequence has a batch of its own, because
the batch stores what recognises a repeat; all batches of a turn are encoded by one call and appended by one.
Invariants: records of one partition keep the order in which they joined, also between an open append and one that is
not; the records of one request are in one batch, side by side; an append is sent at the end of the turn in which it was
opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from engine.format.batch import RowFields
from engine.producers.append_validator import AppendConditions, Appended
from engine.settings import TopicSettings
from engine.shard.served_topics import Topic
from gateway.produce.batching import ProducerSequence, SharedRows
from replication.replica.acks import Acks

BATCH_BYTES_MAX = 64 * 1024  # of a shared batch: a reader of one record reads all of it
REQUEST_BYTES_MAX = 4 * 1024  # of the body of a request that shares: the batches of larger ones are worth their cost

Sent = Awaitable[Appended | None]
Receiver = Callable[[Appended | BaseException | None], None]  # of the outcome of a request that has no task


class Share(NamedTuple):
    """The records of one request in a batch of a turn. A future in `sent` is done when the batch is on its way.

    Its result is the outcome to wait for if the request is alone in the append.
    """

    first: int
    record_count: int
    sent: asyncio.Future[Sent | Appended | None] | Receiver


class TurnBatch:
    """A batch of this turn. More requests may join one that has neither `conditions` nor a sequence."""

    __slots__ = ("conditions", "is_own", "now_ms", "rows", "sequenced", "shares", "size_bytes")

    def __init__(self, now_ms: int, conditions: AppendConditions | None, sequenced: ProducerSequence | None) -> None:
        self.now_ms = now_ms
        self.conditions = conditions
        self.sequenced = sequenced
        self.is_own = conditions is not None or sequenced is not None  # of one request, which may be a repeat
        self.rows: list[RowFields] = []
        self.shares: list[Share] = []
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"TurnBatch({len(self.shares)} requests, conditions={self.conditions}, sequenced={self.sequenced})"

    def settle(self, appended: Appended | None) -> None:
        """Gives each request its positions; None with acks=0."""
        for first, count, sent in self.shares:
            outcome = appended
            if appended is not None and not self.is_own:
                outcome = Appended(appended.base_offset + first, count)
            if not isinstance(sent, asyncio.Future):
                sent(outcome)
            elif not sent.done():
                sent.set_result(outcome)

    def fail(self, error: BaseException) -> None:
        for _, _, sent in self.shares:
            if not isinstance(sent, asyncio.Future):
                sent(error)
            elif not sent.done():
                sent.set_exception(error)


class TurnAppend:
    """The append of this turn to one partition, which more requests may join."""

    __slots__ = ("acks", "batches", "partition", "settings", "size_bytes", "timeout_ms", "topic")

    def __init__(self, topic: Topic, partition: int, acks: Acks, timeout_ms: int) -> None:
        self.topic = topic
        self.partition = partition
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.settings: TopicSettings = topic.settings
        self.batches: list[TurnBatch] = []
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"TurnAppend({self.topic.record.name}/{self.partition}, {self.batches})"

    def batch_for(self, shared: SharedRows, now_ms: int, conditions: AppendConditions | None) -> TurnBatch:
        """Returns the last batch if a request may join it: nothing but its records differs, and there is room."""
        if conditions is None and shared.sequenced is None and self.batches:
            last = self.batches[-1]
            if (
                last.size_bytes + shared.size_bytes <= _size_max(self.settings)
                and (last.now_ms == now_ms or self.settings.timestamp_type == "create")
                and not last.is_own
            ):
                return last
        batch = TurnBatch(now_ms, conditions, shared.sequenced)
        self.batches.append(batch)
        return batch


class Accumulator:
    """The open appends of a process: those of the present turn."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._open: dict[tuple[str, int], TurnAppend] = {}
        self._send: dict[tuple[str, int], Callable[[TurnAppend], None]] = {}

    def __repr__(self) -> str:
        return f"Accumulator({len(self._open)} open, size_bytes={self.size_bytes})"

    def join(
        self,
        topic: Topic,
        partition: int,
        shared: SharedRows,
        conditions: AppendConditions | None,
        acks: Acks,
        timeout_ms: int,
        now_ms: int,
        send: Callable[[TurnAppend], None],
    ) -> asyncio.Future[Sent | Appended | None]:
        """Adds the records of a request. Returns the future of its share.

        `send` is called with the append at the end of the turn, or as soon as another append to the partition comes.
        """
        sent: asyncio.Future[Sent | Appended | None] = asyncio.get_running_loop().create_future()
        self.join_with(topic, partition, shared, conditions, acks, timeout_ms, now_ms, send, sent)
        return sent

    def join_with(
        self,
        topic: Topic,
        partition: int,
        shared: SharedRows,
        conditions: AppendConditions | None,
        acks: Acks,
        timeout_ms: int,
        now_ms: int,
        send: Callable[[TurnAppend], None],
        sent: asyncio.Future[Sent | Appended | None] | Receiver,
    ) -> None:
        """Adds the records of a request as `join` does, with the receiver of their outcome."""
        key = (topic.record.topic_id, partition)
        turn = self._open.get(key)
        if turn is not None and (
            turn.acks is not acks or turn.timeout_ms != timeout_ms or turn.settings is not topic.settings
        ):
            self.close(*key)
            turn = None
        if turn is None:
            turn = self._open[key] = TurnAppend(topic, partition, acks, timeout_ms)
            self._send[key] = send
            asyncio.get_running_loop().call_soon(self._end_turn, key, turn)
        batch = turn.batch_for(shared, now_ms, conditions)
        batch.shares.append(Share(len(batch.rows), len(shared.rows), sent))
        batch.rows += shared.rows
        batch.size_bytes += shared.size_bytes
        turn.size_bytes += shared.size_bytes
        self.size_bytes += shared.size_bytes

    def close(self, topic_id: str, partition: int) -> None:
        """Sends the open append of a partition, if there is one, so that what follows is behind it."""
        turn = self._open.pop((topic_id, partition), None)
        if turn is not None:
            self.size_bytes -= turn.size_bytes
            self._send.pop((topic_id, partition))(turn)

    def _end_turn(self, key: tuple[str, int], turn: TurnAppend) -> None:
        if self._open.get(key) is turn:
            self.close(*key)


def share_bytes_max(topic: Topic, body_bytes: int) -> int:
    """Returns the size of records from a body of this size that still share a batch with others; 0: none do."""
    return _size_max(topic.settings) // 2 if body_bytes <= REQUEST_BYTES_MAX else 0


def _size_max(settings: TopicSettings) -> int:
    return min(BATCH_BYTES_MAX, settings.batch_bytes_max // 2, settings.batch_decoded_bytes_max // 2)
