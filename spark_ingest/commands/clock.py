"""The clock of commands: what they call takes the time as an argument."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Returns the time of this machine's clock."""
    return time.time_ns() // 1_000_000
