"""A separate wall clock for the processes of one node: ahead, behind, and stepped while they run.

`ShiftedClock(file, ahead_ms).environment()` is the environment to start `python -m penstock.cli.main serve` with; all
children inherit it. `step(ahead_ms)` takes effect in running processes within 20 ms. The product has no hook for it:
Python imports tests/skew/site/sitecustomize.py at its start. Wall time, times of files and the log's times are shifted;
monotonic time, timers and ZooKeeper's own clock are not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from tests.skew.site import sitecustomize

COARSE_CLOCK_S = 0.02
SITE = Path(sitecustomize.__file__).parent


class ShiftedClock:
    """The clock of one node. `file` is created, and kept over restarts of the node."""

    def __init__(self, file: Path, ahead_ms: int = 0) -> None:
        self._file = file.absolute()
        self.ahead_ms = ahead_ms
        self._file.write_text(f"0 {ahead_ms}\n")

    def __repr__(self) -> str:
        return f"ShiftedClock({self.ahead_ms:+d} ms)"

    def step(self, ahead_ms: int) -> None:
        """Set the clock this far ahead of the real one, or behind it if negative. Blocks for 20 ms.

        The kernel stamps files with a coarse clock, which lags by up to 10 ms. A file that is written within that time
        has a stamp from before the step, and would be shown with the time of the old clock.
        """
        self.ahead_ms = ahead_ms
        with self._file.open("a") as steps:
            steps.write(f"{time.time_ns()} {ahead_ms}\n")
        time.sleep(COARSE_CLOCK_S)

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of processes under this clock; `base` is this process's own by default."""
        environment = dict(os.environ if base is None else base)
        paths = [str(SITE), *filter(None, [environment.get("PYTHONPATH")])]
        return {**environment, "PYTHONPATH": os.pathsep.join(paths), sitecustomize.VARIABLE: str(self._file)}
