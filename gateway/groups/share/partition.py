"""One share-partition: hands out records of a partition, and takes their outcomes.

Times are arguments: locks end by steady time, delays by wall time, because delays survive a failover.
Invariants: (1) an offset below the start is finished permanently; one above it is delivered until it is done or dead;
(2) one lock at most holds an offset; (3) the window is never longer than `in_flight_max`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gateway.groups.share.backoff import Backoff
from gateway.groups.share.key_order import KeyOrder
from gateway.groups.share.stored import Head, StoredRun, encode_block, encode_head, restore_window
from gateway.groups.share.values import KeyRun, Outcome, Settlement, ShareView
from gateway.groups.share.window import BLOCK, Run, State, Window

KEYS_AT_ONCE = 1000  # records whose keys one call reads: about the time of reading their records


class Rules(NamedTuple):
    """The settings of a group that decide over single records."""

    in_flight_max: int
    deliveries_max: int
    backoff: Backoff
    is_ordered: bool
    has_dead_letters: bool


class Span(NamedTuple):
    """A range of offsets."""

    first: int
    last: int


class SharePartition:
    """`is_freed`: records became available since a caller last looked. `stored`: the blocks that have a record."""

    def __init__(self, topic_id: str, start: int) -> None:
        self.topic_id = topic_id
        self.window = Window(start)
        self.dead_letters = 0
        self.dropped = 0
        self.active_ms = 0
        self.is_freed = False
        self.is_changed = True
        self._keys: KeyOrder | None = None
        self._available = 0
        self._dead = 0
        self._stored: set[int] = set()
        self._replayed: dict[int, list[StoredRun]] = {}

    def __repr__(self) -> str:
        return f"SharePartition({self.window})"

    # Handing out

    def acquire(
        self, lock: str, count: int, high_watermark: int, until_ms: int, wall_ms: int, rules: Rules
    ) -> Iterator[Run]:
        """Locks up to `count` records. Yields them as runs."""
        self._follow_clock(wall_ms)
        window = self.window
        if rules.is_ordered:
            yield from self._acquire_in_order(lock, count, until_ms, wall_ms)
            return
        index = 0
        while self._available and count > 0 and index < len(window.runs):
            run = window.runs[index]
            if run.state is State.AVAILABLE and run.ready_ms <= wall_ms:
                run = window.cut(run, run.first, min(run.last, run.first + count - 1))
                self._lock(run, lock, until_ms)
                count -= run.size
                yield run
            index += 1
        fresh = min(count, min(high_watermark, window.start + rules.in_flight_max) - window.end)
        if fresh > 0:
            run = Run(window.end, window.end + fresh - 1)
            window.append(run)
            self._available += fresh
            self._lock(run, lock, until_ms)
            yield run

    def _acquire_in_order(self, lock: str, count: int, until_ms: int, wall_ms: int) -> Iterator[Run]:
        keys, window = self._order(), self.window
        for run in [run for run in window.runs if run.state is State.AVAILABLE and run.ready_ms <= wall_ms]:
            last = run.last
            rest: Run | None = run
            for span in _spans(offset for offset in range(run.first, last + 1) if keys.is_free(offset)):
                if count <= 0 or rest is None:
                    return
                taken = window.cut(rest, span.first, min(span.last, span.first + count - 1))
                rest = next(window.find(taken.last + 1, last), None) if taken.last < last else None
                self._lock(taken, lock, until_ms)
                count -= taken.size
                yield taken

    def _lock(self, run: Run, lock: str, until_ms: int) -> None:
        run.state, run.lock, run.until_ms = State.ACQUIRED, lock, until_ms
        run.deliveries += 1
        run.ready_ms, run.error = 0, ""
        self._available -= run.size
        self.window.mark(run)

    def keys_to_learn(self, high_watermark: int, rules: Rules) -> Span | None:
        """Returns the next offsets whose keys must be known; None: all are, or the group has no order."""
        if not rules.is_ordered:
            return None
        first = self._order().known_end
        end = min(high_watermark, self.window.start + rules.in_flight_max, first + KEYS_AT_ONCE)
        return Span(first, end - 1) if first < end else None

    def _order(self) -> KeyOrder:
        if self._keys is None:
            self._keys = KeyOrder(self.window.start)
        return self._keys

    def learn(self, run: KeyRun, rules: Rules) -> None:
        """Takes the keys of the next records."""
        keys, window = self._order(), self.window
        if rules.is_ordered and run.first == keys.known_end and run.end <= window.start + rules.in_flight_max:
            if run.end > window.end:
                self._available += run.end - window.end
                window.append(Run(window.end, run.end - 1))
            keys.learn(run, window)

    # Outcomes

    def settle(self, lock: str, settlement: Settlement, steady_ms: int, wall_ms: int, rules: Rules) -> list[Span]:
        """Gives the records of a range that the lock holds their outcome. Returns the ranges that it does not hold."""
        others: list[Span] = []
        next_offset = settlement.first
        for run in list(self.window.find(settlement.first, settlement.last)):
            if run.state is not State.ACQUIRED or run.lock != lock:
                continue
            first, last = max(run.first, settlement.first), min(run.last, settlement.last)
            if first > next_offset:
                others.append(Span(next_offset, first - 1))
            next_offset = last + 1
            self._decide(self.window.cut(run, first, last), settlement, steady_ms, wall_ms, rules)
        if next_offset <= settlement.last:
            others.append(Span(next_offset, settlement.last))
        self.window.settle(settlement.first, settlement.last)
        return others

    def held_spans(self, lock: str, span: Span) -> list[Span]:
        """Returns the parts of a range that a lock holds."""
        return [
            Span(max(run.first, span.first), min(run.last, span.last))
            for run in self.window.find(*span)
            if run.state is State.ACQUIRED and run.lock == lock
        ]

    def expire(self, lock: str, span: Span, steady_ms: int, wall_ms: int, rules: Rules) -> None:
        """Releases the records of a range whose lock is over."""
        settlement = Settlement("", 0, span.first, span.last, Outcome.RELEASE)
        for run in list(self.window.find(*span)):
            if run.state is State.ACQUIRED and run.lock == lock and run.until_ms <= steady_ms:
                part = self.window.cut(run, max(run.first, span.first), min(run.last, span.last))
                self._decide(part, settlement, steady_ms, wall_ms, rules)
        self.window.settle(*span)

    def _follow_clock(self, wall_ms: int) -> None:
        """Keeps what is left of delays if the clock is behind the last outcome: set back, or another node's."""
        if (back_ms := self.active_ms - wall_ms) > 0:
            for run in self.window.runs:
                run.ready_ms = max(0, run.ready_ms - back_ms)
            self.active_ms = wall_ms

    def _decide(self, run: Run, settlement: Settlement, steady_ms: int, wall_ms: int, rules: Rules) -> None:
        outcome = Outcome(settlement.outcome)
        if outcome is Outcome.EXTEND:
            run.until_ms = steady_ms + (settlement.time_ms or 0)
            return
        self._follow_clock(wall_ms)
        self.active_ms = wall_ms
        self.window.mark(run)
        run.lock, run.until_ms = "", 0
        if outcome is Outcome.RETURN:
            run.deliveries -= 1
            self._give_back(run)
        elif outcome is Outcome.RELEASE and run.deliveries < rules.deliveries_max:
            record_id = f"{self.topic_id} {run.first}"
            delay_ms = (
                rules.backoff.after(run.deliveries, record_id) if settlement.time_ms is None else settlement.time_ms
            )
            run.ready_ms = wall_ms + delay_ms if delay_ms else 0
            self.is_changed |= bool(delay_ms)  # stores `active_ms`: by it the next coordinator knows what is left
            run.error = settlement.error
            self._give_back(run)
        elif outcome in (Outcome.ACCEPT, Outcome.ABSENT):
            self._finish(run)
        elif rules.has_dead_letters:
            run.state, run.error = State.DEAD, settlement.error
            run.ready_ms = int(outcome is Outcome.REJECT)  # the reason, of a dead run
            self._dead += run.size
            self._leave_order(run)
        else:
            self.dropped += run.size
            self.is_changed = True
            self._finish(run)

    def _give_back(self, run: Run) -> None:
        run.state = State.AVAILABLE
        self._available += run.size
        self.is_freed = True

    def _finish(self, run: Run) -> None:
        run.state = State.DONE
        self.is_freed = True  # the window may have been full
        self._leave_order(run)

    def _leave_order(self, run: Run) -> None:
        if self._keys is not None and self._keys.finish(run.first, run.last):
            self.is_freed = True

    # Dead letters

    def dead(self) -> Iterator[Run]:
        """Yields the runs that wait to be copied to the dead-letter topic."""
        if self._dead:
            yield from [run for run in self.window.runs if run.state is State.DEAD]

    @property
    def dead_count(self) -> int:
        return self._dead

    def bury(self, span: Span, *, is_copied: bool) -> None:
        """Ends dead records, once they are copied, or dropped without a copy."""
        for run in list(self.window.find(*span)):
            if run.state is State.DEAD:
                part = self.window.cut(run, max(run.first, span.first), min(run.last, span.last))
                self.is_changed = True
                self._dead -= part.size
                if is_copied:
                    self.dead_letters += part.size
                else:
                    self.dropped += part.size
                self.window.mark(part)
                self._finish(part)
        self.window.settle(*span)

    # The log's own bounds

    def follow(self, log_start: int) -> None:
        """Skips records that the log has no more."""
        if log_start > self.window.start:
            for run in list(self.window.find(self.window.start, log_start - 1)):
                self._leave_order_below(run, log_start)
            self.window.advance(log_start)
            if self._keys is not None:
                self._keys.known_end = max(self._keys.known_end, self.window.start)
            self.recount()

    def _leave_order_below(self, run: Run, log_start: int) -> None:
        if self._keys is not None:
            self._keys.finish(run.first, min(run.last, log_start - 1))

    def shorten(self, end: int) -> None:
        """Forgets the records from `end` on: the log has others there now, or will have."""
        self.window.shorten(end)
        self._keys = None
        self.recount()

    def reset(self, offset: int) -> None:
        """Begins at an offset, with no records in flight."""
        self.window = Window(offset)
        self.window.changed.add(offset // BLOCK)
        self._keys = None
        self.is_freed = True
        self.recount()

    # Stored state

    def take_rows(self) -> Iterator[tuple[int | None, bytes | None]]:
        """Yields the records of what has changed: of a block by its number, of the head by None."""
        window = self.window
        if self.is_changed or window.is_moved:
            head = Head(self.topic_id, window.start, self.dead_letters, self.dropped, self.active_ms)
            yield None, encode_head(head)
        inside = range(window.start // BLOCK, -(-window.end // BLOCK))
        gone = {block for block in self._stored if block not in inside}
        for block in sorted(window.changed - gone):
            value = encode_block(window, block)
            if value is not None:
                self._stored.add(block)
                yield block, value
            elif block in self._stored:
                gone.add(block)
        for block in sorted(gone):
            self._stored.discard(block)
            yield block, None
        window.changed.clear()
        window.is_moved = self.is_changed = False

    def store_again(self, stored: SharePartition | None) -> None:
        """Notes that the log has another state of this partition, and no part of this one."""
        self._stored |= set() if stored is None else stored._stored
        self.window.mark_all()
        self._keys = None
        self.recount()

    def take_tombstones(self) -> Iterator[int | None]:
        """Yields the numbers of all stored records."""
        yield None
        yield from sorted(self._stored)

    @property
    def has_changes(self) -> bool:
        return self.is_changed or self.window.is_moved or bool(self.window.changed)

    def replay(self, block: int, runs: list[StoredRun] | None) -> None:
        """Takes the record of a block; None: it was removed."""
        if runs is None:
            self._replayed.pop(block, None)
        else:
            self._replayed[block] = runs

    def begin(self) -> None:
        """Makes the window from the stored records. Locks are gone."""
        self._stored = set(self._replayed)
        self.window = restore_window(self.window.start, self._replayed)
        self._replayed = {}
        self.is_changed = False
        self._keys = None
        self.recount()

    @classmethod
    def of(cls, head: Head) -> SharePartition:
        """Returns the partition of a stored head."""
        partition = cls(head.topic_id, head.start)
        partition.dead_letters, partition.dropped, partition.active_ms = head.dead_letters, head.dropped, head.active_ms
        return partition

    def set_head(self, head: Head) -> None:
        """Takes a later head, during a replay."""
        self.topic_id, self.dead_letters, self.dropped = head.topic_id, head.dead_letters, head.dropped
        self.active_ms = head.active_ms
        self.window = Window(head.start)

    def recount(self) -> None:
        runs = self.window.runs
        self._available = sum(run.size for run in runs if run.state is State.AVAILABLE)
        self._dead = sum(run.size for run in runs if run.state is State.DEAD)

    # For people

    def due_ms(self, wall_ms: int) -> int | None:
        """Returns after which time the next delayed record is available."""
        if not self._available:
            return None
        later = [run.ready_ms for run in self.window.runs if run.state is State.AVAILABLE and run.ready_ms > wall_ms]
        return min(later) - wall_ms if later else None

    def blocked_records(self, wall_ms: int) -> tuple[int, int]:
        """Returns how many records wait for an earlier one of their key, and the first record that others wait for."""
        if self._keys is None:
            return 0, -1
        ready = [run for run in self.window.runs if run.state is State.AVAILABLE and run.ready_ms <= wall_ms]
        offsets = (offset for run in ready for offset in range(run.first, run.last + 1))
        first = [blocker for offset in offsets if (blocker := self._keys.blocker(offset)) is not None]
        return len(first), min(first, default=-1)

    def view(self, topic: str, partition: int, wall_ms: int) -> ShareView:
        """Describes the partition."""
        counts = dict.fromkeys(State, 0)
        delayed = 0
        for run in self.window.runs:
            counts[run.state] += run.size
            if run.state is State.AVAILABLE and run.ready_ms > wall_ms:
                delayed += run.size
        return ShareView(
            topic,
            self.topic_id,
            partition,
            self.window.start,
            self.window.end,
            counts[State.ACQUIRED],
            counts[State.AVAILABLE] - delayed,
            delayed,
            counts[State.DONE],
            counts[State.DEAD],
            self.dead_letters,
            self.dropped,
        )


def _spans(offsets: Iterator[int]) -> Iterator[Span]:
    """Yields neighbours among ascending offsets as ranges."""
    first = last = -2
    for offset in offsets:
        if offset != last + 1:
            if last >= 0:
                yield Span(first, last)
            first = offset
        last = offset
    if last >= 0:
        yield Span(first, last)
