"""Sparse indexes of one segment: offset -> byte position, and time -> offset.

Never trusted: on any doubt recovery rebuilds them from the batch headers. Written once, when the segment is sealed or
the node stops; while a segment is active they live in memory only. File layout: engine/format/FORMAT.md. Each file ends
in a checksum that covers the segment's size too, so that an index made of a shorter life of the segment is not taken.
Invariant: in each, both columns strictly increase; every position is the start of a batch.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from crc32c import crc32c

from engine.format.batch import PREFIX_BYTES, Buffer, Header
from engine.format.span_checksums import SpanChecksums

INDEX_INTERVAL_BYTES = 4096  # Kafka's: a lookup then scans at most a page or one batch

_OFFSET_ENTRY_BYTES = 8
_TIME_ENTRY_BYTES = 12
_CHECKSUM_BYTES = 4


class SegmentIndex:
    """Both indexes of a segment whose first record has `base_offset`."""

    __slots__ = (
        "_indexed_to",
        "base_offset",
        "checksums",
        "is_partial",
        "max_timestamp",
        "positions",
        "relative_offsets",
        "time_offsets",
        "times",
    )

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.is_partial = False  # made of what damage has left: later records may be missing
        self.relative_offsets = array("I")
        self.positions = array("I")
        self.times = array("q")
        self.time_offsets = array("I")
        self.max_timestamp = -1
        self.checksums = SpanChecksums()
        self._indexed_to = -INDEX_INTERVAL_BYTES

    def __repr__(self) -> str:
        return f"SegmentIndex(base_offset={self.base_offset}, entries={len(self.positions)})"

    def add(self, header: Header, position: int) -> None:
        """Take note of a batch that begins at a byte position. Batches come in order."""
        relative = header.base_offset - self.base_offset
        if position - self._indexed_to >= INDEX_INTERVAL_BYTES:
            self.relative_offsets.append(relative)
            self.positions.append(position)
            self._indexed_to = position
            if self.max_timestamp > (self.times[-1] if self.times else -1):
                # Everything before this batch is at most max_timestamp: a search for a later time starts here.
                self.times.append(self.max_timestamp)
                self.time_offsets.append(relative)
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)

    def add_written(self, headers: Sequence[Header], buffers: Sequence[Buffer], start: int) -> int:
        """The same for batches that were written one after another; returns where the last one ends."""
        number = len(self.positions)
        end = self._add_all(headers, start)
        self.checksums.written(buffers, start, self.positions, number)
        return end

    def _add_all(self, headers: Sequence[Header], position: int) -> int:
        """Most batches get no entry."""
        for header in headers:
            if position - self._indexed_to >= INDEX_INTERVAL_BYTES:
                self.add(header, position)
            elif header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
            position += PREFIX_BYTES + header.batch_length
        return position

    def position_at_or_before(self, offset: int) -> int:
        """The start of an indexed batch from which a scan forward finds `offset`."""
        found = bisect_right(self.relative_offsets, offset - self.base_offset)
        return self.positions[found - 1] if found else 0

    def entry_at_or_before(self, offset: int) -> tuple[int, int]:
        """The same with the base offset of the batch that begins there: (position, offset)."""
        found = bisect_right(self.relative_offsets, offset - self.base_offset)
        if not found:
            return 0, self.base_offset
        return self.positions[found - 1], self.base_offset + self.relative_offsets[found - 1]

    def boundary_at_or_before(self, position: int) -> int:
        """The largest indexed batch start that is not beyond a byte position."""
        found = bisect_right(self.positions, position)
        return self.positions[found - 1] if found else 0

    def boundary_after(self, position: int) -> int | None:
        """The smallest indexed batch start beyond a byte position; None when the last entry is not."""
        found = bisect_right(self.positions, position)
        return self.positions[found] if found < len(self.positions) else None

    def offset_at(self, position: int) -> int:
        """The offset of the batch that begins at an indexed position."""
        found = bisect_right(self.positions, position) - 1
        assert self.positions[found] == position
        return self.base_offset + self.relative_offsets[found]

    def offset_of(self, number: int) -> int:
        """The offset of the batch at the entry of that number."""
        return self.base_offset + self.relative_offsets[number]

    def offset_to_search_time_from(self, timestamp: int) -> int:
        """An offset such that no record before it has `timestamp` or a later one."""
        found = bisect_right(self.times, timestamp - 1)
        return self.base_offset + (self.time_offsets[found - 1] if found else 0)

    def truncate(self, size_bytes: int) -> None:
        """Forget batches that begin at or beyond a byte position. The maximum timestamp is recomputed by the caller."""
        keep = bisect_right(self.positions, size_bytes - 1) if size_bytes else 0
        del self.positions[keep:]
        del self.relative_offsets[keep:]
        last = self.relative_offsets[-1] if keep else -1
        keep_times = bisect_right(self.time_offsets, last) if keep else 0
        del self.times[keep_times:]
        del self.time_offsets[keep_times:]
        self.checksums = SpanChecksums()
        self._indexed_to = self.positions[-1] if keep else -INDEX_INTERVAL_BYTES

    def offset_index_bytes(self, size_bytes: int) -> bytes:
        """The `.index` file: pairs of u32, relative offset and position, big-endian; last the checksum."""
        return _sealed(_big_endian(_interleave(self.relative_offsets, self.positions)).tobytes(), size_bytes)

    def time_index_bytes(self, size_bytes: int) -> bytes:
        """The `.timeindex` file: i64 time, u32 relative offset; then the segment's maximum timestamp; the checksum."""
        entries = [*zip(self.times, self.time_offsets, strict=True), (self.max_timestamp, 0xFFFF_FFFF)]
        columns = (time.to_bytes(8, "big", signed=True) + offset.to_bytes(4, "big") for time, offset in entries)
        return _sealed(b"".join(columns), size_bytes)


