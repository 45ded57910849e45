"""Reads stored batches for a position: from the page cache in the loop, from the disk in a thread.

Serves only what lies below the limit that it is given, and never looks into records except to find a time.
Invariants: what it returns are whole batches, in order, without a gap, each true to its checksum from the one that
holds the offset on. A read returns the batches before damage; a read that would begin with damage has the segment
examined (engine/cleaning/quarantine.py) and raises Damaged with the offset to go on from.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from engine.errors import (
    TOO_MANY_FILES,
    Corrupt,
    EngineError,
    InvalidBatch,
    OffsetBelowLogStart,
    ReadFailed,
    too_many_open_files,
)
from engine.format import batch as record_batch
from engine.format.batch import Buffer, Record
from engine.log.batch_boundaries import place_below
from engine.log.damaged_ranges import check_undamaged
from engine.log.log import BytePosition, Log, ReadSpan
from engine.log.segment import Segment
from engine.log.sound_span import sound_span
from engine.partition.partition import Partition
from engine.runtime.disk import Disk, WouldBlock

log = logging.getLogger("penstock.engine")

_TIME_SCAN_BYTES = 256 * 1024
FIND_AGAIN_S, FIND_AGAIN_S_MAX = 0.05, 2.0  # acknowledgements wait for the place of the high watermark
_CHECKED_AT_ONCE = 4000  # batches, 2 to 3 ms of the loop; more are checked in a thread

Examine = Callable[[Partition, Segment], Awaitable[None]]


class Chunk(NamedTuple):
    """Whole batches; the first may begin before the offset asked for. `next_offset` follows the last record."""

    data: bytes | bytearray
    next_offset: int


class _Suspect(Exception):
    """What was read does not begin with a sound batch of the offset: the segment is to be examined."""

    def __init__(self, segment: Segment, what: str) -> None:
        super().__init__(f"{segment.path}: {what}")
        self.segment = segment


class Reader:
    """Reads of all partitions of a shard.

    `examine` has a segment looked through; when it returns, what is damaged in it is known.
    """

    def __init__(self, disk: Disk, executor: Executor, examine: Examine) -> None:
        self._disk = disk
        self._executor = executor
        self._examine = examine
        self.page_cache_misses = 0
        self.failed_reads = 0

    async def read(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        """What is committed at `offset`: at least one batch, up to about `max_bytes`. None when there is nothing.

        Raises Damaged when the record at the offset is damaged, Corrupt when the bytes found are no batches and it is
        not known which are damaged, ReadFailed when the disk does not give them.
        """
        return await self._read(partition, offset, max_bytes, _check_still_here, lambda: partition.read_limit)

    async def read_uncommitted(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        """The same up to log_end: what a follower copies. Raises as `read` does, and OffsetBelowLogStart.

        For the leader alone: what is not committed may be cut off again.
        """
        _check_local(partition, offset)
        return await self._read(partition, offset, max_bytes, _check_local, lambda: _end_of(partition.log))

    def read_uncommitted_nowait(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        """As read_uncommitted, if it is in memory. Raises WouldBlock, OffsetBelowLogStart, Damaged.

        A segment that was never read needs `read_uncommitted`, and so does one that must be examined.
        """
        _check_local(partition, offset)
        if offset >= partition.log_end:
            return None
        if not partition.log.segment_of(offset).is_loaded:
            raise WouldBlock
        span = partition.log.locate(offset, max_bytes, *_end_of(partition.log))
        assert span is not None
        data = span.segment.pread_nowait(span.end - span.start, span.start)
        try:
            chunk = _checked(span, offset, data, _CHECKED_AT_ONCE)
        except _Suspect:
            chunk = None
        if chunk is None:
            raise WouldBlock
        return chunk

    async def _read(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        check: Callable[[Partition, int], None],
        limit: Callable[[], tuple[int, BytePosition]],
    ) -> Chunk | None:
        is_examined = False
        while True:
            if offset >= limit()[0]:
                return None
            try:
                return await self._attempt(partition, offset, max_bytes, check, limit)
            except OSError as error:
                self.failed_reads += 1
                raise _failure(partition, offset, error) from error
            except _Suspect as suspect:
                if is_examined:
                    raise Corrupt(str(suspect)) from None
                await self._examine(partition, suspect.segment)
                check(partition, offset)
                is_examined = True

    async def _attempt(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        check: Callable[[Partition, int], None],
        limit: Callable[[], tuple[int, BytePosition]],
    ) -> Chunk | None:
        segment = partition.log.segment_of(offset)
        if segment.damage:
            check_undamaged(segment.damage, offset, segment.path)
        if not segment.is_loaded:
            await self._load(segment)
            check(partition, offset)
        span = partition.log.locate(offset, max_bytes, *limit())
        if span is None:
            return None
        try:
            data = span.segment.pread_nowait(span.end - span.start, span.start)
        except WouldBlock:
            self.page_cache_misses += 1
            data = await self._read_span(span)
        chunk = _checked(span, offset, data, _CHECKED_AT_ONCE)
        if chunk is None:
            loop = asyncio.get_running_loop()
            chunk = await loop.run_in_executor(self._executor, _checked, span, offset, data)
        return chunk

    async def find_watermark(self, partition: Partition, generation: int) -> None:
        """Move the high watermark to the position that it seeks, at a place that only the disk knows.

        Retries a failing disk until the watermark gets there in another way, or is void. `generation`: the watermark's
        when it was asked for. Once the log has been cut the position may be beyond its end, and the new end need not be
        committed.
        """
        watermark, pause_s, reason, found_for = partition.watermark, FIND_AGAIN_S, "", -1
        while generation == watermark.generation and partition.offline is None:
            position = watermark.sought
            if position is None or position <= max(watermark.position, found_for):
                watermark.sought = None
                return
            try:
                found = await self._place_below(partition, position)
            except (OSError, Corrupt) as error:
                self.failed_reads += 1
                if str(error) != reason:
                    reason = str(error)
                    log.warning("high watermark not found yet", extra={"partition": partition.name, "reason": reason})
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, FIND_AGAIN_S_MAX)
                continue
            found_for = position
            if generation == watermark.generation:
                watermark.advance_to(*found)

    async def _place_below(self, partition: Partition, position: int) -> tuple[int, BytePosition]:
        release = partition.log.segment_of(position).begin_read()
        try:
            find = partial(place_below, partition.log, position, Segment.pread)
            return await asyncio.get_running_loop().run_in_executor(self._executor, find)
        finally:
            release()

    async def first_at_or_after(self, partition: Partition, timestamp: int) -> tuple[int, int] | None:
        """The first committed local record at or after a time, as (offset, its timestamp); None when there is none.

        Raises Damaged where damage comes first that may hold it.
        """
        segment = await self._segment_for_time(partition, timestamp)
        if segment is None:
            return None
        offset = segment.index.offset_to_search_time_from(timestamp)
        while offset < partition.high_watermark:
            offset = max(offset, partition.log.log_start)
            try:
                chunk = await self.read(partition, offset, _TIME_SCAN_BYTES)
            except OffsetBelowLogStart:  # it was raised meanwhile
                continue
            if chunk is None:
                return None
            for position, header in record_batch.walk(chunk.data):
                if header.max_timestamp >= timestamp:
                    batch = chunk.data[position : position + header.size_bytes]
                    for record in await self._records(partition, batch, is_compressed=bool(header.codec)):
                        if record.timestamp >= timestamp and record.offset >= partition.log.log_start:
                            return record.offset, record.timestamp
            offset = chunk.next_offset
        return None

    async def _records(self, partition: Partition, batch: Buffer, *, is_compressed: bool) -> list[Record]:
        """None of a batch that cannot be decoded: who fetches there is told so. In a thread, unless it is quick."""
        decode = partial(record_batch.decode_one, batch, partition.settings.batch_decoded_bytes_max)
        try:
            if is_compressed or len(batch) > _TIME_SCAN_BYTES:
                return await asyncio.get_running_loop().run_in_executor(self._executor, decode)
            return decode()
        except InvalidBatch:
            return []

    async def _segment_for_time(self, partition: Partition, timestamp: int) -> Segment | None:
        """The first local segment that may have a record at or after a time.

        If the index was lost too, what was cut off at the end of a segment counts as no later than the next batch.
        """
        log_start = partition.log.log_start
        segments = [segment for segment in partition.log.segments if segment.next_offset > log_start]
        for at, segment in enumerate(segments):
            await self._open(partition, segment)
            latest = segment.max_timestamp
            is_cut = bool(segment.damage) and segment.damage[-1].end_offset == segment.next_offset
            if is_cut and segment.index.is_partial:
                following = next((later for later in segments[at + 1 :] if later.size_bytes), segments[-1])
                loop = asyncio.get_running_loop()
                behind = await loop.run_in_executor(self._executor, following.first_timestamp)
                latest = max(latest, -1 if behind is None else behind)
            if latest >= timestamp and segment.next_offset > segment.base_offset:
                return segment
        return None

    async def _open(self, partition: Partition, segment: Segment) -> None:
        """Load a segment's index; whatever stands against it is known afterwards. Raises Corrupt."""
        is_examined = False
        while not segment.is_loaded or _is_emptied(segment):
            try:
                if _is_emptied(segment):
                    raise _Suspect(segment, "the file is empty")
                await self._load(segment)
            except _Suspect as suspect:
                if is_examined:
                    raise Corrupt(str(suspect)) from None
                await self._examine(partition, segment)
                is_examined = True

    async def _load(self, segment: Segment) -> None:
        """Open a segment before its first read, in a thread. Raises _Suspect."""
        try:
            release = segment.begin_read()
            try:
                await asyncio.get_running_loop().run_in_executor(self._executor, _load_index, segment)
            finally:
                release()
        except (Corrupt, FileNotFoundError) as error:
            raise _Suspect(segment, str(error)) from error

    async def _read_span(self, span: ReadSpan) -> bytes:
        release = span.segment.begin_read()
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, span.segment.pread, span.end - span.start, span.start)
        except FileNotFoundError as error:
            raise _Suspect(span.segment, "the file is missing") from error
        finally:
            release()


