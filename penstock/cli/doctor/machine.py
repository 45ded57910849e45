"""Reads the properties of a machine that a log depends on: files, file system, memory, clocks, libraries.

Reads and measures only; penstock/cli/doctor/machine_checks.py judges. A value that cannot be determined is None.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

FLUSHES = 40  # enough for a median; a slow disk takes half a second for this many
FLUSHED_BYTES = 4096
CLOCK_WATCHED_S = 0.2
_TIMEX_BYTES = 208 + 128  # struct timex, and room
_STA_UNSYNC = 0x40
_STATUS_AT = 40  # offset of `status` in struct timex: after modes, and offset, freq, maxerror, esterror as longs
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^;\s]+)$")


@dataclass(frozen=True)
class Mount:
    point: str
    kind: str
    options: frozenset[str]


@dataclass(frozen=True)
class Machine:
    data_dir: str
    examined_dir: str  # the data directory, or its nearest parent that exists
    files_max: int
    mount: Mount | None
    has_volatile_cache: bool | None  # the drive keeps writes in a cache that a flush must empty
    flush_s: float | None  # median of an append of 4 KiB with its fdatasync
    flush_error: str | None
    free_bytes: int
    size_bytes: int
    free_files: int
    memory_bytes: int
    processors: int
    has_swap: bool
    swappiness: int | None
    dirty_background_bytes: int | None
    huge_pages: str | None
    is_clock_synchronised: bool | None
    clock_jump_s: float  # how far wall time and monotonic time diverged within CLOCK_WATCHED_S
    newest_file_ahead_s: float  # how far the newest file of the directory is in the future
    python: str
    libraries: dict[str, tuple[str, str | None]]  # pinned libraries: the required version, and the installed one
    codec_lack: str | None  # why the compiled codec does not run, empty if it does


def read_machine(data_dir: str) -> Machine:
    """Reads and measures everything, in about a second. Leaves no files behind."""
    examined = _nearest(Path(data_dir).absolute())
    disk = os.statvfs(examined)
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    flush_s, flush_error = _measure_flush(examined)
    return Machine(
        data_dir=data_dir,
        examined_dir=str(examined),
        files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        mount=_mount_of(examined),
        has_volatile_cache=_has_volatile_cache(examined),
        flush_s=flush_s,
        flush_error=flush_error,
        free_bytes=disk.f_bavail * disk.f_frsize,
        size_bytes=disk.f_blocks * disk.f_frsize,
        free_files=disk.f_favail,
        memory_bytes=memory_bytes,
        processors=len(os.sched_getaffinity(0)),
        has_swap=len((_text("/proc/swaps") or "").splitlines()) > 1,
        swappiness=_number("/proc/sys/vm/swappiness"),
        dirty_background_bytes=_dirty_background_bytes(memory_bytes),
        huge_pages=_bracketed_word(_text("/sys/kernel/mm/transparent_hugepage/enabled")),
        is_clock_synchronised=_is_clock_synchronised(),
        clock_jump_s=_watch_clock(),
        newest_file_ahead_s=_newest_file_ahead(examined),
        python=platform.python_version(),
        libraries=_libraries(),
        codec_lack=_codec_lack(),
    )


def _nearest(path: Path) -> Path:
    return next(ancestor for ancestor in (path, *path.parents) if ancestor.is_dir())


def _measure_flush(directory: Path) -> tuple[float | None, str | None]:
    """Measures as the log writes: append, then fdatasync. The file has no name, so it is never left behind."""
    times = []
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            for _ in range(FLUSHES):
                began = time.perf_counter()
                os.write(file.fileno(), b"\x5a" * FLUSHED_BYTES)
                os.fdatasync(file.fileno())
                times.append(time.perf_counter() - began)
    except OSError as error:
        return None, error.strerror or str(error)
    return statistics.median(times), None


def _mount_of(directory: Path) -> Mount | None:
    """Returns the mount of the directory: the longest mount point above it, and of equal ones the last."""
    best: Mount | None = None
    for line in (_text("/proc/self/mountinfo") or "").splitlines():
        mounted, _, source = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), mounted.split()[4])
        if Path(point) == directory or Path(point) in directory.parents:
            kind, _, options = source.split(" ", 2)
            flags = {*mounted.split()[5].split(","), *options.split(",")}
            if best is None or len(point) >= len(best.point):
                best = Mount(point, kind, frozenset(flags))
    return best


def _has_volatile_cache(directory: Path) -> bool | None:
    device = os.stat(directory).st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    for device_directory in (block, block / ".."):  # a partition uses the queue of its drive
        kind = _text(str(device_directory / "queue" / "write_cache"))
        if kind is not None:
            return kind.strip() == "write back"
    return None


def _dirty_background_bytes(memory_bytes: int) -> int | None:
    """Returns how many bytes may be dirty before the kernel starts background writes."""
    return (
        _number("/proc/sys/vm/dirty_background_bytes")
        or (_number("/proc/sys/vm/dirty_background_ratio") or 0) * memory_bytes // 100
        or None
    )


def _is_clock_synchronised() -> bool | None:
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)  # all zeros: adjtimex changes nothing and reports the state
    try:
        state = ctypes.CDLL(None).adjtimex(buffer)
    except (AttributeError, OSError):
        return None
    if state < 0:
        return None
    return not int.from_bytes(buffer.raw[_STATUS_AT : _STATUS_AT + 4], "little") & _STA_UNSYNC


def _watch_clock() -> float:
    wall, monotonic = time.time(), time.monotonic()
    time.sleep(CLOCK_WATCHED_S)
    return abs((time.time() - wall) - (time.monotonic() - monotonic))


def _newest_file_ahead(directory: Path) -> float:
    newest = max((entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(directory)), default=0.0)
    return max(0.0, newest - time.time())


def _libraries() -> dict[str, tuple[str, str | None]]:
    """Returns the libraries that a node pins to one version. Empty if the server is not installed."""
    versions: dict[str, tuple[str, str | None]] = {}
    try:
        wishes = requires("penstock-server") or []
    except PackageNotFoundError:
        return versions
    for requirement in wishes:
        if (pinned := _PINNED.match(requirement)) is not None:
            name, pinned_version = pinned.groups()
            try:
                versions[name] = pinned_version, version(name)
            except PackageNotFoundError:
                versions[name] = pinned_version, None
    return versions


def _codec_lack() -> str | None:
    """Returns None if the codec, which comes with the server, is not installed."""
    try:
        from penstock_codec import report
    except ModuleNotFoundError:
        return None
    return report.lack()


def _bracketed_word(text: str | None) -> str | None:
    """Returns the bracketed word: madvise of `always [madvise] never`."""
    match = re.search(r"\[(\w+)\]", text or "")
    return match[1] if match else None


def _number(path: str) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.strip().isdecimal() else None


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text()
    except OSError:
        return None
