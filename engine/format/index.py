"""Sparse indexes of one segment: offset -> byte position, and time -> offset.

Never trusted: on any doubt recovery rebuilds them from the batch headers. Written once, when the segment is sealed or
the node stops; while a segment is active they are in memory only. File layout: engine/format/FORMAT.md. Each file ends
in a checksum that also covers the segment's size, so that an index of a formerly shorter segment is rejected.
Invariant: in each, both columns strictly increase; every position is the start of a batch.

`SpanChecksums` holds the CRC-32C of a segment's bytes up to entries of its index: a read checks a long span with one
call. Checking a batch takes 0.6 us of Python, for batches of one small record ten times as much as the rest of a read.
Here `crc32c(bytes between two entries, value at the first) == value at the second`, 0.05 ms per MiB for batches of any
size. Unlike the checksums of batches, it covers base offsets and leader epochs. It is held in memory, for bytes that
are contiguous valid batches: this process wrote them, or has checked each batch. It proves no damage: on a different or
unknown value, batches are checked one by one (engine/partition/reader.py). Invariant: the values of a run are those of
a CRC that begins at the run's first entry. `written` is for the event loop; any thread may call the other methods:
learned values are replaced as a whole, and of two threads the later one wins.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from crc32c import crc32c

from engine.format.batch import PREFIX_BYTES, Header
from engine.format.batch_header import Buffer, begins_batch

READ_RUNS_MAX = 4  # concurrent readers of a segment; a run of 64 MiB takes 64 KiB


class _Run(NamedTuple):
    """Values at neighbouring entries, beginning at entry number `first`."""

    first: int
    values: array[int]

    @property
    def end(self) -> int:
        return self.first + len(self.values)


class SpanChecksums:
    """The checksums of one segment. `positions` are always those of its index."""

    __slots__ = ("_crc", "_end", "_read_runs", "_written")

    def __init__(self) -> None:
        self._written = _Run(0, array("I"))
        self._crc, self._end = 0, 0  # of the written bytes, up to their end
        self._read_runs: tuple[_Run, ...] = ()

    def __repr__(self) -> str:
        return f"SpanChecksums(written={len(self._written.values)}, learned={len(self._read_runs)})"

    def add_bytes(self, buffers: Sequence[Buffer], start: int, positions: Sequence[int], number: int) -> None:
        """Adds bytes written at `start`, and the entries in them, which begin with that number."""
        if start != self._end:  # the bytes before are of an earlier process
            self._written = _Run(number, array("I"))
        crc, position, values, count = self._crc, start, self._written.values, len(positions)
        for buffer in buffers:
            end = position + len(buffer)
            while number < count and positions[number] < end:
                view = memoryview(buffer)
                before = positions[number] - position
                crc = crc32c(view[:before], crc) if values else 0
                values.append(crc)
                buffer, position, number = view[before:], position + before, number + 1
            crc = crc32c(buffer, crc)
            position = end
        self._crc, self._end = crc, position

    def file_checksum(self, size_bytes: int) -> int | None:
        """Returns the CRC of the whole file, if this process wrote all of it and it has this size."""
        run = self._written
        return self._crc if run.values and run.first == 0 and self._end == size_bytes else None

    def lookup(self, first: int, last: int) -> tuple[int, int] | None:
        """Returns the values at two entries, if one run holds both."""
        for begin, values in (self._written, *self._read_runs):
            if begin <= first and last - begin < len(values):
                return values[first - begin], values[last - begin]
        return None

    def add_read(self, data: Buffer, start: int, positions: Sequence[int], offsets: Sequence[int], first: int) -> None:
        """Remembers bytes, which begin at position `start`, from the entry of number `first` to the last of `offsets`.

        `offsets` are those of the batches at these entries. The caller has validated all batches. This checks that each
        entry is the start of a batch, since an index is not evidence.
        """
        if not begins_batch(data, positions[first] - start, offsets[0]):
            return
        run = next((run for run in self._read_runs if run.first <= first < run.end), None)
        others = [other_run for other_run in self._read_runs if other_run is not run]
        run = run or _Run(first, array("I", [0]))
        values, crc, view = run.values[:], run.values[-1], memoryview(data)
        for number in range(run.end, first + len(offsets)):
            begin, end = positions[number - 1] - start, positions[number] - start
            if end < len(data) and not begins_batch(data, end, offsets[number - first]):
                break
            crc = crc32c(view[begin:end], crc)
            values.append(crc)
        self._read_runs = (*others[1 - READ_RUNS_MAX :], _Run(run.first, values))


INDEX_INTERVAL_BYTES = 4096  # Kafka's default: a lookup then scans at most a page or one batch

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
        self.is_partial = False  # built from a damaged file: later records may be missing
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
        """Adds a batch that begins at a byte position. Batches come in order."""
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
        """Adds contiguous written batches; returns where the last one ends."""
        number = len(self.positions)
        end = self._add_all(headers, start)
        self.checksums.add_bytes(buffers, start, self.positions, number)
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
        """Returns the start of an indexed batch from which a scan forward finds `offset`."""
        after = bisect_right(self.relative_offsets, offset - self.base_offset)
        return self.positions[after - 1] if after else 0

    def entry_at_or_before(self, offset: int) -> tuple[int, int]:
        """Returns the same with the base offset of the batch that begins there: (position, offset)."""
        after = bisect_right(self.relative_offsets, offset - self.base_offset)
        if not after:
            return 0, self.base_offset
        return self.positions[after - 1], self.base_offset + self.relative_offsets[after - 1]

    def boundary_at_or_before(self, position: int) -> int:
        """Returns the largest indexed batch start that is not beyond a byte position."""
        after = bisect_right(self.positions, position)
        return self.positions[after - 1] if after else 0

    def boundary_after(self, position: int) -> int | None:
        """Returns the smallest indexed batch start beyond a byte position; None without one."""
        after = bisect_right(self.positions, position)
        return self.positions[after] if after < len(self.positions) else None

    def offset_at(self, position: int) -> int:
        """Returns the offset of the batch that begins at an indexed position."""
        at = bisect_right(self.positions, position) - 1
        assert self.positions[at] == position
        return self.base_offset + self.relative_offsets[at]

    def offset_of(self, number: int) -> int:
        """Returns the offset of the batch at the entry of that number."""
        return self.base_offset + self.relative_offsets[number]

    def offset_to_search_time_from(self, timestamp: int) -> int:
        """Returns an offset such that no record before it has `timestamp` or a later one."""
        at = bisect_right(self.times, timestamp - 1)
        return self.base_offset + (self.time_offsets[at - 1] if at else 0)

    def truncate(self, size_bytes: int) -> None:
        """Drops batches that begin at or beyond a byte position. The caller recomputes the maximum timestamp."""
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
        """Returns the `.index` file: pairs of u32, relative offset and position, big-endian; last the checksum."""
        return _sealed(_big_endian(_interleave(self.relative_offsets, self.positions)).tobytes(), size_bytes)

    def time_index_bytes(self, size_bytes: int) -> bytes:
        """Returns the `.timeindex` file: i64 time, u32 relative offset; then the maximum timestamp; the checksum."""
        entries = [*zip(self.times, self.time_offsets, strict=True), (self.max_timestamp, 0xFFFF_FFFF)]
        columns = (time.to_bytes(8, "big", signed=True) + offset.to_bytes(4, "big") for time, offset in entries)
        return _sealed(b"".join(columns), size_bytes)


def load_index(base_offset: int, offsets: bytes, times: bytes, size_bytes: int) -> SegmentIndex | None:
    """Returns the indexes of these files, or None if any part of them is in doubt."""
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
    """Appends a CRC-32C over the entries and the size of the segment that they describe."""
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
    """Swaps a copy to or from the file's byte order."""
    copy = column[:]
    if sys.byteorder == "little":
        copy.byteswap()
    return copy
