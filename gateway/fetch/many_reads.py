"""Reads over many partitions that this shard owns: wait until together they have enough, and give it.

What a fetch over many partitions and an event stream are made of. Called in the owner's process only:
gateway/fetch/multi_fetch.py brings the call there, so arguments and results are plain values. It answers no request and
counts no long poll. What must hold: (1) an entry that cannot be read has a problem of its own and fails no other one;
(2) one wait, however many partitions, and nothing of it is left behind when whoever asked goes away; (3) what is given
exceeds `max_bytes` by one batch at most, and no partition is passed over for ever, since each call begins at another
one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from engine.errors import EngineError, OffsetAboveHighWatermark
from engine.partition.partition import Partition
from engine.partition.reader import Chunk, available_bytes
from gateway.connections.read_budget import RENDERED_COPIES
from gateway.fetch import record_json
from gateway.fetch.context import ReadContext
from gateway.fetch.partition_reads import read_chunk
from gateway.fetch.stored_records import Bounds, Decoded, decode_stored, end_of, is_compressed
from gateway.http.problems import Problem, from_engine
from gateway.routing.leader_failover import will_pass
from replication.cluster.leadership_check import confirm_leading

SHARE_BYTES_MIN = 16 * 1024  # a partition's part of an answer: a smaller read costs more than it brings
PAUSE_S = 0.002  # between two counts of what is there, so that busy partitions do not make a count of each append
READS_AT_ONCE = 32  # from memory, before the loop sees to others
ENTRY_COST_BYTES = 2048  # coding one entry takes as long as so many bytes of records

FINAL = (OffsetAboveHighWatermark.code,)  # a client does not retry, and a leader that was replaced would be wrong

ProblemFields = tuple[str, str, dict[str, Any]]


class Wanted(NamedTuple):
    """One entry: a partition, the first offset wanted of it, and the leader epoch that its reader has seen."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int = 0


class Found(NamedTuple):
    """What there is to give, and whether some entry has a problem, which is told at once.

    `has_moved`: some entry is to be asked for elsewhere; until it is, there is nothing to give of it.
    """

    size_bytes: int
    has_problem: bool
    has_moved: bool = False


class Limits(NamedTuple):
    """How much to give, in which form, and which entry comes first. `as_lines` is for event streams."""

    max_bytes: int
    max_records: int | None
    value: str | None
    turn: int
    as_lines: bool


class Part(NamedTuple):
    """What one entry gets: a JSON document, or lines with the offset that follows each; or its problem."""

    next_offset: int
    record_count: int
    line_ends: list[int]
    problem: ProblemFields | None
    body: bytes


class _Wait(NamedTuple):
    partition: Partition
    end: int
    future: asyncio.Future[int]


async def wait(
    context: ReadContext, wanted: Sequence[Wanted], enough_bytes: int, over: asyncio.Future[int] | None = None
) -> Found:
    """Return when so many bytes can be given, an entry has a problem, the node drains, or once `over` is done.

    With `enough_bytes` of 0 it looks and does not wait.
    """
    waits: dict[int, _Wait] = {}
    try:
        while True:
            found = _look(context, wanted, is_exact=enough_bytes > 1)
            if (
                found.has_problem
                or found.has_moved
                or found.size_bytes >= enough_bytes
                or context.lifecycle.is_draining
            ):
                return found
            if over is not None and over.done():
                return found
            for index, one in enumerate(wanted):
                if index not in waits or waits[index].future.done():
                    partition = context.topics.topic(one.topic).partitions[one.partition]
                    end = max(partition.high_watermark, one.offset) + 1
                    waits[index] = _Wait(partition, end, partition.wait_for_high_watermark(end))
            futures = [one.future for one in waits.values()]
            await asyncio.wait(futures if over is None else [*futures, over], return_when=asyncio.FIRST_COMPLETED)
            if enough_bytes > 1:
                await asyncio.sleep(PAUSE_S)
    finally:
        for partition, end, future in waits.values():
            partition.give_up_high_watermark(end, future)
            if not future.cancel() and not future.cancelled():
                future.exception()  # looked at: what it says is found again by looking at the partition


async def read(context: ReadContext, wanted: Sequence[Wanted], limits: Limits) -> list[Part]:
    """What there is for each entry, at once."""
    sources = [_source(context, one) for one in wanted]
    if any(isinstance(source, Problem) and source.code in FINAL for source in sources):
        sources = await asyncio.gather(*(_confirmed(context, *entry) for entry in zip(wanted, sources, strict=True)))
    order = [(limits.turn + step) % len(wanted) for step in range(len(wanted))]
    is_local = all(
        isinstance(source, Problem) or one.offset >= source.log.local_log_start
        for one, source in zip(wanted, sources, strict=True)
    )
    room = context.local_budget if is_local else context.store_budget  # the store may be slow
    async with room.hold(limits.max_bytes * RENDERED_COPIES):
        return await _read(context, wanted, sources, order, limits)


