"""Waits for a named position: what an acknowledgement and a long poll both are.

Knows neither which position it guards nor what waits. Not thread-safe: one event loop owns it. A wait that ends before
its position is reached must be given up (`give_up`), or it stays until then.
Invariants: no wait is for an end already reached; each end with waits is in the heap once, and so are ends whose waits
were all given up, fewer than half of the heap or 64.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from engine.runtime.deadlines import expire
from engine.runtime.loop_waits import loop_waits
from engine.runtime.wakeups import Wakeups

EMPTY_MAX = 64  # ends without waits, before they are counted against the others

Waiting = dict[asyncio.Future[int], None]  # in order
WakeupsOf = Callable[[asyncio.AbstractEventLoop], Wakeups]


def polls_of(loop: asyncio.AbstractEventLoop) -> Wakeups:
    """The line of waits that look for themselves when they are woken."""
    return loop_waits(loop).polls


def acks_of(loop: asyncio.AbstractEventLoop) -> Wakeups:
    """The line of acknowledgements."""
    return loop_waits(loop).acks


class PositionWaiters:
    """Futures by the end they wait for; `advance` wakes all that are reached."""

    def __init__(self, position: int, wakeups: WakeupsOf = polls_of) -> None:
        self.position = position
        self._by_end: dict[int, Waiting] = {}
        self._ends: list[int] = []  # a heap of the same ends
        self._count = 0
        self._empty = 0  # ends whose waits were given up
        self._wakeups = wakeups
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        return f"PositionWaiters(position={self.position}, waiting={self._count})"

    def __len__(self) -> int:
        return self._count

    def wait_for(self, end: int) -> asyncio.Future[int]:
        """A future that is done, with the position, once everything below `end` has been passed."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if end <= self.position:
            future.set_result(self.position)
            return future
        if self._failure is not None:
            future.set_exception(self._failure)
            return future
        waiting = self._by_end.get(end)
        if waiting is None:
            waiting = self._by_end[end] = {}
            heappush(self._ends, end)
        elif not waiting:
            self._empty -= 1
        waiting[future] = None
        self._count += 1
        return future

    def give_up(self, end: int, future: asyncio.Future[int]) -> None:
        """Forget a wait. No-op for one that was woken."""
        waiting = self._by_end.get(end)
        if waiting is None or future not in waiting:
            return
        del waiting[future]
        self._count -= 1
        if not waiting:
            self._empty += 1
            if self._empty > max(EMPTY_MAX, len(self._ends) // 2):
                self._drop_empty()

    async def outcome(self, end: int, future: asyncio.Future[int], deadline: float) -> int:
        """Await what `wait_for(end)` returned, then give it up. Raises TimeoutError at the deadline (loop time)."""
        if future.done():
            return future.result()
        bucket = loop_waits(future.get_loop()).deadlines.put(deadline, future, expire)
        try:
            return await future
        finally:
            bucket.pop(future, None)
            self.give_up(end, future)

    def advance(self, position: int) -> None:
        """Move on and wake all that are reached, in the order of what they waited for."""
        assert position >= self.position, f"a position went back from {self.position} to {position}"
        self.position = position
        ends = self._ends
        reached: list[asyncio.Future[int]] = []
        while ends and ends[0] <= position:
            waiting = self._by_end.pop(heappop(ends))
            reached += waiting
            self._empty -= not waiting
        if reached:
            self._wake(reached, _reaching(position))

    def fail(self, error: Exception) -> None:
        """End every wait with an error, later ones too: what is waited for will not come."""
        self._failure = error
        self.fail_present(error)

    def fail_present(self, error: Exception) -> None:
        """End every wait that there is with an error."""
        self._wake(self._take_all(), _failing(error))

    def retreat(self, position: int) -> None:
        """The records at and above a position are gone; waits go on."""
        self.position = position

    def wake_all(self) -> None:
        """End every wait at the present position: the waiter looks for itself."""
        self._wake(self._take_all(), _reaching(self.position))

    def _take_all(self) -> list[asyncio.Future[int]]:
        taken = [future for end in sorted(self._ends) for future in self._by_end[end]]
        self._by_end, self._ends, self._empty = {}, [], 0
        return taken

    def _wake(self, futures: list[asyncio.Future[int]], action: Callable[[asyncio.Future[int]], None]) -> None:
        if futures:
            self._count -= len(futures)
            self._wakeups(futures[0].get_loop()).wake_all(action, futures)

    def _drop_empty(self) -> None:
        self._by_end = {end: waiting for end, waiting in self._by_end.items() if waiting}
        self._ends = sorted(self._by_end)
        self._empty = 0


def _reaching(position: int) -> Callable[[asyncio.Future[int]], None]:
    def reach(future: asyncio.Future[int]) -> None:
        if not future.done():
            future.set_result(position)

    return reach


def _failing(error: Exception) -> Callable[[asyncio.Future[int]], None]:
    def fail(future: asyncio.Future[int]) -> None:
        if not future.done():
            future.set_exception(error)

    return fail
