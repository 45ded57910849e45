"""A tree of directories that remembers which of its entry changes a power loss may undo.

Not a Disk: no handles, no counting, no locking. engine/testing/recorded_file.py models a file's bytes.

A directory entry is certain once its directory was synced; syncing the file does not help it. Each change of an entry
since then happened or did not, independently, but in order on one name. A rename is one change: both names or none.
POSIX allows that; a journalling file system keeps more.

Invariant: `visible` is what a running process sees; with nothing pending, every `durable` equals it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from engine.testing.recorded_file import RecordedFile

_PATHS_KEPT = 4096  # tests use the same few paths again and again


class RecordedDirectory:
    """One directory's entries: as seen, and as certain."""

    def __init__(self, modified_ms: int = 0) -> None:
        self.visible: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.modified_ms = modified_ms


Node = RecordedFile | RecordedDirectory
Entry = tuple[RecordedDirectory, str, Node | None]


@dataclass(frozen=True, eq=False)
class EntryChange:
    """One atomic change of the tree: each entry gets its node; None removes it."""

    what: str
    entries: tuple[Entry, ...]
    is_rename: bool = False


class RecordedTree:
    """The whole tree under `/`, and the entry changes that no directory sync has covered yet, oldest first.

    Errors are the OSErrors that Linux gives for the same call.
    """

    def __init__(self, root: RecordedDirectory | None = None) -> None:
        self.root = root or RecordedDirectory()
        self.pending: list[EntryChange] = []
        self.story = ""  # the origin of this state, for the reader of a failed test

    def find(self, path: str) -> Node | None:
        """Returns the node at a path; None without one. Raises OSError (ENOTDIR)."""
        node: Node | None = self.root
        for name in split(path):
            if type(node) is RecordedDirectory:
                node = node.visible.get(name)
            elif node is None:
                return None
            else:
                raise os_error(errno.ENOTDIR, path)
        return node

    def find_directory(self, path: str) -> RecordedDirectory:
        """Returns the directory at a path. Raises OSError (ENOENT, ENOTDIR)."""
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, RecordedFile):
            raise os_error(errno.ENOTDIR, path)
        return node

    def link(self, path: str, node: Node) -> None:
        parent, name = self._locate(path)
        assert name not in parent.visible
        kind = "create" if isinstance(node, RecordedFile) else "mkdir"
        self._change(EntryChange(f"{kind} {path}", ((parent, name, node),)))

    def unlink(self, path: str) -> None:
        """Removes a file's entry. Raises OSError (ENOENT, EISDIR)."""
        parent, name = self._locate(path)
        match parent.visible.get(name):
            case None:
                raise os_error(errno.ENOENT, path)
            case RecordedDirectory():
                raise os_error(errno.EISDIR, path)
        self._change(EntryChange(f"unlink {path}", ((parent, name, None),)))

    def rmdir(self, path: str) -> None:
        """Removes an empty directory's entry. Raises OSError (ENOTEMPTY, ENOENT, ENOTDIR)."""
        if self.find_directory(path).visible:
            raise os_error(errno.ENOTEMPTY, path)
        parent, name = self._locate(path)
        self._change(EntryChange(f"rmdir {path}", ((parent, name, None),)))

    def rename(self, source: str, target: str) -> bool:
        """Rename an entry. Returns whether anything changed: a rename to the same name does nothing. Raises OSError."""
        source_parent, source_name = self._locate(source)
        target_parent, target_name = self._locate(target)
        moved = source_parent.visible.get(source_name)
        replaced = target_parent.visible.get(target_name)
        if moved is None:
            raise os_error(errno.ENOENT, source)
        if moved is replaced:
            return False
        if target.startswith(source + "/"):
            raise os_error(errno.EINVAL, target)
        if source.startswith(target + "/"):
            raise os_error(errno.ENOTEMPTY, target)
        _check_replaceable(moved, replaced, target)
        entries = ((source_parent, source_name, None), (target_parent, target_name, moved))
        self._change(EntryChange(f"rename {source} to {target}", entries, is_rename=True))
        return True

    def sync_directory(self, path: str) -> None:
        """Makes certain every change that touches this directory, and those they need, in order."""
        directory = self.find_directory(path)
        touching = [i for i, change in enumerate(self.pending) if any(d is directory for d, _, _ in change.entries)]
        if not touching:
            return
        certain = with_needed(touching, needs(self.pending))
        for i in sorted(certain):
            apply_entries((entry[0].durable, entry) for entry in self.pending[i].entries)
        self.pending = [change for i, change in enumerate(self.pending) if i not in certain]

    def files(self) -> Iterator[tuple[str, RecordedFile]]:
        """Yields every visible file with its path, sorted."""
        return ((path, node) for path, node in _walk("", self.root) if isinstance(node, RecordedFile))

    def identity(self) -> object:
        """Returns a value that is equal for trees in which a process sees the same names and bytes."""
        return tuple((path, _bytes_of(node)) for path, node in _walk("", self.root))

    def _locate(self, path: str) -> tuple[RecordedDirectory, str]:
        head, name = _head_and_name(path)
        return self.find_directory(head), name

    def _change(self, change: EntryChange) -> None:
        apply_entries((entry[0].visible, entry) for entry in change.entries)
        self.pending.append(change)


