"""Replaces the wall clock of a process by one that a file defines; Python imports this file from PYTHONPATH at its
start.

Only tests/skew/shifted_clock.py uses it. `PENSTOCK_TEST_CLOCK` names a file of lines `<real time in ns> <shift in ms>`:
from that real time on, the wall clock differs from the real one by that shift. Times of files are those at which the
shifted clock would have written them. Monotonic time is not changed, as in a real step of the wall clock.
"""

from __future__ import annotations

import os
import time
from typing import Any

VARIABLE = "PENSTOCK_TEST_CLOCK"
_LOOK_S = 0.02  # how late a step may be noticed
_real_time_ns, _real_stat, _real_fstat, _real_lstat, _real_utime = time.time_ns, os.stat, os.fstat, os.lstat, os.utime


class _Steps:
    """The lines of the file, read again after it has grown."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._size, self._looked_at = -1, 0.0
        self._steps: list[tuple[int, int]] = []

    def shift_ns(self, real_ns: int) -> int:
        now = time.monotonic()
        if now - self._looked_at > _LOOK_S:
            self._looked_at = now
            if (size := _real_stat(self._path).st_size) != self._size:
                with open(self._path) as lines:
                    rows = [line.split() for line in lines if line.endswith("\n")]
                self._steps = [(int(since_ns), int(shift_ms)) for since_ns, shift_ms in rows]
                self._size = size
        for since_ns, shift_ms in reversed(self._steps):
            if since_ns <= real_ns:
                return shift_ms * 1_000_000
        return self._steps[0][1] * 1_000_000 if self._steps else 0


def _install(steps: _Steps) -> None:
    def time_ns() -> int:
        real_ns = _real_time_ns()
        return real_ns + steps.shift_ns(real_ns)

    def shown(found: os.stat_result) -> os.stat_result:
        modified_ns = found.st_mtime_ns + steps.shift_ns(found.st_mtime_ns)
        names = [name for name in dir(found) if name.startswith("st_")]
        fields = {name: getattr(found, name) for name in names}
        fields |= {"st_mtime_ns": modified_ns, "st_mtime": modified_ns / 1e9}
        first = list(found)
        first[8] = modified_ns // 1_000_000_000
        return os.stat_result(first, fields)

    def utime(path: Any, times: Any = None, *, ns: Any = None, **more: Any) -> None:
        if ns is not None:
            ns = tuple(one - steps.shift_ns(_real_time_ns()) for one in ns)
        elif times is not None:
            times = tuple(one - steps.shift_ns(_real_time_ns()) / 1e9 for one in times)
        _real_utime(path, times, **more) if ns is None else _real_utime(path, ns=ns, **more)

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9
    replaced: Any = os
    replaced.stat = lambda *args, **more: shown(_real_stat(*args, **more))
    replaced.fstat = lambda *args, **more: shown(_real_fstat(*args, **more))
    replaced.lstat = lambda *args, **more: shown(_real_lstat(*args, **more))
    replaced.utime = utime


if __name__ == "sitecustomize" and VARIABLE in os.environ:  # not if a test imports it
    _install(_Steps(os.environ[VARIABLE]))
