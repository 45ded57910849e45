"""Deadlines of everything that waits on one event loop: buckets of 10 ms under a single timer.

A wait that ends in time costs two dictionary operations and no timer of its own. Does not know what waits.
Invariants: a deadline never passes early; it passes at most one bucket late, plus the time that other wake-ups of the
same bucket take; the timer is set for the earliest bucket that is not known to be empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeVar
from weakref import ref

from engine.runtime.wakeups import Wakeups

T = TypeVar("T")

BUCKET_S = 0.01
FAR_S = 10.0  # a deadline further away than this is up to FAR_BUCKETS buckets late: 1 % of the wait
FAR_BUCKETS = 10  # so that produces with a timeout of 30 s keep 1,200 buckets and not 3,000

Bucket = dict[Any, Callable[[Any], None]]  # what waits, and what is called with it at the deadline


class Deadlines:
    """Those of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wakeups: Wakeups) -> None:
        self.timers_set = 0
        self._loop = ref(loop)
        self._wakeups = wakeups
        self._buckets: dict[int, Bucket] = {}  # by tick: a multiple of BUCKET_S of the loop's clock
        self._ticks: list[int] = []  # a heap of the same ticks
        self._timer: asyncio.TimerHandle | None = None
        self._timer_tick = 0

    def __repr__(self) -> str:
        return f"Deadlines(waiting={len(self)}, buckets={len(self._buckets)})"

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def put(self, deadline: float, subject: Any, when_passed: Callable[[Any], None]) -> Bucket:
        """Call `when_passed(subject)` once the loop's clock has reached the deadline.

        `pop(subject, None)` from the bucket that is returned takes it back.
        """
        loop = self._loop()
        assert loop is not None, "a deadline is put from its loop"
        tick = int(deadline / BUCKET_S) + 1
        if deadline - loop.time() > FAR_S:
            tick += -tick % FAR_BUCKETS
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heappush(self._ticks, tick)
            if self._timer is None or tick < self._timer_tick:
                self._set_timer(loop, tick)
        bucket[subject] = when_passed
        return bucket

    async def done_by(self, deadline: float, future: asyncio.Future[T]) -> T:
        """Wait for a future of our own until a moment of the loop's clock. Raises TimeoutError.

        At the deadline the future ends with that error; code that sets a result must check that it is not done.
        """
        if future.done():
            return future.result()
        bucket = self.put(deadline, future, expire)
        try:
            return await future
        finally:
            bucket.pop(future, None)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.timers_set += 1
        self._timer_tick = tick
        self._timer = loop.call_at(tick * BUCKET_S, self._ring)

    def _ring(self) -> None:
        """End what is due. A loop may ring up to a millisecond early: then the timer is set again."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._ticks and (self._ticks[0] * BUCKET_S <= now or not self._buckets[self._ticks[0]]):
            for subject, when_passed in self._buckets.pop(heappop(self._ticks)).items():
                self._wakeups.wake(when_passed, subject)
        if self._ticks:
            self._set_timer(loop, self._ticks[0])


def expire(future: asyncio.Future[Any]) -> None:
    """Of a deadline: ends a future with a TimeoutError."""
    if not future.done():
        future.set_exception(TimeoutError())
