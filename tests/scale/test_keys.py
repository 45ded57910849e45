"""Many idempotency keys and sequenced producers of one partition: how many are kept, and the cost of an append.

Costs are counted in calls, and in processor time where a pass over all keys would make no calls.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Callable

import pytest

from engine.format import batch
from engine.format.keyed_batch import KeyEntry, stored_entry
from engine.producers.append_validator import AppendValidator
from engine.producers.appends import Append, AppendConditions, Appended
from engine.producers.key_window import SLICES
from engine.producers.sequences import EXPIRED_AT_ONCE
from engine.settings import DAY_MS
from engine.topic_settings import TopicSettings
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock, Node, running_node
from tests.scale.calls import counted_calls
from tests.scale.count import SCALE

T = 1_700_000_000_000
LIVES = 3  # of a partition: each begins with a clean start
KEYS_MAX = SCALE
GROUP = 100  # appends in flight at once
NUMBERS = max(SCALE, 2000)  # with fewer the time is too short to measure
TRIES = 3  # the cheapest counts
GROWTH_MAX = 10  # for four times as many appends; 16 if the cost of each is proportional to the number of keys
EVERY = 10  # appends between two passes over all keys, in a planted fault


def entry(number: int) -> KeyEntry:
    return KeyEntry(number.to_bytes(16, "big"), bytes(16), 1, T)


def keyed(number: int) -> tuple[bytearray, AppendConditions]:
    own = entry(number)
    return bytearray(batch.encode_values([b"v"], T, entry=stored_entry(own))), AppendConditions(key=own)


def sequenced(number: int) -> tuple[bytearray, None]:
    data = bytearray(batch.encode_values([b"v"], T))
    batch.stamp_sequence(data, number, 0, 0)
    return data, None


Make = Callable[[int], tuple[bytearray, AppendConditions | None]]


async def append_all(node: Node, make: Make, numbers: range) -> list[Appended]:
    leader, appended = node.leaders["t", 0], []
    for first in range(0, len(numbers), GROUP):
        group = [leader.append(*_arguments(make(number))) for number in numbers[first : first + GROUP]]
        appended += await asyncio.gather(*group)
    return appended


def _arguments(made: tuple[bytearray, AppendConditions | None]) -> tuple[bytearray, Acks, AppendConditions | None]:
    return made[0], Acks.LEADER, made[1]


async def test_keys_and_producers_stay_within_their_bounds_and_repeats_are_known(tmp_path):
    """Over rolls and starts; the content of a snapshot has the same bounds."""
    clock = HandClock()
    overrides = {"idempotency_keys_max": KEYS_MAX, "producers_max": KEYS_MAX, "segment_bytes": 65536}
    known = KEYS_MAX - KEYS_MAX // SLICES - 1
    for life in range(LIVES):
        async with running_node(tmp_path / "data", clock) as node:
            await node.shard.create_topic("t", 1, 1, overrides)
            validator = node.shard.partition("t", 0).validator
            end = life * KEYS_MAX
            for make, kept in ((keyed, known), (sequenced, KEYS_MAX)):
                repeats = await append_all(node, make, range(max(0, end - kept), end))
                assert all(one.is_duplicate for one in repeats)
                fresh = await append_all(node, make, range(end, end + KEYS_MAX))
                assert not any(one.is_duplicate for one in fresh)
            assert known <= len(validator.keys) <= KEYS_MAX
            assert len(validator.producers) == KEYS_MAX
            assert node.shard.key_budget.keys == len(validator.keys)
            assert node.shard.key_budget.slice_count <= 4 * SLICES + 16
            await node.shard.roll_topic("t")


class Log:
    """An append validator with a log end, without a log."""

    def __init__(self) -> None:
        self.validator = AppendValidator("t/0")
        self.settings = TopicSettings(producers_max=1_000_000)
        self.end = 0

    def append(self, data: bytearray, conditions: AppendConditions | None) -> bool:
        """Return True if it was written."""
        append = Append(data, _never_awaited, False, conditions)
        if conditions is not None and conditions.key is not None:
            self.validator.keys.expect([conditions.key])
        admitted = self.validator.admit([append], self.end, T)
        self.end += len(admitted)
        self.validator.commit_staged(self.settings, ())
        return bool(admitted)


_never_awaited: asyncio.Future[Appended] = asyncio.Future(loop=asyncio.new_event_loop())


def calls_of_an_append(log: Log, make: Make, number: int) -> int:
    made = make(number)
    with counted_calls() as count:
        assert log.append(*made)
    return count[0]


def test_an_append_makes_as_many_calls_however_many_keys_and_producers_there_are():
    for make in (keyed, sequenced):
        log = Log()
        assert log.append(*make(0))
        early = calls_of_an_append(log, make, 1)
        for number in range(2, 2 + SCALE):
            log.append(*make(number))
        late = calls_of_an_append(log, make, 2 + SCALE)
        sys.stderr.write(f"\nan append of {make.__name__}: {early} calls, {late} behind {SCALE} others\n")
        assert late <= early + 20
        assert not log.append(*make(1)), "a repeat is known"


def cost_of(count: int, make: Make, on_append: Callable[[Log, int], object]) -> float:
    """Return the processor time."""
    log, made = Log(), [make(number) for number in range(count)]
    began = time.process_time()
    for number, one in enumerate(made):
        log.append(*one)
        on_append(log, number)
    return time.process_time() - began


def growth(make: Make, count: int, on_append: Callable[[Log, int], object] = lambda log, number: None) -> float:
    """Return how many times longer four times as many appends take."""
    gc_was_on = gc.isenabled()
    gc.disable()
    try:
        few, many = (min(cost_of(some, make, on_append) for _ in range(TRIES)) for some in (count, 4 * count))
    finally:
        if gc_was_on:
            gc.enable()
    each_us = 1e6 * many / (4 * count)
    sys.stderr.write(f"\n{4 * count} of {make.__name__}: {each_us:.1f} us each, {many / few:.1f} times {count}\n")
    return many / few


def test_appends_cost_the_same_processor_time_however_many_keys_and_producers_there_are():
    for make in (keyed, sequenced):
        assert growth(make, NUMBERS) < GROWTH_MAX


@pytest.mark.long
def test_a_copy_of_all_producers_is_seen():
    """A planted fault: every append copies all producers."""

    def copy_all(log: Log, number: int) -> None:
        if number % EVERY == 0:
            assert sum(1 for _ in log.validator.producers.items() * 10) == 10 * (number + 1)

    assert growth(sequenced, 2000, copy_all) > GROWTH_MAX


def test_producers_that_expire_at_once_are_forgotten_some_at_a_time():
    log, count = Log(), max(SCALE, 3 * EXPIRED_AT_ONCE)
    for number in range(count):
        log.append(*sequenced(number))
    calls = 0
    while len(log.validator.producers):
        before = len(log.validator.producers)
        with counted_calls() as counted:
            log.validator.expire(T + 2 * DAY_MS, log.settings)
        assert 0 < before - len(log.validator.producers) <= EXPIRED_AT_ONCE
        assert counted[0] < 6 * EXPIRED_AT_ONCE
        calls += 1
    assert calls >= 3
