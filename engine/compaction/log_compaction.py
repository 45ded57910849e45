"""One round of compaction of one log: reads its segments, writes smaller ones beside them. Blocking.

Two passes (Kafka's LogCleaner): the dirty segments give the last offset of each key, as many as the memory holds; then
every segment below that point is copied without superseded records and expired tombstones. Only sealed, committed and
durable segments are read, and every byte is checked before it is copied. The owner of the log swaps the files
(engine/compaction/swapping.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from crc32c import crc32c

from engine.compaction.batch_compaction import RemovedRange, compact_batch
from engine.compaction.latest_offsets import LatestOffsets, new_latest_offsets
from engine.compaction.plan import CompactionPlan, SegmentFile
from engine.errors import Corrupt, InvalidBatch
from engine.format.batch import HEADER_BYTES, Buffer, Header, read_header, unpacked, walk
from engine.format.batch_header import valid_batches
from engine.format.checksum import Checksum, Pace
from engine.log.segment_swap import new_file_path
from engine.runtime.disk import Disk

_ALL = 1 << 40  # batches
_PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A file that is to replace neighbouring segments: durable, beside the first of them."""

    replaced: tuple[SegmentFile, ...]
    file: Checksum
    removed: int  # records

    @property
    def base_offset(self) -> int:
        return self.replaced[0].base_offset

    @property
    def end_offset(self) -> int:
        return self.replaced[-1].end_offset

    @property
    def freed_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.replaced) - self.file.size_bytes


def latest_offsets(
    disk: Disk, plan: CompactionPlan, memory_bytes: int, hash_key: bytes, pace: Pace
) -> tuple[LatestOffsets, int]:
    """Returns the last offset of each key in the dirty segments, and the end of the records that were read.

    Stops before the batch that does not fit into the memory; the first one always fits. Raises Corrupt, OSError.
    """
    latest = new_latest_offsets(memory_bytes, hash_key)
    end = plan.dirty_start
    for segment in plan.dirty:
        for batch, header in _batches(disk, segment, pace):
            if header.next_offset <= plan.dirty_start:
                continue
            if header.record_count > latest.room:
                if end > plan.dirty_start:
                    return latest, end
                latest = new_latest_offsets(memory_bytes, hash_key, header.record_count)
            if header.record_count and not header.is_control:
                with suppress(InvalidBatch):  # a batch that no reader can decode supersedes nothing
                    latest.add(unpacked(batch), header)
            end = header.next_offset
    return latest, end


class SegmentCopier:
    """Copies groups of segments without the records that compaction removes."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        latest: LatestOffsets,
        tombstones_expired_below: int,
        keeps_producers: Callable[[SegmentFile, Header, memoryview], bool],
        pace: Pace,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._latest = latest
        self._tombstones_expired_below = tombstones_expired_below
        self._keeps_producers = keeps_producers
        self._pace = pace

    def __repr__(self) -> str:
        return f"SegmentCopier({self._directory}, {self._latest})"

    def copy(self, group: tuple[SegmentFile, ...]) -> NewSegment | None:
        """Writes the new file of a group, durably. None, and no file, if it would be the same.

        Raises Corrupt, InvalidBatch, OSError.
        """
        path = new_file_path(self._directory, group[0].base_offset)
        handle = self._disk.open(path, create=True, writable=True)
        is_wanted = False
        try:
            self._disk.truncate(handle, 0)
            output = _Output(self._disk, handle)
            removed = sum(self._copy_segment(segment, output) for segment in group)
            file = output.finish()
            is_wanted = removed > 0 or len(group) > 1 or file.size_bytes < group[0].size_bytes
            if is_wanted:
                self._disk.fdatasync(handle)
        finally:
            self._disk.close(handle)
            if not is_wanted:
                self._disk.unlink(path)
        return NewSegment(group, file, removed) if is_wanted else None

    def _copy_segment(self, segment: SegmentFile, output: _Output) -> int:
        removed = 0
        for batch, header in _batches(self._disk, segment, self._pace):
            keeps = self._keeps_producers(segment, header, batch)
            compacted = compact_batch(
                batch, header, self._latest, self._tombstones_expired_below, keeps_producers=keeps
            )
            removed += compacted.removed
            output.add(compacted.data, header)
        return removed


class _Output:
    """The new file: batches one after another, empty ones in place of removed ones."""

    def __init__(self, disk: Disk, handle: int) -> None:
        self._disk = disk
        self._handle = handle
        self._buffers: list[Buffer] = []
        self._buffered = self._size = self._crc = 0
        self._gap: RemovedRange | None = None

    def add(self, batch: Buffer | None, header: Header) -> None:
        if batch is not None:
            self._end_gap()
            self._write(batch)
        elif self._gap is not None and self._gap.joins(header):
            self._gap.add(header)
        else:
            self._end_gap()
            self._gap = RemovedRange(header)

    def finish(self) -> Checksum:
        self._end_gap()
        self._flush()
        return Checksum(self._size, self._crc)

    def _end_gap(self) -> None:
        if self._gap is not None:
            gap, self._gap = self._gap, None
            self._write(gap.as_batch())

    def _write(self, data: Buffer) -> None:
        self._buffers.append(data)
        self._buffered += len(data)
        if self._buffered >= _PIECE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._buffers:
            return
        data = b"".join(self._buffers)
        self._buffers, self._buffered = [], 0
        if self._disk.pwritev(self._handle, [data], self._size) != len(data):
            raise OSError(28, "a short write of a compacted segment")
        self._size += len(data)
        self._crc = crc32c(data, self._crc)


def _batches(disk: Disk, segment: SegmentFile, pace: Pace) -> Iterator[tuple[memoryview, Header]]:
    """Yields the batches of a segment file; checks them, their chain, and that the file is the sealed one.

    Raises Corrupt at the end for a file whose checksum is another: its batches may be of another log.
    """
    handle = disk.open(segment.path)
    try:
        position, expected, seen, piece_bytes = 0, segment.base_offset, 0, _PIECE_BYTES
        while position < segment.size_bytes:
            data = disk.pread(handle, piece_bytes, position)
            run = valid_batches(data, expected, expected, _ALL)
            if run.end == 0:
                piece_bytes = _bytes_of_first(segment, position, data)
                continue
            pace(run.end)
            view = memoryview(data)
            for at, header in walk(view[: run.end]):
                yield view[at : at + header.size_bytes], header
            seen = crc32c(view[: run.end], seen)
            position, expected, piece_bytes = position + run.end, run.next_offset, _PIECE_BYTES
    finally:
        disk.close(handle)
    if expected != segment.end_offset or position != segment.size_bytes or seen != segment.crc32c:
        raise Corrupt(f"{segment.path}: the file is not the one that was sealed")


def _bytes_of_first(segment: SegmentFile, position: int, data: Buffer) -> int:
    """Returns the size of a batch that is larger than what was read. Raises Corrupt if it is not."""
    if len(data) >= HEADER_BYTES:
        size_bytes = read_header(data).size_bytes
        if len(data) < size_bytes <= segment.size_bytes - position:
            return size_bytes
    raise Corrupt(f"{segment.path}: no sound batch at byte {position}")
