"""Reads partitions of this process: one wait until together they have enough, one budget, whole batches of each.

A fetch of one partition is a read of one. Below are the local log and, below its start, the store. It renders nothing,
answers no request and counts no long poll. A read returns at least one batch if there is one, whatever its size, so
that a large record never blocks a consumer.
Invariants: (1) a partition that cannot be read has an error of its own and fails no other one; (2) there is one wait,
however many partitions, and it is removed when its caller leaves; (3) a read exceeds `max_bytes` by one batch at most,
and no partition starves, since each read begins with the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import penstock_codec
from engine.errors import EngineError, OffsetAboveHighWatermark
from engine.format.batch_header import has_no_records, is_compressed
from engine.log.damaged_ranges import damaged
from engine.log.log import available_bytes
from engine.partition.high_watermark import PositionWaiters
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from engine.runtime.disk import WouldBlock
from engine.runtime.loop_waits import Bucket, loop_waits
from engine.runtime.pending import Pending
from gateway.connections.read_budget import ReadBudget
from gateway.fetch.context import ReadContext
from gateway.filters.filtered_batches import filter_batches
from gateway.filters.record_filter import record_filter
from gateway.routing.leader_failover import is_transient

T = TypeVar("T")

SHARE_BYTES_MIN = 16 * 1024  # a partition's share of a read: a smaller one costs more than it returns
PAUSE_S = 0.002  # between two counts of readable bytes, so that busy partitions do not cause a count for each append
READS_AT_ONCE = 32  # from memory, before the loop runs other tasks
FILTER_COST = 4 if penstock_codec.native is None else 1  # times that of rendering

FINAL = (OffsetAboveHighWatermark.code,)  # a client does not retry, and the answer of a replaced leader may be wrong


class Place(Protocol):
    """An offset in a partition."""

    @property
    def topic(self) -> str: ...
    @property
    def topic_id(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


class PartitionRead(NamedTuple):
    """One entry: a partition, the first offset to read, and the leader epoch that its reader has seen."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int = 0


class Source(NamedTuple):
    """A partition of this process, and the first offset to read. `from_follower`: it may be an in-sync follower."""

    partition: Partition
    offset: int
    from_follower: bool = False


class Available(NamedTuple):
    """The readable bytes, and whether some entry has a problem, which is reported at once.

    `has_moved`: some entry moved to another owner; until the caller asks there, none of its records is readable.
    """

    size_bytes: int
    has_problem: bool
    has_moved: bool = False


class Limits(NamedTuple):
    """How much to read, in which form, and which entry comes first. `as_lines` is for event streams."""

    max_bytes: int
    max_records: int | None
    value: str | None
    rotation: int
    as_lines: bool


AnySource = Source | EngineError  # an entry, or why it cannot be read
AnyChunk = Chunk | EngineError


def find_source(context: ReadContext, entry: PartitionRead) -> AnySource:
    """Returns the source of an entry, or the error that its partition is not of this process."""
    try:
        return Source(
            context.partitions.owned_partition(entry.topic, entry.topic_id, entry.partition, entry.leader_epoch),
            entry.offset,
        )
    except EngineError as error:
        return error


def check_source(context: ReadContext, source: Source) -> None:
    """Checks that the offset is readable, or the next one. Raises EngineError."""
    partition, offset, _ = source
    if partition.offline is not None:
        raise partition.offline
    if partition.log.log_start <= offset <= partition.watermark.position:
        return
    if offset > partition.high_watermark:
        context.partitions.replica(partition).check_latest()
    partition.check_readable(offset)


def check_serves(context: ReadContext, source: Source) -> None:
    """Checks that this process still answers for the partition, as after a wait. Raises EngineError."""
    if source.partition.offline is not None:
        raise source.partition.offline
    context.partitions.replica(source.partition).check_serves_reads(from_follower=source.from_follower)


