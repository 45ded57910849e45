"""The directories of a file store, each opened relative to its parent's handle. Does not know objects.

Invariants: no symbolic link below the root is ever followed, so no key leads out of it; a directory is made durable
(its parent fsynced) before the first object of this process is placed in it.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

Path = tuple[str, ...]

ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_OPEN_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC  # the root itself may be a link, by the operator's choice
_OPEN_DIR = _OPEN_ROOT | os.O_NOFOLLOW


class Entry(NamedTuple):
    """A plain file with its stat, or a directory (None), whose name then ends in "/"."""

    name: str
    found: os.stat_result | None


class FileTree:
    """A root and the directories below it. Safe for threads, and for processes that share the root."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self._durable: set[Path] = set()
        self._lock = threading.Lock()

    @contextmanager
    def open_directory(self, path: Path) -> Iterator[int | None]:
        """Opens a directory; yields its handle, None if it is absent."""
        handle = self._open(path)
        try:
            yield handle
        finally:
            if handle is not None:
                os.close(handle)

    @contextmanager
    def create_and_open(self, path: Path) -> Iterator[int]:
        """Opens a directory, made durably if it is missing; yields its handle."""
        handle = self._make(path)
        try:
            yield handle
        finally:
            os.close(handle)

    def entries(self, path: Path, is_wanted: Callable[[str], bool], first: str = "") -> list[Entry]:
        """Returns the entries of a directory, in byte order of keys: a directory sorts with its "/" on. Omits links.

        `is_wanted` takes a name, of a directory with its "/". It is not called for names below `first` that `first`
        does not begin with, nor are these passed to `stat`: each commit of a manifest lists the names behind it, in a
        directory of thousands.
        """
        listed: list[Entry] = []
        with self.open_directory(path) as handle:
            if handle is None:
                return listed
            leading = {first[:end] for end in range(len(first))}
            for name in os.listdir(handle):
                if (name < first and name not in leading) or not is_name(name):
                    continue
                if not (is_wanted(name) or is_wanted(name + "/")):
                    continue
                with suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=handle, follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode) and is_wanted(name + "/"):
                        listed.append(Entry(name + "/", None))
                    elif stat.S_ISREG(status.st_mode) and is_wanted(name):
                        listed.append(Entry(name, status))
        return sorted(listed, key=lambda entry: entry.name.encode())

    def prune(self, path: Path) -> None:
        """Removes empty directories, upwards, so that a deleted topic leaves nothing behind."""
        while path:
            with self.open_directory(path[:-1]) as parent:
                if parent is None:
                    return
                try:
                    os.rmdir(path[-1], dir_fd=parent)
                except OSError:  # not empty, or gone: either way nothing is left to do
                    return
            with self._lock:
                self._durable.discard(path)
            path = path[:-1]

    def _open(self, path: Path) -> int | None:
        try:
            handle = os.open(self.root, _OPEN_ROOT)
            for name in path:
                handle = _descend(handle, name)
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise
        return handle

    def _make(self, path: Path) -> int:
        if not self._is_durable(()):
            _make_root(self.root)
            self._now_durable(())
        handle = os.open(self.root, _OPEN_ROOT)
        for depth, name in enumerate(path, start=1):
            try:
                self._make_durable(handle, name, path[:depth])
            except BaseException:
                os.close(handle)
                raise
            handle = _descend(handle, name)
        return handle

    def _make_durable(self, parent: int, name: str, path: Path) -> None:
        made = False
        if not _exists(parent, name):
            with suppress(FileExistsError):
                os.mkdir(name, mode=0o750, dir_fd=parent)
            made = True
        if made or not self._is_durable(path):
            os.fsync(parent)  # also for an existing directory: whether it would survive a power loss is unknown
            self._now_durable(path)

    def _is_durable(self, path: Path) -> bool:
        with self._lock:
            return path in self._durable

    def _now_durable(self, path: Path) -> None:
        with self._lock:
            self._durable.add(path)


def is_name(name: str) -> bool:
    """True if a component of a key is a plain file name."""
    try:
        return name not in ("", ".", "..") and "/" not in name and "\0" not in name and len(name.encode()) <= 255
    except UnicodeEncodeError:
        return False


def _descend(parent: int, name: str) -> int:
    """Returns the child's handle and closes the parent's in any case."""
    try:
        return os.open(name, _OPEN_DIR, dir_fd=parent)
    finally:
        os.close(parent)


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _make_root(root: str) -> None:
    missing = []
    path = root
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    os.makedirs(root, mode=0o750, exist_ok=True)
    for made in missing or [root]:
        parent = os.open(os.path.dirname(made), _OPEN_ROOT)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
