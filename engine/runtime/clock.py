"""Time as an argument: the only place that reads the machine's clocks.

`now_ms` is wall time and may jump: it stamps records and compares with times that others wrote. `monotonic` never goes
back: it measures waits. `steady_ms` ages the state of this process: it begins at the wall time of the process's start
and continues with monotonic time, so that a step of the wall clock expires nothing. Values of two processes do not
compare. `boottime` never goes back either, and it advances while the machine is suspended: it measures the time since
this node's last message to another machine. Its values compare among the processes of a machine. Cores take each as a
plain number.
"""

from __future__ import annotations

import time
from typing import Protocol

# macOS has no other: its monotonic clock counts suspends
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


_SECONDS = range(10**9, 10**10)  # the years 2001 to 2286; as milliseconds, 12 January to 26 April 1970


def is_in_seconds(time_ms: int) -> bool:
    """Returns whether a time is probably seconds that were given as milliseconds."""
    return time_ms in _SECONDS


class Clock(Protocol):
    def now_ms(self) -> int:
        """Returns milliseconds since 1970-01-01 UTC."""

    def monotonic(self) -> float:
        """Returns seconds from an arbitrary point."""

    def steady_ms(self) -> int:
        """Returns milliseconds that never step."""

    def boottime(self) -> float:
        """Returns seconds from an arbitrary point, suspends included; the same point for all processes."""


class SystemClock:
    """The machine's own clocks."""

    monotonic = staticmethod(time.monotonic)  # called several times for each append: no wrapper

    def __init__(self) -> None:
        self._began_ms = self.now_ms() - time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        return self._began_ms + time.monotonic_ns() // 1_000_000

    def boottime(self) -> float:
        return time.clock_gettime(_BOOTTIME)
