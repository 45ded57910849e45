"""The times at which credentials end: open waits are checked again at each of them.

Not here: whether a credential has ended, which each check of a request asks for itself. Invariant: a check follows each
time that was added, within a millisecond, unless the clock is set meanwhile.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from engine.runtime.clock import Clock

CHECK_S = 3600.0  # at the latest: the clock may be set
TIMES_MAX = 100_000  # tokens of issuers end at whole seconds within a day. Beyond it, their polls end at their next end


class Expiries:
    """Calls `recheck` at each time that was added, and at least every hour while there are some."""

    def __init__(self, clock: Clock, recheck: Callable[[], None]) -> None:
        self._clock = clock
        self._recheck = recheck
        self._times_ms: list[int] = []  # a heap
        self._known: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"Expiries({len(self._times_ms)})"

    def add(self, time_ms: int) -> None:
        """Adds a time; 0 is none."""
        if time_ms in self._known or time_ms <= self._clock.now_ms() or len(self._known) >= TIMES_MAX:
            return
        self._known.add(time_ms)
        heapq.heappush(self._times_ms, time_ms)
        if self._times_ms[0] == time_ms:
            self._await_next()

    def _await_next(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._times_ms:
            delay_s = min((self._times_ms[0] - self._clock.now_ms()) / 1000, CHECK_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._expire)

    def _expire(self) -> None:
        now_ms = self._clock.now_ms()
        while self._times_ms and self._times_ms[0] <= now_ms:
            self._known.remove(heapq.heappop(self._times_ms))
        self._recheck()
        self._await_next()