def needs(changes: Sequence[EntryChange]) -> list[set[int]]:
    """Returns, for each change, the earlier ones without which it cannot have happened.

    1. The one before it on the same name.
    2. For a rename, the one that made the directory it moves into: no file system loses a moved entry by losing its new
    directory. A file created in a lost directory is lost with it, so that case needs no rule.
    """
    last_on: dict[tuple[RecordedDirectory, str], int] = {}
    made: dict[RecordedDirectory, int] = {}
    needs_of_changes: list[set[int]] = []
    for i, change in enumerate(changes):
        needed = {last_on[d, name] for d, name, _ in change.entries if (d, name) in last_on}
        if change.is_rename:
            needed |= {made[d] for d, _, _ in change.entries if d in made}
        needs_of_changes.append(needed)
        for directory, name, node in change.entries:
            last_on[directory, name] = i
            if isinstance(node, RecordedDirectory):
                made[node] = i
    return needs_of_changes


def with_needed(selected: Iterable[int], needed: Sequence[set[int]]) -> set[int]:
    """Adds all changes that the selected ones need, directly or indirectly."""
    closed: set[int] = set()
    open_ends = list(selected)
    while open_ends:
        i = open_ends.pop()
        if i not in closed:
            closed.add(i)
            open_ends += needed[i]
    return closed


def apply_entries(targets: Iterable[tuple[dict[str, Node], Entry]]) -> None:
    for entries, (_, name, node) in targets:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


@lru_cache(_PATHS_KEPT)
def split(path: str) -> tuple[str, ...]:
    assert path.startswith("/"), f"paths are absolute: {path!r}"
    return tuple(name for name in path.split("/") if name)


@lru_cache(_PATHS_KEPT)
def _head_and_name(path: str) -> tuple[str, str]:
    return os.path.split(path)


def os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _check_replaceable(moved: Node, replaced: Node | None, target: str) -> None:
    match moved, replaced:
        case RecordedFile(), RecordedDirectory():
            raise os_error(errno.EISDIR, target)
        case RecordedDirectory(), RecordedFile():
            raise os_error(errno.ENOTDIR, target)
        case RecordedDirectory(), RecordedDirectory(visible=entries) if entries:
            raise os_error(errno.ENOTEMPTY, target)


def _walk(prefix: str, directory: RecordedDirectory) -> Iterator[tuple[str, Node]]:
    for name, node in sorted(directory.visible.items(), key=lambda item: item[0]):
        yield f"{prefix}/{name}", node
        if isinstance(node, RecordedDirectory):
            yield from _walk(f"{prefix}/{name}", node)


def _bytes_of(node: Node) -> bytes | None:
    return bytes(node.visible) if isinstance(node, RecordedFile) else None
