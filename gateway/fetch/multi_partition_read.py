"""Reads over many partitions that this shard owns: waits until together they have enough, and reads it.

Serves fetches over many partitions and event streams. Called in the owner's process only: gateway/fetch/multi_fetch.py
brings the call there, so arguments and results are plain values. It answers no request and counts no long poll.
Invariants: (1) an entry that cannot be read has a problem of its own and fails no other one; (2) there is one wait,
however many partitions, and it is removed when its caller leaves; (3) the result exceeds `max_bytes` by one batch at
most, and no partition starves, since each call begins at another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from functools import partial
from typing import NamedTuple

from engine.errors import EngineError, OffsetAboveHighWatermark
from engine.format.batch_header import is_compressed
from engine.partition.high_watermark import PositionWaiters
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from gateway.connections.read_budget import RENDERED_COPIES
from gateway.fetch.context import ReadContext
from gateway.fetch.partition_reads import (
    confirm_offset,
    filtered_chunk,
    read_chunk,
    readable_bytes,
)
from gateway.fetch.recent_pieces import Lines, Part
from gateway.fetch.record_json import (
    Bounds,
    Read,
    Style,
    decoded,
    encode_lines,
    end_of,
    records_out,
)
from gateway.fetch.rendering import document, line_ends, render_records
from gateway.http.problems import Problem, ProblemFields, from_engine
from gateway.routing.leader_failover import is_transient

SHARE_BYTES_MIN = 16 * 1024  # a partition's share of an answer: a smaller read costs more than it returns
PAUSE_S = 0.002  # between two counts of readable bytes, so that busy partitions do not cause a count for each append
READS_AT_ONCE = 32  # from memory, before the loop runs other tasks
ENTRY_COST_BYTES = 2048  # encoding one entry takes as long as this many bytes of records

FINAL = (OffsetAboveHighWatermark.code,)  # a client does not retry, and the answer of a replaced leader may be wrong


class Wanted(NamedTuple):
    """One entry: a partition, the first offset to read, and the leader epoch that its reader has seen."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int = 0


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


