"""Faults of real disks for running processes: small file systems that fill up, and syncs that fail or are slow.

strace changes syncs and leaves all other calls unchanged; it needs root or ptrace rights, as mounting does.
engine/testing/faulty_disk.py has faults of the engine's own calls.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ATTACH_S = 60.0
READS = "pread64,preadv,preadv2,read,sendfile,copy_file_range"


class CannotAttach(Exception):
    """strace ended or did not attach to every thread."""


class CannotMount(Exception):
    """No file system can be mounted here: that needs root, and loop devices for ext4."""


def why_no_injection() -> str | None:
    return None if shutil.which("strace") else "strace is not installed (Debian: strace)"


@contextmanager
def injected(
    pids: Sequence[int], injection: str, calls: str = "fdatasync,fsync", options: Sequence[str] = ()
) -> Iterator[None]:
    """Make system calls of processes fail or wait: `error=EIO`, `delay_enter=300000` (microseconds).

    Raises CannotAttach.
    """
    if (reason := why_no_injection()) is not None:
        raise CannotAttach(reason)
    command = ["strace", "-f", "-qq", *(options or ("-o", "/dev/null")), "-e", f"trace={calls}"]
    command += ["-e", f"inject={calls}:{injection}", *(word for pid in pids for word in ("-p", str(pid)))]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        _wait_until_attached(pids, tracer)
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        try:
            tracer.wait(60)
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


def make_ext4(mounted: Path, size_mib: int) -> None:
    """Mount an ext4 in a file beside the mount point, so that the file system itself is full and its syncs are real.

    Raises CannotMount.
    """
    image = mounted.with_suffix(".img")
    mounted.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(size_mib << 20)
    _run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)])
    _run(["mount", "-o", "loop", str(image), str(mounted)])


def make_tmpfs(mounted: Path, size_mib: int) -> None:
    """Mount a tmpfs. Raises CannotMount."""
    mounted.mkdir(parents=True)
    _run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "none", str(mounted)])


@contextmanager
def small_file_system(mounted: Path, size_mib: int, make: Callable[[Path, int], None] = make_ext4) -> Iterator[Path]:
    """Yield a small file system; unmounts it in any case. Raises CannotMount."""
    make(mounted, size_mib)
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=True, timeout=60)


def fill(mounted: Path) -> Path:
    """Use up all free space; unlink the returned file to free it."""
    filler = mounted / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return filler


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotMount(f"no file system can be mounted here (root is needed): {error}") from error
