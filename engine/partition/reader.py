"""Reads stored batches for a position: a little from the page cache in the loop, more or from the disk in a thread.

Serves only bytes below the given limit, and decodes records only to find a time.
Invariants: it returns whole batches, in order, without a gap, each with a valid CRC from the one that holds the offset
on. A read returns the batches before damage; a read that would begin with damage has the segment examined
(engine/cleaning/quarantine.py) and raises Damaged with the offset to continue from.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple, TypeVar

from engine.errors import (
    TOO_MANY_FILES,
    Corrupt,
    Damaged,
    EngineError,
    InvalidBatch,
    OffsetBelowLogStart,
    ReadFailed,
    too_many_open_files,
)
from engine.format import batch as record_batch
from engine.format.batch import Buffer, Record
from engine.format.batch_header import beginning_at
from engine.log.batch_boundaries import boundary_below
from engine.log.damaged_ranges import check_undamaged
from engine.log.log import BytePosition, Log, ReadSpan
from engine.log.segment import Segment
from engine.partition.partition import Partition
from engine.partition.valid_span import valid_span
from engine.runtime.disk import Disk, WouldBlock

T = TypeVar("T")

log = logging.getLogger("penstock.engine")

_TIME_SCAN_BYTES = 256 * 1024
FAILURES_MAX = 1000  # partitions whose failed reads are counted
FIND_AGAIN_S, FIND_AGAIN_S_MAX = 0.05, 2.0  # acknowledgements wait for the place of the high watermark
_UNBOUNDED = 1 << 62
LOOP_BYTES_MAX = 2 * 1024 * 1024  # read and checked in the loop, which takes a millisecond; more in a thread
_CHECKED_AT_ONCE = 4000  # batches, 2 to 3 ms of the loop; more are checked in a thread

Examine = Callable[[Partition, Segment], Awaitable[None]]


def _nothing(*_: object) -> None:
    """No-op: nothing follows a failed read."""


class Chunk(NamedTuple):
    """Whole batches; the first may begin before the requested offset. `next_offset` follows the last record."""

    data: bytes | bytearray
    next_offset: int


class _Suspect(Exception):
    """The bytes do not begin with a valid batch of the offset: the segment must be examined."""

    def __init__(self, segment: Segment, what: str) -> None:
        super().__init__(f"{segment.path}: {what}")
        self.segment = segment


class Reader:
    """Reads all partitions of a shard.

    `examine` examines a segment; when it returns, its damage is known. `read_failed` is called with the offset of a
    record that the disk did not return, or that is damaged.
    """

    def __init__(
        self, disk: Disk, executor: Executor, examine: Examine, read_failed: Callable[[Partition, int], None] = _nothing
    ) -> None:
        self._read_failed = read_failed
        self._disk = disk
        self._executor = executor
        self._examine = examine
        self.page_cache_misses = 0
        self.failed_reads = 0
        self.failures: dict[tuple[str, int], tuple[int, str]] = {}  # by partition: how many, and the last

    async def read(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        """Returns the committed batches at `offset`: at least one, up to about `max_bytes`. None at the high watermark.

        Raises Damaged if the record at the offset is damaged, Corrupt if the bytes are not batches and the damaged
        offsets are unknown, ReadFailed if the disk fails to return them.
        """
        return await self._read(partition, offset, max_bytes, is_committed=True)

    async def read_uncommitted(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        """Reads up to log_end, for followers. Raises as `read` does, and OffsetBelowLogStart.

        Only for leaders: uncommitted records may be truncated.
        """
        _check_local(partition, offset)
        chunk = await self._read(partition, offset, max_bytes, is_committed=False)
        return chunk and Chunk(beginning_at(chunk.data, offset), chunk.next_offset)

    def read_uncommitted_nowait(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        """Reads as `read_uncommitted` does, from memory only. Raises WouldBlock, OffsetBelowLogStart, Damaged.

        A segment that was never read needs `read_uncommitted`, and so does one that must be examined.
        """
        _check_local(partition, offset)
        chunk = _read_nowait(partition, offset, max_bytes, _UNBOUNDED, *_end_of(partition.log))
        return chunk and Chunk(beginning_at(chunk.data, offset), chunk.next_offset)

    def read_nowait(self, partition: Partition, offset: int, max_bytes: int, at_most: int) -> Chunk | None:
        """Reads as `read` does, from memory only, if that is no more than `at_most` bytes.

        Raises WouldBlock, OSError and Damaged where `read` is needed.
        """
        watermark = partition.watermark
        return _read_nowait(partition, offset, max_bytes, at_most, watermark.position, watermark.byte_position)

    def _count_failure(self, partition: Partition, error: Exception) -> None:
        self.failed_reads += 1
        if isinstance(error, OSError) and error.errno in TOO_MANY_FILES:  # says nothing about a disk
            return
        name = partition.topic, partition.number
        count, _ = self.failures.pop(name, (0, ""))
        if len(self.failures) >= FAILURES_MAX:
            del self.failures[next(iter(self.failures))]
        self.failures[name] = count + 1, str(error)

    async def _read(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        *,
        is_committed: bool,
    ) -> Chunk | None:
        is_examined = False
        while True:
            if offset >= (partition.watermark.position if is_committed else partition.log_end):
                return None
            try:
                return await self._attempt(partition, offset, max_bytes, is_committed=is_committed)
            except OSError as error:
                self._count_failure(partition, error)
                if error.errno not in TOO_MANY_FILES:
                    self._read_failed(partition, offset)
                raise _failure(partition, offset, error) from error
            except Damaged:
                self._read_failed(partition, offset)
                raise
            except _Suspect as suspect:
                if is_examined:
                    self._read_failed(partition, offset)
                    raise Corrupt(str(suspect)) from None
                await self._examine(partition, suspect.segment)
                _check_not_expired(partition, offset, is_committed=is_committed)
                is_examined = True

    async def _attempt(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        *,
        is_committed: bool,
    ) -> Chunk | None:
        segment = partition.log.segment_of(offset)
        if segment.damage:
            check_undamaged(segment.damage, offset, segment.path)
        if segment.loaded_index is None:
            await self._load(segment)
            _check_not_expired(partition, offset, is_committed=is_committed)
        watermark = partition.watermark
        limit = (watermark.position, watermark.byte_position) if is_committed else _end_of(partition.log)
        span = partition.log.locate(offset, max_bytes, *limit)
        if span is None:
            return None
        size_bytes = span.end - span.start
        chunk, data = None, None
        if size_bytes <= LOOP_BYTES_MAX:
            try:
                data = span.segment.pread_nowait(size_bytes, span.start)
            except WouldBlock:
                self.page_cache_misses += 1
                data = await self._in_thread(span, span.segment.pread, size_bytes, span.start)
            chunk = _checked(span, offset, data, _CHECKED_AT_ONCE)
        if chunk is None:
            chunk = await self._in_thread(span, _read_checked, span, offset, data)
        return chunk

    async def find_watermark(self, partition: Partition, generation: int) -> None:
        """Moves the high watermark to the position that it seeks, at a place that only the disk has.

        Retries a failing disk until the watermark gets there in another way, or is void. `generation`: the watermark's
        generation at the request. After a truncation the position may be beyond the log's end, and the new end need not
        be committed.
        """
        watermark, pause_s, reason, found_for = partition.watermark, FIND_AGAIN_S, "", -1
        while generation == watermark.generation and partition.offline is None:
            position = watermark.sought
            if position is None or position <= max(watermark.position, found_for):
                watermark.sought = None
                return
            try:
                boundary = await self._boundary_below(partition, position)
            except (OSError, Corrupt) as error:
                self._count_failure(partition, error)
                if str(error) != reason:
                    reason = str(error)
                    log.warning("high watermark not found yet", extra={"partition": partition.name, "reason": reason})
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, FIND_AGAIN_S_MAX)
                continue
            found_for = position
            if generation == watermark.generation:
                watermark.advance_to(*boundary)

    async def _boundary_below(self, partition: Partition, position: int) -> tuple[int, BytePosition]:
        release = partition.log.segment_of(position).begin_read()
        try:
            find = partial(boundary_below, partition.log, position, Segment.pread)
            return await asyncio.get_running_loop().run_in_executor(self._executor, find)
        finally:
            release()

    async def first_at_or_after(self, partition: Partition, timestamp: int) -> tuple[int, int] | None:
        """Returns the first committed local record at or after a time, as (offset, its timestamp); None without one.

        Raises Damaged if earlier damage may hold it.
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
        """Returns none for an undecodable batch: its reader gets the error. In a thread, unless it is quick."""
        decode = partial(record_batch.decode_one, batch, partition.settings.batch_decoded_bytes_max)
        try:
            if is_compressed or len(batch) > _TIME_SCAN_BYTES:
                return await asyncio.get_running_loop().run_in_executor(self._executor, decode)
            return decode()
        except InvalidBatch:
            return []

    async def _segment_for_time(self, partition: Partition, timestamp: int) -> Segment | None:
        """Returns the first local segment that may have a record at or after a time.

        If the index was lost too, records cut off at the end of a segment count as no later than the next batch.
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
        """Loads a segment's index; records its damage. Raises Corrupt."""
        is_examined = False
        while segment.loaded_index is None or _is_emptied(segment):
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
        """Opens a segment before its first read, in a thread. Raises _Suspect."""
        try:
            release = segment.begin_read()
            try:
                await asyncio.get_running_loop().run_in_executor(self._executor, _load_index, segment)
            finally:
                release()
        except (Corrupt, FileNotFoundError) as error:
            raise _Suspect(segment, str(error)) from error

    async def _in_thread(self, span: ReadSpan, work: Callable[..., T], *arguments: object) -> T:
        """Returns what `work` returns, while the segment stays. Raises _Suspect, and what `work` raises."""
        release = span.segment.begin_read()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, partial(work, *arguments))
        except FileNotFoundError as error:
            raise _Suspect(span.segment, "the file is missing") from error
        finally:
            release()


