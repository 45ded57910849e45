"""Time as an argument: the only place that reads the machine's clocks.

`now_ms` is wall time and may jump; it stamps records and ages segments. `monotonic` never goes back; it measures
waits. Cores take either as a plain number.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary point."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
