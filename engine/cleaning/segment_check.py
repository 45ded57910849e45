"""Examines one sealed segment file: is it still what was sealed, and if not, which offsets are damaged?

Blocking, reads and never changes a `.log`; engine/cleaning/quarantine.py keeps damaged records from being served.
Cases: (1) the file has its checksum and ends where the next segment begins: fine; (2) no checksum is known, and every
batch is true to its own and they reach the end: a checksum is made; (3) some batches are bad or missing: those are the
damage; (4) the checksum is wrong though no batch is: bytes that no batch's CRC covers, so all of it is in doubt; (5)
the file is missing: all of it is damage.
Reads through the page cache: what readers are given is what is examined. Bytes that the disk cannot give are damage.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass

from engine.cleaning.file_window import FileWindow
from engine.format import batch as record_batch
from engine.format.batch import HEADER_BYTES, Header
from engine.format.batch_header import sound_batches
from engine.format.checksum import Checksum, Pace, checksum_of, load_checksum, save_checksum
from engine.log.corruption_probe import batch_starts
from engine.log.damaged_ranges import Damage, joined
from engine.log.segment import Segment, can_follow, saved_index
from engine.runtime.disk import Disk

_ALL = 1 << 40  # batches
_SEARCHED_BYTES_MAX = 64 * 1024 * 1024  # in memory at once, for a batch that begins somewhere in them


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A segment file that must not change any more. `is_damaged`: some of its records are known to be."""

    path: str
    base_offset: int
    end_offset: int
    size_bytes: int
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """What an examination found; no damage as a rule."""

    scrubbed_bytes: int  # the size of the file; 0 of one that is missing
    damage: tuple[Damage, ...] = ()


def sealed_file(segment: Segment) -> SealedFile:
    is_damaged = bool(segment.damage)
    return SealedFile(segment.path, segment.base_offset, segment.next_offset, segment.size_bytes, is_damaged)


def examine(disk: Disk, file: SealedFile, pace: Pace, written: Checksum | None = None) -> Finding:
    """The cases of the file's head. `pace` is called with all bytes read. Raises OSError.

    `written` is that of the sound batches that this process wrote into it, if it wrote all: a file that still holds
    them needs no look at each batch.
    """
    known = load_checksum(disk, file.path)
    try:
        seen = checksum_of(disk, file.path, pace)
    except FileNotFoundError:
        return Finding(0, (Damage(file.base_offset, file.end_offset, 0, 0),))
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        seen = Checksum(file.size_bytes, -1)
    if seen == known and _is_in_place(disk, file):
        return Finding(seen.size_bytes)
    if known is None and seen == written:
        save_checksum(disk, file.path, seen)
        return Finding(seen.size_bytes)
    damage = find_damage(disk, file, pace)
    if not damage and known is None:
        save_checksum(disk, file.path, seen)
    elif not damage and seen != known:
        damage = (Damage(file.base_offset, file.end_offset, 0, file.size_bytes),)
    return Finding(seen.size_bytes, damage)


def find_damage(disk: Disk, file: SealedFile, pace: Pace) -> tuple[Damage, ...]:
    """The offsets of batches that are not whole, in order and true to their checksums."""
    handle = disk.open(file.path)
    try:
        return joined(_Walk(disk, handle, file, pace).damages())
    finally:
        disk.close(handle)


def _is_in_place(disk: Disk, file: SealedFile) -> bool:
    """Whether a file that is what was sealed begins and ends at the offsets of its name and of the next segment.

    Its checksum does not say so: the segment behind it may be missing. False where only a walk can tell.
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
    """Goes from batch to batch, and behind a bad one to the next place where a good one is known to begin."""

    def __init__(self, disk: Disk, handle: int, file: SealedFile, pace: Pace) -> None:
        self._file = file
        self._window = FileWindow(disk, handle, pace)
        self._size_bytes = disk.size(handle)
        self._index = saved_index(disk, file.path, file.base_offset, file.size_bytes)

    def damages(self) -> Iterator[Damage]:
        position, expected, end = 0, self._file.base_offset, self._file.end_offset
        while position < self._size_bytes and expected < end:
            position, expected = self._behind_sound(position, expected)
            if position >= self._size_bytes or expected >= end:
                break
            header = self._header(position, expected)
            if header is not None and self._is_true(position, header):
                position, expected = position + header.size_bytes, header.next_offset
                continue
            resume_at, resume_from = self._resume(position, expected, header)
            yield Damage(expected, resume_from, position, resume_at)
            position, expected = resume_at, resume_from
        if expected < end or position < self._size_bytes:
            yield Damage(expected, end, position, self._size_bytes)

    def _behind_sound(self, position: int, expected: int) -> tuple[int, int]:
        """Past the sound batches that are in the window. The quick way: nearly all batches are passed here."""
        self._window.read(position, HEADER_BYTES)
        window = self._window.rest(position)
        _, end, next_offset, _ = sound_batches(window, expected, expected, _ALL)
        return (position + end, next_offset) if next_offset <= self._file.end_offset else (position, expected)

    def _header(self, position: int, expected: int) -> Header | None:
        """The header of the batch that must begin here, if there is one."""
        data = self._window.read(position, HEADER_BYTES)
        if len(data) < HEADER_BYTES:
            return None
        header = record_batch.read_header(data)
        fits = can_follow(header, expected, self._size_bytes - position)
        return header if fits and header.next_offset <= self._file.end_offset else None

    def _is_true(self, position: int, header: Header) -> bool:
        data = self._window.read(position, header.size_bytes)
        return len(data) == header.size_bytes and record_batch.has_valid_crc(data, 0, header)

    def _resume(self, position: int, expected: int, header: Header | None) -> tuple[int, int]:
        """Where a batch begins behind the bad one: where it ends itself, else what is found before the next entry of
        the saved index, else that entry, else the end.
        """
        if header is not None:
            follows = (position + header.size_bytes, header.next_offset)
            if follows == (self._size_bytes, self._file.end_offset) or self._header(*follows) is not None:
                return follows
        known = self._next_entry(position, expected) or (self._size_bytes, self._file.end_offset)
        return self._between(position, expected, known) or known

    def _next_entry(self, position: int, expected: int) -> tuple[int, int] | None:
        """The next place behind a position where the saved index has a batch, and one begins."""
        while self._index is not None and (after := self._index.boundary_after(position)):
            offset = self._index.offset_at(after)
            if offset > expected and self._header(after, offset) is not None:
                return after, offset
            position = after
        return None

    def _between(self, position: int, expected: int, known: tuple[int, int]) -> tuple[int, int] | None:
        """The first place in front of a known one from which sound batches reach exactly there.

        Nothing less will do: the bytes of a record may look like a batch. None, too, where it is too far to search.
        """
        if known[0] - position > _SEARCHED_BYTES_MAX:
            return None
        data = self._window.read(position, max(0, known[0] - position))
        view = memoryview(data)
        for at, header in batch_starts(data, expected):
            if expected < header.base_offset < known[1]:
                found = sound_batches(view[at:], header.base_offset, header.base_offset, _ALL)
                if (position + at + found.end, found.next_offset) == known:
                    return position + at, header.base_offset
        return None
