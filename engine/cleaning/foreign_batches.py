"""Keeps a segment file that is about to be replaced or removed, if it has valid batches of another log.

Foreign batches belong to another log: an operator put a file in the wrong place, and it may be the only copy.
Blocking; reads the `.log` file and never changes its bytes. The kept file has a name beside it that neither a
start nor a removal takes for the engine's own. Where a good copy replaces the file, a batch is not foreign if the copy
has it at its offset, equal in all bytes that the batch's checksum covers. Where the file is removed, a batch is not
foreign if its offsets are the segment's. A wrong leader epoch alone does not make a batch foreign; a wrong base offset
does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Self

from crc32c import crc32c

from engine.cleaning.file_window import FileWindow
from engine.format import paths
from engine.format.batch import HEADER_BYTES, MAGIC, Buffer, Header, has_valid_crc, read_header
from engine.format.checksum import PIECE_BYTES
from engine.format.index import SegmentIndex
from engine.log.segment import Segment
from engine.runtime.disk import Disk, FileKind, write_fully

_CHECKED_BYTES_MAX = 1 << 30  # of bytes that look like headers and are not; a file with more is kept
_MAYBE_HEADER = re.compile(rb"(?=.{16}" + re.escape(bytes([MAGIC])) + rb")", re.DOTALL)


def save_foreign_batches(disk: Disk, log_path: str, good_path: str) -> str | None:
    """Returns the path of the kept copy of a `.log` file; None if the good copy has all its batches. Raises OSError.

    Durable when this returns. A second call for the same file keeps no second copy.
    """
    if disk.kind(log_path) is not FileKind.FILE:
        return None
    with _File(disk, log_path) as file, _File(disk, good_path) as good:
        return _copy(disk, file, log_path) if _has_foreign(file, _GoodCopy(good).has) else None


def save_misplaced_batches(disk: Disk, segment: Segment) -> str | None:
    """Returns the path of the kept copy of a segment's file; None if all its batches have offsets of the segment.

    For a segment whose good copy has other batches, as after a compaction of another replica. Raises OSError.
    """
    if disk.kind(segment.path) is not FileKind.FILE:
        return None
    with _File(disk, segment.path) as file:
        return _copy(disk, file, segment.path) if _has_foreign(file, _places_of(segment)) else None


def set_aside_foreign(disk: Disk, segment: Segment) -> str | None:
    """Rename the `.log` file of a sealed segment if it has batches of another log. Returns its new path, or None.

    Reads all of the file only if it is damaged, or if its size or first offset is not the segment's. The caller makes
    the rename durable. Raises OSError.
    """
    if disk.kind(segment.path) is not FileKind.FILE:
        return None
    with _File(disk, segment.path) as file:
        first = file.header(0)
        begins_well = first is not None and first.base_offset == segment.base_offset
        if begins_well and file.size_bytes == segment.size_bytes and not segment.damage:
            return None
        if not _has_foreign(file, _places_of(segment)):
            return None
        seen = 0
        for _, piece in _pieces(file):
            seen = crc32c(piece, seen)
    target = paths.foreign_file(segment.path, seen)
    disk.rename(segment.path, target)
    return target


class _File:
    """The bytes of a file, read through a window. Bytes that the disk cannot read are missing."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._handle = disk.open(path)
        self.size_bytes = disk.size(self._handle)
        self._window = FileWindow(disk, self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._disk.close(self._handle)

    def read(self, position: int, length: int) -> bytes:
        return self._window.read(position, length)

    def header(self, position: int) -> Header | None:
        data = self.read(position, HEADER_BYTES)
        return read_header(data) if len(data) == HEADER_BYTES else None


class _GoodCopy:
    """The good copy: valid batches from its first byte to its last."""

    def __init__(self, file: _File) -> None:
        self._file = file
        self._index: SegmentIndex | None = None

    def has(self, position: int, header: Header, batch: Buffer) -> bool:
        """True if the copy has the batch; usually at the same position as the other file."""
        same = self._file.header(position)
        is_same = same is not None and same.base_offset == header.base_offset
        at = position if is_same else self._position_of(header.base_offset)
        return at is not None and self._is_at(at, batch)

    def _is_at(self, position: int, batch: Buffer) -> bool:
        stored = self._file.read(position, len(batch))
        return stored[8:12] == batch[8:12] and stored[16:] == batch[16:]  # all but base offset and leader epoch

    def _position_of(self, offset: int) -> int | None:
        if self._index is None:
            self._index = self._indexed()
        position = self._index.position_at_or_before(offset)
        while (header := self._file.header(position)) is not None and header.base_offset < offset:
            position += header.size_bytes
        return position if header is not None and header.base_offset == offset else None

    def _indexed(self) -> SegmentIndex:
        position, header = 0, self._file.header(0)
        index = SegmentIndex(header.base_offset if header is not None else 0)
        while header is not None:
            index.add(header, position)
            position += header.size_bytes
            header = self._file.header(position)
        return index


def _places_of(segment: Segment) -> Callable[[int, Header, Buffer], bool]:
    def has_place(_: int, header: Header, __: Buffer) -> bool:
        return segment.base_offset <= header.base_offset and header.next_offset <= segment.next_offset

    return has_place


def _has_foreign(file: _File, is_own: Callable[[int, Header, Buffer], bool]) -> bool:
    """`is_own` judges a valid batch by its position, header and bytes."""
    position, left = 0, _CHECKED_BYTES_MAX
    while position + HEADER_BYTES <= file.size_bytes:
        following = position + PIECE_BYTES
        for at in chain((position,), _maybe_headers(file, position)):
            header = file.header(at)
            if header is None or not _fits(header, file.size_bytes - at):
                continue
            batch = file.read(at, header.size_bytes)
            if len(batch) == header.size_bytes and has_valid_crc(batch, 0, header):
                if not is_own(at, header, batch):
                    return True
                following = at + header.size_bytes
                break
            left -= header.size_bytes
            if left < 0:
                return True
        position = following
    return False


def _maybe_headers(file: _File, position: int) -> Iterator[int]:
    """Yields positions where a batch may begin, behind a position without one, within one window."""
    data = file.read(position, PIECE_BYTES + HEADER_BYTES)
    for match in _MAYBE_HEADER.finditer(data, 1):
        if match.start() >= PIECE_BYTES:
            return
        yield position + match.start()


def _fits(header: Header, bytes_left: int) -> bool:
    is_counted = 0 <= header.record_count <= header.last_offset_delta + 1
    return is_counted and header.base_offset >= 0 and HEADER_BYTES <= header.size_bytes <= bytes_left


def _pieces(file: _File) -> Iterator[tuple[int, bytes]]:
    """Yields the whole file, with zeros for bytes that the disk cannot read."""
    for position in range(0, file.size_bytes, PIECE_BYTES):
        length = min(PIECE_BYTES, file.size_bytes - position)
        yield position, file.read(position, length).ljust(length, b"\0")


def _copy(disk: Disk, file: _File, log_path: str) -> str:
    path = paths.unfinished_foreign(log_path)
    try:
        handle = disk.open(path, create=True, writable=True)
        try:
            disk.truncate(handle, 0)
            seen = 0
            for position, piece in _pieces(file):
                write_fully(disk, handle, piece, position)
                seen = crc32c(piece, seen)
            disk.fdatasync(handle)
        finally:
            disk.close(handle)
        target = paths.foreign_file(log_path, seen)
        disk.rename(path, target)  # the earlier kept copy has the same bytes
    except BaseException:
        with suppress(OSError):
            disk.unlink(path)
        raise
    disk.fsync_dir(target.rpartition("/")[0])
    return target