class _AnyOf:
    """One wait for the high watermarks of many partitions: `future` is done once one of them has moved."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(self) -> bool:
        return self.future.done()

    def set_result(self, position: object, /) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def set_exception(self, error: Exception, /) -> None:
        """Ends the wait as well: the next look at the partition finds the error."""
        self.set_result(0)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.future.get_loop()


async def wait(
    context: ReadContext,
    wanted: Sequence[Wanted],
    enough_bytes: int,
    over: asyncio.Future[int] | None = None,
    looked: Available | None = None,
) -> Available:
    """Return when `enough_bytes` are readable, an entry has a problem, the node drains, or `over` is done.

    With `enough_bytes` of 0 it looks and does not wait. `looked`: what the caller has found in this turn of the loop.
    """
    while True:
        found = looked or _check_available(context, wanted, is_exact=enough_bytes > 1)
        looked = None
        if found.has_problem or found.has_moved or found.size_bytes >= enough_bytes or context.lifecycle.is_draining:
            return found
        await _wait_for_any(context, wanted, over)
        if over is not None and over.done():
            return found
        if enough_bytes > 1:
            await asyncio.sleep(PAUSE_S)


async def _wait_for_any(context: ReadContext, wanted: Sequence[Wanted], over: asyncio.Future[int] | None) -> None:
    """Waits until one of the high watermarks moves, or `over` is done. All entries have just been found readable."""
    any_of = _AnyOf()
    waits: list[tuple[PositionWaiters, int]] = []
    topics = {name: context.topics.topic(name) for name in {one.topic for one in wanted}}
    for one in wanted:
        watermark = topics[one.topic].partitions[one.partition].watermark
        end = max(watermark.position, one.offset) + 1
        watermark.polls.add(end, any_of)
        waits.append((watermark.polls, end))
    if over is not None:
        over.add_done_callback(any_of.set_result)
    try:
        await any_of.future
    finally:
        for polls, end in waits:
            polls.give_up(end, any_of)
        if over is not None:
            over.remove_done_callback(any_of.set_result)


async def read(
    context: ReadContext,
    wanted: Sequence[Wanted],
    limits: Limits,
    filters: tuple[str, ...] = (),
    partition_bytes_max: int | None = None,
) -> list[Part]:
    """Return what is readable of each entry now, as far as it passes the filters.

    `partition_bytes_max`: about how much of one partition. None: up to all of the limits.
    """
    sources = [_source(context, one) for one in wanted]
    if any(isinstance(source, Problem) and source.code in FINAL for source in sources):
        sources = await asyncio.gather(*(_confirmed(context, *entry) for entry in zip(wanted, sources, strict=True)))
    order = [(limits.rotation + step) % len(wanted) for step in range(len(wanted))]
    is_local = all(
        isinstance(source, Problem) or one.offset >= source.log.local_log_start
        for one, source in zip(wanted, sources, strict=True)
    )
    room = context.local_budget if is_local else context.store_budget  # the store may be slow
    async with room.share(limits.max_bytes * RENDERED_COPIES) as granted_bytes:
        limits = limits._replace(max_bytes=granted_bytes // RENDERED_COPIES)
        return await _read(context, wanted, sources, order, limits, filters, partition_bytes_max or limits.max_bytes)


async def _read(
    context: ReadContext,
    wanted: Sequence[Wanted],
    sources: list[Partition | Problem],
    order: list[int],
    limits: Limits,
    filters: tuple[str, ...],
    partition_bytes_max: int,
) -> list[Part]:
    recent = _recent(context, wanted, sources, order, limits, filters) if limits.as_lines else {}
    recent_bytes = sum(lines.stored_bytes for lines in recent.values())
    others = [index for index in order if index not in recent]
    left_bytes = limits.max_bytes - recent_bytes
    chunks = await _read_chunks(context, wanted, sources, others, left_bytes, partition_bytes_max)
    if filters:
        chunks = {index: await _filtered(context, sources[index], filters, chunk) for index, chunk in chunks.items()}
    size_bytes = sum(len(chunk.data) for chunk in chunks.values())
    context.metrics.fetch_bytes.value += recent_bytes + size_bytes

    def render() -> list[Part]:
        parts = {index: lines.part for index, lines in recent.items()}
        records_left, bytes_left = limits.max_records, context.settings.fetch_bytes_max
        for index in others:
            source = sources[index]
            if isinstance(source, Problem):
                parts[index] = _refused(wanted[index], source)
                continue
            chunk = chunks.get(index) if records_left != 0 and bytes_left > 0 else None
            bounds = Bounds(records_left, source.settings.batch_decoded_bytes_max, bytes_left)
            parts[index], decoded_bytes = _render(source, wanted[index].offset, chunk, bounds, limits)
            bytes_left -= decoded_bytes
            if limits.as_lines and chunk is not None:
                key = _lines_key(wanted[index], source, limits, filters)
                _keep(context, key, Lines(parts[index], len(chunk.data)))
            if records_left is not None:
                records_left -= parts[index].record_count
        return [parts[index] for index in range(len(wanted))]

    if any(is_compressed(chunk.data) for chunk in chunks.values()):
        return await context.offload.in_thread(render)
    return await context.offload.by_size(size_bytes + ENTRY_COST_BYTES * len(chunks), render)


def _readable(context: ReadContext, one: Wanted) -> Partition:
    """Returns the partition of an entry. Raises EngineError: the entry's problem."""
    partition = context.partitions.owned_partition(one.topic, one.topic_id, one.partition, one.leader_epoch)
    if partition.offline is None and one.offset == partition.watermark.position >= partition.log.log_start:
        return partition  # the usual case of a reader that waits, without a call
    if partition.offline is not None:
        raise partition.offline
    if one.offset > partition.high_watermark:
        context.partitions.replica(partition).check_latest()
    partition.check_readable(one.offset)
    return partition


def _check_available(context: ReadContext, wanted: Sequence[Wanted], *, is_exact: bool) -> Available:
    """Returns the readable bytes: of each partition as `readable_bytes` counts them."""
    size_bytes, has_moved = 0, False
    for one in wanted:
        try:
            partition = _readable(context, one)
        except EngineError as error:
            if not is_transient(error):
                return Available(size_bytes, has_problem=True)
            has_moved = True
            continue
        if one.offset < partition.watermark.position:
            size_bytes += readable_bytes(context, partition, one.offset, is_exact=is_exact)
    return Available(size_bytes, has_problem=False, has_moved=has_moved)


def _source(context: ReadContext, one: Wanted) -> Partition | Problem:
    try:
        return _readable(context, one)
    except EngineError as error:
        return from_engine(error)


