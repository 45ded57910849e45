"""Reads stored batches for a position: from the page cache in the loop, from the disk in a thread.

Serves only what lies below the limit that it is given, and never looks into records except to find a time.
A span is read whole or not at all: what it returns is always whole batches.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from engine import batch as record_batch
from engine.batch import Buffer, Record
from engine.boundaries import place_below
from engine.disk import Disk, WouldBlock
from engine.errors import Corrupt, InvalidBatch, OffsetBelowLogStart, ReadFailed
from engine.log import BytePosition, Log, ReadSpan
from engine.partition import Partition
from engine.segment import Segment

log = logging.getLogger("penstock.engine")

_TIME_SCAN_BYTES = 256 * 1024


class Chunk(NamedTuple):
    """Whole batches; the first may begin before the offset asked for. `next_offset` follows the last record."""

    data: bytes | bytearray
    next_offset: int


class Reader:
    """Reads of all partitions of a shard."""

    def __init__(self, disk: Disk, executor: Executor) -> None:
        self._disk = disk
        self._executor = executor
        self.page_cache_misses = 0
        self.failed_reads = 0

    def read_nowait(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        """What is committed at `offset`, if it is in memory; None when there is nothing. Raises WouldBlock."""
        span = partition.log.locate(offset, max_bytes, *partition.read_limit)
        if span is None:
            return None
        return self._chunk(
            span, offset, self._disk.pread_nowait(span.segment.handle, span.end - span.start, span.start)
        )

    async def read(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        """What is committed at `offset`: at least one batch, up to about `max_bytes`. None when there is nothing.

        Raises Corrupt when the bytes found are no batches, ReadFailed when the disk does not give them.
        """
        try:
            if offset < partition.high_watermark and not (segment := partition.log.segment_of(offset)).is_loaded:
                await self._load(segment)
                _check_still_here(partition, offset)
            try:
                return self.read_nowait(partition, offset, max_bytes)
            except WouldBlock:
                self.page_cache_misses += 1
            span = partition.log.locate(offset, max_bytes, *partition.read_limit)
            assert span is not None
            return self._chunk(span, offset, await self._read_span(span))
        except OSError as error:
            self.failed_reads += 1
            raise ReadFailed(f"{partition.name}: reading at offset {offset} failed: {error}") from error

    def read_uncommitted_nowait(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        """As read_nowait, up to log_end: what a follower copies. Raises WouldBlock, OffsetBelowLogStart.

        A segment that nobody has read yet is for `read_uncommitted`, too.
        """
        _check_local(partition, offset)
        if offset >= partition.log_end:
            return None
        if not partition.log.segment_of(offset).is_loaded:
            raise WouldBlock
        span = partition.log.locate(offset, max_bytes, partition.log_end, partition.log.end_position)
        assert span is not None
        return self._chunk(
            span, offset, self._disk.pread_nowait(span.segment.handle, span.end - span.start, span.start)
        )

    async def read_uncommitted(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        """The same for what is not in memory. Raises Corrupt, ReadFailed, OffsetBelowLogStart.

        For the leader alone: what is not committed may be cut off again.
        """
        try:
            try:
                return self.read_uncommitted_nowait(partition, offset, max_bytes)
            except WouldBlock:
                self.page_cache_misses += 1
            if not (segment := partition.log.segment_of(offset)).is_loaded:
                await self._load(segment)
            _check_local(partition, offset)
            span = partition.log.locate(offset, max_bytes, partition.log_end, partition.log.end_position)
            return None if span is None else self._chunk(span, offset, await self._read_span(span))
        except OSError as error:
            self.failed_reads += 1
            raise ReadFailed(f"{partition.name}: reading at offset {offset} failed: {error}") from error

    async def find_watermark(self, partition: Partition, position: int, life: int) -> None:
        """Move the high watermark to a place that only the disk knows. What keeps the disk from telling is logged.

        `life`: the watermark's when it was asked for. Once the log has been cut the position may lie beyond it, and
        where it ends now need not be committed.
        """
        if life != partition.watermark.life:
            return
        loop = asyncio.get_running_loop()
        release = partition.log.segment_of(position).begin_read()
        try:
            find = partial(place_below, partition.log, position, self._disk.pread)
            found = await loop.run_in_executor(self._executor, find)
        except (OSError, Corrupt) as error:
            self.failed_reads += 1
            log.warning("high watermark not found", extra={"partition": partition.name, "reason": str(error)})
        else:
            if life == partition.watermark.life:
                partition.watermark.advance_to(*found)
        finally:
            release()

    async def first_at_or_after(self, partition: Partition, timestamp: int) -> tuple[int, int] | None:
        """The first committed local record at or after a time, as (offset, its timestamp); None when there is none."""
        for unloaded in [segment for segment in partition.log.segments if not segment.is_loaded]:
            await self._load(unloaded)
        segment = partition.log.segment_for_time(timestamp)
        if segment is None:
            return None
        offset = segment.index.offset_to_search_time_from(timestamp)
        while offset < partition.high_watermark:
            chunk = await self.read(partition, offset, _TIME_SCAN_BYTES)
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

    async def _load(self, segment: Segment) -> None:
        """Open a segment that nobody has read yet, in a thread."""
        release = segment.begin_read()
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, _load_index, segment)
        finally:
            release()

    async def _read_span(self, span: ReadSpan) -> bytes:
        release = span.segment.begin_read()
        try:
            loop = asyncio.get_running_loop()
            handle, length = span.segment.handle, span.end - span.start
            return await loop.run_in_executor(self._executor, self._disk.pread, handle, length, span.start)
        finally:
            release()

    def _chunk(self, span: ReadSpan, offset: int, data: bytes | bytearray) -> Chunk:
        """Leave off the batches before the offset; the index is sparse, so there are few."""
        if len(data) != span.end - span.start:
            raise Corrupt(f"{span.segment}: {len(data)} bytes at {span.start}, {span.end - span.start} expected")
        skip = 0
        try:
            for position, header in record_batch.walk(data):
                skip = position
                if header.next_offset > offset:
                    break
        except InvalidBatch as error:
            raise Corrupt(f"{span.segment} at {span.start}: {error}") from error
        return Chunk(data[skip:] if skip else data, span.next_offset)


def _load_index(segment: Segment) -> None:
    _ = segment.index


def _check_still_here(partition: Partition, offset: int) -> None:
    """Whether a segment has expired while it was opened."""
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
    """About how many committed bytes lie at or after an offset: what `min_bytes` is measured by."""
    if offset >= limit:
        return 0
    segment = log.segment_of(offset)
    start = segment.index.position_at_or_before(offset)
    total = -start
    for other in log.segments[log.segments.index(segment) :]:
        if other.base_offset == limit_position.base_offset:
            return total + limit_position.position
        total += other.size_bytes
    return total
