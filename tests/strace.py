"""Injects faults into the fsync calls of running processes with strace, which needs root or ptrace rights."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ATTACH_S = 20.0


class CannotAttach(Exception):
    """strace ended or did not attach to every thread."""


@contextmanager
def injected(
    pids: Sequence[int], injection: str, calls: str = "fdatasync,fsync", options: Sequence[str] = ()
) -> Iterator[None]:
    """Make system calls of processes fail or wait: `error=EIO`, `delay_enter=300000` (microseconds).

    Raises CannotAttach.
    """
    command = ["strace", "-f", "-qq", *(options or ("-o", "/dev/null")), "-e", f"trace={calls}"]
    command += ["-e", f"inject={calls}:{injection}", *(word for pid in pids for word in ("-p", str(pid)))]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        _wait_until_attached(pids, tracer)
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        try:
            tracer.wait(10)
        except subprocess.TimeoutExpired:
            tracer.kill()
            tracer.wait()


def _wait_until_attached(pids: Sequence[int], tracer: subprocess.Popen[bytes]) -> None:
    """Wait for every thread: one that is not attached calls fdatasync without the fault."""
    deadline = time.monotonic() + ATTACH_S
    while time.monotonic() < deadline:
        if tracer.poll() is not None:
            assert tracer.stderr is not None
            raise CannotAttach(f"strace cannot attach: {tracer.stderr.read().decode().strip()}")
        statuses = [path.read_text() for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/status")]
        if all(f"TracerPid:\t{tracer.pid}\n" in status for status in statuses):
            return
        time.sleep(0.05)
    raise CannotAttach("strace did not attach in time")
