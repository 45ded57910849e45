"""The window of a share-partition: every offset from its start to its end, as runs of neighbours in one state.

Decides nothing. A run is cut where a part of it changes, and joined with a neighbour that became equal. Work is in
proportion to the runs, not to the records.
Invariants: (1) the runs cover start to end without gap or overlap; (2) the first run is not done: the start moves over
what is done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from enum import IntEnum
from operator import attrgetter

BLOCK = 256  # offsets of one stored record: see stored.py

_first = attrgetter("first")


class State(IntEnum):
    """Stored as these numbers."""

    AVAILABLE = 0
    ACQUIRED = 1
    DONE = 2
    DEAD = 3  # waits to be copied to the dead-letter topic


class Run:
    """Records `first` to `last` in one state.

    `lock` and `until_ms` (steady) are of an acquired run; `ready_ms` (wall) is when a delayed one is available;
    `error` is the text of the last release or rejection.
    """

    __slots__ = ("deliveries", "error", "first", "last", "lock", "ready_ms", "state", "until_ms")

    def __init__(
        self,
        first: int,
        last: int,
        state: State = State.AVAILABLE,
        deliveries: int = 0,
        ready_ms: int = 0,
        error: str = "",
        lock: str = "",
        until_ms: int = 0,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.deliveries = deliveries
        self.ready_ms = ready_ms
        self.error = error
        self.lock = lock
        self.until_ms = until_ms

    def __repr__(self) -> str:
        return f"Run({self.first}-{self.last}, {self.state.name}, deliveries={self.deliveries})"

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def split(self, first: int) -> Run:
        """Cuts the run before `first`, and returns the second part."""
        rest = Run(first, self.last, self.state, self.deliveries, self.ready_ms, self.error, self.lock, self.until_ms)
        self.last = first - 1
        return rest

    def is_like(self, other: Run) -> bool:
        """Returns whether the two differ in nothing but their offsets."""
        if self.state is State.DONE:
            return other.state is State.DONE
        return (
            self.state is other.state
            and self.deliveries == other.deliveries
            and self.ready_ms == other.ready_ms
            and self.lock == other.lock
            and self.until_ms == other.until_ms
            and self.error == other.error
        )


class Window:
    """`changed` has the blocks whose records in the log are out of date; `is_moved`: the start has moved."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.runs: list[Run] = []
        self.changed: set[int] = set()
        self.is_moved = True

    def __repr__(self) -> str:
        return f"Window({self.start}-{self.end}, runs={self.runs})"

    @property
    def end(self) -> int:
        return self.runs[-1].last + 1 if self.runs else self.start

    def append(self, run: Run) -> None:
        """Adds a run at the end."""
        assert run.first == self.end, f"{run} at {self.end}"
        self.runs.append(run)
        self.mark(run)

    def find(self, first: int, last: int) -> Iterator[Run]:
        """Yields the runs that have offsets of a range, as they are. The caller changes no borders meanwhile."""
        index = self._index(first)
        while index < len(self.runs) and self.runs[index].first <= last:
            yield self.runs[index]
            index += 1

    def cut(self, run: Run, first: int, last: int) -> Run:
        """Returns the part of a run from `first` to `last` as a run of its own."""
        assert run.first <= first <= last <= run.last
        if run.first < first:
            rest = run.split(first)
            self.runs.insert(self._index(run.first) + 1, rest)
            run = rest
        if last < run.last:
            self.runs.insert(self._index(run.first) + 1, run.split(last + 1))
        return run

    def is_done(self, offset: int) -> bool:
        """Returns whether a record needs no further delivery."""
        run = next(self.find(offset, offset), None)
        return offset < self.start or (run is not None and run.state in (State.DONE, State.DEAD))

    def reopen(self, offset: int) -> Run:
        """Returns a record as a run of its own, whatever has become of it since."""
        if offset < self.start:
            self.runs.insert(0, Run(offset, self.start - 1, State.DONE))
            self.mark(self.runs[0])
            self.start, self.is_moved = offset, True
        run = self.cut(next(self.find(offset, offset)), offset, offset)
        self.mark(run)
        return run

    def mark_all(self) -> None:
        """Notes that no block may be in the log as it is here."""
        self.changed.update(range(self.start // BLOCK, -(-self.end // BLOCK)))
        self.is_moved = True

    def mark(self, run: Run) -> None:
        """Notes that a run has changed."""
        self.changed.update(range(run.first // BLOCK, run.last // BLOCK + 1))

    def settle(self, first: int, last: int) -> None:
        """Joins the neighbours of a changed range that became equal, and moves the start over what is done."""
        index = max(0, self._index(first) - 1)
        joined: list[Run] = []
        end = index
        while end < len(self.runs) and self.runs[end].first <= last + 1:
            run = self.runs[end]
            if joined and joined[-1].is_like(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
            end += 1
        self.runs[index:end] = joined
        count = 0
        while count < len(self.runs) and self.runs[count].state is State.DONE:
            self.start = self.runs[count].last + 1
            self.is_moved = True
            count += 1
        del self.runs[:count]

    def advance(self, offset: int) -> None:
        """Moves the start to an offset: the records below it are no longer in the log."""
        if offset <= self.start:
            return
        count = 0
        while count < len(self.runs) and self.runs[count].last < offset:
            count += 1
        del self.runs[:count]
        if self.runs and self.runs[0].first < offset:
            self.runs[0].first = offset
            self.mark(self.runs[0])
        self.start = offset
        self.is_moved = True
        self.settle(offset, offset)

    def shorten(self, end: int) -> None:
        """Forgets everything from `end` on."""
        for run in self.find(end, self.end):
            self.mark(run)
        while self.runs and self.runs[-1].first >= end:
            self.runs.pop()
        if self.runs and self.runs[-1].last >= end:
            self.runs[-1].last = end - 1
        if end < self.start:
            self.start = end
            self.is_moved = True

    def _index(self, offset: int) -> int:
        """Returns the index of the run with an offset, or of the first one above it."""
        index = bisect_right(self.runs, offset, key=_first) - 1
        if index < 0 or self.runs[index].last < offset:
            index += 1
        return index
