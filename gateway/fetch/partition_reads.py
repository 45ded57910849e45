"""What only the owner of a partition can do for a reader: fetch, find positions, describe.

Asked by name (`READS`), so that any shard can ask the owner over a link: arguments and results are plain values. Reads
whole stored batches; what is below the local log comes from the store. Only the JSON forms look into records.
A fetch returns at least one record if there is one, whatever its size: no consumer is ever stuck before a large one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from engine.format import batch as record_batch
from engine.format import keyed_batch
from engine.format.control_batch import encode_fence, has_nothing_to_show, without_control
from engine.log.damaged_ranges import damaged
from engine.partition.partition import Partition
from engine.partition.reader import Chunk, available_bytes
from engine.producers.append_validator import Terms
from engine.producers.fencing import Fence
from gateway.connections.read_budget import RENDERED_COPIES
from gateway.fetch import record_json
from gateway.fetch.cloud_events import BINARY, EVENT_FORMS, events_out, render_events
from gateway.fetch.record_json import Out, Undecodable, records_out
from gateway.fetch.stored_records import Bounds, decode_stored, is_compressed
from gateway.http.caching import NO_STORE, STATUS, is_known, kept_headers, tag_of
from gateway.node import Node
from replication.cluster.leadership_check import confirm_leading
from replication.replica.acks import Acks

JSON = "application/json"
NDJSON = "application/x-ndjson"

Read = Callable[[Node, Partition, Any], Awaitable[tuple[Any, bytes | bytearray]]]


async def fetch(node: Node, partition: Partition, query: dict[str, Any]) -> tuple[dict[str, str], bytes | bytearray]:
    """The headers and the body of a fetch's answer. Waits, as a long poll, for at most `wait_ms`."""
    if partition.offline is not None:
        raise partition.offline
    leader = node.local_leader(partition)
    leader.check_serves_reads(query.get("leader_epoch", 0), from_follower=_is_nearby(query))
    offset = await _start_offset(node, partition, query)
    is_end = query["offset"] is None and query["from"] != "earliest" and offset == partition.high_watermark
    if offset > partition.high_watermark or is_end:
        leader.check_latest()  # before it sends anybody away: the leader before it may have told of more
    if offset > partition.high_watermark:
        await confirm_leading(leader)
    partition.check_readable(offset)
    max_bytes = min(query["max_bytes"] or node.settings.fetch_bytes_default, node.settings.fetch_bytes_max)
    deadline = asyncio.get_running_loop().time() + query["wait_ms"] / 1000
    if offset + 1 > partition.high_watermark or query["min_bytes"] > 1:
        await _wait(node, partition, offset, min(query["min_bytes"], max_bytes), query["wait_ms"], query)
    passed: Chunk | None = None
    copies = 1 if query["media_type"] == record_batch.MEDIA_TYPE else RENDERED_COPIES
    while True:
        room = node.local_room if offset >= partition.log.local_log_start else node.store_room
        async with room.hold(max_bytes * copies):
            chunk = await read_chunk(node, partition, offset, max_bytes) or passed
            if chunk is None or chunk is passed or not has_nothing_to_show(chunk.data):
                return await _answer_or_304(node, partition, offset, chunk, query)
        passed, offset = chunk, chunk.next_offset  # whoever waits, waits for records
        left_ms = round((deadline - asyncio.get_running_loop().time()) * 1000)
        await _wait(node, partition, offset, min(query["min_bytes"], max_bytes), max(0, left_ms), query)


async def _answer_or_304(
    node: Node, partition: Partition, offset: int, chunk: Chunk | None, query: dict[str, Any]
) -> tuple[dict[str, str], bytes | bytearray]:
    kept = _cache_headers(node, partition, chunk, query)
    if is_known(query.get("if_none_match"), kept.get("ETag")):
        return {STATUS: "304", **kept, **_bounds_headers(partition)}, b""
    headers, body = await _answer(node, partition, offset, chunk, query)
    return (headers, body) if "Cache-Control" in headers else (kept | headers, body)


