"""The file of the embedded coordination store: every change is appended and fsynced; compacted from time to time.

Bytes and blocking calls only; the rules of a commit are in tree.py. Format: FORMAT.md beside this file. A change counts
once a second frame, its confirmation, is fsynced too. So every change that a caller has seen has a complete frame after
it. Bytes that are not a frame therefore mean one of two things: if a complete frame follows, the disk has damaged the
file, and the journal is refused; if none follows, they are an unconfirmed change and are truncated. Invariants: frames
are appended one at a time; nothing is written after a failed fsync.
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
from engine.format.spare_files import claim_spare, overwrite_spare
from engine.runtime.disk import Disk, read_file, write_atomically, write_fully
from replication.coordination.tree import Entry, Tree

HEADER = b"penstock coordination 1\n"
COMPACT_BYTES = 256 * 1024  # bounds what is read at a start, together with four times the live bytes
COMPACT_FACTOR = 4
CHANGE_BYTES_MAX = 16 * 1024  # of a change that a full disk takes: a block of partition states and its topic

_CHANGE, _CONFIRMATION = 1, 2
_PUT, _DELETE = 1, 2
_FRAME = struct.Struct(">II")  # length of the body, CRC-32C of the length and the body
_BODY = struct.Struct(">Bq")  # kind, number
_COUNT = struct.Struct(">I")
_KEY = struct.Struct(">BH")  # put or delete, length of the key
_VALUE = struct.Struct(">qiI")  # created, version, length of the value

# A change is followed by its confirmation, which is followed by the next change.
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
        """Append durably. Raises StorageFull or TooManyOpenFiles with nothing done, StorageFailed permanently."""
        if self._failure is not None:
            raise self._failure
        if not self._is_name_durable:
            self._sync_name()
        confirmation = encode_confirmation(number)
        try:  # reserves room for the confirmation, so that a full disk fails before the change counts
            self._write(encode_change(number, changes), bytes(len(confirmation)))
        except OSError as error:
            raise self._after_failed_write(error) from error
        self._confirm(confirmation)

    def confirm_last(self, frame: bytes, number: int) -> None:
        """Confirm the last change of the previous run, which ended before it did. Raises StorageFailed.

        The frame is written again, since a failed fsync in that run may have left pages that look clean.
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
        """Write the live entries into a new file.

        Raises OSError if the old file stays in use, TooManyOpenFiles if the new one is not synced yet, StorageFailed
        permanently.
        """
        temporary, data = self._path + ".tmp", encode_full(number, entries)
        self._replace_by(temporary, _written(self._disk, temporary, data), len(data))

    def compact_into_spare(self, number: int, entries: Changes) -> bool:
        """Write the live entries into a spare file, whose remaining room takes the next changes of a full disk.

        Returns False if no spare file has room. Raises as `compact` does.
        """
        data = encode_full(number, entries)
        claimed = claim_spare(self._disk, self._path, len(data) + CHANGE_BYTES_MAX)
        if claimed is None:
            return False
        self._replace_by(claimed, overwrite_spare(self._disk, claimed, data, keeps_room=True), len(data))
        return True

    def _replace_by(self, temporary: str, handle: int, size_bytes: int) -> None:
        try:
            self._disk.rename(temporary, self._path)
        except OSError as error:  # unknown which of the two files a restart would find
            self._disk.close(handle)
            raise self._fail(error) from error
        self._disk.close(self._handle)
        self._handle, self.size_bytes = handle, size_bytes
        self._is_name_durable = False
        self._sync_name()

    def close(self) -> None:
        self._disk.close(self._handle)

    def _sync_name(self) -> None:
        """Syncs the rename. Until then a power loss may restore the old file: nothing is appended to the new one."""
        try:
            self._disk.fsync_dir(os.path.dirname(self._path))
        except OSError as error:
            if error.errno in TOO_MANY_FILES:  # the directory could not be opened: a retry may succeed
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
        """Truncates a partial write. If that fails too, nothing more is written after it."""
        try:
            self._disk.truncate(self._handle, self.size_bytes)
        except OSError:
            return self._fail(error)
        failure = storage_error("coordination", error)
        return self._fail(error) if isinstance(failure, StorageFailed) else failure

    def _fail(self, error: OSError) -> EngineError:
        self._failure = StorageFailed(f"coordination: {error}", hint="check the disk, then restart the node")
        return self._failure


def open_journal(disk: Disk, path: str) -> tuple[Journal, Tree]:
    """Open the journal and read its entries; create it if missing. Raises Corrupt, OSError."""
    if disk.stat(path + ".tmp") is not None:
        disk.unlink(path + ".tmp")
    data = read_file(disk, path)
    if data is None:
        data = encode_full(0, {})
        write_atomically(disk, path, data)
    frames = list(_frames(path, data))
    tree = _replay(path, frames)
    handle = disk.open(path, writable=True)
    try:
        end = frames[-1].end
        disk.truncate(handle, end)  # an unconfirmed change
        journal = Journal(disk, path, handle, end)
        if frames[-1].kind == _CHANGE:
            journal.confirm_last(data[frames[-1].position : end], frames[-1].number)
    except BaseException:
        disk.close(handle)
        raise
    return journal, tree


def encode_full(number: int, entries: Changes) -> bytes:
    """Encode a journal with exactly these entries."""
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
    """Creates a file with these bytes, fsynced and open."""
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


def _replay(path: str, frames: list[_Frame]) -> Tree:
    """Replays the changes. Raises Corrupt if their numbers are not consecutive."""
    entries: dict[str, Entry] = {}
    last: _Frame | None = None
    for frame in frames:
        expected = (_CHANGE, frame.number) if last is None else _EXPECTED[last.kind](last.number)
        if (frame.kind, frame.number) != expected:
            raise _damaged(path, frame.position, f"number {frame.number} is out of sequence")
        last = frame
        for key, entry in frame.changes.items():
            if entry is None:
                entries.pop(key, None)
            else:
                entries[key] = entry
    assert last is not None
    return Tree(last.number, entries)


def _frames(path: str, data: bytes) -> Iterator[_Frame]:
    """Yields the complete frames; stops before an unconfirmed change at the end. Raises Corrupt for damage."""
    if not data.startswith(HEADER):
        raise _damaged(path, 0, "the header is missing")
    position = len(HEADER)
    while position < len(data):
        frame = _frame_at(data, position)
        if frame is None:
            behind = next((at for at in range(position + 1, len(data)) if _frame_at(data, at)), None)
            if behind is not None or position == len(HEADER):
                raise _damaged(path, position, "complete entries follow" if behind else "its first entry is invalid")
            return
        yield frame
        position = frame.end
    if position == len(HEADER):
        raise _damaged(path, position, "it has no entries")


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
        hint="restore it from a backup: it has values that must not be reused, such as producer ids",
    )
