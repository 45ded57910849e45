"""The sequences of one partition's producers: the last batches of each, to find duplicates and reject gaps.

Pure: bytes and numbers in, verdicts out. Does not know other reasons for a rejection
(engine/producers/append_validator.py) nor where its state is saved (engine/producers/snapshots.py). The
rules are those of Kafka's ProducerStateManager.

A sequence numbers a producer's records of one partition, from 0 in each epoch; after 2^31-1 comes 0. A batch of a known
producer is, in this order: (1) of an older epoch: fenced; (2) of a newer one: accepted if it begins at 0; (3) the next:
accepted; (4) one of the last 16 batches: a duplicate, answered with its first positions; (5) older than those: stored,
at forgotten offsets; (6) anything else: a gap, or records in different batches than before. For an unknown producer
any batch is accepted if it may have been forgotten (KIP-360). One whose id is above all forgotten ones, which are given
out in rising order, never wrote here and begins at 0 (KAFKA-15591): otherwise a request that overtook its first one
would be stored, and the first one then be a gap permanently.
Invariants: `commit` applies the notes of a plan, `discard_staged` drops them. A Producer is immutable, so that a
snapshot of all of them is a copy of references. The batches of a Producer are of its epoch and contiguous.
"""

from __future__ import annotations

import struct
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from engine.errors import DuplicateOlderThanWindow, EngineError, ProducerFenced, SequenceGap
from engine.format.batch import Header
from engine.format.keyed_batch import RequestFields, SequenceEntry

WINDOW_BATCHES = 16  # Kafka has 5; HTTP/2 clients have more requests in progress
EXPIRED_AT_ONCE = 2000  # dropping them takes half a millisecond
SEQUENCE_MAX = 2**31 - 1
ID_MAX = 2**63 - 1
_SEQUENCES = SEQUENCE_MAX + 1
_FIELDS = 4  # of a batch in Producer.batches: first sequence, last sequence, base offset, latest timestamp
_KEPT = -(WINDOW_BATCHES - 1) * _FIELDS  # those that stay before a further batch
_NOTHING_YET = "no record of it is stored here yet; send the earlier ones first, and retry with the same batches"
_HEAD = struct.Struct(">qhqIB")
_BATCH = struct.Struct(">iiqq")


class First(NamedTuple):
    """Where the records of a duplicate batch were first stored."""

    base_offset: int
    record_count: int
    timestamp_ms: int


_Fields = tuple[int, int, int, int]


class Producer:
    """The last batches of one producer in its current epoch, flat, oldest first, at most WINDOW_BATCHES."""

    __slots__ = ("batches", "epoch", "next_sequence", "record_count", "used_ms")

    def __init__(self, epoch: int, record_count: int, used_ms: int, batches: array[int]) -> None:
        assert batches, "a producer is known by a batch"
        self.epoch = epoch
        self.record_count = record_count  # known contiguous records; at most 2^30
        self.used_ms = used_ms
        self.batches = batches
        self.next_sequence = (batches[-3] + 1) % _SEQUENCES

    def __repr__(self) -> str:
        return f"Producer(epoch={self.epoch}, next={self.next_sequence}, batches={len(self.batches) // _FIELDS})"

    def used_at(self, used_ms: int) -> Producer:
        return Producer(self.epoch, self.record_count, used_ms, self.batches)

    def find(self, first: int, last: int) -> First | None:
        """Finds the batch of exactly these sequences, from the latest one on."""
        batches = self.batches
        for at in range(len(batches) - _FIELDS, -1, -_FIELDS):
            if batches[at] == first and batches[at + 1] == last:
                return First(batches[at + 2], _distance(first, last) + 1, batches[at + 3])
        return None

    def before(self, offset: int) -> Producer | None:
        """Returns its state when the log ended at an offset, from these batches; None without an earlier one."""
        batches = self.batches
        count = next((at for at in range(0, len(batches), _FIELDS) if batches[at + 2] >= offset), len(batches))
        if count in (0, len(batches)):
            return self if count else None
        later = sum(_distance(batches[at], batches[at + 1]) + 1 for at in range(count, len(batches), _FIELDS))
        record_count = sum(_distance(batches[at], batches[at + 1]) + 1 for at in range(0, count, _FIELDS))
        return Producer(self.epoch, max(record_count, self.record_count - later), self.used_ms, batches[:count])

    def with_batch(self, fields: _Fields, record_count: int, used_ms: int) -> Producer:
        """Returns its state after one more batch of its epoch."""
        batches = self.batches[_KEPT:]
        batches.fromlist([*fields])  # half the time of `extend`
        after = Producer.__new__(Producer)  # for each request of a producer: no frame of `__init__`
        after.epoch, after.used_ms, after.batches = self.epoch, used_ms, batches
        after.record_count = min(2**30, self.record_count + record_count)
        after.next_sequence = (fields[1] + 1) % _SEQUENCES
        return after