def _read_nowait(
    partition: Partition, offset: int, max_bytes: int, at_most: int, limit: int, limit_position: BytePosition
) -> Chunk | None:
    """Returns None at the limit. Raises WouldBlock."""
    if offset >= limit:
        return None
    if partition.log.segment_of(offset).loaded_index is None:
        raise WouldBlock
    span = partition.log.locate(offset, max_bytes, limit, limit_position)
    if span is None or span.end - span.start > at_most:
        raise WouldBlock
    try:
        chunk = _checked(span, offset, span.segment.pread_nowait(span.end - span.start, span.start), _CHECKED_AT_ONCE)
    except _Suspect:
        chunk = None
    if chunk is None:
        raise WouldBlock
    return chunk


def _checked(span: ReadSpan, offset: int, data: bytes | bytearray, batches_max: int = 1 << 40) -> Chunk | None:
    """Returns the valid batches at the front of a span, from the one that holds the offset on.

    None if there are more batches than the bound. Raises _Suspect.
    """
    begin, end, next_offset, is_bounded = valid_span(span, offset, data, batches_max)
    if is_bounded:
        return None
    if begin == end or next_offset > span.next_offset:
        raise _Suspect(span.segment, f"no sound batch of offset {offset} between bytes {span.start} and {span.end}")
    return Chunk(data if end - begin == len(data) else data[begin:end], next_offset)