def _cache_headers(node: Node, partition: Partition, chunk: Chunk | None, query: dict[str, Any]) -> dict[str, str]:
    """The same question must have the same answer for ever: an offset, and nothing that is not sealed."""
    if chunk is None or query["offset"] is None or chunk.next_offset > partition.log.sealed_end:
        return NO_STORE
    topic_id = node.shard.topic(partition.topic).record.topic_id
    form = (query["media_type"], query["max_records"], query["value"], query["ndjson"])
    bounds = (partition.settings.batch_decoded_bytes_max, node.settings.fetch_bytes_max)
    is_exact = query["media_type"] == record_batch.MEDIA_TYPE and not (
        partition.admission.fencing.has_been_used or keyed_batch.has_keyed(chunk.data)
    )
    place = (topic_id, partition.number, query["offset"], chunk.next_offset)
    return kept_headers(tag_of(place, form, bounds, is_exact=is_exact), node.settings.cache_max_age_ms)


async def find_offsets(node: Node, partition: Partition, timestamp: int | None) -> tuple[dict[str, Any], bytes]:
    """The bounds and, for a time, the first record at or after it."""
    node.local_leader(partition).check_latest()
    found = None if timestamp is None else await find_time(node, partition, timestamp)
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


async def describe(node: Node, partition: Partition, _: None) -> tuple[dict[str, Any], bytes]:
    """A partition's row in the description of its topic."""
    positions, leader = partition.statistics(), node.local_leader(partition)
    described = {
        "partition": partition.number,
        "leader": node.settings.node_id,
        "replicas": [node.settings.node_id],
        "in_sync": leader.in_sync,
        "eligible": [],
        "under_replicated": False,
        "lag": leader.lag,
        "lag_bytes": {node: partition.log.bytes_from(partition.log_end - lag) for node, lag in leader.lag.items()},
        "leader_epoch": positions.leader_epoch,
        "log_start": positions.log_start,
        "local_log_start": positions.local_log_start,
        "log_end": positions.log_end,
        "durable_end": positions.durable_end,
        "high_watermark": positions.high_watermark,
        "size_bytes": positions.size_bytes,
        "segments": positions.segments,
        "leader_url": node.direct_url,
    }
    if partition.offline is not None:
        described["offline"] = str(partition.offline)
    return described, b""


async def tier_status(node: Node, partition: Partition, _: None) -> tuple[dict[str, Any], bytes]:
    """A partition's row in the status of the store."""
    positions, tiered = partition.statistics(), await node.tier.statistics(partition)
    document = {
        "partition": partition.number,
        "log_start": positions.log_start,
        "local_log_start": positions.local_log_start,
        "sealed_end": positions.sealed_end,
        "tiered_end": tiered.tiered_end,
        "high_watermark": positions.high_watermark,
        "objects": tiered.objects,
        "tiered_bytes": tiered.tiered_bytes,
        "pending_segments": tiered.pending_segments,
        "pending_bytes": tiered.pending_bytes,
        "last_error": tiered.last_error,
    }
    return document, b""


async def roll(node: Node, partition: Partition, _: None) -> tuple[dict[str, int], bytes]:
    """Seal the active segment."""
    return {"partition": partition.number, "sealed_end": await node.shard.committer.roll(partition)}, b""


async def delete_before(node: Node, partition: Partition, offset: int) -> tuple[dict[str, Any], bytes]:
    """Give up the records below an offset. A leader that was replaced would delete them from its own log only."""
    await confirm_leading(node.local_leader(partition))
    log_start = await node.shard.delete_before(partition, offset)
    return {"topic": partition.topic, "partition": partition.number, "log_start": log_start}, b""


async def fence(node: Node, partition: Partition, _: None) -> tuple[dict[str, Any], bytes]:
    """The token that the partition demands of every append."""
    if partition.offline is not None:
        raise partition.offline
    return _fence_told(partition, partition.admission.fencing.present), b""


async def set_fence(node: Node, partition: Partition, arguments: Any) -> tuple[dict[str, Any], bytes]:
    """Set the token, or take it back when it is empty; if the present one is the expected one, when that is told.

    What is in force already is not said again: a request that is sent again succeeds.
    """
    token, expected = arguments
    node.check_accepting()
    if partition.offline is not None:
        raise partition.offline
    leader, present = node.local_leader(partition), partition.admission.fencing.present
    if present.token == token:
        await confirm_leading(leader)  # or another leader may have another token in force
    else:
        await node.shard.note_fenced(partition)
        batch = encode_fence(token, node.clock.now_ms())
        terms, timeout_ms = Terms(fencing_token=expected), node.settings.produce_timeout_ms
        present = Fence(token, (await leader.produce(batch, Acks.ALL, timeout_ms, terms)).base_offset)
    return _fence_told(partition, present), b""


