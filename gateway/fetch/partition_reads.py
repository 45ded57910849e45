"""Reads one partition at its owner: fetches records, finds positions.

Arguments and results are plain values, so that any process can make the call over a link. Reads whole stored batches;
what is below the local log comes from the store. Only the JSON forms look into records. A fetch returns at least one
record if there is one, whatever its size: no consumer is ever stuck before a large one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from engine.format import batch as record_batch
from engine.format import keyed_batch
from engine.format.control_batch import has_nothing_to_show, without_control
from engine.log.damaged_ranges import damaged
from engine.partition.partition import Partition
from engine.partition.reader import Chunk, available_bytes
from gateway.connections.read_budget import RENDERED_COPIES
from gateway.fetch import record_json
from gateway.fetch.cloud_events import BINARY, EVENT_FORMS, events_out, render_events
from gateway.fetch.context import ReadContext
from gateway.fetch.record_json import Out, Undecodable, records_out
from gateway.fetch.stored_records import Bounds, decode_stored, is_compressed
from gateway.http.caching import NO_STORE, STATUS, is_known, kept_headers, tag_of
from gateway.routing.router import PartitionCall
from replication.cluster.leadership_check import confirm_leading

JSON = "application/json"
NDJSON = "application/x-ndjson"


async def fetch(
    context: ReadContext, partition: Partition, query: dict[str, Any]
) -> tuple[dict[str, str], bytes | bytearray]:
    """The headers and the body of a fetch's answer. Waits, as a long poll, for at most `wait_ms`."""
    if partition.offline is not None:
        raise partition.offline
    leader = context.partitions.replica(partition)
    leader.check_serves_reads(query.get("leader_epoch", 0), from_follower=_is_nearby(query))
    offset = await _start_offset(context, partition, query)
    is_end = query["offset"] is None and query["from"] != "earliest" and offset == partition.high_watermark
    if offset > partition.high_watermark or is_end:
        leader.check_latest()  # before it sends anybody away: the leader before it may have told of more
    if offset > partition.high_watermark:
        await confirm_leading(leader)
    partition.check_readable(offset)
    max_bytes = min(query["max_bytes"] or context.settings.fetch_bytes_default, context.settings.fetch_bytes_max)
    deadline = asyncio.get_running_loop().time() + query["wait_ms"] / 1000
    if offset + 1 > partition.high_watermark or query["min_bytes"] > 1:
        await _wait(context, partition, offset, min(query["min_bytes"], max_bytes), query["wait_ms"], query)
    passed: Chunk | None = None
    copies = 1 if query["media_type"] == record_batch.MEDIA_TYPE else RENDERED_COPIES
    while True:
        room = context.local_budget if offset >= partition.log.local_log_start else context.store_budget
        async with room.hold(max_bytes * copies):
            chunk = await read_chunk(context, partition, offset, max_bytes) or passed
            if chunk is None or chunk is passed or not has_nothing_to_show(chunk.data):
                return await _answer_or_304(context, partition, offset, chunk, query)
        passed, offset = chunk, chunk.next_offset  # whoever waits, waits for records
        left_ms = round((deadline - asyncio.get_running_loop().time()) * 1000)
        await _wait(context, partition, offset, min(query["min_bytes"], max_bytes), max(0, left_ms), query)


async def _answer_or_304(
    context: ReadContext, partition: Partition, offset: int, chunk: Chunk | None, query: dict[str, Any]
) -> tuple[dict[str, str], bytes | bytearray]:
    kept = _cache_headers(context, partition, chunk, query)
    if is_known(query.get("if_none_match"), kept.get("ETag")):
        return {STATUS: "304", **kept, **_bounds_headers(partition)}, b""
    headers, body = await _answer(context, partition, offset, chunk, query)
    return (headers, body) if "Cache-Control" in headers else (kept | headers, body)


def _cache_headers(
    context: ReadContext, partition: Partition, chunk: Chunk | None, query: dict[str, Any]
) -> dict[str, str]:
    """The same question must have the same answer for ever: an offset, and nothing that is not sealed."""
    if chunk is None or query["offset"] is None or chunk.next_offset > partition.log.sealed_end:
        return NO_STORE
    topic_id = context.topics.topic(partition.topic).record.topic_id
    form = (query["media_type"], query["max_records"], query["value"], query["ndjson"])
    bounds = (partition.settings.batch_decoded_bytes_max, context.settings.fetch_bytes_max)
    is_exact = query["media_type"] == record_batch.MEDIA_TYPE and not (
        partition.validator.fencing.has_been_used or keyed_batch.has_keyed(chunk.data)
    )
    place = (topic_id, partition.number, query["offset"], chunk.next_offset)
    return kept_headers(tag_of(place, form, bounds, is_exact=is_exact), context.settings.cache_max_age_ms)


async def find_offsets(
    context: ReadContext, partition: Partition, timestamp: int | None
) -> tuple[dict[str, Any], bytes]:
    """The bounds and, for a time, the first record at or after it."""
    context.partitions.replica(partition).check_latest()
    found = None if timestamp is None else await find_time(context, partition, timestamp)
    document = {
        "topic": partition.topic,
        "partition": partition.number,
        "log_start": partition.log.log_start,
        "log_end": partition.log_end,
        "high_watermark": partition.high_watermark,
        "offset": None if found is None else found[0],
        "timestamp": None if found is None else found[1],
    }
    return document, b""


