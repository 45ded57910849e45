"""Disks that misbehave: small ones that fill up, and syncs that fail or take their time.

A small disk is an ext4 of its own in a file (a loop device), so that what is full is the file system and the sync is
real. Syncs are changed by strace, which attaches to every process of a node and lets all other calls alone.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.hosts import NodeHost
from tests.chaos.leftovers import Registry, processes_in

SMALL_DISK_MIB = 96
ATTACH_S = 20.0


def make_small_disk(mounted: Path, registry: Registry) -> None:
    image = mounted.with_suffix(".img")
    mounted.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(SMALL_DISK_MIB << 20)
    registry.note("mount", str(mounted))
    for command in (["mkfs.ext4", "-q", "-F", "-m", "0", image], ["mount", "-o", "loop", image, mounted]):
        subprocess.run(command, check=True, capture_output=True, timeout=60)


def fill(mounted: Path) -> Path:
    """Takes all the room there is; whoever unlinks what is returned gives it back."""
    filler = mounted / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return filler


def why_no_injection() -> str | None:
    return None if shutil.which("strace") else "strace is not installed (Debian: strace)"


@contextmanager
def injected(node: NodeHost, injection: str) -> Iterator[None]:
    """fdatasync and fsync of a whole node behave as told, `error=EIO` or `delay_enter=300000` (in microseconds)."""
    pids = processes_in(node.network.namespace(node.name))
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync"]
    command += ["-e", f"inject=fdatasync,fsync:{injection}", *(word for pid in pids for word in ("-p", str(pid)))]
    tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        _wait_until_traced(pids, tracer)
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        try:
            tracer.wait(10)
        except subprocess.TimeoutExpired:
            tracer.kill()
            tracer.wait()


def _wait_until_traced(pids: list[int], tracer: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + ATTACH_S
    while time.monotonic() < deadline:
        assert tracer.poll() is None, "strace has ended"
        statuses = [path.read_text() for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/status")]
        if all(f"TracerPid:\t{tracer.pid}\n" in status for status in statuses):
            return
        time.sleep(0.05)
    raise AssertionError("strace did not attach")
