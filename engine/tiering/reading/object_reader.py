"""Finds batches in one segment object by walking their headers. Blocking; reads through the given `pread`.

Does not know where the bytes come from (cached blocks or ranged GETs), and decodes no record. Checks the CRC of every
batch that it returns, and that each batch that it passes follows the one before: no CRC covers a base offset. The index
is only a hint: where it is wrong, the walk begins again at the first byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.errors import Corrupt
from engine.format.batch import HEADER_BYTES, MAGIC, PREFIX_BYTES, Header, has_valid_crc, read_header, walk
from engine.partition.reader import Chunk
from engine.tiering.manifest.aux_object import SparseIndex
from engine.tiering.manifest.manifest import ManifestEntry

_WINDOW_BYTES = 64 << 10  # the distance of index entries: most walks end in the first window

Pread = Callable[[int, int], bytes]  # position, length -> bytes, fewer only at the object's end


def read_batches(pread: Pread, entry: ManifestEntry, index: SparseIndex, offset: int, max_bytes: int) -> Chunk:
    """Reads whole batches from the one that holds `offset` on: at least that one, up to about `max_bytes`.

    Raises Corrupt.
    """
    try:
        return _read_from(index.position_at_or_before(offset), pread, entry, offset, max_bytes)
    except Corrupt:
        return _read_from(0, pread, entry, offset, max_bytes)


def first_batch_at_or_after(
    pread: Pread, entry: ManifestEntry, index: SparseIndex, timestamp: int, start_offset: int
) -> Chunk | None:
    """Returns the first batch that may hold a record of `timestamp` or later and ends after `start_offset`, or None.

    Raises Corrupt.
    """
    start = max(index.position_to_search_time_from(timestamp), index.position_at_or_before(start_offset))
    try:
        return _find_time(start, pread, entry, timestamp, start_offset)
    except Corrupt:
        return _find_time(0, pread, entry, timestamp, start_offset)


def _read_from(start: int, pread: Pread, entry: ManifestEntry, offset: int, max_bytes: int) -> Chunk:
    for position, header in _headers(pread, entry, start):
        if header.base_offset > offset:
            break
        if header.next_offset > offset:
            length = max(max_bytes, header.size_bytes)
            return _complete_batches(pread(position, min(length, entry.size_bytes - position)), position, entry)
    raise Corrupt(f"object {entry.key}: no batch holds offset {offset}")


def _find_time(start: int, pread: Pread, entry: ManifestEntry, timestamp: int, start_offset: int) -> Chunk | None:
    for position, header in _headers(pread, entry, start):
        if header.max_timestamp >= timestamp and header.next_offset > start_offset:
            return _complete_batches(pread(position, header.size_bytes), position, entry)
    return None


def _headers(pread: Pread, entry: ManifestEntry, position: int) -> Iterator[tuple[int, Header]]:
    window, window_at = b"", position
    expected: int | None = None
    while position < entry.size_bytes:
        if position + HEADER_BYTES > window_at + len(window):
            window, window_at = pread(position, min(_WINDOW_BYTES, entry.size_bytes - position)), position
        if position + HEADER_BYTES > window_at + len(window):
            raise Corrupt(f"object {entry.key} ends within the header at byte {position}")
        header = read_header(window, position - window_at)
        if header.magic != MAGIC or not HEADER_BYTES - PREFIX_BYTES <= header.batch_length <= entry.size_bytes:
            raise Corrupt(f"object {entry.key} has no batch at byte {position}")
        _check_offsets(header, expected, position, entry)
        yield position, header
        position, expected = position + header.size_bytes, header.next_offset


def _check_offsets(header: Header, expected: int | None, position: int, entry: ManifestEntry) -> None:
    """Checks that a batch follows the one before and is within the object."""
    follows = expected is None or header.base_offset == expected
    if not follows or not entry.base_offset < header.next_offset <= entry.end_offset:
        spans = f"{header.base_offset}..{header.next_offset}"
        raise Corrupt(f"object {entry.key}: the batch at byte {position} spans {spans}, out of order")


def _complete_batches(data: bytes, position: int, entry: ManifestEntry) -> Chunk:
    end, next_offset = 0, None  # type: int, int | None
    for at, header in walk(data):
        _check_offsets(header, next_offset, position + at, entry)
        if not has_valid_crc(data, at, header):
            raise Corrupt(f"object {entry.key}: the batch at byte {position + at} fails its checksum")
        end, next_offset = at + header.size_bytes, header.next_offset
    if next_offset is None:
        raise Corrupt(f"object {entry.key}: the batch at byte {position} is cut off")
    return Chunk(data[:end], next_offset)
