"""Shared state of the waits of one event loop: their deadlines, and their two wake-up queues.

One of each for a loop and not for a partition, because 10,000 waits may be on 10,000 partitions.

`Wakeups` ends at most 64 waits in one iteration of the loop, so that thousands do not block it: each wake-up is
followed by the work of its waiter, usually a response. `Deadlines` keeps buckets of 10 ms under a single timer: a wait
that ends in time costs two dictionary operations and no timer of its own. Neither knows the waiters. Invariants:
wake-ups run in the order of their requests, and while some are pending, a slice is scheduled; a deadline never passes
early, and at most one bucket late plus the time that other wake-ups of the same bucket take; the timer is set for the
earliest bucket that may have waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, ref

T = TypeVar("T")

SLICE = 64  # a response takes about 0.2 ms: together 13 of the 20 ms that may block the loop


class Wakeups:
    """One queue of wake-ups. A wait that must not be behind others has its own queue."""

    def __init__(self) -> None:
        self.slices = 0
        self._woken = 0  # since the last slice
        self._waiting: deque[tuple[Callable[[Any], None], Any]] = deque()

    def __repr__(self) -> str:
        return f"Wakeups(waiting={len(self._waiting)}, slices={self.slices})"

    def __len__(self) -> int:
        return len(self._waiting)

    def wake(self, action: Callable[[Any], None], subject: Any) -> None:
        """Call `action(subject)`: now, or in a later iteration of the loop after 64 wake-ups since the last slice."""
        if self._woken == SLICE:
            self._waiting.append((action, subject))
            return
        self._woken += 1
        if self._woken == SLICE:
            asyncio.get_running_loop().call_soon(self._next_slice)
        action(subject)

    def wake_all(self, action: Callable[[T], None], subjects: Sequence[T]) -> None:
        """Wake many in their order, as `wake` does."""
        room = SLICE - self._woken
        for subject in subjects[:room]:
            self.wake(action, subject)
        self._waiting.extend((action, subject) for subject in subjects[room:])

    def _next_slice(self) -> None:
        self.slices += 1
        self._woken = min(SLICE, len(self._waiting))
        if self._woken == SLICE:
            asyncio.get_running_loop().call_soon(self._next_slice)
        for _ in range(self._woken):
            action, subject = self._waiting.popleft()
            action(subject)


BUCKET_S = 0.01
FAR_S = 10.0  # a deadline further away than this is up to FAR_BUCKETS buckets late: 1 % of the wait
FAR_BUCKETS = 10  # so that produces with a timeout of 30 s keep 1,200 buckets and not 3,000

Bucket = dict[Any, Callable[[Any], None]]  # a waiter, and its callback at the deadline


class Deadlines:
    """The deadlines of one event loop."""

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

    def put(self, deadline: float, subject: Any, on_deadline: Callable[[Any], None]) -> Bucket:
        """Call `on_deadline(subject)` once the loop's clock has reached the deadline.

        `pop(subject, None)` on the returned bucket cancels it.
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
        bucket[subject] = on_deadline
        return bucket

    async def done_by(self, deadline: float, future: asyncio.Future[T]) -> T:
        """Wait for a future of our own until a time of the loop's clock. Raises TimeoutError.

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
        self._timer = loop.call_at(tick * BUCKET_S, self._on_timer)

    def _on_timer(self) -> None:
        """End due waits. A loop may fire up to a millisecond early: then the timer is set again."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._ticks and (self._ticks[0] * BUCKET_S <= now or not self._buckets[self._ticks[0]]):
            bucket = self._buckets.pop(heappop(self._ticks))
            for subject in list(bucket):  # what is called may cancel others of the bucket
                if (on_deadline := bucket.pop(subject, None)) is not None:
                    self._wakeups.wake(on_deadline, subject)
        if self._ticks:
            self._set_timer(loop, self._ticks[0])


def expire(future: asyncio.Future[Any]) -> None:
    """End a future with a TimeoutError, at its deadline."""
    if not future.done():
        future.set_exception(TimeoutError())


class LoopWaits(NamedTuple):
    """Acknowledgements have their own queue: a produce never waits behind the long polls that it wakes."""

    deadlines: Deadlines
    polls: Wakeups
    acks: Wakeups


_BY_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWaits] = WeakKeyDictionary()
_last: list[tuple[asyncio.AbstractEventLoop, LoopWaits]] = []  # a cache: a process usually has one loop


def loop_waits(loop: asyncio.AbstractEventLoop | None = None) -> LoopWaits:
    """Return the waits of a loop. By default the running one, which takes a system call to find."""
    loop = loop or asyncio.get_running_loop()
    if _last and _last[0][0] is loop:
        return _last[0][1]
    found = _BY_LOOP.get(loop)
    if found is None:
        polls = Wakeups()
        found = _BY_LOOP[loop] = LoopWaits(Deadlines(loop, polls), polls, Wakeups())
    _last[:] = [(loop, found)]
    return found