def _checked(span: ReadSpan, offset: int, data: bytes | bytearray, batches_max: int = 1 << 40) -> Chunk | None:
    """The sound batches at the front of a span, from the one that holds the offset on.

    None where there are more batches than may be looked at. Raises _Suspect.
    """
    begin, end, next_offset, is_bounded = sound_span(span, offset, data, batches_max)
    if is_bounded:
        return None
    if begin == end or next_offset > span.next_offset:
        raise _Suspect(span.segment, f"no sound batch of offset {offset} between bytes {span.start} and {span.end}")
    return Chunk(data if end - begin == len(data) else data[begin:end], next_offset)


def _end_of(log: Log) -> tuple[int, BytePosition]:
    return log.log_end, log.end_position


def _is_emptied(segment: Segment) -> bool:
    """Return whether a segment has offsets but no bytes, and no damage is recorded for it."""
    return segment.size_bytes == 0 and segment.next_offset > segment.base_offset and not segment.damage


def _load_index(segment: Segment) -> None:
    _ = segment.handle, segment.index


def _failure(partition: Partition, offset: int, error: OSError) -> EngineError:
    if error.errno in TOO_MANY_FILES:
        return too_many_open_files(f"{partition.name}: reading at offset {offset}")
    return ReadFailed(f"{partition.name}: reading at offset {offset} failed: {error}")


def _check_still_here(partition: Partition, offset: int) -> None:
    """Whether a segment has expired, as while it was opened."""
    partition.check_readable(offset)
    if offset < partition.log.local_log_start:
        raise ReadFailed(f"{partition.name}: offset {offset} has just left this disk", hint="ask again")


def _check_local(partition: Partition, offset: int) -> None:
    """Below the first record on this disk nothing can be copied, though the store may have it."""
    first = partition.log.segments[0].base_offset
    if offset < first:
        text = f"{partition.name}: offset {offset} is below {first}, the first on this disk"
        raise OffsetBelowLogStart(text, log_start=partition.log.log_start, high_watermark=partition.high_watermark)


def available_bytes(log: Log, offset: int, limit: int, limit_position: BytePosition) -> int:
    """About how many committed bytes lie at or after an offset: what `min_bytes` is measured by. Reads nothing."""
    if offset >= limit:
        return 0
    total = limit_position.position
    for segment in reversed(log.segments):
        if segment.next_offset <= offset:
            break
        if segment.base_offset < limit_position.base_offset:
            total += segment.size_bytes
    return max(1, total - log.segment_of(offset).bytes_below(offset))
