"""`FaultyDisk`: a Disk that fails, shortens, delays or watches calls of another Disk, by rule.

For tests and the simulation; not a model of power loss (engine/testing/recording_disk.py is, and can be the inner
disk). A failed call does nothing to the inner disk. Which call a rule meets follows from the count of matching calls,
or, for a rule with a `chance`, from the given Random: the same seed gives the same faults.
Any thread may call. `calls` keeps every call in order, so that a test can count them.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from engine.runtime.disk import Disk, FileKind, FileStat

OPERATIONS = (
    *("open", "close", "pwritev", "pread", "pread_nowait", "fdatasync", "fsync_dir", "truncate", "size"),
    *("rename", "unlink", "rmdir", "mkdir", "listdir", "stat", "kind", "set_modified", "free_bytes", "lock"),
)


@dataclass(slots=True)
class Rule:
    """From the `first`-th matching call on, for `times` calls (None: all later ones): wait, then fail, or write less.

    Matching is a call of `operation` whose path contains `path`. `write_bytes` bounds the bytes that a write takes.
    `act` is called with the path before the call, in its thread: it may note it, or hold it up.
    """

    operation: str
    path: str = ""
    first: int = 1
    times: int | None = 1
    error: int | None = None
    write_bytes: int | None = None
    delay_s: float = 0.0
    chance: float = 1.0
    act: Callable[[str], None] | None = None
    matched: int = 0
    applied: int = 0

    def __post_init__(self) -> None:
        assert self.operation in OPERATIONS, self.operation

    def matches(self, operation: str, path: str) -> bool:
        return operation == self.operation and self.path in path


@dataclass(frozen=True, slots=True)
class Call:
    operation: str
    path: str
    error: int | None = None


@dataclass(slots=True)
class _Fault:
    error: int | None = None
    write_bytes: int | None = None
    delay_s: float = 0.0
    acts: list[Callable[[str], None]] = field(default_factory=list)


class FaultyDisk:
    """See the head of the file. `room_bytes`, when set, is what writes may still take before ENOSPC."""

    def __init__(
        self,
        disk: Disk,
        rules: Sequence[Rule] = (),
        random: Random | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.disk = disk
        self.rules = list(rules)
        self.room_bytes: int | None = None
        self.calls: list[Call] = []
        self._random = random
        self._sleep = sleep
        self._paths: dict[int, str] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"FaultyDisk({self.rules}, room_bytes={self.room_bytes}, calls={len(self.calls)}, on {self.disk!r})"

    @property
    def faults(self) -> int:
        """The number of calls that a rule has met."""
        return sum(rule.applied for rule in self.rules)

    def count(self, operation: str, path: str = "") -> int:
        return sum(call.operation == operation and path in call.path for call in self.calls)

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> int:
        self._meet("open", path)
        handle = self.disk.open(path, create=create, writable=writable)
        self._paths[handle] = path
        return handle

    def close(self, handle: int) -> None:
        """Closes in any case, as Linux does, so that a fault leaks no handle."""
        path = self._paths.pop(handle, "")
        self.disk.close(handle)
        self._meet("close", path)

    def is_open(self, handle: int) -> bool:
        return self.disk.is_open(handle)

    def pwritev(self, handle: int, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        """Writes through the rules and the remaining room. Raises OSError."""
        fault = self._meet("pwritev", self._path(handle))
        size_bytes = sum(map(len, buffers))
        allowed = size_bytes if fault.write_bytes is None else min(size_bytes, fault.write_bytes)
        if self.room_bytes is not None:
            inside = min(allowed, max(0, self.disk.size(handle) - position))  # overwrites what has its room
            if inside < size_bytes and not self.room_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            growth = min(allowed - inside, self.room_bytes)
            allowed = inside + growth
            self.room_bytes -= growth
        if allowed == size_bytes:
            return self.disk.pwritev(handle, buffers, position)
        return self.disk.pwritev(handle, [memoryview(b"".join(buffers))[:allowed]], position)

    def pread(self, handle: int, length: int, position: int) -> bytes:
        self._meet("pread", self._path(handle))
        return self.disk.pread(handle, length, position)

    def pread_nowait(self, handle: int, length: int, position: int) -> bytes | bytearray:
        self._meet("pread_nowait", self._path(handle))
        return self.disk.pread_nowait(handle, length, position)

    def fdatasync(self, handle: int) -> None:
        self._meet("fdatasync", self._path(handle))
        self.disk.fdatasync(handle)

    def fsync_dir(self, path: str) -> None:
        self._meet("fsync_dir", path)
        self.disk.fsync_dir(path)

    def truncate(self, handle: int, size_bytes: int) -> None:
        self._meet("truncate", self._path(handle))
        self.disk.truncate(handle, size_bytes)

    def size(self, handle: int) -> int:
        self._meet("size", self._path(handle))
        return self.disk.size(handle)

    def rename(self, source: str, target: str) -> None:
        self._meet("rename", source)
        self.disk.rename(source, target)

    def unlink(self, path: str) -> None:
        self._meet("unlink", path)
        self.disk.unlink(path)

    def rmdir(self, path: str) -> None:
        self._meet("rmdir", path)
        self.disk.rmdir(path)

    def mkdir(self, path: str) -> None:
        self._meet("mkdir", path)
        self.disk.mkdir(path)

    def listdir(self, path: str) -> list[str]:
        self._meet("listdir", path)
        return self.disk.listdir(path)

    def stat(self, path: str) -> FileStat | None:
        self._meet("stat", path)
        return self.disk.stat(path)

    def kind(self, path: str) -> FileKind | None:
        self._meet("kind", path)
        return self.disk.kind(path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        self._meet("set_modified", path)
        self.disk.set_modified(path, modified_ms)

    def free_bytes(self, path: str) -> int:
        self._meet("free_bytes", path)
        return self.disk.free_bytes(path)

    def capacity_bytes(self, path: str) -> int:
        self._meet("capacity_bytes", path)
        return self.disk.capacity_bytes(path)

    def lock(self, path: str) -> int:
        self._meet("lock", path)
        handle = self.disk.lock(path)
        self._paths[handle] = path
        return handle

    def _path(self, handle: int) -> str:
        return self._paths.get(handle, "")

    def _meet(self, operation: str, path: str) -> _Fault:
        """Returns the fault of the rules for a call. Raises their error, after their delay."""
        with self._lock:
            fault = self._fault(operation, path)
            self.calls.append(Call(operation, path, fault.error))
        for act in fault.acts:
            act(path)
        if fault.delay_s:
            self._sleep(fault.delay_s)
        if fault.error is not None:
            raise OSError(fault.error, os.strerror(fault.error), path)
        return fault

    def _fault(self, operation: str, path: str) -> _Fault:
        fault = _Fault()
        for rule in self.rules:
            if not rule.matches(operation, path):
                continue
            rule.matched += 1
            is_over = rule.times is not None and rule.matched >= rule.first + rule.times
            if rule.matched < rule.first or is_over or not self._happens(rule.chance):
                continue
            rule.applied += 1
            fault.error = fault.error if rule.error is None else rule.error
            fault.write_bytes = fault.write_bytes if rule.write_bytes is None else rule.write_bytes
            fault.delay_s += rule.delay_s
            if rule.act is not None:
                fault.acts.append(rule.act)
        return fault

    def _happens(self, chance: float) -> bool:
        if chance >= 1.0:
            return True
        assert self._random is not None, "a rule with a chance needs a Random"
        return self._random.random() < chance