def load_index(base_offset: int, offsets: bytes, times: bytes, size_bytes: int) -> SegmentIndex | None:
    """The indexes that these files hold, or None when anything about them is doubtful."""
    if not (_is_sealed(offsets, size_bytes) and _is_sealed(times, size_bytes)):
        return None
    offsets, times = offsets[:-_CHECKSUM_BYTES], times[:-_CHECKSUM_BYTES]
    if len(offsets) % _OFFSET_ENTRY_BYTES or len(times) % _TIME_ENTRY_BYTES or not times:
        return None
    index = SegmentIndex(base_offset)
    columns = _big_endian(array("I", offsets))
    index.relative_offsets, index.positions = columns[0::2], columns[1::2]
    for at in range(0, len(times) - _TIME_ENTRY_BYTES, _TIME_ENTRY_BYTES):
        index.times.append(int.from_bytes(times[at : at + 8], "big", signed=True))
        index.time_offsets.append(int.from_bytes(times[at + 8 : at + 12], "big"))
    index.max_timestamp = int.from_bytes(times[-12:-4], "big", signed=True)
    index._indexed_to = index.positions[-1] if index.positions else -INDEX_INTERVAL_BYTES
    is_sound = (
        times[-4:] == b"\xff\xff\xff\xff"
        and all(map(_strictly_increases, (index.relative_offsets, index.positions, index.times, index.time_offsets)))
        and (not size_bytes or bool(index.positions and index.positions[0] == 0))
        and (not index.positions or index.positions[-1] < size_bytes)
        and (not index.times or index.times[-1] <= index.max_timestamp)
    )
    return index if is_sound else None


def _sealed(entries: bytes, size_bytes: int) -> bytes:
    """With a CRC-32C over the entries and the size of the segment that they describe."""
    checksum: int = crc32c(entries + size_bytes.to_bytes(8, "big"))
    return entries + checksum.to_bytes(_CHECKSUM_BYTES, "big")


def _is_sealed(data: bytes, size_bytes: int) -> bool:
    return _sealed(data[:-_CHECKSUM_BYTES], size_bytes) == data


def _strictly_increases(column: array[int]) -> bool:
    return all(a < b for a, b in pairwise(column))


def _interleave(first: array[int], second: array[int]) -> array[int]:
    both = array("I", bytes(8 * len(first)))
    both[0::2], both[1::2] = first, second
    return both


def _big_endian(column: array[int]) -> array[int]:
    """Swap a copy to or from the file's byte order."""
    copy = column[:]
    if sys.byteorder == "little":
        copy.byteswap()
    return copy
