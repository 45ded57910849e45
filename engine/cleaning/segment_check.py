"""Examines one sealed segment file: does it still have its sealed bytes, and if not, which offsets are damaged?

Blocking; reads and never changes a `.log`. engine/cleaning/quarantine.py keeps readers from damaged records. Cases:
- (1) the file has its checksum and ends where the next segment begins: no damage;
- (2) no checksum is known, every batch matches its CRC and the batches reach the end: a checksum is made;
- (3) some batches are bad or missing: their offsets are the damage;
- (4) the checksum is wrong and every batch is valid: bytes outside of any CRC differ, so the whole file is damage;
- (5) the file is missing: the whole range is damage.
Reads through the page cache: it examines the bytes that readers get. Bytes that the disk cannot read are damage.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass

from engine.cleaning.file_window import FileWindow
from engine.format import batch as record_batch
from engine.format.batch import HEADER_BYTES, Header
from engine.format.batch_header import valid_batches
from engine.format.checksum import Checksum, Pace, checksum_of, load_checksum, save_checksum
from engine.log.corruption_probe import batch_starts
from engine.log.damaged_ranges import Damage, merged
from engine.log.segment import Segment, can_follow, saved_index
from engine.runtime.disk import Disk

_ALL = 1 << 40  # batches
_SEARCHED_BYTES_MAX = 64 * 1024 * 1024  # in memory at once, to search for the next batch


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A segment file that must not change. `is_damaged`: some of its records are known to be damaged."""

    path: str
    base_offset: int
    end_offset: int
    size_bytes: int
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of an examination; usually without damage."""

    scrubbed_bytes: int  # the size of the file; 0 if it is missing
    damage: tuple[Damage, ...] = ()


def sealed_file(segment: Segment) -> SealedFile:
    is_damaged = bool(segment.damage)
    return SealedFile(segment.path, segment.base_offset, segment.next_offset, segment.size_bytes, is_damaged)


def examine(disk: Disk, file: SealedFile, pace: Pace, written: Checksum | None = None) -> Finding:
    """Examines a file by the cases above. Calls `pace` with all bytes read. Raises OSError.

    `written` is the checksum of the valid batches that this process wrote, if it wrote the whole file. A file that
    matches it needs no check of each batch.
    """
    checksum = load_checksum(disk, file.path)
    try:
        seen = checksum_of(disk, file.path, pace)
    except FileNotFoundError:
        return Finding(0, (Damage(file.base_offset, file.end_offset, 0, 0),))
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        seen = Checksum(file.size_bytes, -1)
    if seen == checksum and _matches_its_name(disk, file):
        return Finding(seen.size_bytes)
    if checksum is None and seen == written:
        save_checksum(disk, file.path, seen)
        return Finding(seen.size_bytes)
    damage = find_damage(disk, file, pace)
    if not damage and checksum is None:
        save_checksum(disk, file.path, seen)
    elif not damage and seen != checksum:
        damage = (Damage(file.base_offset, file.end_offset, 0, file.size_bytes),)
    return Finding(seen.size_bytes, damage)


def find_damage(disk: Disk, file: SealedFile, pace: Pace) -> tuple[Damage, ...]:
    """Return the offset ranges of batches that are incomplete, out of order or fail their CRC. Raises OSError."""
    handle = disk.open(file.path)
    try:
        return merged(_Walk(disk, handle, file, pace).damages())
    finally:
        disk.close(handle)


def _matches_its_name(disk: Disk, file: SealedFile) -> bool:
    """True if a file with the sealed bytes begins and ends at the offsets of its name and of the next segment.

    Its checksum does not prove that: the segment behind it may be missing. False where only a walk can decide.
    """
    index = saved_index(disk, file.path, file.base_offset, file.size_bytes)
    if index is None or not index.positions:
        return False
    position = index.positions[-1]
    expected = index.offset_at(position)
    handle = disk.open(file.path)
    try:
        first = disk.pread(handle, HEADER_BYTES, 0)
        while position + HEADER_BYTES <= file.size_bytes:
            header = record_batch.read_header(disk.pread(handle, HEADER_BYTES, position))
            if not can_follow(header, expected, file.size_bytes - position):
                return False
            position, expected = position + header.size_bytes, header.next_offset
    finally:
        disk.close(handle)
    return record_batch.read_header(first).base_offset == file.base_offset and expected == file.end_offset


class _Walk:
    """Walks from batch to batch, and behind a bad one to the next position where a good one is known to begin."""

    def __init__(self, disk: Disk, handle: int, file: SealedFile, pace: Pace) -> None:
        self._file = file
        self._window = FileWindow(disk, handle, pace)
        self._size_bytes = disk.size(handle)
        self._index = saved_index(disk, file.path, file.base_offset, file.size_bytes)

    def damages(self) -> Iterator[Damage]:
        position, expected, end = 0, self._file.base_offset, self._file.end_offset
        while position < self._size_bytes and expected < end:
            position, expected = self._skip_valid(position, expected)
            if position >= self._size_bytes or expected >= end:
                break
            header = self._header(position, expected)
            if header is not None and self._is_valid(position, header):
                position, expected = position + header.size_bytes, header.next_offset
                continue
            resume_at, resume_from = self._resume(position, expected, header)
            yield Damage(expected, resume_from, position, resume_at)
            position, expected = resume_at, resume_from
        if expected < end or position < self._size_bytes:
            yield Damage(expected, end, position, self._size_bytes)

    def _skip_valid(self, position: int, expected: int) -> tuple[int, int]:
        """Skips the valid batches of the window. The fast path: passes nearly all batches."""
        self._window.read(position, HEADER_BYTES)
        window = self._window.rest(position)
        _, end, next_offset, _ = valid_batches(window, expected, expected, _ALL)
        return (position + end, next_offset) if next_offset <= self._file.end_offset else (position, expected)

    def _header(self, position: int, expected: int) -> Header | None:
        """Returns the header of the batch that must begin here; None without one."""
        data = self._window.read(position, HEADER_BYTES)
        if len(data) < HEADER_BYTES:
            return None
        header = record_batch.read_header(data)
        fits = can_follow(header, expected, self._size_bytes - position)
        return header if fits and header.next_offset <= self._file.end_offset else None

    def _is_valid(self, position: int, header: Header) -> bool:
        data = self._window.read(position, header.size_bytes)
        return len(data) == header.size_bytes and record_batch.has_valid_crc(data, 0, header)

    def _resume(self, position: int, expected: int, header: Header | None) -> tuple[int, int]:
        """Returns the position and offset of the next batch behind a bad one: its own end, else a search before the
        next entry of the saved index, else that entry, else the end.
        """
        if header is not None:
            follows = (position + header.size_bytes, header.next_offset)
            if follows == (self._size_bytes, self._file.end_offset) or self._header(*follows) is not None:
                return follows
        join = self._next_entry(position, expected) or (self._size_bytes, self._file.end_offset)
        return self._find_join(position, expected, join) or join

    def _next_entry(self, position: int, expected: int) -> tuple[int, int] | None:
        """Returns the next position at which the saved index has a batch, and a valid one begins."""
        while self._index is not None and (after := self._index.boundary_after(position)):
            offset = self._index.offset_at(after)
            if offset > expected and self._header(after, offset) is not None:
                return after, offset
            position = after
        return None

    def _find_join(self, position: int, expected: int, join: tuple[int, int]) -> tuple[int, int] | None:
        """Returns the first position before a known one from which valid batches reach exactly that one.

        A shorter run proves nothing: the bytes of a record may look like a batch. Returns None if the search is too
        long.
        """
        if join[0] - position > _SEARCHED_BYTES_MAX:
            return None
        data = self._window.read(position, max(0, join[0] - position))
        view = memoryview(data)
        for at, header in batch_starts(data, expected):
            if expected < header.base_offset < join[1]:
                run = valid_batches(view[at:], header.base_offset, header.base_offset, _ALL)
                if (position + at + run.end, run.next_offset) == join:
                    return position + at, header.base_offset
        return None