async def _read(
    context: ReadContext, wanted: Sequence[Wanted], sources: list[Partition | Problem], order: list[int], limits: Limits
) -> list[Part]:
    chunks = await _read_chunks(context, wanted, sources, order, limits.max_bytes)
    size_bytes = sum(len(chunk.data) for chunk in chunks.values())
    context.metrics.fetch_bytes.inc(size_bytes)

    def render() -> list[Part]:
        parts: dict[int, Part] = {}
        records_left, bytes_left = limits.max_records, context.settings.fetch_bytes_max
        for index in order:
            source = sources[index]
            if isinstance(source, Problem):
                parts[index] = _refused(wanted[index], source)
                continue
            chunk = chunks.get(index) if records_left != 0 and bytes_left > 0 else None
            bounds = Bounds(records_left, source.settings.batch_decoded_bytes_max, bytes_left)
            parts[index], decoded_bytes = _render(source, wanted[index].offset, chunk, bounds, limits)
            bytes_left -= decoded_bytes
            if records_left is not None:
                records_left -= parts[index].record_count
        return [parts[index] for index in range(len(wanted))]

    if any(is_compressed(chunk.data) for chunk in chunks.values()):
        return await context.offload.in_thread(render)
    return await context.offload.by_size(size_bytes + ENTRY_COST_BYTES * len(chunks), render)


def _readable(context: ReadContext, one: Wanted) -> Partition:
    """The partition of an entry. Raises EngineError: the entry's problem."""
    partition = context.partitions.answered(one.topic, one.topic_id, one.partition, one.leader_epoch)
    if partition.offline is not None:
        raise partition.offline
    if one.offset > partition.high_watermark:
        context.partitions.replica(partition).check_latest()
    partition.check_readable(one.offset)
    return partition


def _look(context: ReadContext, wanted: Sequence[Wanted], *, is_exact: bool) -> Found:
    """How much there is; not exact, each partition that has something counts as one byte."""
    size_bytes, has_moved = 0, False
    for one in wanted:
        try:
            partition = _readable(context, one)
        except EngineError as error:
            if not will_pass(error):
                return Found(size_bytes, has_problem=True)
            has_moved = True
            continue
        if one.offset < partition.high_watermark:
            size_bytes += _available_bytes(context, partition, one.offset) if is_exact else 1
    return Found(size_bytes, has_problem=False, has_moved=has_moved)


def _available_bytes(context: ReadContext, partition: Partition, offset: int) -> int:
    if offset < partition.log.local_log_start:
        return context.settings.fetch_bytes_max  # the store knows how much, and asking it takes long: enough it is
    return available_bytes(partition.log, offset, *partition.read_limit)


def _source(context: ReadContext, one: Wanted) -> Partition | Problem:
    try:
        return _readable(context, one)
    except EngineError as error:
        return from_engine(error)


async def _confirmed(context: ReadContext, one: Wanted, source: Partition | Problem) -> Partition | Problem:
    """The same; in place of a final problem, what is true once the store has confirmed that this node leads."""
    if not isinstance(source, Problem) or source.code not in FINAL:
        return source
    try:
        partition = context.partitions.answered(one.topic, one.topic_id, one.partition, one.leader_epoch)
        await confirm_leading(context.partitions.replica(partition))
    except EngineError as error:
        return from_engine(error)
    return _source(context, one)


async def _read_chunks(
    context: ReadContext, wanted: Sequence[Wanted], sources: list[Partition | Problem], order: list[int], max_bytes: int
) -> dict[int, Chunk]:
    """Whole batches by entry. Each gets an even share of what the ones before it have left over."""
    full = [
        (index, source)
        for index in order
        if isinstance(source := sources[index], Partition) and wanted[index].offset < source.high_watermark
    ]
    chunks: dict[int, Chunk] = {}
    left = max_bytes
    for turn, (index, partition) in enumerate(full):
        if left <= 0:
            break
        share = max(left // (len(full) - turn), min(left, SHARE_BYTES_MIN))
        try:
            chunk = await read_chunk(context, partition, wanted[index].offset, share)
        except EngineError as error:
            sources[index] = from_engine(error)
            continue
        if chunk is not None:
            chunks[index] = chunk
            left -= len(chunk.data)
            partition.bytes_out += len(chunk.data)
        if turn % READS_AT_ONCE == READS_AT_ONCE - 1:
            await asyncio.sleep(0)
    return chunks


def _refused(one: Wanted, problem: Problem) -> Part:
    return Part(one.offset, 0, [], (problem.code, problem.detail, problem.members), b"")


def _render(partition: Partition, offset: int, chunk: Chunk | None, bounds: Bounds, limits: Limits) -> tuple[Part, int]:
    """A partition's part, and how many bytes were unpacked for it."""
    found: Decoded[record_json.RecordOut] = Decoded([], offset, 0)
    if chunk is not None:
        show = partial(record_json.records_out, form=limits.value)
        found = decode_stored(chunk.data, offset, chunk.next_offset, bounds, show)
    outs, next_offset, size_bytes = found
    if limits.as_lines:
        ends = [end_of(out) for out in outs]
        return Part(next_offset, len(outs), ends, None, record_json.encode_lines(outs)), size_bytes
    fields = {
        "topic": partition.topic,
        "partition": partition.number,
        "next_offset": next_offset,
        "high_watermark": partition.high_watermark,
        "log_start": partition.log.log_start,
        "leader_epoch": partition.log.leader_epoch,
    }
    return Part(next_offset, len(outs), [], None, record_json.encode_document(fields, outs)), size_bytes
