"""The file behind the embedded coordination store: every change appended and fsynced, now and then written afresh.

Bytes and blocking calls only; the rules of a commit are in tree.py. Format: FORMAT.md beside this file.
A change counts once its confirmation, a second frame, is fsynced too. So whatever was told to anybody has a whole frame
behind it, and bytes that are no frame mean one of two things, which are told apart: with a whole frame behind them the
disk has changed what it was given, and the journal is refused; with none they are a change that nobody was told of.
Invariants: frames are appended one at a time; after a failed fsync nothing is written any more.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from crc32c import crc32c

from engine.errors import (
    TOO_MANY_FILES,
    Corrupt,
    EngineError,
    StorageFailed,
    storage_error,
    too_many_open_files,
)
from engine.runtime.disk import Disk, read_file, write_atomically, write_fully
from replication.coordination.tree import Entry, Tree

HEADER = b"penstock coordination 1\n"
COMPACT_BYTES = 256 * 1024  # at most so much is read at a start beyond four times what is in use
COMPACT_FACTOR = 4

_CHANGE, _CONFIRMATION = 1, 2
_PUT, _DELETE = 1, 2
_FRAME = struct.Struct(">II")  # length of the body, CRC-32C of the length and the body
_BODY = struct.Struct(">Bq")  # kind, number
_COUNT = struct.Struct(">I")
_KEY = struct.Struct(">BH")  # put or delete, length of the key
_VALUE = struct.Struct(">qiI")  # created, version, length of the value

# A change is followed by its confirmation, and that by the next change.
_EXPECTED: dict[int, Callable[[int], tuple[int, int]]] = {
    _CHANGE: lambda number: (_CONFIRMATION, number),
    _CONFIRMATION: lambda number: (_CHANGE, number + 1),
}

Changes = Mapping[str, Entry | None]


class _Frame(NamedTuple):
    position: int
    end: int
    kind: int
    number: int
    changes: dict[str, Entry | None]


class Journal:
    """An open journal. Every call blocks."""

    def __init__(self, disk: Disk, path: str, handle: int, size_bytes: int) -> None:
        self._disk = disk
        self._path = path
        self._handle = handle
        self._failure: EngineError | None = None
        self.size_bytes = size_bytes
        self._is_name_durable = True

    def __repr__(self) -> str:
        return f"Journal({self._path}, {self.size_bytes} bytes, {self._failure or 'sound'})"

    def append(self, number: int, changes: Changes) -> None:
        """Make a change durable. With nothing done it raises StorageFull, TooManyOpenFiles; for good, StorageFailed."""
        if self._failure is not None:
            raise self._failure
        if not self._is_name_durable:
            self._sync_name()
        confirmation = encode_confirmation(number)
        try:  # with room for the confirmation: a disk that is full is full before anything counts
            self._write(encode_change(number, changes), bytes(len(confirmation)))
        except OSError as error:
            raise self._after_failed_write(error) from error
        self._confirm(confirmation)

    def settle(self, frame: bytes, number: int) -> None:
        """The last run ended before this last change was confirmed. From now on it counts. Raises StorageFailed.

        It is written once more, since an fsync that failed in that run leaves pages that look clean.
        """
        self.size_bytes -= len(frame)
        try:
            self._write(frame)
        except OSError as error:
            raise self._fail(error) from error
        self._confirm(encode_confirmation(number))

    def is_due_to_compact(self, live_bytes: int) -> bool:
        return self.size_bytes > max(COMPACT_BYTES, COMPACT_FACTOR * live_bytes)

    def compact(self, number: int, entries: Changes) -> None:
        """Write what is left into a new file.

        Raises OSError where the old one goes on, TooManyOpenFiles where the new one waits for its sync, StorageFailed
        for good.
        """
        temporary = self._path + ".tmp"
        data = encode_whole(number, entries)
        handle = _written(self._disk, temporary, data)
        try:
            self._disk.rename(temporary, self._path)
        except OSError as error:  # which of the two files is the journal now is not known
            self._disk.close(handle)
            raise self._fail(error) from error
        self._disk.close(self._handle)
        self._handle, self.size_bytes = handle, len(data)
        self._is_name_durable = False
        self._sync_name()

    def close(self) -> None:
        self._disk.close(self._handle)

    def _sync_name(self) -> None:
        """Until this is done a power loss may bring the old file back: nothing may be appended to the new one."""
        try:
            self._disk.fsync_dir(os.path.dirname(self._path))
        except OSError as error:
            if error.errno in TOO_MANY_FILES:  # the directory could not be opened: nothing was done, and it may come
                raise too_many_open_files("coordination") from error
            raise self._fail(error) from error
        self._is_name_durable = True

    def _confirm(self, confirmation: bytes) -> None:
        try:
            self._disk.fdatasync(self._handle)
            self._write(confirmation)
            self._disk.fdatasync(self._handle)
        except OSError as error:
            raise self._fail(error) from error

    def _write(self, data: bytes, room: bytes = b"") -> None:
        write_fully(self._disk, self._handle, data + room, self.size_bytes)
        self.size_bytes += len(data)

    def _after_failed_write(self, error: OSError) -> EngineError:
        """What was written in part is cut off; if even that fails nothing more is written behind it."""
        try:
            self._disk.truncate(self._handle, self.size_bytes)
        except OSError:
            return self._fail(error)
        failure = storage_error("coordination", error)
        return self._fail(error) if isinstance(failure, StorageFailed) else failure

    def _fail(self, error: OSError) -> EngineError:
        self._failure = StorageFailed(f"coordination: {error}", hint="look at the node's disk; it needs a restart")
        return self._failure


def open_journal(disk: Disk, path: str) -> tuple[Journal, Tree]:
    """The journal and what it tells, made if there is none. Raises Corrupt, OSError."""
    if disk.stat(path + ".tmp") is not None:
        disk.unlink(path + ".tmp")
    data = read_file(disk, path)
    if data is None:
        data = encode_whole(0, {})
        write_atomically(disk, path, data)
    frames = list(_frames(path, data))
    tree = _told(path, frames)
    handle = disk.open(path, writable=True)
    try:
        end = frames[-1].end
        disk.truncate(handle, end)  # a change that nobody was told of
        journal = Journal(disk, path, handle, end)
        if frames[-1].kind == _CHANGE:
            journal.settle(data[frames[-1].position : end], frames[-1].number)
    except BaseException:
        disk.close(handle)
        raise
    return journal, tree


def encode_whole(number: int, entries: Changes) -> bytes:
    """A journal that holds just this."""
    return HEADER + encode_change(number, entries) + encode_confirmation(number)


def encode_change(number: int, changes: Changes) -> bytes:
    parts = [_BODY.pack(_CHANGE, number), _COUNT.pack(len(changes))]
    for key, entry in changes.items():
        name = key.encode()
        parts += [_KEY.pack(_DELETE if entry is None else _PUT, len(name)), name]
        if entry is not None:
            parts += [_VALUE.pack(entry.created, entry.version, len(entry.value)), entry.value]
    return _framed(b"".join(parts))


def encode_confirmation(number: int) -> bytes:
    return _framed(_BODY.pack(_CONFIRMATION, number))


def _framed(body: bytes) -> bytes:
    length = len(body).to_bytes(4, "big")
    return _FRAME.pack(len(body), crc32c(body, crc32c(length))) + body


def _written(disk: Disk, path: str, data: bytes) -> int:
    """A new file with these bytes, fsynced and open."""
    handle = disk.open(path, create=True, writable=True)
    try:
        disk.truncate(handle, 0)
        write_fully(disk, handle, data, 0)
        disk.fdatasync(handle)
    except OSError:
        disk.close(handle)
        with suppress(OSError):
            disk.unlink(path)
        raise
    return handle


def _told(path: str, frames: list[_Frame]) -> Tree:
    """What the changes come to. Raises Corrupt when they are not one story."""
    entries: dict[str, Entry] = {}
    last: _Frame | None = None
    for frame in frames:
        expected = (_CHANGE, frame.number) if last is None else _EXPECTED[last.kind](last.number)
        if (frame.kind, frame.number) != expected:
            raise _damaged(path, frame.position, f"number {frame.number} is out of turn")
        last = frame
        for key, entry in frame.changes.items():
            if entry is None:
                entries.pop(key, None)
            else:
                entries[key] = entry
    assert last is not None
    return Tree(last.number, entries)


def _frames(path: str, data: bytes) -> Iterator[_Frame]:
    """Every whole frame. Raises Corrupt for damage, and stops before what is left of a change nobody was told of."""
    if not data.startswith(HEADER):
        raise _damaged(path, 0, "it does not begin as a journal does")
    position = len(HEADER)
    while position < len(data):
        frame = _frame_at(data, position)
        if frame is None:
            behind = next((at for at in range(position + 1, len(data)) if _frame_at(data, at)), None)
            if behind is not None or position == len(HEADER):
                raise _damaged(path, position, "whole entries follow" if behind else "its first entry is no entry")
            return
        yield frame
        position = frame.end
    if position == len(HEADER):
        raise _damaged(path, position, "it has no entry")


def _frame_at(data: bytes, position: int) -> _Frame | None:
    if position + _FRAME.size > len(data):
        return None
    length, crc = _FRAME.unpack_from(data, position)
    begin = position + _FRAME.size
    if not _BODY.size <= length <= len(data) - begin:
        return None
    body = data[begin : begin + length]
    if crc32c(body, crc32c(data[position : position + 4])) != crc:
        return None
    kind, number = _BODY.unpack_from(body)
    changes = _changes(body) if kind == _CHANGE else {}
    return _Frame(position, begin + length, kind, number, changes)


def _changes(body: bytes) -> dict[str, Entry | None]:
    changes: dict[str, Entry | None] = {}
    (count,) = _COUNT.unpack_from(body, _BODY.size)
    position = _BODY.size + _COUNT.size
    for _ in range(count):
        what, length = _KEY.unpack_from(body, position)
        position += _KEY.size
        key = body[position : position + length].decode()
        position += length
        changes[key] = None
        if what == _PUT:
            created, version, length = _VALUE.unpack_from(body, position)
            position += _VALUE.size
            changes[key] = Entry(body[position : position + length], version, created)
            position += length
    assert position == len(body), "the checksum was right"
    return changes


def _damaged(path: str, position: int, reason: str) -> Corrupt:
    return Corrupt(
        f"{path} is damaged at byte {position}: {reason}",
        hint="restore it from a backup: it holds what must not be given out twice, as producer ids",
    )
