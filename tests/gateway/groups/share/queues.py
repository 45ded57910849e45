"""A share group for tests: the coordinator, its log of rows, and the time in the hands of the test."""

from __future__ import annotations

import itertools
from typing import Any

from gateway.groups.core import sharing
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.model.errors import LockUnknown
from gateway.groups.model.values import ConfigCall, Position, ResetCall
from gateway.groups.share.values import (
    AcquireCall,
    Acquired,
    Bound,
    DeadLetter,
    KeyRun,
    Outcome,
    Refused,
    SettleCall,
    Settled,
    Settlement,
)
from gateway.groups.share.window import State
from tests.gateway.groups.core.coordinators import GROUP, Stage

KEEPING = 10_000  # a lock of a test, in milliseconds


class Queue(Stage):
    """The share group `g` over the topic `t`. `ends` are the high watermarks, `starts` the starts of the logs.

    A failed record comes again at once, unless the test asks for a delay.
    """

    def __init__(self, partitions: int = 1, **config: Any) -> None:
        super().__init__(t=partitions)
        self.ends = [0] * partitions
        self.starts = [0] * partitions
        self.keys: dict[tuple[int, int], int] = {}
        self._locks = itertools.count(1)
        self.configure(kind="share", **{"redelivery_delay_ms": 0, **config})

    def configure(self, **config: Any) -> None:
        self.call(Coordinator.configure, ConfigCall(GROUP, config))

    def bounds(self) -> tuple[Bound, ...]:
        places = enumerate(zip(self.starts, self.ends, strict=True))
        return tuple(Bound("t", "id-t", number, start, end) for number, (start, end) in places)

    def acquire(self, count: int, lock: str | None = None, lock_ms: int = KEEPING) -> tuple[str, Acquired]:
        """Acquire records, and read keys as long as the coordinator wants some."""
        lock = lock or f"lock-{next(self._locks)}"
        keys: tuple[KeyRun, ...] = ()
        while True:
            call = AcquireCall(GROUP, lock, ("t",), self.bounds(), count, lock_ms, "worker", keys)
            found: Acquired = self.call(sharing.acquire, call)
            if not found.keys_to_learn:
                return lock, found
            keys = tuple(self._keys_of(one.partition, one.offset, one.limit) for one in found.keys_to_learn)

    def settle(self, lock: str, number: int, first: int, last: int, outcome: Outcome, **more: Any) -> Settled:
        wish = Settlement("t", number, first, last, int(outcome), **more)
        try:
            found: Settled = self.call(sharing.settle, SettleCall(GROUP, lock, (wish,)))
        except LockUnknown:
            return Settled(0, (Refused("t", number, first, last, is_settled=False),))
        return found

    def settle_all(self, lock: str, outcome: Outcome, **more: Any) -> Settled:
        found: Settled = self.call(sharing.settle, SettleCall(GROUP, lock, (), int(outcome), **more))
        return found

    def dead_letters(self) -> list[DeadLetter]:
        return sharing.dead_letters(self.core, self.now)

    def bury(self, letter: DeadLetter) -> None:
        self.call(lambda core, one, now, _: sharing.bury(core, one, now, is_copied=True), letter)

    def reset_to(self, number: int, offset: int, *, force: bool = False) -> None:
        positions = (Position("t", "id-t", number, offset),)
        self.call(Coordinator.reset, ResetCall(GROUP, positions, force))

    def records(self, number: int = 0) -> dict[int, tuple[str, int]]:
        """Return the state and the deliveries of each record of the window."""
        window = self.core.groups[GROUP].share.partitions["t", number].window  # type: ignore[union-attr]
        return {
            offset: (run.state.name, run.deliveries if run.state is not State.DONE else 0)
            for run in window.runs
            for offset in range(run.first, run.last + 1)
        }

    def start(self, number: int = 0) -> int:
        return self.core.groups[GROUP].share.partitions["t", number].window.start  # type: ignore[union-attr]

    def _keys_of(self, number: int, first: int, end: int) -> KeyRun:
        offsets = list(range(first, end))
        return KeyRun("t", number, first, end, offsets, [self.keys.get((number, one), 0) for one in offsets])


def ranges(found: Acquired) -> list[tuple[int, int, int]]:
    """Return what was handed out: first, last and deliveries."""
    return [(one.first, one.last, one.deliveries) for one in found.granted]


def offsets_of(found: Acquired) -> list[tuple[int, int]]:
    """Return what was handed out, as (partition, offset)."""
    return [(one.partition, offset) for one in found.granted for offset in range(one.first, one.last + 1)]