async def read_chunk(context: ReadContext, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
    """Whole batches from the local log, or from the store below it.

    Raises Damaged for records that are in neither.
    """
    if (end := partition.log.local_log_start) > offset:
        chunk = await context.tier.read(partition, offset, max_bytes)
        if chunk is None and offset >= partition.log.log_start and end == partition.log.local_log_start:
            raise damaged(offset, end, f"of {partition.name} are neither on this disk nor in the store")
        return chunk
    return await context.reader.read(partition, offset, max_bytes)


async def find_time(context: ReadContext, partition: Partition, timestamp: int) -> tuple[int, int] | None:
    """The first committed record at or after a time, in the store or here, as (offset, its timestamp)."""
    if partition.log.log_start < partition.log.local_log_start:
        found = await context.tier.first_at_or_after(partition, timestamp)
        if found is not None:
            return found
    return await context.reader.first_at_or_after(partition, timestamp)


async def _start_offset(context: ReadContext, partition: Partition, query: dict[str, Any]) -> int:
    if query["offset"] is not None:
        return int(query["offset"])
    if query["from"] is not None:
        return partition.log.log_start if query["from"] == "earliest" else partition.high_watermark
    found = await find_time(context, partition, query["timestamp"])
    return partition.high_watermark if found is None else found[0]


def _is_nearby(query: dict[str, Any]) -> bool:
    """Whether a follower may answer, below its own high watermark: the reader said where it stands."""
    return bool(query.get("from_follower"))


async def _wait(
    context: ReadContext, partition: Partition, offset: int, min_bytes: int, wait_ms: int, query: dict[str, Any]
) -> None:
    """Until `min_bytes` are committed at the offset, the time is over, or the node drains."""
    if wait_ms == 0 or min_bytes == 0 or context.lifecycle.is_draining or _has_enough(partition, offset, min_bytes):
        return
    deadline = asyncio.get_running_loop().time() + wait_ms / 1000
    leader = context.partitions.replica(partition)
    with context.long_polls.waiting(), suppress(TimeoutError):
        while not context.lifecycle.is_draining and not _has_enough(partition, offset, min_bytes):
            leader.check_serves_reads(from_follower=_is_nearby(query))  # or the next one would never be asked
            await partition.high_watermark_by(deadline, max(partition.high_watermark, offset) + 1)


def _has_enough(partition: Partition, offset: int, min_bytes: int) -> bool:
    if offset < partition.log.local_log_start:
        return True
    limit = partition.read_limit
    return offset < limit[0] and (min_bytes <= 1 or available_bytes(partition.log, offset, *limit) >= min_bytes)


async def _answer(
    context: ReadContext, partition: Partition, offset: int, chunk: Chunk | None, query: dict[str, Any]
) -> tuple[dict[str, str], bytes | bytearray]:
    data = b"" if chunk is None else chunk.data
    next_offset = offset if chunk is None else chunk.next_offset
    media_type = query["media_type"]
    context.metrics.fetch_bytes.inc(len(data))
    partition.bytes_out += len(data)
    if media_type == record_batch.MEDIA_TYPE:
        headers = _position_headers(partition, next_offset, media_type)
        if partition.validator.fencing.has_been_used:
            data = await context.offload.by_size(len(data), partial(without_control, data))
        if data:
            headers["Penstock-Base-Offset"] = str(record_batch.read_header(data).base_offset)
            if keyed_batch.has_keyed(data):
                data = await context.offload.by_size(len(data), partial(keyed_batch.shown, data))
        return headers, data

    bounds = Bounds(query["max_records"], partition.settings.batch_decoded_bytes_max, context.settings.fetch_bytes_max)

    def render() -> tuple[dict[str, str], bytes]:
        if media_type in EVENT_FORMS:
            source = f"/v1/topics/{partition.topic}/partitions/{partition.number}"
            events, end, _ = decode_stored(data, offset, next_offset, bounds, partial(events_out, source=source))
            own_headers, body = render_events(events, media_type, source)
            is_whole = not any(isinstance(event, Undecodable) for event in events)
        else:
            outs, end, _ = decode_stored(data, offset, next_offset, bounds, partial(records_out, form=query["value"]))
            own_headers, body = {}, _render(partition, outs, end, media_type, query["ndjson"])
            is_whole = not any(isinstance(out, Undecodable) for out in outs)
        headers = _position_headers(partition, end, media_type)
        if not is_whole:  # a repair may give back what cannot be decoded now
            headers |= NO_STORE
        if media_type == BINARY:  # the type of the data takes its place, if there is one
            del headers["Content-Type"]
        return headers | own_headers, body

    return await (
        context.offload.in_thread(render) if is_compressed(data) else context.offload.by_size(len(data), render)
    )


def _render(partition: Partition, outs: Sequence[Out], next_offset: int, media_type: str, ndjson: str) -> bytes:
    if media_type == NDJSON:
        if ndjson == "values":
            return b"".join(record_json.bare_value(out) + b"\n" for out in outs)
        return record_json.encode_lines(outs)
    fields = {
        "topic": partition.topic,
        "partition": partition.number,
        "next_offset": next_offset,
        "high_watermark": partition.high_watermark,
        "log_start": partition.log.log_start,
        "leader_epoch": partition.log.leader_epoch,
    }
    return record_json.encode_document(fields, outs)


def _position_headers(partition: Partition, next_offset: int, media_type: str) -> dict[str, str]:
    return {
        "Content-Type": media_type,
        "Penstock-Next-Offset": str(next_offset),
        **_bounds_headers(partition),
    }


def _bounds_headers(partition: Partition) -> dict[str, str]:
    return {
        "Penstock-High-Watermark": str(partition.high_watermark),
        "Penstock-Log-Start": str(partition.log.log_start),
        "Penstock-Leader-Epoch": str(partition.log.leader_epoch),
    }


def partition_calls(context: ReadContext) -> dict[str, PartitionCall]:
    """What this process does for readers of its partitions, by the name of the call."""
    return {"fetch": partial(fetch, context), "find_offsets": partial(find_offsets, context)}