def _fence_told(partition: Partition, fence: Fence) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "token": fence.token or None,
        "offset": None if fence.offset < 0 else fence.offset,
    }


READS: dict[str, Read] = {
    "fetch": fetch,
    "find_offsets": find_offsets,
    "describe": describe,
    "tier_status": tier_status,
    "roll": roll,
    "delete_before": delete_before,
    "fence": fence,
    "set_fence": set_fence,
}


async def read_chunk(node: Node, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
    """Whole batches from the local log, or from the store below it.

    Raises Damaged for records that are in neither.
    """
    if (end := partition.log.local_log_start) > offset:
        chunk = await node.tier.read(partition, offset, max_bytes)
        if chunk is None and offset >= partition.log.log_start and end == partition.log.local_log_start:
            raise damaged(offset, end, f"of {partition.name} are neither on this disk nor in the store")
        return chunk
    return await node.shard.reader.read(partition, offset, max_bytes)


async def find_time(node: Node, partition: Partition, timestamp: int) -> tuple[int, int] | None:
    """The first committed record at or after a time, in the store or here, as (offset, its timestamp)."""
    if partition.log.log_start < partition.log.local_log_start:
        found = await node.tier.first_at_or_after(partition, timestamp)
        if found is not None:
            return found
    return await node.shard.reader.first_at_or_after(partition, timestamp)


async def _start_offset(node: Node, partition: Partition, query: dict[str, Any]) -> int:
    if query["offset"] is not None:
        return int(query["offset"])
    if query["from"] is not None:
        return partition.log.log_start if query["from"] == "earliest" else partition.high_watermark
    found = await find_time(node, partition, query["timestamp"])
    return partition.high_watermark if found is None else found[0]


def _is_nearby(query: dict[str, Any]) -> bool:
    """Whether a follower may answer, below its own high watermark: the reader said where it stands."""
    return bool(query.get("from_follower"))


async def _wait(
    node: Node, partition: Partition, offset: int, min_bytes: int, wait_ms: int, query: dict[str, Any]
) -> None:
    """Until `min_bytes` are committed at the offset, the time is over, or the node drains."""
    if wait_ms == 0 or min_bytes == 0 or node.is_draining or _has_enough(partition, offset, min_bytes):
        return
    deadline = asyncio.get_running_loop().time() + wait_ms / 1000
    leader = node.local_leader(partition)
    with node.long_poll(), suppress(TimeoutError):
        while not node.is_draining and not _has_enough(partition, offset, min_bytes):
            leader.check_serves_reads(from_follower=_is_nearby(query))  # or the next one would never be asked
            await partition.high_watermark_by(deadline, max(partition.high_watermark, offset) + 1)


def _has_enough(partition: Partition, offset: int, min_bytes: int) -> bool:
    if offset < partition.log.local_log_start:
        return True
    limit = partition.read_limit
    return offset < limit[0] and (min_bytes <= 1 or available_bytes(partition.log, offset, *limit) >= min_bytes)


async def _answer(
    node: Node, partition: Partition, offset: int, chunk: Chunk | None, query: dict[str, Any]
) -> tuple[dict[str, str], bytes | bytearray]:
    data = b"" if chunk is None else chunk.data
    next_offset = offset if chunk is None else chunk.next_offset
    media_type = query["media_type"]
    node.metrics.fetch_bytes.inc(len(data))
    partition.bytes_out += len(data)
    if media_type == record_batch.MEDIA_TYPE:
        headers = _position_headers(partition, next_offset, media_type)
        if partition.admission.fencing.has_been_used:
            data = await node.off_loop(len(data), partial(without_control, data))
        if data:
            headers["Penstock-Base-Offset"] = str(record_batch.read_header(data).base_offset)
            if keyed_batch.has_keyed(data):
                data = await node.off_loop(len(data), partial(keyed_batch.shown, data))
        return headers, data

    bounds = Bounds(query["max_records"], partition.settings.batch_decoded_bytes_max, node.settings.fetch_bytes_max)

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

    return await (node.in_thread(render) if is_compressed(data) else node.off_loop(len(data), render))


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
