"""Python imports it at its start: time.time jumps an hour to and fro, twenty times a second."""

import time

_time_ns = time.time_ns


def _jumped_ns() -> int:
    return _time_ns() + 3_600_000_000_000 * (time.monotonic_ns() // 50_000_000 % 3 - 1)


time.time_ns = _jumped_ns
time.time = lambda: _jumped_ns() / 1e9
