"""Reads one partition at its owner and renders the result.

Results are plain values, and a FetchRequest can be sent over a link, so any process can make the call. Reads whole
stored batches; those below the local log come from the store. Only the JSON forms decode records. A fetch returns at
least one record if there is one, whatever its size, so that a large record never blocks a consumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial

import penstock_codec
from engine.format import batch as record_batch
from engine.format import keyed_batch
from engine.format.batch_header import has_no_records, is_compressed, without_control
from engine.log.damaged_ranges import damaged
from engine.log.log import available_bytes
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from gateway.connections.read_budget import RENDERED_COPIES
from gateway.fetch.cloud_events import BINARY, EVENT_FORMS, events_out, render_events
from gateway.fetch.context import ReadContext
from gateway.fetch.recent_pieces import Found, Polled
from gateway.fetch.record_json import Bounds, Read, Style, Undecodable, decoded
from gateway.fetch.rendering import document, render_records
from gateway.fetch.request import JSON, NDJSON, FetchRequest, FilteredFetchRequest
from gateway.fetch.streamed_records import CLOSING, PIECE_BYTES, STORE_PIECE_BYTES, Form, Source, begin
from gateway.filters.filtered_batches import filtered
from gateway.filters.record_filter import record_filter
from gateway.http.caching import NO_STORE, STATUS, cacheable_headers, is_not_modified, tag_of
from gateway.http.offload import OFF_LOOP_BYTES
from gateway.routing.router import Answering, PartitionCall
from replication.replica.replicas import AnyReplica

SEARCHED_BYTES_MAX = 16 * 1024 * 1024  # by one fetch; then it is answered without records, at a later position
FILTER_COST = 4 if penstock_codec.native is None else 1  # times that of rendering

Answer = tuple[dict[str, str], bytes | bytearray]  # headers and body


FETCH_CALL: PartitionCall[FetchRequest, dict[str, str]] = PartitionCall("fetch", FetchRequest)
FILTERED_FETCH_CALL: PartitionCall[FetchRequest, dict[str, str]] = PartitionCall("fetch_filtered", FilteredFetchRequest)


async def fetch(context: ReadContext, partition: Partition, wanted: FetchRequest) -> Answer:
    """Answers a fetch as `fetch_local` does, with a whole body."""
    headers, body, _ = await fetch_local(context, partition, wanted)
    return headers, body


async def fetch_local(
    context: ReadContext,
    partition: Partition,
    wanted: FetchRequest,
    may_stream: Callable[[], bool] = lambda: False,
    sendable: Callable[[int], int] = lambda size_bytes: size_bytes,
) -> Found:
    """Answers a fetch. Waits, as a long poll, for at most `wait_ms`. Raises Problem, EngineError.

    A large body of records has a rest if `may_stream` returns True. `sendable` takes a number of
    bytes and returns how many of them are read for the client.
    """
    if partition.offline is not None:
        raise partition.offline
    leader, settings = context.partitions.replica(partition), context.settings
    offset = await _start(context, partition, leader, wanted)
    max_bytes = min(wanted.max_bytes or settings.fetch_bytes_default, settings.fetch_bytes_max)
    min_bytes, wait_ms = min(wanted.min_bytes, max_bytes), wanted.wait_ms
    deadline = asyncio.get_running_loop().time() + wait_ms / 1000
    copies = 1 if wanted.media_type == record_batch.MEDIA_TYPE else RENDERED_COPIES
    filters = _filters(wanted)
    passed: Chunk | None = None
    searched_bytes = 0
    key: Hashable | None = None
    while True:
        if wait_ms > 0 and min_bytes > 0:
            await _wait(context, partition, leader, wanted, offset, min_bytes, wait_ms)
            is_shared = context.long_polls.open > 0 or context.polled.size_bytes > 0
            key = poll_key(context, partition, wanted, offset) if is_shared else None
            if key is not None and (polled := context.polled.get(key)) is not None:
                count_bytes(context, partition, polled.stored_bytes)
                return polled.found
        budget = context.local_budget if offset >= partition.log.local_log_start else context.store_budget
        async with budget.hold(sendable(max_bytes) * copies) as granted_bytes:
            found = await read_chunk(context, partition, offset, granted_bytes // copies)
            chunk = passed
            if found is not None:
                searched_bytes += len(found.data)
                chunk = await filtered_chunk(context, partition, filters, found) if filters else found
            is_enough = chunk is passed or searched_bytes >= SEARCHED_BYTES_MAX
            if chunk is None or is_enough or (chunk.data and not has_no_records(chunk.data)):
                answer = await _answer(context, partition, wanted, Read(offset, chunk), may_stream)
                if key is not None and chunk is not None and answer.rest is None:
                    is_at_end = chunk.next_offset == partition.watermark.position
                    if is_at_end and key == poll_key(context, partition, wanted, offset):  # no more was committed
                        context.polled.put(key, Polled(answer, len(chunk.data)), len(answer.body))
                return answer
        passed, offset = chunk, chunk.next_offset  # no record: a client waits for records
        wait_ms = max(0, round((deadline - asyncio.get_running_loop().time()) * 1000))


def _filters(wanted: FetchRequest) -> tuple[str, ...]:
    return wanted.filters if isinstance(wanted, FilteredFetchRequest) else ()


async def filtered_chunk(context: ReadContext, partition: Partition, filters: tuple[str, ...], chunk: Chunk) -> Chunk:
    """Returns the chunk with only the records that pass the filters."""
    wanted, bytes_max = record_filter(filters), partition.settings.batch_decoded_bytes_max
    if is_compressed(chunk.data):
        return await context.offload.in_thread(lambda: filtered(chunk, wanted, bytes_max))
    return await context.offload.by_size(FILTER_COST * len(chunk.data), partial(filtered, chunk, wanted, bytes_max))


def poll_key(context: ReadContext, partition: Partition, wanted: FetchRequest, offset: int) -> Hashable:
    """Returns what the answer of a long poll depends on: long polls with the same key get the same bytes."""
    log, topic_id = partition.log, context.topics.topic(partition.topic).record.topic_id
    form = (wanted.media_type, wanted.value, wanted.ndjson, wanted.max_records, wanted.max_bytes, wanted.if_none_match)
    place = (partition.number, offset, wanted.offset is None, log.log_start, log.leader_epoch)
    return topic_id, place, partition.watermark.position, form, _filters(wanted)


def count_bytes(context: ReadContext, partition: Partition, size_bytes: int) -> None:
    context.metrics.fetch_bytes.value += size_bytes
    partition.bytes_out += size_bytes


async def _start(context: ReadContext, partition: Partition, leader: AnyReplica, wanted: FetchRequest) -> int:
    """Returns the first offset of a fetch that this replica may answer. Raises Problem, EngineError."""
    leader.check_serves_reads(wanted.leader_epoch, from_follower=wanted.from_follower)
    offset = wanted.offset
    if offset is None:
        offset = await _start_offset(context, partition, wanted)
        if wanted.from_ != "earliest" and offset == partition.high_watermark:
            leader.check_latest()  # an earlier leader may have given a higher one
    if offset > partition.high_watermark:
        await confirm_offset(context, partition, offset)
    else:
        partition.check_readable(offset)
    return offset


async def confirm_offset(context: ReadContext, partition: Partition, offset: int) -> None:
    """Checks an offset that was above the high watermark, once the store has confirmed that this node leads.

    A client does not retry after OffsetAboveHighWatermark, and a replaced leader may know too low a watermark.
    """
    leader = context.partitions.replica(partition)
    leader.check_latest()
    await leader.confirm_leading()
    partition.check_readable(offset)


async def _answer(
    context: ReadContext, partition: Partition, wanted: FetchRequest, read: Read, may_stream: Callable[[], bool]
) -> Found:
    kept = cache_headers(context, partition, read.chunk, wanted)
    if wanted.if_none_match is not None and is_not_modified(wanted.if_none_match, kept.get("ETag")):
        return Found({STATUS: "304", **kept, **_bounds_headers(partition)}, b"")
    found, (offset, chunk) = None, read
    is_large = chunk is not None and len(chunk.data) > PIECE_BYTES
    if chunk is not None and is_large and wanted.media_type in (JSON, NDJSON) and may_stream():
        found = await _stream(context, partition, wanted, offset, chunk, is_cached=kept is not NO_STORE)
    if found is None:
        found = Found(*await _render(context, partition, wanted, read))
    return found if "Cache-Control" in found.headers else found._replace(headers=kept | found.headers)


async def _stream(
    context: ReadContext, partition: Partition, wanted: FetchRequest, offset: int, chunk: Chunk, *, is_cached: bool
) -> Found | None:
    """Returns the headers and the first piece of a large answer; None if it is to be given whole."""
    is_local = offset >= partition.log.local_log_start
    piece_bytes = PIECE_BYTES if is_local else STORE_PIECE_BYTES
    if wanted.max_records is not None or not piece_bytes < len(chunk.data) <= context.settings.fetch_bytes_max:
        return None
    form = Form(wanted.value, _style(wanted), partition.settings.batch_decoded_bytes_max)
    budget = context.local_budget if is_local else context.store_budget
    keep = partial(filtered_chunk, context, partition, filters) if (filters := _filters(wanted)) else None
    source = Source(partial(read_chunk, context, partition), budget, context.offload, piece_bytes, keep)
    begun = await begin(source, form, offset, chunk, is_checked=is_cached)
    if begun is None:
        return None
    first, rest = begun
    count_bytes(context, partition, len(chunk.data))
    headers = _position_headers(partition, chunk.next_offset, wanted.media_type)
    if wanted.media_type == JSON:
        first = document(partition, chunk.next_offset, first).removesuffix(CLOSING)
    return Found(headers, first, rest.next)


def cache_headers(
    context: ReadContext, partition: Partition, chunk: Chunk | None, wanted: FetchRequest
) -> dict[str, str]:
    """Returns the headers for caches. Only records of sealed segments, read from a given offset, may be kept.

    A compacted topic's may not be kept: a key whose tombstone has gone would return from a cache.
    """
    if chunk is None or chunk.next_offset > partition.log.sealed_end:
        return NO_STORE
    is_exact = wanted.media_type == record_batch.MEDIA_TYPE and not (
        _filters(wanted) or partition.validator.fencing.has_been_used or keyed_batch.has_keyed(chunk.data)
    )
    return _sealed_headers(context, partition, chunk.next_offset, wanted, is_exact=is_exact)


def _sealed_headers(
    context: ReadContext, partition: Partition, next_offset: int, wanted: FetchRequest, *, is_exact: bool
) -> dict[str, str]:
    if wanted.offset is None or partition.settings.is_compacted:
        return NO_STORE
    topic_id = context.topics.topic(partition.topic).record.topic_id
    form = (wanted.media_type, wanted.max_records, wanted.value, wanted.ndjson, _filters(wanted))
    bounds = (partition.settings.batch_decoded_bytes_max, context.settings.fetch_bytes_max)
    place = (topic_id, partition.number, wanted.offset, next_offset)
    return cacheable_headers(tag_of(place, form, bounds, is_exact=is_exact), context.settings.cache_max_age_ms)


def placed_headers(
    context: ReadContext, partition: Partition, wanted: FetchRequest, next_offset: int
) -> dict[str, str]:
    """Returns the headers of stored batches that are sent as they are, but that of their first offset."""
    is_sealed = next_offset <= partition.log.sealed_end
    kept = _sealed_headers(context, partition, next_offset, wanted, is_exact=True) if is_sealed else NO_STORE
    return kept | _position_headers(partition, next_offset, record_batch.MEDIA_TYPE)


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


async def _start_offset(context: ReadContext, partition: Partition, wanted: FetchRequest) -> int:
    if wanted.timestamp is None:
        return partition.log.log_start if wanted.from_ == "earliest" else partition.high_watermark
    found = await find_time(context, partition, wanted.timestamp)
    return partition.high_watermark if found is None else found[0]


async def _wait(
    context: ReadContext,
    partition: Partition,
    leader: AnyReplica,
    wanted: FetchRequest,
    offset: int,
    min_bytes: int,
    wait_ms: int,
) -> None:
    """Waits until `min_bytes` are committed at the offset, the time is over, or the node drains."""
    lifecycle = context.lifecycle
    if lifecycle.is_draining or _has_enough(context, partition, offset, min_bytes):
        return
    deadline = asyncio.get_running_loop().time() + wait_ms / 1000
    watermark = partition.watermark
    with context.long_polls.waiting(), suppress(TimeoutError):
        while True:
            leader.check_serves_reads(from_follower=wanted.from_follower)  # else the next leader would never be asked
            await watermark.polls.wait_until(deadline, max(watermark.position, offset) + 1)
            if lifecycle.is_draining or _has_enough(context, partition, offset, min_bytes):
                return


def _has_enough(context: ReadContext, partition: Partition, offset: int, min_bytes: int) -> bool:
    return readable_bytes(context, partition, offset, is_exact=min_bytes > 1) >= min_bytes


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


async def _render(context: ReadContext, partition: Partition, wanted: FetchRequest, read: Read) -> Answer:
    """Returns the headers and the body of a read, in the requested form."""
    offset, chunk = read
    data = b"" if chunk is None else chunk.data
    count_bytes(context, partition, len(data))
    if wanted.media_type == record_batch.MEDIA_TYPE:
        return await _render_stored(context, partition, offset if chunk is None else chunk.next_offset, data)
    # the size of a compressed batch does not bound its decoding
    if len(data) < OFF_LOOP_BYTES and not is_compressed(data):
        return render_decoded(context, partition, wanted, read)
    return await context.offload.in_thread(lambda: render_decoded(context, partition, wanted, read))


def render_decoded(context: ReadContext, partition: Partition, wanted: FetchRequest, read: Read) -> Answer:
    """Returns the headers and the body of a read in a form that shows records."""
    bounds = Bounds(wanted.max_records, partition.settings.batch_decoded_bytes_max, context.settings.fetch_bytes_max)
    render = _render_events if wanted.media_type in EVENT_FORMS else _render_json
    return render(partition, wanted, read, bounds)


async def _render_stored(
    context: ReadContext, partition: Partition, next_offset: int, data: bytes | bytearray
) -> Answer:
    if partition.validator.fencing.has_been_used:
        data = await context.offload.by_size(len(data), partial(without_control, data))
    headers = stored_headers(partition, next_offset, data)
    if data and keyed_batch.has_keyed(data):
        data = await context.offload.by_size(len(data), partial(keyed_batch.shown, data))
    return headers, data


def stored_headers(partition: Partition, next_offset: int, data: bytes | bytearray) -> dict[str, str]:
    """Returns the headers of an answer in stored batches."""
    headers = _position_headers(partition, next_offset, record_batch.MEDIA_TYPE)
    if data:
        headers["Penstock-Base-Offset"] = str(record_batch.read_header(data).base_offset)
    return headers


def _render_events(partition: Partition, wanted: FetchRequest, read: Read, bounds: Bounds) -> Answer:
    source = f"/v1/topics/{partition.topic}/partitions/{partition.number}"
    events, end, _ = decoded(read, bounds, partial(events_out, source=source))
    own_headers, body = render_events(events, wanted.media_type, source)
    headers = _position_headers(partition, end, wanted.media_type)
    if any(isinstance(event, Undecodable) for event in events):
        headers |= NO_STORE  # a repair may restore a batch that cannot be decoded now
    if wanted.media_type == BINARY:  # replaced by the type of the data, if there is one
        del headers["Content-Type"]
    return headers | own_headers, body


def _render_json(partition: Partition, wanted: FetchRequest, read: Read, bounds: Bounds) -> Answer:
    rendered = render_records(read, bounds, wanted.value, _style(wanted))
    headers = _position_headers(partition, rendered.next_offset, wanted.media_type)
    if rendered.has_gap:
        headers |= NO_STORE
    if wanted.media_type == JSON:
        return headers, document(partition, rendered.next_offset, rendered.text)
    return headers, rendered.text


def _style(wanted: FetchRequest) -> Style:
    if wanted.media_type == JSON:
        return Style.ARRAY
    return Style.VALUES if wanted.ndjson == "values" else Style.LINES


def _position_headers(partition: Partition, next_offset: int, media_type: str) -> dict[str, str]:
    return {
        "Content-Type": media_type,
        "Penstock-Next-Offset": str(next_offset),
        **_bounds_headers(partition),
    }


def _bounds_headers(partition: Partition) -> dict[str, str]:
    return {
        "Penstock-High-Watermark": str(partition.watermark.position),
        "Penstock-Log-Start": str(partition.log.log_start),
        "Penstock-Leader-Epoch": str(partition.log.leader_epoch),
    }


def partition_calls(context: ReadContext) -> list[Answering]:
    """Returns the readers' calls to partitions of this process."""
    fetching = partial(fetch, context)
    return [FETCH_CALL.by(fetching), FILTERED_FETCH_CALL.by(fetching)]
