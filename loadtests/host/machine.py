"""Facts for the head of a report: the machine, its file system, the time of an fdatasync, and the version measured."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from loadtests.generators.percentiles import median

FLUSH_SAMPLES = 60
FLUSH_BYTES = 4096
HONEST_FLUSH_MS = 0.3  # about that of NVMe with power-loss protection; consumer drives and networks need more


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts for the head of a report."""

    cores: int
    cpu: str
    memory_bytes: int
    kernel: str
    python: str
    file_system: str
    flush_min_ms: float
    flush_p50_ms: float
    flush_max_ms: float

    @property
    def flush_caveat(self) -> str:
        """Returns why acks=all figures of this machine may be invalid; empty if its fdatasync seems to work."""
        if self.file_system in ("tmpfs", "ramfs", "overlay"):
            return f"the data is on {self.file_system}: it is not durable, so acks=all figures are invalid"
        if self.flush_min_ms < HONEST_FLUSH_MS:
            return (
                f"fdatasync can take {self.flush_min_ms:.2f} ms here, less than real drives need (0.3 to 10 ms): this "
                "disk probably does not flush, so acks=all figures are not valid for other disks"
            )
        return ""


def source_version() -> str:
    """Returns the commit that the figures belong to; `unknown` outside a clone."""
    try:
        command = ["git", "describe", "--always", "--dirty"]
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def inspect_machine(directory: Path) -> Machine:
    """Returns facts of this machine and of the file system of a directory."""
    flushes = sorted(_time_flushes(directory))
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        cpu=_cpu_name(),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        kernel=platform.release(),
        python=platform.python_version(),
        file_system=file_system_of(directory, Path("/proc/self/mountinfo").read_text()),
        flush_min_ms=flushes[0],
        flush_p50_ms=median(flushes),
        flush_max_ms=flushes[-1],
    )


def file_system_of(directory: Path, mount_info: str) -> str:
    """Returns the type of the file system of a directory, from its longest mount point."""
    path = os.path.realpath(directory) + "/"
    longest, kind = -1, "unknown"
    for line in mount_info.splitlines():
        before, _, after = line.partition(" - ")
        mount_point = before.split()[4].replace("\\040", " ").rstrip("/") + "/"
        if path.startswith(mount_point) and len(mount_point) >= longest:
            longest, kind = len(mount_point), after.split()[0]
    return kind


def _time_flushes(directory: Path) -> list[float]:
    """Returns the milliseconds of some 4 KiB appends with fdatasync, as in a group commit."""
    path = directory / "flush-probe"
    handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        times_ms = []
        for _ in range(FLUSH_SAMPLES):
            started = time.perf_counter()
            os.write(handle, bytes(FLUSH_BYTES))
            os.fdatasync(handle)
            times_ms.append((time.perf_counter() - started) * 1000)
        return times_ms
    finally:
        os.close(handle)
        path.unlink()


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()