def quiet_waits(context: ReadContext, places: Sequence[Place]) -> list[tuple[PositionWaiters, int]] | None:
    """Returns the waiters, and the end to wait for, of places that are all readable and have no records yet.

    None if one of them is otherwise, or is not of this process.
    """
    waits: list[tuple[PositionWaiters, int]] = []
    owned_partition = context.partitions.owned_partition
    try:
        for one in places:
            partition, offset = owned_partition(one.topic, one.topic_id, one.partition), one.offset
            watermark = partition.watermark
            if partition.offline is not None or not partition.log.log_start <= offset == watermark.position:
                return None
            waits.append((watermark.polls, offset + 1))
    except EngineError:
        return None
    return waits


async def confirm_sources(context: ReadContext, sources: Sequence[AnySource]) -> list[AnySource]:
    """Returns each source that is readable; in place of others, their errors.

    A final error counts once the store has confirmed that this node leads.
    """
    checked: list[AnySource] = []
    for source in sources:
        if isinstance(source, Source):
            try:
                check_source(context, source)
            except EngineError as error:
                checked.append(await _confirm(context, source) if error.code in FINAL else error)
                continue
        checked.append(source)
    return checked


async def _confirm(context: ReadContext, source: Source) -> AnySource:
    try:
        await confirm_offset(context, source.partition, source.offset)
    except EngineError as error:
        return error
    return source


async def confirm_offset(context: ReadContext, partition: Partition, offset: int) -> None:
    """Checks an offset that was above the high watermark, once the store has confirmed that this node leads.

    A client does not retry after OffsetAboveHighWatermark, and a replaced leader may know too low a watermark.
    """
    leader = context.partitions.replica(partition)
    leader.check_latest()
    await leader.confirm_leading()
    partition.check_readable(offset)


# The wait


class RecordWait(Pending[T]):
    """One wait for records: until the high watermark of one of its partitions moves, or until a deadline.

    It is itself among the waiters of each partition and of the deadline, until `end_wait`. A watermark that moves and
    the deadline call `set_result`, which raises nothing: the caller is an append. `is_late`: the deadline has passed.
    """

    __slots__ = ("_bucket", "_loop", "_waits", "is_late")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._waits: Sequence[tuple[PositionWaiters, int]] = ()
        self._bucket: Bucket | None = None
        self.is_late = False

    def set_result(self, position: object, /) -> None:
        """Follows the end of the wait."""
        raise NotImplementedError

    def begin_wait(self, sources: Sequence[Source], deadline: float | None) -> None:
        """Begins the wait, until a time of the loop's clock. All sources have just been found readable."""
        waits: list[tuple[PositionWaiters, int]] = []
        for partition, offset, _ in sources:
            watermark = partition.watermark
            end = max(watermark.position, offset) + 1
            watermark.polls.add(end, self)
            waits.append((watermark.polls, end))
        self._waits = waits
        if deadline is not None:
            self._bucket = loop_waits(self._loop).deadlines.put(deadline, self, RecordWait.expire)

    def end_wait(self) -> None:
        """Ends the wait. No-op if it has ended."""
        for polls, end in self._waits:
            polls.give_up(end, self)
        self._waits = ()
        if self._bucket is not None:
            self._bucket.pop(self, None)
            self._bucket = None

    def cancel(self) -> None:
        self.end_wait()
        super().cancel()

    # As a waiter of high watermarks

    def done(self) -> bool:
        return self.is_over

    def set_exception(self, error: Exception, /) -> None:
        """Ends the wait as well: the next look at the partition finds the error."""
        self.set_result(0)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def expire(self) -> None:
        if not self.is_over:
            self.is_late = True
            self.set_result(0)


class _AnyOf(RecordWait[None]):
    """The wait of a task."""

    __slots__ = ()

    def set_result(self, position: object, /) -> None:
        self.end_wait()
        self.complete(None)


async def wait_readable(
    context: ReadContext,
    sources: Sequence[AnySource],
    enough_bytes: int,
    *,
    deadline: float | None = None,
    over: asyncio.Future[Any] | None = None,
    looked: Available | None = None,
) -> Available:
    """Returns when `enough_bytes` are readable, an entry has a problem, the node drains, or the time is over.

    The time is over at the deadline, of the loop's clock, or once `over` is done. With `enough_bytes` of 0 it looks and
    does not wait. `looked`: what the caller has found in this turn of the loop.
    """
    while True:
        found = looked or check_available(context, sources, is_exact=enough_bytes > 1)
        looked = None
        if found.has_problem or found.has_moved or found.size_bytes >= enough_bytes or context.lifecycle.is_draining:
            return found
        if not await _wait_for_any(sources, deadline, over):
            return found
        sources = [_check_serving(context, source) for source in sources]
        if enough_bytes > 1:
            await asyncio.sleep(PAUSE_S)


