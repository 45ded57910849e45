"""The door to the file system: every byte the engine stores or reads passes through a `Disk`.

Neither a cache nor a policy: it does not retry, nor decide what to sync. Three implementations: `RealDisk` here;
`RecordingDisk` (engine/testing/recording_disk.py), which can show every state that a power loss may legally leave
behind; and `FaultyDisk` (engine/testing/faulty_disk.py), which injects faults into the calls of another one.

Paths are absolute strings; a handle is an int that only the disk that gave it understands.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from engine.runtime.read_buffers import SIZE_BYTES_MIN, ReadBuffers

log = logging.getLogger("penstock.engine")


class WouldBlock(Exception):
    """The bytes are not in memory; read them from a thread."""


class FileStat(NamedTuple):
    size_bytes: int
    is_dir: bool
    modified_ms: int


class FileKind(Enum):
    """The kind of a directory entry. OTHER is never the engine's own: a symbolic link, a pipe, a socket, a device."""

    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"


class Disk(Protocol):
    """The file system operations of the engine. Failures are `OSError`, as the operating system raises them."""

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> int: ...
    def close(self, handle: int) -> None: ...
    def is_open(self, handle: int) -> bool:
        """Returns whether a call with the handle needs to open no file."""

    def pwritev(self, handle: int, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        """Writes all buffers at a position; returns the bytes written, which may be fewer."""

    def pread(self, handle: int, length: int, position: int) -> bytes:
        """Reads up to `length` bytes; fewer only at the end of the file."""

    def pread_nowait(self, handle: int, length: int, position: int) -> bytes | bytearray:
        """Reads from memory only. Raises WouldBlock if the disk would have to be read."""

    def fdatasync(self, handle: int) -> None: ...
    def fsync_dir(self, path: str) -> None: ...
    def truncate(self, handle: int, size_bytes: int) -> None: ...
    def size(self, handle: int) -> int: ...
    def rename(self, source: str, target: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def rmdir(self, path: str) -> None: ...
    def mkdir(self, path: str) -> None:
        """Makes a directory and its missing parents; no-op if it exists."""

    def listdir(self, path: str) -> list[str]:
        """List the names, sorted; an absent directory has none."""

    def stat(self, path: str) -> FileStat | None:
        """Returns size and times; None for a path that does not exist."""

    def kind(self, path: str) -> FileKind | None:
        """Returns the kind of the entry itself: does not follow links. None for a path that does not exist."""

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Sets the modification time, for a copy to keep that of its original."""

    def free_bytes(self, path: str) -> int: ...
    def capacity_bytes(self, path: str) -> int: ...
    def lock(self, path: str) -> int:
        """Create and lock a file for this process. Raises BlockingIOError if another process holds it."""


def write_atomically(disk: Disk, path: str, data: bytes) -> None:
    """Replaces a small file so that a crash leaves the old or the new one whole, and the new one is durable.

    Raises OSError, which names the file.
    """
    try:
        replace_file(disk, path, data)
        disk.fsync_dir(os.path.dirname(path))
    except OSError as error:
        error.filename = error.filename or path
        raise


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Replaces a small file by one whose bytes are durable; its name is durable after a sync of the directory."""
    temporary = path + ".tmp"
    handle = disk.open(temporary, create=True, writable=True)
    try:
        disk.truncate(handle, 0)
        write_fully(disk, handle, data, 0)
        disk.fdatasync(handle)
    finally:
        disk.close(handle)
    disk.rename(temporary, path)


def write_fully(disk: Disk, handle: int, data: bytes, position: int) -> None:
    """Writes all of `data`. Raises OSError, also for a short write, since the files written by this are small."""
    written = disk.pwritev(handle, [data], position)
    if written != len(data):
        raise OSError(28, f"short write: {written} of {len(data)} bytes")


def read_file(disk: Disk, path: str) -> bytes | None:
    """Reads a whole small file; None if it is absent."""
    if disk.stat(path) is None:
        return None
    handle = disk.open(path)
    try:
        return disk.pread(handle, disk.size(handle), 0)
    finally:
        disk.close(handle)


def read_derived(disk: Disk, path: str) -> bytes | None:
    """Reads a file that can be made again; None also if the disk cannot read it (EIO). Raises other errors."""
    try:
        return read_file(disk, path)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        log.warning("a derived file cannot be read and is made again", extra={"file": path, "reason": str(error)})
        return None


class RealDisk:
    """The operating system's files."""

    _buffers = ReadBuffers()  # of all instances: they bound the memory of a process

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> int:
        flags = os.O_RDWR if writable else os.O_RDONLY
        return os.open(path, flags | (os.O_CREAT if create else 0) | os.O_CLOEXEC, 0o640)

    def close(self, handle: int) -> None:
        os.close(handle)

    def is_open(self, handle: int) -> bool:
        return True

    def pwritev(self, handle: int, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        written = 0
        for start in range(0, len(buffers), _IOV_MAX):
            part = buffers[start : start + _IOV_MAX]
            done = os.pwritev(handle, part, position + written)
            written += done
            if done != sum(map(len, part)):
                break
        return written

    def pread(self, handle: int, length: int, position: int) -> bytes:
        data = os.pread(handle, length, position)
        if len(data) in (length, 0):
            return data
        parts = [data]
        while data and (missing := length - sum(map(len, parts))):
            data = os.pread(handle, missing, position + length - missing)
            parts.append(data)
        return b"".join(parts)

    def pread_nowait(self, handle: int, length: int, position: int) -> bytes | bytearray:
        """Reads by preadv2 with RWF_NOWAIT. Raises WouldBlock."""
        buffer = bytearray(length) if length < SIZE_BYTES_MIN else self._buffers.take(length)
        try:
            read = os.preadv(handle, [buffer], position, os.RWF_NOWAIT)
        except OSError as error:  # some file systems do not know what is in memory: tmpfs, NFS and FUSE reject the call
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                raise WouldBlock from error
            raise
        if read == length:
            return buffer
        if position + read < os.fstat(handle).st_size:
            raise WouldBlock
        return bytes(memoryview(buffer)[:read])

    def fdatasync(self, handle: int) -> None:
        os.fdatasync(handle)

    def fsync_dir(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def truncate(self, handle: int, size_bytes: int) -> None:
        os.ftruncate(handle, size_bytes)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def mkdir(self, path: str) -> None:
        os.makedirs(path, mode=0o750, exist_ok=True)

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def stat(self, path: str) -> FileStat | None:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return None
        return FileStat(status.st_size, os.path.isdir(path), status.st_mtime_ns // 1_000_000)

    def kind(self, path: str) -> FileKind | None:
        try:
            mode = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISREG(mode):
            return FileKind.FILE
        return FileKind.DIRECTORY if stat.S_ISDIR(mode) else FileKind.OTHER

    def set_modified(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def capacity_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize

    def lock(self, path: str) -> int:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise
        return handle


_IOV_MAX = os.sysconf("SC_IOV_MAX")
