"""Answers reads at the owner of their partitions: reads, renders, and keeps what others will ask for next.

A fetch of one partition waits here; a read of many is one of the reads of its reader (gateway/fetch/multi_fetch.py),
which waits at all owners. Results are plain values, and a FetchRequest can be sent over a link, so any process can make
the call. gateway/fetch/reader.py reads, gateway/fetch/rendering.py renders. Only the forms of records decode batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from engine.errors import EngineError
from engine.format import batch as record_batch
from engine.format import keyed_batch
from engine.format.batch_header import has_no_records, is_compressed
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from engine.partition.shared_file_read import FileRange, file_range_of
from engine.runtime.disk import WouldBlock
from gateway.connections.read_budget import RENDERED_COPIES
from gateway.fetch.context import ReadContext
from gateway.fetch.reader import (
    Limits,
    PartitionRead,
    Source,
    budget_of,
    check_available,
    check_serves,
    check_source,
    confirm_sources,
    count_bytes,
    filter_chunk,
    find_source,
    find_time,
    read_batches,
    read_batches_now,
    read_chunk,
    read_chunk_now,
    wait_readable,
)
from gateway.fetch.record_json import Bounds, Read
from gateway.fetch.rendered_cache import CachedPoll, Lines, Part, RenderedFetch
from gateway.fetch.rendering import (
    AS_STORED,
    Form,
    bounds_headers,
    document,
    form_of,
    headers_of,
    position_headers,
    render_part,
)
from gateway.fetch.request import JSON, NDJSON, FetchRequest
from gateway.fetch.streamed_records import CLOSING, PIECE_BYTES, STORE_PIECE_BYTES, PieceSource, TextForm, begin
from gateway.http.caching import NO_STORE, STATUS, cacheable_headers, is_not_modified, tag_of
from gateway.http.negotiation import SSE
from gateway.http.offload import TIMED_BYTES
from gateway.http.problems import ProblemFields, from_engine
from gateway.routing.router import Answering, PartitionCall
from gateway.wire.exchange import Carrier, sendable_of

R = TypeVar("R")

STORED_BYTES_MAX = 2 * 1024 * 1024  # of batches that are read and sent as they are in one call: about a millisecond
SEARCHED_BYTES_MAX = 16 * 1024 * 1024  # by one fetch; then it is answered without records, at a later position
ENTRY_COST_BYTES = 2048  # encoding one entry takes as long as this many bytes of records

Answer = tuple[dict[str, str], bytes | bytearray]  # headers and body
PlacedRecords = tuple[dict[str, str], FileRange]

# The result is the headers, or the headers and the place of the records, which the reader takes from the file.
FETCH_CALL: PartitionCall[FetchRequest, dict[str, str] | PlacedRecords] = PartitionCall("fetch", FetchRequest)
# The same call: a node of an earlier version would ignore the filters of the first.
FILTERED_FETCH_CALL: PartitionCall[FetchRequest, dict[str, str] | PlacedRecords] = PartitionCall(
    "fetch_filtered", FetchRequest
)
EARLIER_CALLS = ("fetch_nearby", "fetch_nearby_filtered")  # of nodes of an earlier version, for their rolling upgrade


# A fetch of one partition


async def fetch(
    context: ReadContext, partition: Partition, request: FetchRequest
) -> tuple[dict[str, str] | PlacedRecords, bytes | bytearray]:
    """Answers a fetch of another process: with a place, or as `fetch_local` does, with a whole body."""
    if (placed := _find_place(context, partition, request)) is not None:
        return placed, b""
    found = await fetch_local(context, partition, request)
    return found.headers, found.body


def fetch_now(
    context: ReadContext, partition: Partition, request: FetchRequest, offset: int, connection: Carrier, at_most: int
) -> RenderedFetch | None:
    """Answers a fetch at this offset, in place of its own, with what is there now.

    Returns None where `fetch_local` is needed: if the answer takes a wait, a thread or much time. `at_most` bounds the
    batches that are sent as they are stored. It holds none of the budget, since it does not wait.
    """
    position, key = partition.watermark.position, None
    if request.wait_ms > 0 and (context.long_polls.open > 0 or context.polled.size_bytes > 0):
        key = _poll_key(context, partition, request, offset)
        if (polled := context.polled.get(key)) is not None:
            count_bytes(context, partition, polled.stored_bytes)
            return polled.again()
    if offset >= position:
        found = _render(context, partition, request, Read(offset, None), form_of(request), NO_STORE)
        if key is not None and not request.filters:
            context.polled.put(key, CachedPoll(found, 0), len(found.body))
        return found
    max_bytes, copies = max_bytes_of(context, request), 1
    if request.media_type == record_batch.MEDIA_TYPE:
        max_bytes = sendable_of(connection, max_bytes)
    else:
        copies, at_most = RENDERED_COPIES, TIMED_BYTES - 1
    budget = context.local_budget
    if budget.held_bytes and not budget.has_room(max_bytes * copies):
        return None
    chunk = read_chunk_now(context, partition, offset, max_bytes, at_most)
    if chunk is None:
        return None
    first = None if request.offset is None else offset
    answer = _answer_now(context, partition, request, Read(offset, chunk), chunk, first)
    if key is not None and answer is not None and chunk.next_offset == position:
        context.polled.put(key, CachedPoll(answer, len(chunk.data)), len(answer.body))
    return answer


async def fetch_local(
    context: ReadContext,
    partition: Partition,
    request: FetchRequest,
    may_stream: Callable[[], bool] = lambda: False,
    sendable: Callable[[int], int] = lambda size_bytes: size_bytes,
    source: Source | None = None,
) -> RenderedFetch:
    """Answers a fetch. Waits, as a long poll, for at most `wait_ms`. Raises Problem, EngineError.

    A large body of records has a rest if `may_stream` returns True. `sendable` takes a number of
    bytes and returns how many of them are read for the client. `source`: where the fetch begins, if that is known.
    """
    source = source or await _start(context, partition, request)
    max_bytes = max_bytes_of(context, request)
    min_bytes = min(request.min_bytes, max_bytes)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.wait_ms / 1000
    copies = 1 if request.media_type == record_batch.MEDIA_TYPE else RENDERED_COPIES
    filters = request.filters or ()
    passed: Chunk | None = None
    searched_bytes = 0
    while True:
        key: Hashable | None = None
        if request.wait_ms > 0 and min_bytes > 0 and (passed is None or loop.time() < deadline):
            await _wait(context, source, min_bytes, deadline)
            if context.long_polls.open > 0 or context.polled.size_bytes > 0:
                key = _poll_key(context, partition, request, source.offset)
        [readable] = await confirm_sources(context, [source])
        if isinstance(readable, EngineError):
            raise readable
        if key is not None and (polled := context.polled.get(key)) is not None:
            count_bytes(context, partition, polled.stored_bytes)
            return polled.again()
        async with budget_of(context, [source]).hold(sendable(max_bytes) * copies) as granted_bytes:
            found = (await read_batches(context, {0: source}, granted_bytes // copies)).get(0)
            if isinstance(found, EngineError):
                raise found
            chunk = passed
            if found is not None:
                searched_bytes += len(found.data)
                chunk = await filter_chunk(context, partition, filters, found) if filters else found
            is_enough = chunk is passed or searched_bytes >= SEARCHED_BYTES_MAX
            if chunk is None or is_enough or (chunk.data and not has_no_records(chunk.data)):
                answer = await _answer(context, partition, request, Read(source.offset, chunk), may_stream)
                if key is not None and chunk is not None:
                    _keep_poll(context, source, request, key, chunk, answer)
                return answer
        passed, source = chunk, source._replace(offset=chunk.next_offset)  # no record: a client waits for records


def max_bytes_of(context: ReadContext, request: FetchRequest) -> int:
    return min(request.max_bytes or context.settings.fetch_bytes_default, context.settings.fetch_bytes_max)


def _poll_key(context: ReadContext, partition: Partition, request: FetchRequest, offset: int) -> Hashable:
    """Returns what the answer of a long poll depends on: long polls with the same key get the same bytes."""
    log, topic = partition.log, context.topics.get(partition.topic) or context.topics.topic(partition.topic)
    form = (
        request.media_type,
        request.value,
        request.ndjson,
        request.max_records,
        request.max_bytes,
        request.if_none_match,
        request.hidden,
    )
    place = (partition.number, offset, request.offset is None, log.log_start, log.leader_epoch)
    return topic.record.topic_id, place, partition.watermark.position, form, (request.filters or ())


def _keep_poll(
    context: ReadContext, source: Source, request: FetchRequest, key: Hashable, chunk: Chunk, answer: RenderedFetch
) -> None:
    """Keeps the whole answer of a long poll for others like it, unless more was committed meanwhile."""
    partition, offset, _ = source
    if answer.rest is not None or chunk.next_offset != partition.watermark.position:
        return
    if key == _poll_key(context, partition, request, offset):
        context.polled.put(key, CachedPoll(answer, len(chunk.data)), len(answer.body))


async def _start(context: ReadContext, partition: Partition, request: FetchRequest) -> Source:
    """Returns the first offset of a fetch that this replica may answer. Raises Problem, EngineError."""
    check_answers(context, partition, request)
    if request.timestamp is None:
        offset = start_now(context, partition, request)
    else:
        found = await find_time(context, partition, request.timestamp)
        offset = partition.high_watermark if found is None else found[0]
        if offset == partition.high_watermark:
            _check_latest(context, partition)
    return Source(partition, offset, request.from_follower)


def check_answers(context: ReadContext, partition: Partition, request: FetchRequest) -> None:
    """Checks that this replica may answer a fetch. Raises EngineError."""
    if partition.offline is not None:
        raise partition.offline
    replica = context.partitions.replica(partition)
    replica.check_serves_reads(request.leader_epoch, from_follower=request.from_follower)


def start_now(context: ReadContext, partition: Partition, request: FetchRequest) -> int:
    """Returns the first offset of a fetch that names no time. Raises EngineError."""
    if request.offset is not None:
        return request.offset
    if request.from_ == "earliest":
        return partition.log.log_start
    _check_latest(context, partition)
    return partition.high_watermark


def _check_latest(context: ReadContext, partition: Partition) -> None:
    """Checks that the high watermark is the end: an earlier leader may have given a higher one. Raises EngineError."""
    context.partitions.replica(partition).check_latest()


async def _wait(context: ReadContext, source: Source, min_bytes: int, deadline: float) -> None:
    """Waits until `min_bytes` are committed at the offset, the time is over, or the node drains."""
    looked = check_available(context, [source], is_exact=min_bytes > 1)
    is_over = looked.has_problem or looked.has_moved or looked.size_bytes >= min_bytes
    if not is_over and not context.lifecycle.is_draining:
        with context.long_polls.waiting():
            await wait_readable(context, [source], min_bytes, deadline=deadline, looked=looked)
        check_serves(context, source)


async def _answer(
    context: ReadContext, partition: Partition, request: FetchRequest, read: Read, may_stream: Callable[[], bool]
) -> RenderedFetch:
    offset, chunk = read
    if chunk is None:
        return _render(context, partition, request, read, form_of(request), NO_STORE)
    if (found := _answer_now(context, partition, request, read, chunk, request.offset)) is not None:
        return found
    kept = NO_STORE
    if chunk.next_offset <= partition.log.sealed_end:
        kept = _cache_headers(context, partition, chunk, request, request.offset)
    if len(chunk.data) > PIECE_BYTES and request.media_type in (JSON, NDJSON) and may_stream():
        found = await _stream(context, partition, request, offset, chunk, is_cached=kept is not NO_STORE)
    if found is None:
        count_bytes(context, partition, len(chunk.data))
        form, cost, is_packed = _form_and_cost(partition, request, chunk.data)
        render_whole = partial(_render, context, partition, request, read, form, kept)
        return await _render_by_cost(context, cost, render_whole, is_packed=is_packed)
    return found._replace(headers=kept | found.headers)


def _answer_now(
    context: ReadContext, partition: Partition, request: FetchRequest, read: Read, chunk: Chunk, first: int | None
) -> RenderedFetch | None:
    """Returns an answer with a whole body; None if rendering it takes a thread or much time, or may be in pieces.

    `first` is the offset that the fetch names, if it names one.
    """
    kept = NO_STORE
    if chunk.next_offset <= partition.log.sealed_end:
        kept = _cache_headers(context, partition, chunk, request, first)
        if request.if_none_match is not None and is_not_modified(request.if_none_match, kept.get("ETag")):
            return RenderedFetch({STATUS: "304", **kept, **bounds_headers(partition)}, b"")
    data = chunk.data
    form, cost, is_packed = _form_and_cost(partition, request, data)
    if is_packed or cost >= TIMED_BYTES or cost > PIECE_BYTES:
        return None
    count_bytes(context, partition, len(data))
    return _render(context, partition, request, read, form, kept)


def _render(
    context: ReadContext, partition: Partition, request: FetchRequest, read: Read, form: Form, kept: dict[str, str]
) -> RenderedFetch:
    """Returns an answer with a whole body. `kept`: its headers for caches."""
    bounds = Bounds(request.max_records, partition.settings.batch_decoded_bytes_max, context.settings.fetch_bytes_max)
    part, _ = render_part(partition, read, form, bounds)
    headers = headers_of(partition, part, request.media_type)
    return RenderedFetch(headers if part.has_gap else kept | headers, part.body)


def _form_and_cost(partition: Partition, request: FetchRequest, data: bytes | bytearray) -> tuple[Form, int, bool]:
    """Returns the form, how many bytes are rendered, and whether some of them are compressed: then more are."""
    if request.media_type != record_batch.MEDIA_TYPE:
        return form_of(request), len(data), is_compressed(data)
    if partition.validator.fencing.has_been_used or (data and keyed_batch.has_keyed(data)):
        return AS_STORED._replace(is_cleaned=True), len(data), False
    return AS_STORED, 0, False


async def _render_by_cost(context: ReadContext, size_bytes: int, work: Callable[[], R], *, is_packed: bool) -> R:
    """Renders on the loop or in a thread: the size of a compressed batch does not bound its decoding."""
    if is_packed:
        return await context.offload.in_thread(work)
    if size_bytes < TIMED_BYTES:
        return work()
    return await context.offload.by_size(size_bytes, work)


async def _stream(
    context: ReadContext, partition: Partition, request: FetchRequest, offset: int, chunk: Chunk, *, is_cached: bool
) -> RenderedFetch | None:
    """Returns the headers and the first piece of a large answer; None if it is to be given whole."""
    is_local = offset >= partition.log.local_log_start
    piece_bytes = PIECE_BYTES if is_local else STORE_PIECE_BYTES
    if request.max_records is not None or not piece_bytes < len(chunk.data) <= context.settings.fetch_bytes_max:
        return None
    form = TextForm(request.value, form_of(request).style, partition.settings.batch_decoded_bytes_max)
    budget = budget_of(context, [Source(partition, offset)])
    keep = partial(filter_chunk, context, partition, filters) if (filters := request.filters) else None
    source = PieceSource(partial(read_chunk, context, partition), budget, context.offload, piece_bytes, keep)
    begun = await begin(source, form, offset, chunk, is_checked=is_cached)
    if begun is None:
        return None
    first, rest = begun
    count_bytes(context, partition, len(chunk.data))
    headers = position_headers(partition, chunk.next_offset, request.media_type)
    if request.media_type == JSON:
        first = document(partition, chunk.next_offset, first).removesuffix(CLOSING)
    return RenderedFetch(headers, first, rest.next)


def _cache_headers(
    context: ReadContext, partition: Partition, chunk: Chunk, request: FetchRequest, first: int | None
) -> dict[str, str]:
    """Returns the headers for caches of records of sealed segments, which may be kept if their offset was given.

    A compacted topic's may not be kept: a key whose tombstone has gone would return from a cache.
    """
    is_exact = request.media_type == record_batch.MEDIA_TYPE and not (
        request.filters or partition.validator.fencing.has_been_used or keyed_batch.has_keyed(chunk.data)
    )
    return _sealed_headers(context, partition, chunk.next_offset, request, first, is_exact=is_exact)


def _sealed_headers(
    context: ReadContext,
    partition: Partition,
    next_offset: int,
    request: FetchRequest,
    first: int | None,
    *,
    is_exact: bool,
) -> dict[str, str]:
    if first is None or partition.settings.is_compacted:
        return NO_STORE
    topic_id = context.topics.topic(partition.topic).record.topic_id
    form = (request.media_type, request.max_records, request.value, request.ndjson, request.filters or ()) + (
        (request.hidden,) if request.hidden else ()
    )
    bounds = (partition.settings.batch_decoded_bytes_max, context.settings.fetch_bytes_max)
    place = (topic_id, partition.number, first, next_offset)
    settings, tag = context.settings, tag_of(place, form, bounds, is_exact=is_exact)
    return cacheable_headers(tag, settings.cache_max_age_ms, is_private=settings.is_authenticated)


# The place of records in a file, for another process of this node


def _find_place(context: ReadContext, partition: Partition, request: FetchRequest) -> PlacedRecords | None:
    """Returns the place of records that are there now, with their headers; None if the owner reads them.

    Raises EngineError.
    """
    if not request.may_be_placed or request.offset is None or partition.validator.fencing.has_been_used:
        return None
    context.partitions.replica(partition).check_serves_reads(request.leader_epoch)
    place = file_range_of(partition, request.offset, max_bytes_of(context, request))
    if place is None:
        return None
    count_bytes(context, partition, place.size_bytes)
    is_sealed = place.next_offset <= partition.log.sealed_end
    kept = NO_STORE
    if is_sealed:
        kept = _sealed_headers(context, partition, place.next_offset, request, request.offset, is_exact=True)
    return kept | position_headers(partition, place.next_offset, record_batch.MEDIA_TYPE), place


# A read of many partitions


async def read_many(
    context: ReadContext,
    entries: Sequence[PartitionRead],
    limits: Limits,
    filters: tuple[str, ...] = (),
    partition_bytes_max: int | None = None,
) -> list[Part]:
    """Returns what is readable of each entry now, as far as it passes the filters.

    `partition_bytes_max`: about how much of one partition. None: up to all of the limits.
    """
    sources = await confirm_sources(context, [find_source(context, entry) for entry in entries])
    async with budget_of(context, sources).share(limits.max_bytes * RENDERED_COPIES) as granted_bytes:
        left_bytes = granted_bytes // RENDERED_COPIES
        order = [(limits.rotation + step) % len(sources) for step in range(len(sources))]
        readable = {index: source for index in order if isinstance(source := sources[index], Source)}
        recent = _recent(context, entries, readable, limits, filters, left_bytes) if limits.as_lines else {}
        left_bytes -= sum(lines.stored_bytes for lines in recent.values())
        others = {index: source for index, source in readable.items() if index not in recent}
        chunks: dict[int, Chunk] = {}
        cost, is_packed = 0, False
        for index, found in (await read_batches(context, others, left_bytes, partition_bytes_max)).items():
            if isinstance(found, EngineError):
                sources[index] = found
                del others[index]
                continue
            partition = others[index].partition
            chunk = chunks[index] = await filter_chunk(context, partition, filters, found) if filters else found
            count_bytes(context, partition, len(chunk.data))
            cost += ENTRY_COST_BYTES + len(chunk.data)
            is_packed = is_packed or is_compressed(chunk.data)
        render_all = partial(_render_parts, context, others, chunks, limits)
        parts = await _render_by_cost(context, cost, render_all, is_packed=is_packed)
    if limits.as_lines:
        for index, chunk in chunks.items():
            key = _lines_key(entries[index], others[index], limits, filters)
            _keep(context, key, Lines(parts[index], len(chunk.data)))
    parts |= {index: lines.part for index, lines in recent.items()}
    return [
        _refused(entry.offset, source) if isinstance(source, EngineError) else parts[index]
        for index, (entry, source) in enumerate(zip(entries, sources, strict=True))
    ]


def read_many_now(
    context: ReadContext, entries: Sequence[PartitionRead], limits: Limits, partition_bytes_max: int | None = None
) -> list[Part] | None:
    """Returns what `read_many` returns; None if that takes a wait, a thread or much time, or if an entry has a problem.

    It holds none of the budget, since it never waits.
    """
    if not context.local_budget.has_room(limits.max_bytes * RENDERED_COPIES):
        return None
    sources: dict[int, Source] = {}
    try:
        for step in range(len(entries)):
            index = (limits.rotation + step) % len(entries)
            source = find_source(context, entries[index])
            if isinstance(source, EngineError):
                return None
            check_source(context, source)
            sources[index] = source
        chunks = read_batches_now(context, sources, limits.max_bytes, TIMED_BYTES, partition_bytes_max)
    except (WouldBlock, OSError, EngineError):
        return None
    cost = sum(ENTRY_COST_BYTES + len(chunk.data) for chunk in chunks.values())
    if cost >= TIMED_BYTES or any(is_compressed(chunk.data) for chunk in chunks.values()):
        return None
    for index, chunk in chunks.items():
        count_bytes(context, sources[index].partition, len(chunk.data))
    parts = _render_parts(context, sources, chunks, limits)
    return [parts[index] for index in range(len(entries))]


def _render_parts(
    context: ReadContext, sources: Mapping[int, Source], chunks: Mapping[int, Chunk], limits: Limits
) -> dict[int, Part]:
    """Returns the parts of entries by their index. The limits are those of all together."""
    parts: dict[int, Part] = {}
    form = Form(SSE if limits.as_lines else JSON, limits.value)
    records_left, bytes_left = limits.max_records, context.settings.fetch_bytes_max
    for index, (partition, offset, _) in sources.items():
        chunk = chunks.get(index) if records_left != 0 and bytes_left > 0 else None
        bounds = Bounds(records_left, partition.settings.batch_decoded_bytes_max, bytes_left)
        parts[index], unpacked_bytes = render_part(partition, Read(offset, chunk), form, bounds)
        bytes_left -= unpacked_bytes
        if records_left is not None:
            records_left -= parts[index].record_count
    return parts


def _refused(offset: int, error: EngineError) -> Part:
    problem = from_engine(error)
    return Part(offset, 0, [], ProblemFields(problem.code, problem.detail, problem.members), b"")


def _recent(
    context: ReadContext,
    entries: Sequence[PartitionRead],
    sources: Mapping[int, Source],
    limits: Limits,
    filters: tuple[str, ...],
    max_bytes: int,
) -> dict[int, Lines]:
    """Returns by entry what another event stream has read at the same offset."""
    found: dict[int, Lines] = {}
    for index, source in sources.items():
        if max_bytes <= 0:
            break
        if source.offset >= source.partition.high_watermark:
            continue
        lines = context.lines.get(_lines_key(entries[index], source, limits, filters))
        if lines is not None:
            found[index] = lines
            max_bytes -= lines.stored_bytes
            count_bytes(context, source.partition, lines.stored_bytes)
    return found


def _keep(context: ReadContext, key: Hashable, lines: Lines) -> None:
    """Keeps lines for other event streams. Only those of readable records: a repair may restore the others."""
    if lines.part.line_ends and not lines.part.has_gap:
        context.lines.put(key, lines, len(lines.part.body) + 32 * len(lines.part.line_ends))


def _lines_key(entry: PartitionRead, source: Source, limits: Limits, filters: tuple[str, ...]) -> Hashable:
    epoch = source.partition.log.leader_epoch
    return entry.topic_id, entry.partition, epoch, entry.offset, limits.value, filters


def partition_calls(context: ReadContext) -> list[Answering]:
    """Returns the readers' calls to partitions of this process."""
    answer, place = partial(fetch, context), partial(_find_place, context)
    calls = [FETCH_CALL, FILTERED_FETCH_CALL, *(PartitionCall(name, FetchRequest) for name in EARLIER_CALLS)]
    return [Answering(call, answer, place, _allows_follower) for call in calls]


def _allows_follower(request: FetchRequest) -> bool:
    return request.from_follower