def _check_serving(context: ReadContext, source: AnySource) -> AnySource:
    if isinstance(source, Source):
        try:
            check_serves(context, source)
        except EngineError as error:
            return error
    return source


def check_available(context: ReadContext, sources: Sequence[AnySource], *, is_exact: bool) -> Available:
    """Returns the readable bytes: of each partition as `readable_bytes` counts them."""
    size_bytes, has_moved = 0, False
    for source in sources:
        if isinstance(source, EngineError):
            error = source
        else:
            try:
                check_source(context, source)
            except EngineError as found:
                error = found
            else:
                partition, offset, _ = source
                if offset < partition.watermark.position:
                    size_bytes += readable_bytes(context, partition, offset, is_exact=is_exact)
                continue
        if not is_transient(error):
            return Available(size_bytes, has_problem=True)
        has_moved = True
    return Available(size_bytes, has_problem=False, has_moved=has_moved)


def readable_bytes(context: ReadContext, partition: Partition, offset: int, *, is_exact: bool) -> int:
    """Returns the committed bytes from the offset on. Unless `is_exact`, records count as one byte."""
    watermark = partition.watermark
    if offset >= watermark.position:
        return 0
    if not is_exact:
        return 1
    if offset < partition.log.local_log_start:
        return context.settings.fetch_bytes_max  # the store knows the size, and asking it takes long: assume enough
    return available_bytes(partition.log, offset, watermark.position, watermark.byte_position)


async def _wait_for_any(sources: Sequence[AnySource], deadline: float | None, over: asyncio.Future[Any] | None) -> bool:
    """Waits until one of the high watermarks moves. Returns False if the time is over.

    All entries have just been found readable.
    """
    any_of = _AnyOf(asyncio.get_running_loop())
    any_of.begin_wait([source for source in sources if isinstance(source, Source)], deadline)
    if over is not None:
        over.add_done_callback(any_of.set_result)
    try:
        await any_of
    finally:
        any_of.end_wait()
        if over is not None:
            over.remove_done_callback(any_of.set_result)
    return not (any_of.is_late or (over is not None and over.done()))


# The read


def budget_of(context: ReadContext, sources: Sequence[AnySource]) -> ReadBudget:
    """Returns the budget of a read: the store may be slow, so reads of it have their own."""
    for source in sources:
        if isinstance(source, Source) and source.offset < source.partition.log.local_log_start:
            return context.store_budget
    return context.local_budget


async def read_batches(
    context: ReadContext,
    sources: Mapping[int, Source],
    max_bytes: int,
    partition_bytes_max: int | None = None,
) -> dict[int, AnyChunk]:
    """Returns whole batches by entry, in the order of the entries.

    Each entry gets an even share of what the ones before it have left over. An entry at its high watermark has none.
    `partition_bytes_max`: about how much of one partition.
    """
    found: dict[int, AnyChunk] = {}
    full = [index for index, source in sources.items() if source.offset < source.partition.high_watermark]
    left = max_bytes
    for count, index in enumerate(full):
        if left <= 0:
            break
        partition, offset, _ = sources[index]
        share = share_of(left, len(full) - count, partition_bytes_max)
        try:
            chunk = await read_chunk(context, partition, offset, share)
        except EngineError as error:
            found[index] = error
            continue
        if chunk is not None:
            left -= len(chunk.data)
            found[index] = chunk
        if count % READS_AT_ONCE == READS_AT_ONCE - 1:
            await asyncio.sleep(0)
    return found


