"""Reads the kernel's counters of processes and the machine from /proc/PID and /proc/stat.

CPU time has a resolution of 10 ms, so a round must use far more than that.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from loadtests.generators.load import ended_children_cpu_s

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

# Fields of /proc/PID/stat after the command's closing bracket, counted from 0 (proc(5) counts from 1, two earlier).
_USER_TICKS, _SYSTEM_TICKS, _RESIDENT_PAGES = 11, 12, 21
# Fields of the first line of /proc/stat.
_IDLE, _IO_WAIT, _STEAL = 3, 4, 7


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU and memory of a process with its threads and live children."""

    cpu_s: float
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class MachineTime:
    """CPU seconds of all cores since boot. Stolen: a hypervisor gave them to other guests."""

    busy_s: float
    stolen_s: float


def usage(pid: int) -> Usage:
    """Returns CPU and memory of a process tree. A process that has just ended counts as 0."""
    cpu_s, rss_bytes = 0.0, 0
    for member in process_tree(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            stat = parse_stat((PROC / str(member) / "stat").read_text())
            cpu_s += stat.cpu_s
            rss_bytes += stat.rss_bytes
    return Usage(cpu_s, rss_bytes)


class Others:
    """Measures what other programs use of the machine, from now on: all but this process and its children."""

    def __init__(self) -> None:
        self._began, self._used_s = time.perf_counter(), self._cpu_s()

    def share(self) -> float:
        """Returns the part of all cores that the others have used so far."""
        elapsed = time.perf_counter() - self._began
        return max(0.0, (self._cpu_s() - self._used_s) / (elapsed * (os.cpu_count() or 1)))

    def _cpu_s(self) -> float:
        return machine_time().busy_s - usage(os.getpid()).cpu_s - ended_children_cpu_s()


def thread_cpu_s(pid: int) -> dict[str, float]:
    """Returns the CPU seconds of a process, summed by thread name."""
    by_name: dict[str, float] = {}
    for thread in (PROC / str(pid) / "task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = (thread / "stat").read_text()
            name = text[text.index("(") + 1 : text.rindex(")")]
            by_name[name] = by_name.get(name, 0.0) + parse_stat(text).cpu_s
    return by_name


def process_tree(pid: int) -> list[int]:
    """Returns a process and all its live descendants, parents first."""
    pids = [pid]
    for member in pids:
        for children in (PROC / str(member) / "task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                pids += [int(child) for child in children.read_text().split()]
    return pids


def parse_stat(text: str) -> Usage:
    """Parses a /proc/PID/stat. The command may contain blanks and brackets, so fields count from the last bracket."""
    fields = text.rpartition(")")[2].split()
    ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
    return Usage(ticks / TICKS_PER_S, int(fields[_RESIDENT_PAGES]) * PAGE_BYTES)


def machine_time() -> MachineTime:
    return parse_machine_time((PROC / "stat").read_text())


def parse_machine_time(text: str) -> MachineTime:
    """Parses the first line of /proc/stat. User time includes guest time there."""
    ticks = [int(field) for field in text.splitlines()[0].split()[1:9]]
    busy = sum(ticks) - ticks[_IDLE] - ticks[_IO_WAIT] - ticks[_STEAL]
    return MachineTime(busy / TICKS_PER_S, ticks[_STEAL] / TICKS_PER_S)