async def _confirmed(context: ReadContext, one: Wanted, source: Partition | Problem) -> Partition | Problem:
    """Returns `source`; in place of a final problem, the state once the store has confirmed that this node leads."""
    if not isinstance(source, Problem) or source.code not in FINAL:
        return source
    try:
        partition = context.partitions.owned_partition(one.topic, one.topic_id, one.partition, one.leader_epoch)
        await confirm_offset(context, partition, one.offset)
    except EngineError as error:
        return from_engine(error)
    return partition


def _recent(
    context: ReadContext,
    wanted: Sequence[Wanted],
    sources: list[Partition | Problem],
    order: list[int],
    limits: Limits,
    filters: tuple[str, ...],
) -> dict[int, Lines]:
    """Returns by entry what another event stream has read at the same offset."""
    found: dict[int, Lines] = {}
    left = limits.max_bytes
    for index in order:
        source, one = sources[index], wanted[index]
        if left <= 0:
            break
        if isinstance(source, Problem) or one.offset >= source.high_watermark:
            continue
        lines = context.lines.get(_lines_key(one, source, limits, filters))
        if lines is not None:
            found[index] = lines
            left -= lines.stored_bytes
            source.bytes_out += lines.stored_bytes
    return found


def _keep(context: ReadContext, key: Hashable, lines: Lines) -> None:
    """Keeps lines for other event streams. Only those of readable records: a repair may restore the others."""
    if lines.part.line_ends and not lines.part.has_gap:
        context.lines.put(key, lines, len(lines.part.body) + 32 * len(lines.part.line_ends))


def _lines_key(one: Wanted, source: Partition, limits: Limits, filters: tuple[str, ...]) -> Hashable:
    return one.topic_id, one.partition, source.log.leader_epoch, one.offset, limits.value, filters


async def _read_chunks(
    context: ReadContext,
    wanted: Sequence[Wanted],
    sources: list[Partition | Problem],
    order: list[int],
    max_bytes: int,
    partition_bytes_max: int,
) -> dict[int, Chunk]:
    """Returns whole batches by entry. Each entry gets an even share of what the ones before it have left over."""
    full = [
        (index, source)
        for index in order
        if isinstance(source := sources[index], Partition) and wanted[index].offset < source.high_watermark
    ]
    chunks: dict[int, Chunk] = {}
    left = max_bytes
    for rotation, (index, partition) in enumerate(full):
        if left <= 0:
            break
        share = max(left // (len(full) - rotation), min(left, SHARE_BYTES_MIN))
        try:
            chunk = await read_chunk(context, partition, wanted[index].offset, min(share, partition_bytes_max))
        except EngineError as error:
            sources[index] = from_engine(error)
            continue
        if chunk is not None:
            chunks[index] = chunk
            left -= len(chunk.data)
            partition.bytes_out += len(chunk.data)
        if rotation % READS_AT_ONCE == READS_AT_ONCE - 1:
            await asyncio.sleep(0)
    return chunks


async def _filtered(context: ReadContext, source: Partition | Problem, filters: tuple[str, ...], chunk: Chunk) -> Chunk:
    assert isinstance(source, Partition), "it was read"
    return await filtered_chunk(context, source, filters, chunk)


def _refused(one: Wanted, problem: Problem) -> Part:
    return Part(one.offset, 0, [], ProblemFields(problem.code, problem.detail, problem.members), b"")


def _render(partition: Partition, offset: int, chunk: Chunk | None, bounds: Bounds, limits: Limits) -> tuple[Part, int]:
    """Returns a partition's part, and the number of bytes that were unpacked for it."""
    read = Read(offset, chunk)
    if limits.as_lines:
        return _render_lines(read, bounds, limits.value)
    rendered = render_records(read, bounds, limits.value, Style.ARRAY)
    body = document(partition, rendered.next_offset, rendered.text)
    return Part(rendered.next_offset, rendered.record_count, [], None, body), rendered.size_bytes


def _render_lines(read: Read, bounds: Bounds, form: str | None) -> tuple[Part, int]:
    """Returns lines with the offset that follows each, as events of a stream have it."""
    rendered = render_records(read, bounds, form, Style.LINES)
    if not rendered.has_gap:
        ends = line_ends(rendered)
        return Part(rendered.next_offset, len(ends), ends, None, rendered.text), rendered.size_bytes
    outs, next_offset, size_bytes = decoded(read, bounds, partial(records_out, form=form))
    ends = [end_of(out) for out in outs]
    return Part(next_offset, len(outs), ends, None, encode_lines(outs), has_gap=True), size_bytes