StagedRequest = tuple[int, int, Producer]  # base offset, producer id, and its state from there on


class Producers:
    """The producers of one partition, least recently used first."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[int, Producer] = OrderedDict()
        self._staged: dict[int, Producer] = {}  # by the plan in progress
        self.forgotten_id_max = ID_MAX  # greatest id that may have written here and is not known; -1: none

    def __repr__(self) -> str:
        return f"Producers({len(self._by_id)}, noted={len(self._staged)})"

    def __len__(self) -> int:
        return len(self._by_id)

    def __getitem__(self, producer_id: int) -> Producer:
        """The state after the plan in progress. Raises KeyError."""
        return self._staged.get(producer_id) or self._by_id[producer_id]

    def validate(self, header: Header) -> First | EngineError | None:
        """Judges a batch; None accepts it. The cases are those of the file's head."""
        producer = self._staged.get(header.producer_id) or self._by_id.get(header.producer_id)
        if producer is None:
            is_new = header.producer_id > self.forgotten_id_max
            return _gap(header, 0, _NOTHING_YET) if is_new and header.base_sequence else None
        if header.producer_epoch != producer.epoch:
            return _validate_epoch(header, producer.epoch)
        expected = producer.next_sequence
        if header.base_sequence == expected:
            return None
        return _validate_repeat(header, producer, expected)

    def stage(self, header: Header, base_offset: int, now_ms: int) -> Producer:
        """Notes an accepted batch of the plan, at this offset."""
        producer = self._staged.get(header.producer_id) or self._by_id.get(header.producer_id)
        self._staged[header.producer_id] = after = _after(producer, header, base_offset, now_ms)
        return after

    def after_all(self, requests: Sequence[RequestFields], base_offset: int, now_ms: int) -> list[StagedRequest] | None:
        """Judges the sequenced requests of a batch at this offset; None if one is not the next one of its producer.

        Returns the offset, the producer and its state after each of them.
        """
        staged: dict[int, Producer] = {}
        notes: list[StagedRequest] = []
        before, by_id = self._staged, self._by_id
        for entry, first, count in requests:
            if type(entry) is not SequenceEntry:
                continue
            producer_id, epoch, sequence, latest_ms = entry
            producer = staged.get(producer_id) or before.get(producer_id) or by_id.get(producer_id)
            offset = base_offset + first
            fields = (sequence, (sequence + count - 1) % _SEQUENCES, offset, latest_ms)
            if producer is None:
                if sequence and producer_id > self.forgotten_id_max:
                    return None
                after = Producer(epoch, count, now_ms, array("q", fields))
            elif producer.epoch == epoch and producer.next_sequence == sequence:
                after = producer.with_batch(fields, count, now_ms)
            else:
                return None
            staged[producer_id] = after
            notes.append((offset, producer_id, after))
        return notes

    def stage_all(self, requests: Sequence[StagedRequest]) -> None:
        """Notes what `after_all` returned."""
        for _, producer_id, after in requests:
            self._staged[producer_id] = after

    def commit(self, producer_id: int, producer: Producer, producers_max: int) -> None:
        """Applies a noted batch."""
        self.commit_all([(0, producer_id, producer)], producers_max)

    def commit_all(self, staged: Iterable[StagedRequest], producers_max: int) -> None:
        """Applies noted batches, in their order: these are their producers from now on, as the latest ones used."""
        producers = self._by_id
        for _, producer_id, producer in staged:
            producers[producer_id] = producer
            producers.move_to_end(producer_id)
        while len(producers) > producers_max:
            self._forget(next(iter(producers)))

    def discard_staged(self) -> None:
        """Drops the notes at the end of a plan: those of written batches are applied before."""
        self._staged.clear()

    def replay(self, header: Header, now_ms: int, producers_max: int) -> None:
        """Applies a batch of the log; never rejects one."""
        after = _after(self._by_id.get(header.producer_id), header, header.base_offset, now_ms)
        self.commit(header.producer_id, after, producers_max)

    def replay_request(
        self, entry: SequenceEntry, base_offset: int, record_count: int, now_ms: int, producers_max: int
    ) -> None:
        """Applies a sequenced request of a batch of the log that several requests share."""
        producer_id, epoch, sequence, latest_ms = entry
        fields = (sequence, (sequence + record_count - 1) % _SEQUENCES, base_offset, latest_ms)
        after = _continued(self._by_id.get(producer_id), epoch, fields, record_count, now_ms)
        self.commit(producer_id, after, producers_max)

    def expire(self, before_ms: int) -> None:
        """Drops producers last used before a time; with many the next call continues."""
        for _ in range(min(EXPIRED_AT_ONCE, len(self._by_id))):
            producer_id = next(iter(self._by_id))
            if self._by_id[producer_id].used_ms >= before_ms:
                return
            self._forget(producer_id)

    def _forget(self, producer_id: int) -> None:
        del self._by_id[producer_id]
        self.forgotten_id_max = max(self.forgotten_id_max, producer_id)

    def ids(self) -> Iterable[int]:
        return self._by_id.keys()

    def items(self) -> list[tuple[int, Producer]]:
        """Returns the applied state, least recently used first; costs a reference each."""
        return list(self._by_id.items())


