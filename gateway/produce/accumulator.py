"""Collects the small requests of one turn of the event loop: one append for each partition, of few batches.

A batch costs its header, a checksum, an index entry and a write wherever it goes: here, at the replicas, in the store,
at every reader. Records that came one by one cost that once a turn. Kafka's producers collect records before they
send (`RecordAccumulator`); HTTP clients mostly do not. Requests share a batch only where they differ in nothing but
their records, their `Idempotency-Key` or their sequence (docs/decisions/0021, 0044): the batch stores what recognises a
repeat of each. All batches of a turn are encoded by one call and appended by one.
Invariants: records of one partition keep the order in which they joined, also between an open append and one that is
not; the records of one request are in one batch, side by side; an append is sent at the end of the turn in which it was
opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from engine.format.batch import NOT_SEQUENCED, BatchRows, RowFields, encode_all, stamp_append_time
from engine.format.batch_header import NO_PRODUCER
from engine.format.keyed_batch import KeyEntry, RequestFields, SequenceEntry, stored_entry, stored_rows
from engine.producers.appends import AppendConditions, Appended, AppendedApart, QueuedBatch, SharedRequests
from engine.shard.served_topics import Topic
from engine.topic_settings import TopicSettings
from gateway.produce.batching import CODECS, SharedRows
from gateway.routing.leader_failover import Leader
from gateway.tracing.current import current
from gateway.tracing.span import Span
from replication.replica.acks import Acks
from replication.replica.appends import AppendOutcome

BATCH_BYTES_MAX = 64 * 1024  # of a shared batch: a reader of one record reads all of it
REQUEST_BYTES_MAX = 4 * 1024  # of the body of a request that shares: the batches of larger ones are worth their cost

_new = tuple.__new__  # of a value without a frame for it

FindLeader = Callable[[Topic, int], Leader]
Receiver = Callable[[AppendOutcome | BaseException | None], None]  # of the outcome of a request; None with acks=0


# The first record of a request in a batch of a turn, how many it has, the receiver of its outcome, and the entry.
# Plain tuples: to unpack a named one takes three times as long.
Share = tuple[int, int, Receiver, KeyEntry | SequenceEntry | None]


class TurnBatch:
    """A batch of this turn. `entries` are of the requests in it that have a key or a sequence."""

    __slots__ = ("_parts", "entries", "now_ms", "rows", "shares", "size_bytes")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.rows: list[RowFields] = []
        self.shares: list[Share] = []
        self.entries: list[RequestFields] = []
        self.size_bytes = 0
        self._parts: list[TurnBatch] = []  # in which it was judged, if it was not stored as one

    def __repr__(self) -> str:
        return f"TurnBatch({len(self.shares)} requests, {len(self.entries)} entries)"

    def add(self, rows: list[RowFields], receive: Receiver, entry: KeyEntry | SequenceEntry | None) -> None:
        """Adds the records of a request."""
        first, count = len(self.rows), len(rows)
        self.shares.append((first, count, receive, entry))
        if entry is not None:
            self.entries.append((entry, first, count))
        self.rows += rows

    @property
    def is_of_several(self) -> bool:
        """True if the batch is judged request by request where one of them is a repeat or is to be rejected."""
        return bool(self.entries) and len(self.shares) > 1

    @property
    def conditions(self) -> AppendConditions | None:
        """The conditions of the append of a batch that `is_of_several` does not hold for."""
        entry = self.shares[0][3]
        return AppendConditions(key=entry) if isinstance(entry, KeyEntry) else None

    def fields(self) -> BatchRows:
        """Returns the values that the batch is encoded of."""
        if not self.entries:
            return self.rows, None, NOT_SEQUENCED
        if self.is_of_several:
            return self.rows, stored_rows(self.entries), (NO_PRODUCER, NO_PRODUCER, len(self.entries))
        entry = self.entries[0][0]
        if isinstance(entry, SequenceEntry):
            return self.rows, None, entry[:3]
        assert isinstance(entry, KeyEntry)
        return self.rows, stored_entry(entry), NOT_SEQUENCED

    def apart(self) -> list[TurnBatch]:
        """Returns batches of the same requests: each with an entry has one of its own, neighbours without share one."""
        batches: list[TurnBatch] = []
        can_join = False
        for first, count, receive, entry in self.shares:
            if entry is not None or not can_join:
                batches.append(TurnBatch(self.now_ms))
            batches[-1].add(self.rows[first : first + count], receive, entry)
            can_join = entry is None
        return batches

    def settle(self, appended: Appended | None) -> None:
        """Gives each request its positions; None with acks=0."""
        is_own = len(self.shares) == 1 and bool(self.entries)  # it may be a repeat
        base_offset, key_kept_ms = (0, None) if appended is None else (appended.base_offset, appended.key_kept_ms)
        for first, count, receive, _ in self.shares:
            outcome = appended
            if appended is not None and not is_own:
                outcome = _new(Appended, (base_offset + first, count, None, False, key_kept_ms, None))
            receive(outcome)

    def queued(self, encoded: bytearray, settings: TopicSettings) -> QueuedBatch:
        """Returns the batch for the queue of its partition."""
        if self.is_of_several:
            return encoded, None, SharedRequests(self.entries, partial(self._encoded_apart, settings))
        return encoded, self.conditions, None

    def _encoded_apart(self, settings: TopicSettings) -> list[tuple[bytes | bytearray, AppendConditions | None]]:
        self._parts = self.apart()
        encoded = encoded_turn(self._parts, settings)
        return list(zip(encoded, [part.conditions for part in self._parts], strict=True))

    def end(self, outcome: AppendOutcome | BaseException | None) -> None:
        """Gives each request its positions, or its error."""
        if isinstance(outcome, AppendedApart):
            for part, of_part in zip(self._parts, outcome.outcomes, strict=True):
                part.end(of_part)
        elif isinstance(outcome, BaseException):
            self.fail(outcome)
        else:
            self.settle(outcome)

    def fail(self, error: BaseException) -> None:
        for _, _, receive, _ in self.shares:
            receive(error)


class TurnAppend:
    """The append of this turn to one partition, which more requests may join. `span`: of the last that has one."""

    __slots__ = (
        "acks", "batch_bytes_max", "batches", "partition", "settings", "size_bytes", "span", "timeout_ms", "topic"
    )  # fmt: skip

    def __init__(self, topic: Topic, partition: int, acks: Acks, timeout_ms: int) -> None:
        self.topic = topic
        self.partition = partition
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.settings: TopicSettings = topic.settings
        self.batch_bytes_max = shared_bytes_max(topic.settings)
        self.batches: list[TurnBatch] = []
        self.size_bytes = 0
        self.span: Span | None = None

    def __repr__(self) -> str:
        return f"TurnAppend({self.topic.record.name}/{self.partition}, {self.batches})"

    def send(self, find_leader: FindLeader) -> None:
        """Encodes the batches and hands them to their leader. An error is the outcome of all requests."""
        batches = self.batches
        try:
            leader = find_leader(self.topic, self.partition)
            if not leader.judges_requests or self.acks is Acks.NONE:
                batches = [part for batch in batches for part in (batch.apart() if batch.is_of_several else (batch,))]
            encoded = encoded_turn(batches, self.settings)
            queued = [batch.queued(data, self.settings) for batch, data in zip(batches, encoded, strict=True)]
            if self.span is current.span:
                appends = leader.produce_all(queued, self.acks, self.timeout_ms)
            else:
                appends = current.run(self.span, partial(leader.produce_all, queued, self.acks, self.timeout_ms))
        except Exception as error:
            for batch in batches:
                batch.fail(error)
            return
        for batch, append in zip(batches, appends, strict=True):
            append.then(batch.end)

    def batch_for(self, size_bytes: int, now_ms: int) -> TurnBatch:
        """Returns the last batch if a request may join it: it has room."""
        if self.batches:
            last = self.batches[-1]
            if last.size_bytes + size_bytes <= self.batch_bytes_max and (
                last.now_ms == now_ms or self.settings.timestamp_type == "create"
            ):
                return last
        batch = TurnBatch(now_ms)
        self.batches.append(batch)
        return batch


class Accumulator:
    """The open appends of a process: those of the present turn."""

    def __init__(self, find_leader: FindLeader) -> None:
        self.size_bytes = 0
        self._find_leader = find_leader
        self._open: dict[tuple[str, int], TurnAppend] = {}

    def __repr__(self) -> str:
        return f"Accumulator({len(self._open)} open, size_bytes={self.size_bytes})"

    def join(
        self,
        topic: Topic,
        partition: int,
        shared: SharedRows,
        acks: Acks,
        timeout_ms: int,
        now_ms: int,
        receive: Receiver,
    ) -> None:
        """Adds the records of a request, and the receiver of its outcome, which raises nothing.

        The append is sent at the end of the turn, or as soon as another append to the partition comes.
        """
        place = (topic.record.topic_id, partition)
        turn = self._open.get(place)
        if turn is not None and (
            turn.acks is not acks or turn.timeout_ms != timeout_ms or turn.settings is not topic.settings
        ):
            self.close(*place)
            turn = None
        if turn is None:
            turn = self._open[place] = TurnAppend(topic, partition, acks, timeout_ms)
            asyncio.get_running_loop().call_soon(self._end_turn, place, turn)
        if current.span is not None:
            turn.span = current.span
        batch = turn.batch_for(shared.size_bytes, now_ms)
        entry: KeyEntry | SequenceEntry | None = shared.key
        if shared.sequenced is not None:
            rows = shared.rows
            latest_ms = rows[0][0] if len(rows) == 1 else max([row[0] for row in rows])
            if turn.settings.timestamp_type == "append":
                latest_ms = now_ms
            entry = _new(SequenceEntry, (*shared.sequenced, latest_ms))
        batch.add(shared.rows, receive, entry)
        batch.size_bytes += shared.size_bytes
        turn.size_bytes += shared.size_bytes
        self.size_bytes += shared.size_bytes

    def close(self, topic_id: str, partition: int) -> None:
        """Sends the open append of a partition, if there is one, so that what follows is behind it."""
        turn = self._open.pop((topic_id, partition), None)
        if turn is not None:
            self.size_bytes -= turn.size_bytes
            turn.send(self._find_leader)

    def _end_turn(self, place: tuple[str, int], turn: TurnAppend) -> None:
        if self._open.get(place) is turn:
            self.close(*place)


def encoded_turn(batches: Sequence[TurnBatch], settings: TopicSettings) -> list[bytearray]:
    """Returns the encoded batches of a turn. The sizes of their records have been checked. Raises BatchTooLarge."""
    rows = [batch.fields() for batch in batches]
    encoded = encode_all(rows, CODECS[settings.compression], settings.batch_decoded_bytes_max)
    if settings.timestamp_type == "append":
        for data, batch in zip(encoded, batches, strict=True):
            stamp_append_time(data, batch.now_ms)
    return encoded


def shared_bytes_max(settings: TopicSettings) -> int:
    """Returns the size of a batch that requests share. The records of one of them may take half of it."""
    size_max = BATCH_BYTES_MAX  # compared, for `min` takes three times as long
    if settings.batch_bytes_max // 2 < size_max:
        size_max = settings.batch_bytes_max // 2
    if settings.batch_decoded_bytes_max // 2 < size_max:
        size_max = settings.batch_decoded_bytes_max // 2
    return size_max
