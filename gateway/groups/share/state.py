"""The state of one share group: its share-partitions, and the locks on their records.

A lock is one answer to one caller: some ranges of records, until a time. It stays known for a while after its end, so
that the retry of an acknowledgement gets the answer that was lost.
Invariants: (1) locks are in memory only; (2) there are at most `LOCKS_MAX` locks, the oldest finished one goes first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.groups.share.partition import Rules, SharePartition, Span
from gateway.groups.share.values import (
    Granted,
    HolderView,
    Outcome,
    Refused,
    SettleCall,
    Settlement,
    ShareView,
    Slot,
)
from gateway.groups.share.window import State

LOCKS_MAX = 20_000  # of a group, held and finished ones
KEPT_MS = 60_000  # a finished lock: longer than a client repeats a request


@dataclass(slots=True)
class Lock:
    """`granted`: all records that it was given; `outcomes`: those that it has settled, by partition."""

    lock_id: str
    member_id: str
    lock_ms: int
    until_ms: int
    since_ms: int
    granted: list[Granted] = field(default_factory=list)
    outcomes: dict[Slot, list[tuple[Span, int]]] = field(default_factory=dict)
    looks: int = 0  # how often `_ends` has it

    @property
    def count(self) -> int:
        return sum(granted.last - granted.first + 1 for granted in self.granted)

    def forget_outcome(self, slot: Slot, offset: int) -> bool:
        """Forgets the outcome of a record. Returns whether it had one."""
        outcomes = self.outcomes.get(slot, [])
        left = [(part, outcome) for span, outcome in outcomes for part in _minus(span, Span(offset, offset))]
        self.outcomes[slot] = left
        return left != outcomes


class ShareState:
    """`version` rises whenever something may have become available.

    `asked_ms` and `settled_ms` are the last call for records and the last outcome; they begin with a coordinator.
    `copy_error`: why dead letters were not copied, when that was last tried.
    """

    def __init__(self) -> None:
        self.partitions: dict[Slot, SharePartition] = {}
        self.locks: dict[str, Lock] = {}
        self.version = self.woken = 0  # `woken`: the version that waiting callers know of
        self.removed: list[tuple[Slot, list[int | None]]] = []
        self.asked_ms = self.settled_ms = 0
        self.copy_error = ""
        self._ends: list[tuple[int, str]] = []  # a heap: when to look at a lock
        self._rotation = 0

    def __repr__(self) -> str:
        return f"ShareState(partitions={len(self.partitions)}, locks={len(self.locks)})"

    # Locks

    def lock(self, lock_id: str, member_id: str, lock_ms: int, steady_ms: int) -> Lock:
        """Returns the lock of this id; a new one if there is none."""
        lock = self.locks.get(lock_id)
        if lock is None:
            self._make_room()
            lock = self.locks[lock_id] = Lock(lock_id, member_id, lock_ms, steady_ms + lock_ms, steady_ms)
            self._look_at(lock, lock.until_ms)
        return lock

    def drop(self, lock: Lock) -> None:
        """Forgets a lock that holds nothing."""
        self.locks.pop(lock.lock_id, None)

    def expire(self, steady_ms: int, wall_ms: int, rules: Rules) -> list[str]:
        """Ends the locks whose time is over, and forgets those that ended a while ago.

        Returns the callers whose locks ended with records.
        """
        callers = []
        while self._ends and self._ends[0][0] <= steady_ms:
            _, lock_id = heapq.heappop(self._ends)
            lock = self.locks.get(lock_id)
            if lock is None:
                continue
            lock.looks -= 1
            held = list(self._held_spans(lock))
            for slot, span in held:
                self.partitions[slot].expire(lock_id, span, steady_ms, wall_ms, rules)
            if held and lock.until_ms <= steady_ms:
                callers.append(lock.member_id)
            if steady_ms >= lock.until_ms + KEPT_MS:
                del self.locks[lock_id]
            elif not lock.looks:
                self._look_at(lock, lock.until_ms if lock.until_ms > steady_ms else lock.until_ms + KEPT_MS)
        self.note_freed()
        return callers

    def extend(self, lock: Lock, until_ms: int) -> None:
        """Notes that some records of a lock are locked for longer or shorter."""
        lock.until_ms = max(lock.until_ms, until_ms)
        self._look_at(lock, until_ms)

    def look_again(self, lock: Lock) -> None:
        """Looks at a lock when its time is over: it holds records again."""
        self._look_at(lock, lock.until_ms)

    def note_freed(self) -> None:
        """Raises the version if something became available."""
        for partition in self.partitions.values():
            if partition.is_freed:
                partition.is_freed = False
                self.version += 1

    def _look_at(self, lock: Lock, at_ms: int) -> None:
        lock.looks += 1
        heapq.heappush(self._ends, (at_ms, lock.lock_id))

    def _held_spans(self, lock: Lock) -> Iterable[tuple[Slot, Span]]:
        for granted in lock.granted:
            slot = (granted.topic, granted.partition)
            partition = self.partitions.get(slot)
            if partition is not None and partition.topic_id == granted.topic_id:
                for span in partition.held_spans(lock.lock_id, Span(granted.first, granted.last)):
                    yield slot, span

    def _make_room(self) -> None:
        while len(self.locks) >= LOCKS_MAX:
            finished = next((lock for lock in self.locks.values() if not any(self._held_spans(lock))), None)
            self.drop(finished or next(iter(self.locks.values())))

    # Records

    def acquire(
        self, lock: Lock, ends: Iterable[tuple[Slot, int]], max_records: int, wall_ms: int, rules: Rules
    ) -> None:
        """Fills a lock with records of partitions, each with its high watermark.

        Each call starts with the next partition (round robin).
        """
        order = list(ends)
        self._rotation += 1
        first = self._rotation % len(order) if order else 0
        left = max_records - lock.count
        for slot, high_watermark in order[first:] + order[:first]:
            if left <= 0:
                break
            partition = self.partitions[slot]
            for run in partition.acquire(lock.lock_id, left, high_watermark, lock.until_ms, wall_ms, rules):
                left -= run.size
                lock.granted.append(Granted(slot[0], partition.topic_id, slot[1], run.first, run.last, run.deliveries))

    def holds(self, lock: Lock) -> tuple[Granted, ...]:
        """Returns what a lock still holds."""
        return tuple(
            granted._replace(first=span.first, last=span.last)
            for granted in lock.granted
            if (partition := self.partitions.get((granted.topic, granted.partition))) is not None
            and partition.topic_id == granted.topic_id
            for span in partition.held_spans(lock.lock_id, Span(granted.first, granted.last))
        )

    def settle(
        self, lock_id: str, settlements: Iterable[Settlement], steady_ms: int, wall_ms: int, rules: Rules
    ) -> tuple[int, list[Refused]]:
        """Settles records of a lock. Returns how many have their outcome now, and those that have not."""
        lock = self.locks.get(lock_id)
        count, refused = 0, list[Refused]()
        for settlement in settlements:
            slot = (settlement.topic, settlement.partition)
            others = [Span(settlement.first, settlement.last)]
            partition = self.partitions.get(slot)
            if lock is not None and partition is not None:
                others = partition.settle(lock_id, settlement, steady_ms, wall_ms, rules)
                self._note_outcome(lock, slot, settlement, others, steady_ms)
            missing = 0
            for span in others:
                left = [span] if lock is None else _without(span, lock.outcomes.get(slot, ()), settlement.outcome)
                missing += sum(part.last - part.first + 1 for part in left)
                is_settled = lock is not None and _is_settled(span, lock.outcomes.get(slot, ()))
                refused += [Refused(*slot, part.first, part.last, is_settled) for part in left]
            count += settlement.last - settlement.first + 1 - missing
        if count:
            self.settled_ms = steady_ms
        self.note_freed()
        return count, refused

    def all_of(self, lock_id: str, settlement: Settlement) -> list[Settlement]:
        """Returns a settlement of all records of a lock that have no other outcome."""
        lock = self.locks[lock_id]
        return [
            settlement._replace(topic=granted.topic, partition=granted.partition, first=span.first, last=span.last)
            for granted in lock.granted
            for span in _without_others(
                granted, lock.outcomes.get((granted.topic, granted.partition), ()), settlement.outcome
            )
        ]

    def locks_of(self, member_id: str, slot: Slot, span: Span) -> list[tuple[str, Span]]:
        """Returns the locks by which a caller holds records of a range, each with its part, in their order."""
        partition = self.partitions.get(slot)
        runs = () if partition is None else partition.window.find(*span)
        return [
            (run.lock, Span(max(run.first, span.first), min(run.last, span.last)))
            for run in runs
            if run.state is State.ACQUIRED and (lock := self.locks.get(run.lock)) and lock.member_id == member_id
        ]

    def held_by(self, member_id: str, call: SettleCall) -> list[Settlement]:
        """Returns settlements of all records that a caller holds, with the outcome of a call."""
        assert call.outcome is not None
        return [
            Settlement(*slot, span.first, span.last, call.outcome, call.time_ms, call.error)
            for lock in self.locks.values()
            if lock.member_id == member_id
            for slot, span in self._held_spans(lock)
        ]

    def _note_outcome(self, lock: Lock, slot: Slot, settlement: Settlement, others: list[Span], steady_ms: int) -> None:
        if settlement.outcome == Outcome.EXTEND:
            self.extend(lock, steady_ms + (settlement.time_ms or 0))
            return
        outcomes = lock.outcomes.setdefault(slot, [])
        next_offset = settlement.first
        for span in (*others, Span(settlement.last + 1, settlement.last + 1)):
            if span.first > next_offset:
                _note(outcomes, Span(next_offset, span.first - 1), settlement.outcome)
            next_offset = span.last + 1

    def remove(self, slot: Slot) -> None:
        """Forgets a partition, and keeps which of its records are to be removed from the log."""
        partition = self.partitions.pop(slot)
        self.removed.append((slot, list(partition.take_tombstones())))

    # For people

    def views(self, wall_ms: int) -> tuple[ShareView, ...]:
        return tuple(partition.view(*slot, wall_ms) for slot, partition in sorted(self.partitions.items()))

    def holders(self, steady_ms: int) -> tuple[HolderView, ...]:
        """Returns the callers that hold records."""
        views: dict[str, HolderView] = {}
        for lock in self.locks.values():
            count = sum(granted.last - granted.first + 1 for granted in self.holds(lock))
            if count:
                before = views.get(lock.member_id, HolderView(lock.member_id, 0, 0))
                left_ms = max(before.lock_left_ms, lock.until_ms - steady_ms)
                views[lock.member_id] = HolderView(lock.member_id, before.in_flight + count, left_ms)
        return tuple(view for _, view in sorted(views.items()))

    def held_since_ms(self) -> int | None:
        """Returns since when the oldest lock holds records; None: no lock does."""
        return min((lock.since_ms for lock in self.locks.values() if any(self._held_spans(lock))), default=None)

    def begin(self, steady_ms: int) -> None:
        """Begins with a coordinator."""
        self.asked_ms = self.settled_ms = steady_ms

    def due_ms(self, slots: Iterable[Slot], steady_ms: int, wall_ms: int) -> int | None:
        """Returns after which time something may be available without another call: a delay or a lock ends."""
        due = [end_ms for slot in slots if (end_ms := self.partitions[slot].due_ms(wall_ms)) is not None]
        if self._ends:
            due.append(max(0, self._ends[0][0] - steady_ms))
        return min(due) if due else None


def _note(outcomes: list[tuple[Span, int]], span: Span, outcome: int) -> None:
    if outcomes and outcomes[-1][1] == outcome and outcomes[-1][0].last + 1 == span.first:
        outcomes[-1] = (Span(outcomes[-1][0].first, span.last), outcome)
    else:
        outcomes.append((span, outcome))


def _without(span: Span, outcomes: Iterable[tuple[Span, int]], outcome: int) -> list[Span]:
    """Returns the parts of a range that have not got this outcome before, but for offsets without a record."""
    left = [span]
    for done, previous in outcomes:
        if previous in (outcome, Outcome.ABSENT):
            left = [part for rest in left for part in _minus(rest, done)]
    return left


def _without_others(granted: Granted, outcomes: Iterable[tuple[Span, int]], outcome: int) -> list[Span]:
    left = [Span(granted.first, granted.last)]
    for done, previous in outcomes:
        if previous != outcome:
            left = [part for rest in left for part in _minus(rest, done)]
    return left


def _minus(span: Span, done: Span) -> list[Span]:
    if done.last < span.first or span.last < done.first:
        return [span]
    parts = []
    if span.first < done.first:
        parts.append(Span(span.first, done.first - 1))
    if done.last < span.last:
        parts.append(Span(done.last + 1, span.last))
    return parts


def _is_settled(span: Span, outcomes: Iterable[tuple[Span, int]]) -> bool:
    return any(done.first <= span.last and span.first <= done.last for done, _ in outcomes)
