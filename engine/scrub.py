"""Examines one sealed segment file: is it still what was sealed, and if not, which offsets are damaged?

Blocking, reads and never changes a `.log`; who must not be served damaged records is told by engine/quarantine.py.
Cases: (1) the file has its checksum: fine; (2) no checksum is known, and every batch is true to its own and they reach
the end: a checksum is made; (3) some batches are bad: those are the damage; (4) the checksum is wrong though no batch
is: bytes that no batch's CRC covers, so all of it is in doubt.
Reads through the page cache: what readers are given is what is examined. Bytes that the disk cannot give are damage.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass

from engine import batch as record_batch
from engine import paths
from engine.batch import HEADER_BYTES, Header
from engine.checksum import PIECE_BYTES, Checksum, Pace, checksum_of, load_checksum, save_checksum
from engine.damage import Damage, joined
from engine.disk import Disk, read_file
from engine.index import SegmentIndex, load_index
from engine.segment import can_follow


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A segment file that must not change any more."""

    path: str
    base_offset: int
    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What an examination found; no damage as a rule."""

    scrubbed_bytes: int
    damage: tuple[Damage, ...] = ()


def examine(disk: Disk, file: SealedFile, pace: Pace) -> Finding:
    """The cases of the file's head. `pace` is called with all bytes read. Raises OSError for an absent file."""
    known = load_checksum(disk, file.path)
    try:
        seen = checksum_of(disk, file.path, pace)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        seen = Checksum(file.size_bytes, -1)
    if seen == known:
        return Finding(seen.size_bytes)
    damage = find_damage(disk, file, pace)
    if not damage and known is None:
        save_checksum(disk, file.path, seen)
    elif not damage:
        damage = (Damage(file.base_offset, file.end_offset, 0, file.size_bytes),)
    return Finding(seen.size_bytes, damage)


def find_damage(disk: Disk, file: SealedFile, pace: Pace) -> tuple[Damage, ...]:
    """The offsets of batches that are not whole, in order and true to their checksums."""
    handle = disk.open(file.path)
    try:
        return joined(_Walk(disk, handle, file, pace).damages())
    finally:
        disk.close(handle)


class _Walk:
    """Goes from batch to batch, and behind a bad one to the next place where a good one is known to begin."""

    def __init__(self, disk: Disk, handle: int, file: SealedFile, pace: Pace) -> None:
        self._disk = disk
        self._handle = handle
        self._file = file
        self._pace = pace
        self._size_bytes = disk.size(handle)
        self._index = _saved_index(disk, file)
        self._window, self._window_at = b"", 0

    def damages(self) -> Iterator[Damage]:
        position, expected, end = 0, self._file.base_offset, self._file.end_offset
        while position < self._size_bytes and expected < end:
            header = self._header(position, expected)
            if header is not None and self._is_true(position, header):
                position, expected = position + header.size_bytes, header.next_offset
                continue
            resume_at, resume_from = self._resume(position, expected, header)
            yield Damage(expected, resume_from, position, resume_at)
            position, expected = resume_at, resume_from
        if expected < end or position < self._size_bytes:
            yield Damage(expected, end, position, self._size_bytes)

    def _header(self, position: int, expected: int) -> Header | None:
        """The header of the batch that must begin here, if there is one."""
        data = self._read(position, HEADER_BYTES)
        if len(data) < HEADER_BYTES:
            return None
        header = record_batch.read_header(data)
        fits = can_follow(header, expected, self._size_bytes - position)
        return header if fits and header.next_offset <= self._file.end_offset else None

    def _is_true(self, position: int, header: Header) -> bool:
        data = self._read(position, header.size_bytes)
        return len(data) == header.size_bytes and record_batch.has_valid_crc(data, 0, header)

    def _resume(self, position: int, expected: int, header: Header | None) -> tuple[int, int]:
        """Where a batch begins behind the bad one, by its own length or by the saved index; else the end."""
        if header is not None:
            follows = (position + header.size_bytes, header.next_offset)
            if follows == (self._size_bytes, self._file.end_offset) or self._header(*follows) is not None:
                return follows
        after = position
        while self._index is not None and (after := self._index.boundary_after(after) or 0):
            offset = self._index.offset_at(after)
            if offset > expected and self._header(after, offset) is not None:
                return after, offset
        return self._size_bytes, self._file.end_offset

    def _read(self, position: int, length: int) -> bytes:
        """The bytes at a position, out of a window; what the disk cannot give is not there."""
        start = position - self._window_at
        if start < 0 or start + length > len(self._window):
            try:
                self._window = self._disk.pread(self._handle, max(length, PIECE_BYTES), position)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                self._window = b""
            self._window_at, start = position, 0
            self._pace(len(self._window))
        return self._window[start : start + length]


def _saved_index(disk: Disk, file: SealedFile) -> SegmentIndex | None:
    """The saved indexes, if they can be trusted: they carry a checksum of their own."""
    offsets = read_file(disk, paths.beside_log(file.path, paths.OFFSET_INDEX))
    times = read_file(disk, paths.beside_log(file.path, paths.TIME_INDEX))
    if offsets is None or times is None:
        return None
    return load_index(file.base_offset, offsets, times, file.size_bytes)