def _read_checked(span: ReadSpan, offset: int, data: bytes | bytearray | None) -> Chunk | None:
    """Reads a span, unless `data` has its bytes, and checks it. Blocks. Raises _Suspect, OSError."""
    return _checked(span, offset, span.segment.pread(span.end - span.start, span.start) if data is None else data)


def _end_of(log: Log) -> tuple[int, BytePosition]:
    return log.log_end, log.end_position


def _is_emptied(segment: Segment) -> bool:
    """Returns whether a segment has offsets but no bytes, and no damage is recorded for it."""
    return segment.size_bytes == 0 and segment.next_offset > segment.base_offset and not segment.damage


def _load_index(segment: Segment) -> None:
    _ = segment.handle, segment.index


def _failure(partition: Partition, offset: int, error: OSError) -> EngineError:
    if error.errno in TOO_MANY_FILES:
        return too_many_open_files(f"{partition.name}: reading at offset {offset}")
    return ReadFailed(f"{partition.name}: reading at offset {offset} failed: {error}")


def _check_not_expired(partition: Partition, offset: int, *, is_committed: bool) -> None:
    """Raises OffsetBelowLogStart or ReadFailed if the segment has expired, as while it was opened."""
    if not is_committed:
        _check_local(partition, offset)
        return
    partition.check_readable(offset)
    if offset < partition.log.local_log_start:
        raise ReadFailed(f"{partition.name}: offset {offset} has just left this disk", hint="ask again")


def _check_local(partition: Partition, offset: int) -> None:
    """Followers cannot fetch below the first record on this disk, even if the store has it."""
    first = partition.log.segments[0].base_offset
    if offset < first:
        text = f"{partition.name}: offset {offset} is below {first}, the first on this disk"
        raise OffsetBelowLogStart(text, log_start=partition.log.log_start, high_watermark=partition.high_watermark)