def read_batches_now(
    context: ReadContext, sources: Mapping[int, Source], max_bytes: int, at_most: int, partition_bytes_max: int | None
) -> dict[int, Chunk]:
    """Returns what `read_batches` returns, from memory, if that is no more than `at_most` bytes.

    Raises WouldBlock, OSError, EngineError where that is needed.
    """
    found: dict[int, Chunk] = {}
    full = [index for index, source in sources.items() if source.offset < source.partition.high_watermark]
    left = max_bytes
    for count, index in enumerate(full):
        if left <= 0:
            break
        partition, offset, _ = sources[index]
        share = share_of(left, len(full) - count, partition_bytes_max)
        found[index] = chunk = read_share_now(context, partition, offset, share, at_most)
        left, at_most = left - len(chunk.data), at_most - len(chunk.data)
    return found


def read_share_now(context: ReadContext, partition: Partition, offset: int, share: int, at_most: int) -> Chunk:
    """Returns whole batches of one entry from memory, about `share` bytes and no more than `at_most`.

    Raises WouldBlock, OSError, EngineError where `read_batches` is needed.
    """
    data, chunk = partition.last_write.between(offset, partition.watermark.position), None
    if data and len(data) <= share and len(data) <= at_most:
        return Chunk(data, partition.watermark.position)
    if offset >= partition.log.local_log_start:
        chunk = context.reader.read_nowait(partition, offset, share, at_most)
    if chunk is None:
        raise WouldBlock
    return chunk


def share_of(left_bytes: int, entries_left: int, partition_bytes_max: int | None) -> int:
    """Returns the bytes that are read of the next entry."""
    share = max(left_bytes // entries_left, min(left_bytes, SHARE_BYTES_MIN))
    return min(share, partition_bytes_max or share)


async def read_chunk(context: ReadContext, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
    """Reads whole batches from the local log, or from the store below it.

    Raises Damaged for records that are in neither.
    """
    if (end := partition.log.local_log_start) > offset:
        chunk = await context.tier.read(partition, offset, max_bytes)
        if chunk is None and offset >= partition.log.log_start and end == partition.log.local_log_start:
            raise damaged(offset, end, f"of {partition.name} are missing on this disk and in the store")
        return chunk
    return await context.reader.read(partition, offset, max_bytes)


def read_chunk_now(
    context: ReadContext, partition: Partition, offset: int, max_bytes: int, at_most: int
) -> Chunk | None:
    """Reads records as `read_chunk` does, from memory, if that is no more than `at_most` bytes.

    Returns None for more of them, and for batches without records, behind which a fetch goes on.
    """
    if offset < partition.log.local_log_start:
        return None
    try:
        if data := partition.last_write.between(offset, partition.watermark.position):
            chunk: Chunk | None = Chunk(data, partition.watermark.position)
        else:
            chunk = context.reader.read_nowait(partition, offset, max_bytes, at_most)
    except (WouldBlock, OSError, EngineError):
        return None
    return None if chunk is None or has_no_records(chunk.data) else chunk


async def filter_chunk(context: ReadContext, partition: Partition, filters: tuple[str, ...], chunk: Chunk) -> Chunk:
    """Returns the chunk with only the records that pass the filters."""
    conditions, bytes_max = record_filter(filters), partition.settings.batch_decoded_bytes_max
    take = partial(filter_batches, chunk, conditions, bytes_max)
    if is_compressed(chunk.data):
        return await context.offload.in_thread(take)
    return await context.offload.by_size(FILTER_COST * len(chunk.data), take)


def count_bytes(context: ReadContext, partition: Partition, size_bytes: int) -> None:
    """Counts the stored bytes of an answer."""
    context.metrics.fetch_bytes.value += size_bytes
    partition.bytes_out += size_bytes


async def find_time(context: ReadContext, partition: Partition, timestamp: int) -> tuple[int, int] | None:
    """Finds the first committed record at or after a time, in the store or here, as (offset, its timestamp).

    Raises Damaged if it may be one of the records that are in neither.
    """
    if partition.log.log_start < partition.log.local_log_start:
        found = await context.tier.first_at_or_after(partition, timestamp)
        if found is not None:
            return found
    found = await context.reader.first_at_or_after(partition, timestamp)
    if found is not None and found[0] == partition.log.local_log_start > partition.log.log_start:
        for below in (partition.log.log_start, found[0] - 1):
            await read_chunk(context, partition, below, 1)
    return found
