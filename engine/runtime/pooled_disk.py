"""`PooledDisk`: a Disk that holds any number of handles and keeps at most `files_max` files of another Disk open.

The handles that it returns are numbers of its own (PostgreSQL calls them virtual file descriptors). The least recently
used file is closed when another one needs its place, and opened again by its path at the next call.
Invariants:
(1) A call pins its file. A pinned file stays open, so `files_max` is exceeded by at most one file a call under way.
(2) A file with unsynced writes is synced before it is closed. Linux reports a failed write-back to the handles that
were open when it failed, or else to the first fsync after an open; a report that another handle has already taken is
not repeated. A file that is closed with unsynced writes may thus lose the report, and an fsync after it is opened again
would succeed although data is lost. Once everything written through a handle is synced, nothing is left to report, and
closing it is sound. A sync that fails here is not repeated: every later `fdatasync` of that handle raises its error.
(3) A file whose name is removed or replaced stays open until its handle is closed, as with the operating system.
(4) EMFILE and ENFILE are raised only if no file without unsynced writes is left to close, and only before the call has
begun. `fdatasync` never raises them: a file with unsynced writes is open.
`pread_nowait` never opens a file; it raises WouldBlock. All other calls may open one and must not run on an event loop.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from typing import TypeVar

from engine.errors import TOO_MANY_FILES
from engine.runtime.disk import Disk, FileKind, FileStat, WouldBlock

T = TypeVar("T")

CLOSED_AT_ONCE = 8  # a search for idle files closes this many, so that not each open needs a search


@dataclass(slots=True, eq=False)
class _File:
    """The state of one handle. Guarded by the lock of the pool."""

    path: str | None  # None: the name was removed, or is another file's
    is_writable: bool
    real: int | None = None  # the handle of the inner disk, while the file is open
    pins: int = 0
    used: int = 0
    writes: int = 0
    synced_writes: int | None = None
    failure: OSError | None = None
    is_lock: bool = False
    is_kept_open: bool = False
    is_closed: bool = False

    @property
    def has_unsynced_writes(self) -> bool:
        return self.writes != (self.synced_writes or 0) and self.failure is None


class PooledDisk:
    """See the head of the file. Any thread may call."""

    def __init__(self, disk: Disk, files_max: int) -> None:
        assert files_max >= 1
        self._disk = disk
        self._files_max = files_max
        self._files: dict[int, _File] = {}
        self._by_path: dict[str, list[_File]] = {}
        self._open: set[_File] = set()
        self._opening = 0
        self._last_handle = 0
        self._uses = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"PooledDisk({len(self._open)} of {len(self._files)} open, at most {self._files_max}, on {self._disk!r})"

    @property
    def open_files(self) -> int:
        return len(self._open)

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> int:
        file = _File(path, writable, writes=int(create))  # creating the file counts as a write
        return self._add(file, partial(self._disk.open, path, create=create, writable=writable))

    def lock(self, path: str) -> int:
        """Locks a file, which is never closed for another one: that would release the lock."""
        return self._add(_File(path, is_writable=True, is_lock=True, is_kept_open=True), partial(self._disk.lock, path))

    def close(self, handle: int) -> None:
        """Closes the handle. Raises OSError (EBADF for an unknown handle)."""
        with self._lock:
            file = self._files.pop(handle, None)
            if file is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(handle))
            self._remove_name(file)
            file.is_closed = True
            real = None if file.pins else self._pop_handle(file)
        if real is not None:
            self._disk.close(real)

    def is_open(self, handle: int) -> bool:
        return (file := self._files.get(handle)) is not None and file.real is not None

    def pwritev(self, handle: int, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        file, real = self._pin(handle)
        try:
            return self._disk.pwritev(real, buffers, position)
        finally:
            self._release(file, wrote=True)

    def truncate(self, handle: int, size_bytes: int) -> None:
        file, real = self._pin(handle)
        try:
            self._disk.truncate(real, size_bytes)
        finally:
            self._release(file, wrote=True)

    def pread(self, handle: int, length: int, position: int) -> bytes:
        file, real = self._pin(handle)
        try:
            return self._disk.pread(real, length, position)
        finally:
            self._release(file)

    def pread_nowait(self, handle: int, length: int, position: int) -> bytes | bytearray:
        """Reads as `_pin` and `_release` around a call do, inlined for speed at the log end. Raises WouldBlock."""
        with self._lock:
            file = self._files.get(handle) or self._file(handle)
            if (real := file.real) is None:
                raise WouldBlock
            file.pins += 1
            self._uses = file.used = self._uses + 1
        try:
            return self._disk.pread_nowait(real, length, position)
        finally:
            with self._lock:
                file.pins -= 1
                is_left = file.is_closed and not file.pins
            if is_left:
                self._close_left(file)

    def fdatasync(self, handle: int) -> None:
        """Sync the file. Raises OSError: repeats the error of an earlier failed sync of the handle."""
        with self._lock:
            file = self._file(handle)
            if file.failure is not None:
                raise OSError(*file.failure.args) from file.failure
            if file.real is None and file.synced_writes == file.writes:
                return  # synced when it was closed, and not written since
            writes = file.writes
        file, real = self._pin(handle)
        try:
            self._disk.fdatasync(real)
            with self._lock:
                file.synced_writes = max(writes, file.synced_writes or 0)
        finally:
            self._release(file)

    def size(self, handle: int) -> int:
        file, real = self._pin(handle)
        try:
            return self._disk.size(real)
        finally:
            self._release(file)

    def fsync_dir(self, path: str) -> None:
        self._with_room(partial(self._disk.fsync_dir, path))

    def listdir(self, path: str) -> list[str]:
        return self._with_room(partial(self._disk.listdir, path))

    def unlink(self, path: str) -> None:
        kept_open = self._keep_open(path)
        try:
            self._disk.unlink(path)
        except BaseException:
            self._let_close(kept_open)
            raise
        self._close_kept(kept_open)

    def rename(self, source: str, target: str) -> None:
        if source == target:
            self._disk.rename(source, target)
            return
        stat = self._disk.stat(source)
        kept_open = self._keep_open(target)
        try:
            self._disk.rename(source, target)
        except BaseException:
            self._let_close(kept_open)
            raise
        self._close_kept(kept_open)
        with self._lock:
            moved = list(self._by_path.get(source, ()))
            if stat is not None and stat.is_dir:
                below = source + "/"
                moved += [file for path, files in self._by_path.items() if path.startswith(below) for file in files]
            for file in moved:
                assert file.path is not None
                new_path = target + file.path[len(source) :]
                self._remove_name(file)
                self._name(file, new_path)

    def rmdir(self, path: str) -> None:
        self._disk.rmdir(path)

    def mkdir(self, path: str) -> None:
        self._disk.mkdir(path)

    def stat(self, path: str) -> FileStat | None:
        return self._disk.stat(path)

    def kind(self, path: str) -> FileKind | None:
        return self._disk.kind(path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        self._disk.set_modified(path, modified_ms)

    def free_bytes(self, path: str) -> int:
        return self._disk.free_bytes(path)

    def capacity_bytes(self, path: str) -> int:
        return self._disk.capacity_bytes(path)

    def _pin(self, handle: int) -> tuple[_File, int]:
        """Returns the file of a handle, open until `_release`."""
        with self._lock:
            file = self._file(handle)
            file.pins += 1
            self._uses = file.used = self._uses + 1
            if (real := file.real) is not None:
                return file, real
        try:
            return file, self._reopen(file)
        except BaseException:
            self._release(file)
            raise

    def _file(self, handle: int) -> _File:
        if handle not in self._files:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(handle))
        return self._files[handle]

    def _release(self, file: _File, *, wrote: bool = False) -> None:
        with self._lock:
            file.pins -= 1
            file.writes += wrote  # now, not before the write: a sync in progress meanwhile need not have seen it
            is_left = file.is_closed and not file.pins
        if is_left:
            self._close_left(file)

    def _close_left(self, file: _File) -> None:
        """Closes a file whose handle was closed during a call."""
        with self._lock:
            real = None if file.pins else self._pop_handle(file)
        if real is not None:
            with suppress(OSError):
                self._disk.close(real)

    # Opening and closing.

    def _add(self, file: _File, open_it: Callable[[], int]) -> int:
        """Returns a handle for a new file. Registers its name before the open, to follow a rename meanwhile."""
        assert file.path is not None
        file.pins = 1
        with self._lock:
            self._name(file, file.path)
        try:
            self._admit(file, self._with_room(open_it))
        except BaseException:
            with self._lock:
                self._remove_name(file)
            raise
        with self._lock:
            self._last_handle = handle = self._last_handle + 1
            self._files[handle] = file
        self._release(file)
        return handle

    def _reopen(self, file: _File) -> int:
        """Opens a pinned file."""
        while (path := file.path) is not None:
            try:
                real = self._with_room(partial(self._disk.open, path, writable=file.is_writable))
            except FileNotFoundError:
                if path == file.path:
                    raise
            else:
                return self._admit(file, real)
        raise FileNotFoundError(errno.ENOENT, "the file was removed or replaced")

    def _admit(self, file: _File, real: int) -> int:
        with self._lock:
            surplus = real if file.real is not None else None  # another thread was faster
            if file.real is None:
                file.real = real
                self._open.add(file)
            self._uses = file.used = self._uses + 1
        if surplus is not None:
            self._disk.close(surplus)
        assert file.real is not None
        return file.real

    def _pop_handle(self, file: _File) -> int | None:
        """Returns the inner handle, which the caller closes. The lock is held."""
        self._open.discard(file)
        real, file.real = file.real, None
        return real

    def _with_room(self, call: Callable[[], T]) -> T:
        """Makes a call that opens a file. Closes others first if there are too many, and after EMFILE or ENFILE."""
        with self._lock:
            self._opening += 1
        try:
            while len(self._open) + self._opening > self._files_max and (self._close_idle() or self._sync_idle()):
                pass
            while True:
                try:
                    return call()
                except OSError as error:
                    if error.errno not in TOO_MANY_FILES or not self._close_idle():
                        raise
        finally:
            with self._lock:
                self._opening -= 1

    def _close_idle(self) -> bool:
        """Closes the least recently used files without unsynced writes. False without one."""
        with self._lock:
            idle = [file for file in self._idle() if not file.has_unsynced_writes]
            count = max(1, len(self._open) // CLOSED_AT_ONCE)
            reals = [self._pop_handle(file) for file in nsmallest(count, idle, key=_last_use)]
        for real in reals:
            assert real is not None
            with suppress(OSError):  # everything is synced, so nothing can be lost
                self._disk.close(real)
        return bool(reals)

    def _sync_idle(self) -> bool:
        """Sync the least recently used file with unsynced writes, so that it can be closed. False without one."""
        with self._lock:
            file = min(self._idle(), key=_last_use, default=None)
            if file is None:
                return False
            file.pins += 1
            real, writes = file.real, file.writes
        assert real is not None
        failure: OSError | None = None
        try:
            self._disk.fdatasync(real)
        except OSError as error:
            failure = error
        with self._lock:
            file.failure = file.failure or failure
            file.synced_writes = max(writes, file.synced_writes or 0) if failure is None else file.synced_writes
        self._release(file)
        return True

    def _idle(self) -> list[_File]:
        return [file for file in self._open if not file.pins and not file.is_kept_open]

    def _keep_open(self, path: str) -> list[_File]:
        """Opens the files of a name that is about to be removed, for the life of their handles."""
        with self._lock:
            files = list(self._by_path.get(path, ()))
            for file in files:
                file.pins += 1
        for file in files:
            with suppress(OSError):  # a later reader gets FileNotFoundError
                if file.real is None:
                    self._reopen(file)
                file.is_kept_open = True
        return files

    def _let_close(self, files: list[_File]) -> None:
        for file in files:
            file.is_kept_open = file.is_lock
            self._release(file)

    def _close_kept(self, files: list[_File]) -> None:
        for file in files:
            with self._lock:
                self._remove_name(file)
            self._release(file)

    def _name(self, file: _File, path: str) -> None:
        file.path = path
        self._by_path.setdefault(path, []).append(file)

    def _remove_name(self, file: _File) -> None:
        if file.path is not None:
            files = self._by_path[file.path]
            files.remove(file)
            if not files:
                del self._by_path[file.path]
            file.path = None


def _last_use(file: _File) -> int:
    return file.used
