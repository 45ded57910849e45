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
from gateway.groups.share.values import Granted, HolderView, Outcome, Refused, Settlement, ShareView, Slot

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
        return sum(one.last - one.first + 1 for one in self.granted)

    def forget_outcome(self, slot: Slot, offset: int) -> bool:
        """Forgets the outcome of a record. Returns whether it had one."""
        known = self.outcomes.get(slot, [])
        left = [(part, found) for span, found in known for part in _minus(span, Span(offset, offset))]
        self.outcomes[slot] = left
        return left != known


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
        found = self.locks.get(lock_id)
        if found is None:
            self._make_room()
            found = self.locks[lock_id] = Lock(lock_id, member_id, lock_ms, steady_ms + lock_ms, steady_ms)
            self._look_at(found, found.until_ms)
        return found

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
            held = list(self._held(lock))
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

    def _held(self, lock: Lock) -> Iterable[tuple[Slot, Span]]:
        for one in lock.granted:
            slot = (one.topic, one.partition)
            partition = self.partitions.get(slot)
            if partition is not None and partition.topic_id == one.topic_id:
                for span in partition.held(lock.lock_id, Span(one.first, one.last)):
                    yield slot, span

    def _make_room(self) -> None:
        while len(self.locks) >= LOCKS_MAX:
            finished = next((one for one in self.locks.values() if not any(self._held(one))), None)
            self.drop(finished or next(iter(self.locks.values())))

    # Records

    def acquire(
        self, lock: Lock, ends: Iterable[tuple[Slot, int]], max_records: int, wall_ms: int, rules: Rules
    ) -> None:
        """Fills a lock with records of partitions, each with its high watermark. Every call begins at another one."""
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
            one._replace(first=span.first, last=span.last)
            for one in lock.granted
            if (partition := self.partitions.get((one.topic, one.partition))) is not None
            and partition.topic_id == one.topic_id
            for span in partition.held(lock.lock_id, Span(one.first, one.last))
        )

    def settle(
        self, lock_id: str, wishes: Iterable[Settlement], steady_ms: int, wall_ms: int, rules: Rules
    ) -> tuple[int, list[Refused]]:
        """Settles records of a lock. Returns how many have their outcome now, and those that have not."""
        lock = self.locks.get(lock_id)
        count, refused = 0, list[Refused]()
        for wish in wishes:
            slot = (wish.topic, wish.partition)
            others = [Span(wish.first, wish.last)]
            partition = self.partitions.get(slot)
            if lock is not None and partition is not None:
                others = partition.settle(lock_id, wish, steady_ms, wall_ms, rules)
                self._note_outcome(lock, slot, wish, others, steady_ms)
            missing = 0
            for span in others:
                left = [span] if lock is None else _without(span, lock.outcomes.get(slot, ()), wish.outcome)
                missing += sum(one.last - one.first + 1 for one in left)
                is_settled = lock is not None and _is_settled(span, lock.outcomes.get(slot, ()))
                refused += [Refused(*slot, one.first, one.last, is_settled) for one in left]
            count += wish.last - wish.first + 1 - missing
        if count:
            self.settled_ms = steady_ms
        self.note_freed()
        return count, refused

    def all_of(self, lock_id: str, wish: Settlement) -> list[Settlement]:
        """Returns a settlement of all records of a lock that have no other outcome."""
        lock = self.locks[lock_id]
        return [
            wish._replace(topic=one.topic, partition=one.partition, first=span.first, last=span.last)
            for one in lock.granted
            for span in _without_others(one, lock.outcomes.get((one.topic, one.partition), ()), wish.outcome)
        ]

    def _note_outcome(self, lock: Lock, slot: Slot, wish: Settlement, others: list[Span], steady_ms: int) -> None:
        if wish.outcome == Outcome.EXTEND:
            self.extend(lock, steady_ms + (wish.time_ms or 0))
            return
        known = lock.outcomes.setdefault(slot, [])
        next_offset = wish.first
        for span in (*others, Span(wish.last + 1, wish.last + 1)):
            if span.first > next_offset:
                _note(known, Span(next_offset, span.first - 1), wish.outcome)
            next_offset = span.last + 1

    def remove(self, slot: Slot) -> None:
        """Forgets a partition, and keeps which of its records are to be removed from the log."""
        partition = self.partitions.pop(slot)
        self.removed.append((slot, list(partition.take_tombstones())))

    # For people

    def views(self, wall_ms: int) -> tuple[ShareView, ...]:
        return tuple(one.view(*slot, wall_ms) for slot, one in sorted(self.partitions.items()))

    def holders(self, steady_ms: int) -> tuple[HolderView, ...]:
        """Returns the callers that hold records."""
        found: dict[str, HolderView] = {}
        for lock in self.locks.values():
            count = sum(one.last - one.first + 1 for one in self.holds(lock))
            if count:
                before = found.get(lock.member_id, HolderView(lock.member_id, 0, 0))
                left_ms = max(before.lock_left_ms, lock.until_ms - steady_ms)
                found[lock.member_id] = HolderView(lock.member_id, before.in_flight + count, left_ms)
        return tuple(view for _, view in sorted(found.items()))

    def held_since_ms(self) -> int | None:
        """Returns since when the oldest lock holds records; None: no lock does."""
        return min((lock.since_ms for lock in self.locks.values() if any(self._held(lock))), default=None)

    def begin(self, steady_ms: int) -> None:
        """Begins with a coordinator."""
        self.asked_ms = self.settled_ms = steady_ms

    def due_ms(self, slots: Iterable[Slot], steady_ms: int, wall_ms: int) -> int | None:
        """Returns after which time something may be available without another call: a delay or a lock ends."""
        due = [found for slot in slots if (found := self.partitions[slot].due_ms(wall_ms)) is not None]
        if self._ends:
            due.append(max(0, self._ends[0][0] - steady_ms))
        return min(due) if due else None


def _note(known: list[tuple[Span, int]], span: Span, outcome: int) -> None:
    if known and known[-1][1] == outcome and known[-1][0].last + 1 == span.first:
        known[-1] = (Span(known[-1][0].first, span.last), outcome)
    else:
        known.append((span, outcome))


def _without(span: Span, known: Iterable[tuple[Span, int]], outcome: int) -> list[Span]:
    """Returns the parts of a range that have not got this outcome before, but for offsets without a record."""
    left = [span]
    for done, found in known:
        if found in (outcome, Outcome.ABSENT):
            left = [part for one in left for part in _minus(one, done)]
    return left


def _without_others(granted: Granted, known: Iterable[tuple[Span, int]], outcome: int) -> list[Span]:
    left = [Span(granted.first, granted.last)]
    for done, found in known:
        if found != outcome:
            left = [part for one in left for part in _minus(one, done)]
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


def _is_settled(span: Span, known: Iterable[tuple[Span, int]]) -> bool:
    return any(done.first <= span.last and span.first <= done.last for done, _ in known)