def following(last_sequence: int) -> int:
    """Returns the sequence after one."""
    return (last_sequence + 1) % _SEQUENCES


def last_sequence_of(header: Header) -> int:
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES


def encode_producers(items: Iterable[tuple[int, Producer]]) -> bytes:
    """Encodes producers as in FORMAT.md."""
    pieces = []
    for producer_id, producer in items:
        batches = producer.batches
        head = (producer_id, producer.epoch, producer.used_ms, producer.record_count, len(batches) // _FIELDS)
        pieces.append(_HEAD.pack(*head))
        pieces += [_BATCH.pack(*batches[at : at + _FIELDS]) for at in range(0, len(batches), _FIELDS)]
    return b"".join(pieces)


def decode_producers(data: bytes) -> Iterator[tuple[int, Producer]]:
    """Decodes the bytes of `encode_producers`; their checksum has been checked."""
    position = 0
    while position < len(data):
        producer_id, epoch, used_ms, record_count, batch_count = _HEAD.unpack_from(data, position)
        position += _HEAD.size
        batches: array[int] = array("q")
        for _ in range(batch_count):
            batches.extend(_BATCH.unpack_from(data, position))
            position += _BATCH.size
        yield producer_id, Producer(epoch, record_count, used_ms, batches)


def _validate_epoch(header: Header, present: int) -> EngineError | None:
    if header.producer_epoch < present:
        text = f"producer {header.producer_id} has epoch {present} here; {header.producer_epoch} is fenced"
        return ProducerFenced(text, producer_epoch=present)
    if header.base_sequence != 0:
        return _gap(header, 0, f"epoch {header.producer_epoch} is new to the partition and must begin with sequence 0")
    return None


def _validate_repeat(header: Header, producer: Producer, expected: int) -> First | EngineError:
    """The batch is of the current epoch and not the next one."""
    last = last_sequence_of(header)
    first = producer.find(header.base_sequence, last)
    if first is not None:
        return first
    behind = _distance(header.base_sequence, expected)
    behind_window = _distance(producer.batches[0], expected)
    if _count(header) <= behind - behind_window and behind <= producer.record_count:
        return DuplicateOlderThanWindow(
            f"the records of sequence {header.base_sequence} are stored and precede the last {WINDOW_BATCHES} batches",
            hint="treat them as stored; their offsets are no longer known",
        )
    return _gap(header, expected, "send the missing records first, and retry with the same batches")


def _gap(header: Header, expected: int, why: str) -> SequenceGap:
    text = f"producer {header.producer_id} is expected to continue with sequence {expected}, not {header.base_sequence}"
    return SequenceGap(f"{text}: {why}", expected_seq=expected, received_seq=header.base_sequence)


def _after(producer: Producer | None, header: Header, base_offset: int, now_ms: int) -> Producer:
    return _continued(producer, header.producer_epoch, _fields_of(header, base_offset), _count(header), now_ms)


def _continued(producer: Producer | None, epoch: int, fields: _Fields, record_count: int, now_ms: int) -> Producer:
    """A producer after one more batch; one that is not contiguous begins a new state."""
    if producer is not None and producer.epoch == epoch and producer.next_sequence == fields[0]:
        return producer.with_batch(fields, record_count, now_ms)
    return Producer(epoch, record_count, now_ms, array("q", fields))


def _count(header: Header) -> int:
    """By offsets, as Kafka counts: a compacted batch has kept its first and last one."""
    return header.last_offset_delta + 1


def _fields_of(header: Header, base_offset: int) -> _Fields:
    first = header.base_sequence
    return first, (first + header.last_offset_delta) % _SEQUENCES, base_offset, header.max_timestamp


def _distance(first: int, second: int) -> int:
    """Returns the number of sequences from one to the other, forward."""
    return (second - first) % _SEQUENCES
