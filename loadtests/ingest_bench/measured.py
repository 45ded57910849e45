"""Runs a command to its end and returns its processor time and memory, with those of all processes that it has started.

Processes that outlive their parent, as the JVM of PySpark does, become children of this one and are waited for.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
_DAEMON = "loadtests.ingest_bench.counted_daemon"


class CommandFailed(Exception):
    """A command did not exit with 0. The text has the end of what it wrote."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of processor time and of the clock; the memory of the largest process; what was printed."""

    cpu_s: float
    wall_s: float
    rss_mb: float
    printed: str


def become_subreaper() -> None:
    """Makes this process the parent of processes whose own one ends. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def measure(command: Sequence[str], log: Path) -> Measured:
    """Requires `become_subreaper`, and no other child of this process. Raises CommandFailed."""
    started = time.monotonic()
    with log.open("wb") as errors, (log.with_suffix(".out")).open("wb+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=errors, env=_environment())
        cpu_s, rss_mb, status = 0.0, 0.0, 0
        while True:
            try:
                pid, ended, usage = os.wait4(-1, 0)
            except ChildProcessError:
                break
            cpu_s += usage.ru_utime + usage.ru_stime
            rss_mb = max(rss_mb, usage.ru_maxrss / 1024)
            if pid == process.pid:
                status = process.returncode = os.waitstatus_to_exitcode(ended)
        wall_s = time.monotonic() - started
        output.seek(0)
        printed = output.read().decode(errors="replace")
    if status:
        raise CommandFailed(f"{' '.join(command)} exited with {status}: {log.read_text(errors='replace')[-2000:]}")
    return Measured(cpu_s, wall_s, rss_mb, printed)


def _environment() -> dict[str, str]:
    """Returns this environment, but for a variable that makes each process compile all Python code, and with a daemon
    for the workers of Spark that loses no processor time.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return environment | {"PYSPARK_SUBMIT_ARGS": f"--conf spark.python.daemon.module={_DAEMON} pyspark-shell"}


def penstock_command(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("penstock")), *arguments]
