"""Callers in any order of acquisitions, outcomes, expired locks and failovers, against a dumb twin.

The twin has one entry for each record. It holds the coordinator to: one lock for a record; no record is skipped; a
lock that is over changes nothing; a bounded window; the order of a key; and a replay that gives the same state.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gateway.groups.core import sharing
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.share import stored
from gateway.groups.share.key_order import KeyOrder
from gateway.groups.share.partition import SharePartition
from gateway.groups.share.state import ShareState
from gateway.groups.share.values import Outcome
from gateway.groups.share.window import State, Window
from tests.gateway.groups.core.coordinators import GROUP, replayed
from tests.gateway.groups.share.queues import KEEPING, Queue, offsets_of

PARTITIONS, WINDOW, DELIVERIES = 2, 12, 3
numbers = st.integers(0, PARTITIONS - 1)
outcomes = st.sampled_from((Outcome.ACCEPT, Outcome.ACCEPT, Outcome.RELEASE, Outcome.REJECT, Outcome.EXTEND))


class Entry:
    """A record of the twin."""

    def __init__(self) -> None:
        self.deliveries = 0
        self.lock = ""
        self.until_ms = 0
        self.ready_ms = 0
        self.is_over = False
        self.is_dead = False

    def fail(self) -> None:
        self.lock = ""
        if self.deliveries >= DELIVERIES:
            self.is_dead = True


class Shares(RuleBasedStateMachine):
    """`twin` has every record that was ever produced."""

    @initialize(is_ordered=st.booleans())
    def begin(self, is_ordered: bool) -> None:
        self.is_ordered = is_ordered
        order = "key" if is_ordered else "none"
        self.queue = Queue(
            PARTITIONS, in_flight_max=WINDOW, deliveries_max=DELIVERIES, order=order, dead_letter_topic="dead"
        )
        self.twin: dict[tuple[int, int], Entry] = {}
        self.locks: list[str] = ["none"]

    @rule(number=numbers, count=st.integers(1, 9), key=st.integers(0, 2))
    def produce(self, number: int, count: int, key: int) -> None:
        for _ in range(count):
            place = (number, self.queue.ends[number])
            self.queue.keys[place] = (key + place[1]) % 3
            self.twin[place] = Entry()
            self.queue.ends[number] += 1

    @rule(count=st.integers(1, 8))
    def acquire(self, count: int) -> None:
        self._expire()
        lock, found = self.queue.acquire(count)
        self.locks.append(lock)
        places = offsets_of(found)
        assert len(set(places)) == len(places) <= count
        for one in found.granted:
            for offset in range(one.first, one.last + 1):
                entry = self.twin[one.partition, offset]
                assert not entry.lock, "two callers hold a record"
                assert not entry.is_over, "a finished record is delivered"
                assert not entry.is_dead, "a dead letter is delivered"
                assert entry.ready_ms <= self.queue.now_ms, "a delayed record is delivered"
                entry.deliveries += 1
                assert entry.deliveries == one.deliveries
                entry.lock, entry.until_ms = lock, self.queue.now_ms + KEEPING
        if self.is_ordered:
            self._check_order()
        if len(places) < count:
            assert not any(self._deliverable(number) for number in range(PARTITIONS)), "a record is skipped"

    @rule(data=st.data(), number=numbers, outcome=outcomes, delay_ms=st.sampled_from((None, 0, 5_000)))
    def settle(self, data: st.DataObject, number: int, outcome: Outcome, delay_ms: int | None) -> None:
        end = self.queue.ends[number]
        if not end:
            return
        lock = data.draw(st.sampled_from(self.locks[-3:]))
        first = data.draw(st.integers(0, end - 1))
        last = data.draw(st.integers(first, min(end - 1, first + 6)))
        time_ms = 3 * KEEPING if outcome is Outcome.EXTEND else delay_ms if outcome is Outcome.RELEASE else None
        found = self.queue.settle(lock, number, first, last, outcome, time_ms=time_ms)
        self._expire()
        refused = {offset for one in found.refused for offset in range(one.first, one.last + 1)}
        held = 0
        for offset in range(first, last + 1):
            entry = self.twin[number, offset]
            if entry.lock != lock:
                continue
            held += 1
            assert offset not in refused, "an outcome of a held record was refused"
            self._decide(entry, outcome, time_ms)
        assert found.settled == last - first + 1 - len(refused) >= held

    @rule(number=numbers, outcome=outcomes)
    def settle_all(self, number: int, outcome: Outcome) -> None:
        lock, share = self.locks[-1], self.queue.core.groups[GROUP].share
        if share is None or lock not in share.locks:
            return
        time_ms = 3 * KEEPING if outcome is Outcome.EXTEND else None
        self.queue.settle_all(lock, outcome, time_ms=time_ms)
        self._expire()
        for entry in self.twin.values():
            if entry.lock == lock:
                self._decide(entry, outcome, time_ms)

    @rule(ms=st.sampled_from((1_000, 5_000, KEEPING, 100_000)))
    def wait(self, ms: int) -> None:
        self.queue.sweep(ms)
        self._expire()

    @rule()
    def copy_dead_letters(self) -> None:
        self.queue.sweep()
        self._expire()
        for letter in self.queue.dead_letters():
            for offset in range(letter.first, letter.last + 1):
                entry = self.twin[letter.partition, offset]
                assert (entry.is_dead, entry.is_over) == (True, False)
                entry.is_over = True
            self.queue.bury(letter)
        assert not any(one.is_dead and not one.is_over for one in self.twin.values()), "a dead letter is lost"

    @rule()
    def fail_over(self) -> None:
        self.queue.sweep()
        self._expire()
        before = [self.queue.records(number) for number in self._begun()]
        self.queue.fail_over()
        for number, records in zip(self._begun(), before, strict=True):
            kept = {offset: ("AVAILABLE" if name == "ACQUIRED" else name, n) for offset, (name, n) in records.items()}
            assert self.queue.records(number) == kept, "a failover has changed more than locks"
        for entry in self.twin.values():
            entry.lock = ""

    @invariant()
    def the_window_is_bounded_and_covers_what_is_unfinished(self) -> None:
        if not self._is_begun():
            return
        for number in self._begun():
            records, start = self.queue.records(number), self.queue.start(number)
            assert len(records) <= WINDOW
            assert sorted(records) == list(range(start, start + len(records)))
            assert all(self.twin[number, offset].is_over for offset in range(start)), "an unfinished record is skipped"
            for offset, (name, _) in records.items():
                assert (name == "DONE") == self.twin[number, offset].is_over

    def teardown(self) -> None:
        """Finish everything: no record may be left behind."""
        if not self._is_begun():
            return
        for _ in range(400):
            self.queue.sweep(100_000)
            for letter in self.queue.dead_letters():
                self.queue.bury(letter)
            lock, found = self.queue.acquire(50)
            if found.granted:
                self.queue.settle_all(lock, Outcome.ACCEPT)
            elif not self.queue.dead_letters():
                break
        assert [self.queue.start(number) for number in self._begun()] == self.queue.ends

    def _decide(self, entry: Entry, outcome: Outcome, time_ms: int | None) -> None:
        if outcome is Outcome.EXTEND:
            entry.until_ms = self.queue.now_ms + (time_ms or 0)
        elif outcome is Outcome.ACCEPT:
            entry.is_over, entry.lock = True, ""
        elif outcome is Outcome.REJECT:
            entry.is_dead, entry.lock = True, ""
        else:
            entry.fail()
            entry.ready_ms = self.queue.now_ms + (time_ms or 0)

    def _expire(self) -> None:
        for entry in self.twin.values():
            if entry.lock and entry.until_ms <= self.queue.now_ms:
                entry.fail()

    def _deliverable(self, number: int) -> bool:
        first = next((offset for offset in range(self.queue.ends[number]) if not self.twin[number, offset].is_over), 0)
        seen: set[int] = set()
        for offset in range(first, min(self.queue.ends[number], first + WINDOW)):
            entry, key = self.twin[number, offset], self.queue.keys[number, offset]
            if entry.is_over or entry.is_dead:
                continue
            if not entry.lock and entry.ready_ms <= self.queue.now_ms and not (self.is_ordered and key in seen):
                return True
            if key:
                seen.add(key)
        return False

    def _check_order(self) -> None:
        for (number, offset), entry in self.twin.items():
            if entry.lock and (key := self.queue.keys[number, offset]):
                before = (one for one in range(offset) if self.queue.keys[number, one] == key)
                assert all(self.twin[number, one].is_over or self.twin[number, one].is_dead for one in before), "order"

    def _begun(self) -> range:
        share = self.queue.core.groups[GROUP].share
        return range(PARTITIONS if share is not None and share.partitions else 0)

    def _is_begun(self) -> bool:
        return hasattr(self, "queue")


Shares.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestShares = Shares.TestCase


def _shared(self: SharePartition, run: Any, lock: str, until_ms: int) -> None:
    """Lock a record and leave it available."""
    ORIGINAL_LOCK(self, run, lock, until_ms)
    run.state = State.AVAILABLE
    self._available += run.size


def _forgets(window: Window, block: int) -> bytes | None:
    """Store no run that is done."""
    begin = block * stored.BLOCK
    runs = [one for one in stored._stored_runs(window, begin) if one.state != State.DONE]
    return stored._encode(runs) if runs else None


def _keeps_over(self: ShareState, steady_ms: int, wall_ms: int, rules: Any) -> list[str]:
    """Let no lock end."""
    return []


def _skips(self: Window, first: int, last: int) -> None:
    """Move the start over everything up to a settled range."""
    ORIGINAL_SETTLE(self, first, last)
    while self.runs and self.runs[0].last < first:
        self.start = self.runs.pop(0).last + 1


ORIGINAL_LOCK, ORIGINAL_SETTLE = SharePartition._lock, Window.settle
MUTANTS = {
    "two callers get a record": (SharePartition, "_lock", _shared),
    "what is done is forgotten": ("gateway.groups.share.partition", "encode_block", _forgets),
    "locks do not end": (ShareState, "expire", _keeps_over),
    "records are skipped": (Window, "settle", _skips),
    "keys have no order": (KeyOrder, "is_free", lambda self, offset: offset < self.known_end),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, what, mutant = MUTANTS[name]
    if isinstance(where, str):
        monkeypatch.setattr(f"{where}.{what}", mutant)
    else:
        monkeypatch.setattr(where, what, mutant)
    quick = settings(
        max_examples=400,
        stateful_step_count=25,
        deadline=None,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
    )
    with pytest.raises((AssertionError, KeyError, StopIteration)):
        run_state_machine_as_test(Shares, settings=quick)


def test_a_replay_of_all_rows_gives_the_state() -> None:
    queue = Queue(1, deliveries_max=2)
    queue.ends[0] = 700
    lock, _ = queue.acquire(600)
    for first in range(0, 600, 7):
        queue.settle(lock, 0, first, first + 2, (Outcome.ACCEPT, Outcome.RELEASE)[first % 2], error="e")
    queue.sweep(KEEPING)
    core = replayed(queue.rows, queue.limits)
    sharing.begin(core.groups[GROUP], queue.now)
    before = queue.core.groups[GROUP].share.partitions["t", 0].window
    after = core.groups[GROUP].share.partitions["t", 0].window
    assert [repr(run) + run.error for run in after.runs] == [repr(run) + run.error for run in before.runs]
    assert Coordinator.__repr__(core) == Coordinator.__repr__(queue.core)
