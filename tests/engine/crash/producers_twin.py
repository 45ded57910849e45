"""Sequenced producers and their simple twin: the list of the batches in the log, which is searched for each answer.

PartitionAndTwin provides the ends of a life, time and retention. Here producers send, repeat, skip, take over and cross
2^31. The twin says which answers are required and which are allowed. A producer that has not sent within
`producer_expiry_ms`, or whose records were deleted, may be known or not. Every answer about stored records must be
correct, and what is certainly known must be reported.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from engine.errors import DuplicateOlderThanWindow, EngineError, ProducerFenced, SequenceGap, StorageFailed
from engine.format import batch as record_batch
from engine.producers.appends import Appended
from engine.producers.sequences import ID_MAX, SEQUENCE_MAX, WINDOW_BATCHES
from replication.replica.acks import Acks
from tests.engine.crash.twin import ACKS, MINUTE_MS, OPERATIONS, PartitionAndTwin

EXPIRY_MS = 100 * MINUTE_MS
RING = SEQUENCE_MAX + 1
WINDOW = 16  # the documented promise, not the engine's constant
PRODUCERS = st.integers(0, 1)
COUNTS = st.lists(st.integers(1, 3), min_size=1, max_size=8)

assert WINDOW_BATCHES == WINDOW


class Sent(NamedTuple):
    """A batch that a producer sends, or that is in the log."""

    producer: int
    epoch: int
    sequence: int
    count: int
    base: int = -1
    stored_ms: int = 0

    @property
    def following(self) -> int:
        return (self.sequence + self.count) % RING

    def is_same(self, other: Sent) -> bool:
        return self[:4] == other[:4]

    def follows(self, other: Sent) -> bool:
        return self.epoch == other.epoch and self.sequence == other.following


class ProducersAndTwin(PartitionAndTwin):
    """Adds producers to the steps of a partition."""

    @initialize(durability=st.sampled_from(("group", "os")), near_the_end=st.booleans())
    def begin(self, durability, near_the_end):
        super().begin(durability)
        self.stored: list[Sent] = []
        self.first_sequence = SEQUENCE_MAX - 20 if near_the_end else 0
        self.begun_ms = self.clock.ms
        self._may_begin_anywhere()
        self._do(self.node.shard.alter_topic("t", {"producer_expiry_ms": EXPIRY_MS}))

    @rule(producer=PRODUCERS, counts=COUNTS, acks=ACKS)
    def send(self, producer, counts, acks):
        """Send the next batches in one group."""
        self._send_all(self._next(producer, counts), acks)

    @rule(producer=PRODUCERS, count=st.integers(12, 20))
    def send_many(self, producer, count):
        self._send_all(self._next(producer, [1] * count), Acks.ALL)

    @rule(producer=PRODUCERS, counts=COUNTS, acks=ACKS)
    def send_each_twice_at_once(self, producer, counts, acks):
        self._send_all([sent for sent in self._next(producer, counts) for _ in range(2)], acks)

    @rule(producer=PRODUCERS, back=st.integers(1, 24))
    def repeat(self, producer, back):
        mine = self._of(producer)
        if mine:
            self._send_all([mine[-min(back, len(mine))]], Acks.ALL)

    @rule(producer=PRODUCERS)
    def repeat_all_of_the_window(self, producer):
        self._send_all(self._of(producer)[-WINDOW - 1 :], Acks.ALL)

    @rule(producer=PRODUCERS, by=st.integers(-3, 3), count=st.integers(1, 4))
    def send_elsewhere(self, producer, by, count):
        """Send with a gap, or records in other batches than before."""
        (following,) = self._next(producer, [count])
        self._send_all([following._replace(sequence=(following.sequence + by) % RING)], Acks.ALL)

    @rule(producer=PRODUCERS, by=st.integers(-1, 1), sequence=st.integers(0, 1))
    def send_in_another_epoch(self, producer, by, sequence):
        (following,) = self._next(producer, [1])
        self._send_all([following._replace(epoch=max(0, following.epoch + by), sequence=sequence)], Acks.ALL)

    @rule(passed_ms=st.sampled_from((MINUTE_MS, EXPIRY_MS // 2, EXPIRY_MS + 1)))
    def time_passes(self, passed_ms):
        self.clock.pass_ms(passed_ms)
        self.partition.validator.expire(self.clock.ms, self.partition.settings)

    @rule(producer=PRODUCERS, counts=COUNTS, after=OPERATIONS, seed=st.integers(0, 99))
    def lose_power_while_sending(self, producer, counts, after, seed):
        self._until_power_is_lost(after, lambda: self._send_all(self._next(producer, counts), Acks.ALL))
        self._lose_power(seed)

    # Helpers.

    def _of(self, producer: int) -> list[Sent]:
        """Return the batches of a producer's latest epoch in the log, as far back as they are contiguous."""
        mine = [sent for sent in self.stored if sent.producer == producer]
        first = len(mine) - 1
        while first > 0 and mine[first].follows(mine[first - 1]):
            first -= 1
        return mine[max(0, first) :]

    def _next(self, producer: int, counts: list[int]) -> list[Sent]:
        mine = self._of(producer)
        epoch = mine[-1].epoch if mine else 0
        sequence = mine[-1].following if mine else self.first_sequence
        found = []
        for count in counts:
            found.append(Sent(producer, epoch, sequence, count))
            sequence = (sequence + count) % RING
        return found

    def _send_all(self, sents: list[Sent], acks: Acks) -> None:
        """Send all in one group; check each answer in the order of sending, against the log."""

        async def all_at_once() -> list[object]:
            waits = []
            for sent in sents:
                values = [self.values.randbytes(20) for _ in range(sent.count)]
                data = record_batch.encode_values(values, self.clock.ms)
                record_batch.stamp_sequence(data, *sent[:3])
                waits.append((values, self.node.append(self.partition, data, acks)))
            answers = [self.node.acknowledged(self.partition, wait, acks) for _, wait in waits]
            results = await asyncio.gather(*answers, return_exceptions=True)
            return list(zip((values for values, _ in waits), results, strict=True))

        failed = None
        for sent, (values, answer) in zip(sents, self._do(all_at_once()), strict=True):
            if self.disk.has_lost_power and isinstance(answer, (StorageFailed, OSError)):
                failed = answer
                self._store(sent, values)  # unknown; the next life shows it
            else:
                self._judge(sent, values, answer, acks)
        if failed is not None:
            raise failed
        self._settle()

    def _judge(self, sent: Sent, values: list[bytes], answer: object, acks: Acks) -> None:
        mine = self._of(sent.producer)
        certain = self._certain(mine)
        is_new = isinstance(answer, Appended) and not answer.is_duplicate
        if not mine:
            is_whole = not self.log_start_tried and self.clock.ms - self.begun_ms <= EXPIRY_MS
            assert is_new or sent.sequence, f"nothing is stored of the producer of {sent}: {answer!r}"
            assert not is_new or not (sent.sequence and is_whole and not self.first_sequence), f"{sent} is not first"
            if not is_new:
                assert isinstance(answer, SequenceGap), f"nothing is stored of the producer of {sent}: {answer!r}"
                assert answer.members["expected_seq"] == 0
                return
        match answer:
            case Appended(is_duplicate=False):
                assert not certain or self._may_be_new(sent, mine), f"{sent} was let in after {mine[-1]}"
                assert (answer.base_offset, answer.record_count) == (len(self.records), sent.count)
                self._store(sent, values)
                self._note_acknowledged(acks)
            case Appended():
                first = next((one for one in reversed(mine) if one.is_same(sent)), None)
                assert first is not None, f"{sent} was never stored"
                assert (answer.base_offset, answer.record_count) == (first.base, first.count)
            case ProducerFenced():
                assert sent.epoch < mine[-1].epoch == answer.members["producer_epoch"]
            case DuplicateOlderThanWindow():
                stored = {(one.sequence + n) % RING for one in mine[:-WINDOW] for n in range(one.count)}
                assert {(sent.sequence + n) % RING for n in range(sent.count)} <= stored
                assert sent.epoch == mine[-1].epoch
            case SequenceGap():
                is_newer = sent.epoch > mine[-1].epoch
                assert answer.members["expected_seq"] == (0 if is_newer else mine[-1].following)
                assert not any(one.is_same(sent) for one in certain), f"{sent} is known and was called a gap"
                assert not self._may_be_new(sent, mine), f"{sent} follows and was called a gap"
            case EngineError():
                raise answer
            case _:
                raise AssertionError(answer)
        if is_new or not isinstance(answer, Appended):
            assert not any(one.is_same(sent) for one in certain[-WINDOW:]), f"{sent} is known and was not a duplicate"

    def _may_be_new(self, sent: Sent, mine: list[Sent]) -> bool:
        return sent.follows(mine[-1]) or (sent.epoch > mine[-1].epoch and sent.sequence == 0)

    def _certain(self, mine: list[Sent]) -> list[Sent]:
        """Return the producers that must be known."""
        latest_ms = self.clock.ms
        certain: list[Sent] = []
        for sent in reversed(mine):
            if latest_ms - sent.stored_ms > EXPIRY_MS or sent.base < self.log_start_tried:
                break
            latest_ms = sent.stored_ms
            certain.insert(0, sent)
        return certain

    def _store(self, sent: Sent, values: list[bytes]) -> None:
        self.stored.append(sent._replace(base=len(self.records), stored_ms=self.clock.ms))
        self.records += values
        self.appended_ms += [self.clock.ms] * sent.count

    def _may_begin_anywhere(self) -> None:
        """Forget that nothing was ever there, where producers begin near the last sequence."""
        if self.first_sequence:
            self.partition.validator.producers.forgotten_id_max = ID_MAX

    def _note_acknowledged(self, acks: Acks) -> None:
        self.written = len(self.records)
        if acks is Acks.ALL and self.durability == "group":
            self.durable = len(self.records)

    def _reopen(self, disk, at_least: int) -> None:
        super()._reopen(disk, at_least)
        self._may_begin_anywhere()
        self.stored = [sent for sent in self.stored if sent.base < len(self.records)]
