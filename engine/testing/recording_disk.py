"""`RecordingDisk`: a Disk in memory that knows what a power loss could take, and can cut the power at any operation.

For tests and the simulation; does not model speed, a full disk or failing calls. engine/testing/recorded_file.py and
recorded_tree.py define what may be lost; engine/testing/crash_states.py chooses which of it is shown.

A test that enumerates crash points runs its work once to count `operations`, then again with `lose_power_after(n)` for
each n, and opens every disk that `crash_states` gives then. Operation n itself is in progress at the power loss: a
change may have happened in part, a sync has promised nothing.

Only calls that change or sync something are operations; reading is not. Any thread may call.
"""

from __future__ import annotations

import copy
import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from random import Random
from threading import RLock
from typing import Concatenate, ParamSpec, TypeVar

from engine.runtime.clock import Clock
from engine.runtime.disk import FileKind, FileStat
from engine.testing.crash_states import crash_states
from engine.testing.recorded_file import RecordedFile
from engine.testing.recorded_tree import RecordedDirectory, RecordedTree, os_error, split

P = ParamSpec("P")
T = TypeVar("T")
CAPACITY_BYTES = 1 << 40


class PowerLoss(OSError):
    """The power is off, and every later call fails too. An OSError, so that the engine treats it as a dead disk."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.EIO, f"power lost at {what}")


@dataclass(frozen=True)
class _Handle:
    file: RecordedFile
    path: str
    is_writable: bool
    is_lock: bool = False


def _guarded(
    method: Callable[Concatenate[RecordingDisk, P], T],
) -> Callable[Concatenate[RecordingDisk, P], T]:
    """One call at a time, and none without power."""

    @wraps(method)
    def guarded(self: RecordingDisk, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            if self.has_lost_power:
                raise PowerLoss(f"{method.__name__}, without power")
            return method(self, *args, **kwargs)

    return guarded


class RecordingDisk:
    """See the head of the file. `clock` dates the files; without one they are dated by the count of operations.

    `boots` counts the machine's starts: a disk after a power loss has one more than the one before.
    """

    def __init__(self, clock: Clock | None = None, *, tree: RecordedTree | None = None, boots: int = 1) -> None:
        self.operations = 0
        self.boots = boots
        self.has_lost_power = False
        self._power_lost_after: int | None = None
        self._clock = clock
        self._tree = tree or RecordedTree()
        self._handles: dict[int, _Handle] = {}
        self._next_handle = 3
        self._lock = RLock()

    def __repr__(self) -> str:
        files = ", ".join(f"{path}: {file!r}" for path, file in self._tree.files())
        power = " without power" if self.has_lost_power else ""
        return f"RecordingDisk{power} after {self.operations} operations, {self._tree.story} {{{files}}}"

    # For tests.

    def lose_power_after(self, operations: int) -> None:
        """Cut the power when the count of operations reaches this number: that one raises PowerLoss."""
        assert operations > self.operations, "that operation is past"
        self._power_lost_after = operations

    def snapshot(self) -> RecordingDisk:
        """Copy the disk for a new process: with visible and pending state, without handles and locks."""
        with self._lock:
            return RecordingDisk(self._clock, tree=copy.deepcopy(self._tree), boots=self.boots)

    def crash_states(self, limit: int, random: Random) -> Iterator[RecordingDisk]:
        """Yields disks as a power loss now may leave them: all if they are at most `limit`, else a sample."""
        for tree in crash_states(self.snapshot()._tree, limit, random):
            yield RecordingDisk(self._clock, tree=tree, boots=self.boots + 1)

    # For the engine.

    @_guarded
    def open(self, path: str, *, create: bool = False, writable: bool = False) -> int:
        return self._new_handle(self._file_at(path, create), path, is_writable=writable)

    def close(self, handle: int) -> None:
        """Close a handle. Works without power too, so that clean-up does not hide PowerLoss. Raises OSError (EBADF)."""
        with self._lock:
            if self._handles.pop(handle, None) is None:
                raise os_error(errno.EBADF, str(handle))

    @_guarded
    def is_open(self, handle: int) -> bool:
        return handle in self._handles

    @_guarded
    def pwritev(self, handle: int, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        """Writes the buffers at a position. Returns the bytes written. Raises OSError (EBADF)."""
        opened = self._handle(handle)
        if not opened.is_writable:
            raise os_error(errno.EBADF, opened.path)
        data = b"".join(buffers)
        if data:
            opened.file.write(data, position)
            self._touch(opened.file, "write of %d bytes at %d to %s", len(data), position, opened.path)
        return len(data)

    @_guarded
    def pread(self, handle: int, length: int, position: int) -> bytes:
        return bytes(self._handle(handle).file.visible[position : position + length])

    @_guarded
    def pread_nowait(self, handle: int, length: int, position: int) -> bytes:
        return bytes(self._handle(handle).file.visible[position : position + length])

    @_guarded
    def fdatasync(self, handle: int) -> None:
        opened = self._handle(handle)
        self._count("fdatasync of %s", opened.path)
        opened.file.sync()

    @_guarded
    def fsync_dir(self, path: str) -> None:
        self._tree.find_directory(path)
        self._count("fsync of directory %s", path)
        self._tree.sync_directory(path)

    @_guarded
    def truncate(self, handle: int, size_bytes: int) -> None:
        """Sets the size of a file. Raises OSError (EINVAL, EBADF)."""
        opened = self._handle(handle)
        if not opened.is_writable:
            raise os_error(errno.EINVAL, opened.path)  # as Linux does; a write gets EBADF
        opened.file.truncate(size_bytes)
        self._touch(opened.file, "truncation to %d bytes of %s", size_bytes, opened.path)

    @_guarded
    def size(self, handle: int) -> int:
        return len(self._handle(handle).file.visible)

    @_guarded
    def rename(self, source: str, target: str) -> None:
        if self._tree.rename(source, target):
            self._count("rename of %s to %s", source, target)

    @_guarded
    def unlink(self, path: str) -> None:
        self._tree.unlink(path)
        self._count("unlink of %s", path)

    @_guarded
    def rmdir(self, path: str) -> None:
        self._tree.rmdir(path)
        self._count("rmdir of %s", path)

    @_guarded
    def mkdir(self, path: str) -> None:
        """Makes a directory and its missing parents. Raises OSError (EEXIST, ENOTDIR)."""
        parent = ""
        for name in split(path):
            parent = f"{parent}/{name}"
            if self._tree.find(parent) is None:
                self._tree.link(parent, RecordedDirectory(self._now_ms()))
                self._count("mkdir of %s", parent)
        if isinstance(self._tree.find(path), RecordedFile):
            raise os_error(errno.EEXIST, path)

    @_guarded
    def listdir(self, path: str) -> list[str]:
        return sorted(self._tree.find_directory(path).visible) if self._tree.find(path) else []

    @_guarded
    def stat(self, path: str) -> FileStat | None:
        node = self._tree.find(path)
        if isinstance(node, RecordedFile):
            return FileStat(len(node.visible), is_dir=False, modified_ms=node.modified_ms)
        return None if node is None else FileStat(0, is_dir=True, modified_ms=node.modified_ms)

    @_guarded
    def kind(self, path: str) -> FileKind | None:
        node = self._tree.find(path)
        if node is None:
            return None
        return FileKind.FILE if isinstance(node, RecordedFile) else FileKind.DIRECTORY

    @_guarded
    def set_modified(self, path: str, modified_ms: int) -> None:
        """Sets the modification time. Raises OSError (ENOENT)."""
        node = self._tree.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        node.modified_ms = modified_ms
        self._count("dating of %s", path)

    @_guarded
    def free_bytes(self, path: str) -> int:
        """Returns the capacity less the bytes of all visible files. Raises OSError (ENOENT)."""
        if self._tree.find(path) is None:
            raise os_error(errno.ENOENT, path)
        return CAPACITY_BYTES - sum(len(file.visible) for _, file in self._tree.files())

    @_guarded
    def capacity_bytes(self, path: str) -> int:
        return CAPACITY_BYTES

    @_guarded
    def lock(self, path: str) -> int:
        """Locks a file, created if absent. Raises OSError (BlockingIOError if it is locked)."""
        file = self._file_at(path, create=True)
        if any(held.file is file and held.is_lock for held in self._handles.values()):
            raise os_error(errno.EAGAIN, path)
        return self._new_handle(file, path, is_writable=True, is_lock=True)

    def _file_at(self, path: str, create: bool) -> RecordedFile:
        node = self._tree.find(path)
        if isinstance(node, RecordedDirectory):
            raise os_error(errno.EISDIR, path)
        if node is not None:
            return node
        if not create:
            raise os_error(errno.ENOENT, path)
        created = RecordedFile(modified_ms=self._now_ms())
        self._tree.link(path, created)
        self._count("creation of %s", path)
        return created

    def _new_handle(self, file: RecordedFile, path: str, *, is_writable: bool, is_lock: bool = False) -> int:
        handle = self._next_handle
        self._next_handle += 1
        self._handles[handle] = _Handle(file, path, is_writable, is_lock)
        return handle

    def _handle(self, handle: int) -> _Handle:
        opened = self._handles.get(handle)
        if opened is None:
            raise os_error(errno.EBADF, str(handle))
        return opened

    def _touch(self, file: RecordedFile, what: str, *args: object) -> None:
        file.modified_ms = self._now_ms()
        self._count(what, *args)

    def _count(self, what: str, *args: object) -> None:
        """Called after a change and before a sync, so that a power loss here leaves both uncertain."""
        self.operations += 1
        if self.operations == self._power_lost_after:
            self.has_lost_power = True
            raise PowerLoss(f"operation {self.operations}, the {what % args}")

    def _now_ms(self) -> int:
        return self._clock.now_ms() if self._clock else self.operations * 3_600_000  # an hour each
