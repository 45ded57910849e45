"""The path of a produce to one topic: parse, decode, place, append, answer.

This file parses the query and the headers into one frozen value, which decides how the body is read. The other stages
are ndjson_values.py, json_records.py, cloud_events.py or stored_batch.py; batching.py; appending.py, which answers too.
All records are decoded, checked and encoded before any is appended, so a bad record leaves nothing behind. Only
requests that need it enter produce_many.py (many topics), idempotency.py (an Idempotency-Key), headers.py (other
headers of ours) and the request order of a connection (HTTP/2).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, NamedTuple

from msgspec import Struct

from engine.errors import Draining
from engine.format import batch as record_batch
from engine.format.keyed_batch import KeyEntry, SourceEntry
from engine.producers.appends import NO_CONDITIONS, AppendConditions
from engine.runtime.loop_waits import wait_turn
from engine.shard.served_topics import Topic
from gateway.connections.request_order import OrderSlot
from gateway.http.json_limits import JsonLimits
from gateway.http.offload import OFF_LOOP_BYTES, TIMED_BYTES
from gateway.http.problems import Problem
from gateway.http.query import Number, Text, Word, path_partition, read_query
from gateway.http.record_content_type import FORM, JSON, LINES, NDJSON, check_one_value
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.produce.accumulator import share_bytes_max
from gateway.produce.appending import Part, answer, append
from gateway.produce.batching import Destination, Incoming, IncomingRow, ProducerSequence, to_batches
from gateway.produce.cloud_events import EVENT, EVENT_BATCH, binary_event, decode_event, decode_event_batch
from gateway.produce.context import ProduceContext
from gateway.produce.headers import (
    BEGINNINGS,
    NO_HEADERS,
    SOURCE,
    IdempotencyKey,
    ProduceHeaders,
    SourcePositions,
    parse_key,
    parse_sequence,
    read_headers,
)
from gateway.produce.idempotency import KeyedRequest, KeyInFlight, keyed_request, window_headers
from gateway.produce.json_records import decode_envelope, decode_record_lines
from gateway.produce.ndjson_values import decode_keyed_values, decode_values, parse_pointer
from gateway.produce.partitioner import unknown_partition
from gateway.produce.stored_batch import check_producer_id, stored_batch
from gateway.routing.leader_headers import check_leadership, leader_headers, note_owner
from replication.replica.acks import ACKS_BY_WORD, Acks

EVENT_DECODERS: dict[str, Callable[..., Incoming]] = {EVENT: decode_event, EVENT_BATCH: decode_event_batch}

Decode = Callable[[bytes], Incoming]

AcksWord = Annotated[str, Word(tuple(ACKS_BY_WORD))]
TimeoutMs = Annotated[int | None, Number(1, 600_000)]


class PartitionQuery(Struct, frozen=True):
    """The query of a produce to one partition."""

    acks: AcksWord = "all"
    timeout_ms: TimeoutMs = None
    key: Annotated[str | None, Text()] = None
    key_pointer: Annotated[str | None, Text()] = None
    ndjson: Annotated[str, Word(("values", "records"))] = "values"


class TopicQuery(PartitionQuery, frozen=True):
    """The query of a produce to one topic."""

    partition: Annotated[int | None, Number(0, 2**31 - 1)] = None


class ProduceRequest(NamedTuple):
    """A produce to one topic. `decode` is None for a stored batch.

    Records that name no partition go to `partition`. With `is_only` no record may name another one.
    `is_forwarding_forbidden`: the request must not be passed on to another process.
    """

    topic: str
    partition: int | None
    is_only: bool
    acks: Acks
    timeout_ms: int
    decode: Decode | None
    key: bytes | None
    conditions: AppendConditions | None
    sequenced: ProducerSequence | None
    idempotency_key: IdempotencyKey | None
    is_forwarding_forbidden: bool
    source: SourcePositions | None = None


class ReceivedBody(NamedTuple):
    """A body, the time of its arrival, and the hashes of its Idempotency-Key."""

    body: bytes
    now_ms: int
    keyed: KeyedRequest | None


async def produce(request: Request, context: ProduceContext) -> Response:
    """POST /v1/topics/{topic}/records. Raises Problem, EngineError."""
    wanted: ProduceRequest = request.parsed or parse(request, context)
    return await in_order(request, context, partial(_produce, request, context, wanted))


async def produce_to_partition(request: Request, context: ProduceContext) -> Response:
    """POST /v1/topics/{topic}/partitions/{partition}/records. Raises Problem, EngineError."""
    return await produce(request, context)


async def in_order(
    request: Request, context: ProduceContext, store: Callable[[OrderSlot | None], Awaitable[Response]]
) -> Response:
    """Keeps the order of the requests of a connection. On HTTP/1.1 there is one at a time. Raises Draining."""
    if context.lifecycle.is_refusing:
        raise Draining("the node is stopping")
    if request.version != "2":
        return await store(None)
    slot = context.order.begin(request)
    try:
        return await store(slot)
    finally:
        slot.end()


async def read_body(
    request: Request, context: ProduceContext, key: IdempotencyKey | None, slot: OrderSlot | None
) -> ReceivedBody:
    """Returns the body of a produce, within its limits. Raises as RequestBodies.read does."""
    began = time.perf_counter()
    bytes_max, has_arrived = context.settings.request_body_bytes_max, None if slot is None else slot.body_received
    body = await context.bodies.read(request, bytes_max, has_arrived)
    context.stages.body.observe(time.perf_counter() - began)
    context.metrics.produce_bytes.value += len(body)
    now_ms, keyed = context.clock.now_ms(), None
    if key is not None:
        if len(body) < OFF_LOOP_BYTES:
            keyed = keyed_request(key, body)
        else:
            keyed = await context.offload.in_thread(lambda: keyed_request(key, body))
    return ReceivedBody(body, now_ms, keyed)


async def _produce(
    request: Request, context: ProduceContext, wanted: ProduceRequest, slot: OrderSlot | None
) -> Response:
    topic = await _topic(context, wanted)
    received = await read_body(request, context, wanted.idempotency_key, slot)
    partitions = topic.record.partitions
    try:
        if received.keyed is None:  # no frame for what most requests do not have
            return await _store_one(request, context, wanted, received, topic, slot, None)
        async with KeyInFlight(context, topic, received.keyed, received.now_ms) as entry:
            return await _store_one(request, context, wanted, received, topic, slot, entry)
    except Problem as problem:  # of a partition that a record names: no record is stored yet
        if problem.code != "unknown_partition" or not await context.topics.has_grown(wanted.topic, partitions):
            raise
    return await _store(request, context, wanted, received, context.topics.topic(wanted.topic), slot)


async def _topic(context: ProduceContext, wanted: ProduceRequest) -> Topic:
    """Returns the topic before the body is read. Raises Problem, UnknownTopic."""
    if wanted.sequenced is not None:
        await check_producer_id(context, wanted.sequenced.producer_id)
    topic = await context.topics.get_or_create(wanted.topic)
    if wanted.partition is not None and wanted.partition >= topic.record.partitions:
        raise unknown_partition(wanted.topic, wanted.partition, topic.record.partitions)
    return topic


async def _store(
    request: Request,
    context: ProduceContext,
    wanted: ProduceRequest,
    received: ReceivedBody,
    topic: Topic,
    slot: OrderSlot | None,
) -> Response:
    if received.keyed is None:
        return await _store_one(request, context, wanted, received, topic, slot, None)
    async with KeyInFlight(context, topic, received.keyed, received.now_ms) as entry:
        return await _store_one(request, context, wanted, received, topic, slot, entry)


async def _store_one(
    request: Request,
    context: ProduceContext,
    wanted: ProduceRequest,
    received: ReceivedBody,
    topic: Topic,
    slot: OrderSlot | None,
    entry: KeyEntry | None,
) -> Response:
    """Stores the records of one topic. With an `entry` they are placed as those of the key's first request were."""
    began = time.perf_counter()
    body, decode = received.body, wanted.decode
    if len(body) >= TIMED_BYTES:
        await wait_turn()
    to = destination(context, wanted, topic, len(body), received.now_ms, entry)
    if wanted.source is not None:
        to = to._replace(entry=wanted.source.entry(received.now_ms))
    if decode is None:
        batches = [await stored_batch(body, to, context)]
    else:
        records_max = context.settings.records_per_request_max
        if len(body) < OFF_LOOP_BYTES:
            batches = to_batches(decode(body), to, records_max, _share_bytes_max(wanted, topic, len(body)))
        else:
            batches = await context.offload.in_thread(lambda: to_batches(decode(body), to, records_max))
    context.stages.decode.observe(time.perf_counter() - began)
    conditions, name = wanted.conditions, topic.record.name
    if isinstance(to.entry, SourceEntry):
        conditions = (conditions or NO_CONDITIONS)._replace(source=to.entry)
    elif to.entry is not None:
        conditions = AppendConditions(key=to.entry) if conditions is None else conditions._replace(key=to.entry)
    parts = [Part(name, one.partition, one.record_count, topic, one.data, one.shared, conditions) for one in batches]
    if wanted.is_forwarding_forbidden:
        await check_leadership(request, context.router, [(name, one.partition) for one in batches])
    outcomes = await append(context, parts, wanted.acks, wanted.timeout_ms, received.now_ms, slot)
    acknowledged = time.perf_counter()
    response = answer(parts, outcomes, wanted.acks, received.now_ms, topic)
    if entry is not None:
        response.headers.update(window_headers([topic], outcomes, time.perf_counter() - began))
    if context.peers.has_others:
        numbers = [batch.partition for batch in batches]
        response.headers.update(leader_headers(context.peers, topic.record.topic_id, numbers))
        note_owner(request.connection, context.peers, topic.record.topic_id, numbers)
    context.stages.answer.observe(time.perf_counter() - acknowledged)
    return response


def _share_bytes_max(wanted: ProduceRequest, topic: Topic, body_bytes: int) -> int:
    """Returns 0 for a request with a condition or a source: it shares no append."""
    return share_bytes_max(topic, body_bytes) if wanted.conditions is None and wanted.source is None else 0


def parse(request: Request, context: ProduceContext) -> ProduceRequest:
    """Parses a produce to one topic. Looks at the head of the request only.

    Raises Problem invalid_header, invalid_query, unknown_query, unknown_partition, unsupported_media_type.
    """
    is_only = "partition" in request.names
    query: PartitionQuery
    partition: int | None
    if is_only:
        query, partition = read_query(request, PartitionQuery), path_partition(request)
    else:
        query = topic_query = read_query(request, TopicQuery)
        partition = topic_query.partition
    has_own = not BEGINNINGS.isdisjoint([name[:3].lower() for name in request.headers])
    content_type = request.content_type if "Content-Type" in request.headers else ""
    if content_type in LINES:
        content_type = NDJSON
    headers = NO_HEADERS
    if has_own:
        headers = read_headers(request, partition, is_structured=content_type in EVENT_DECODERS)
    if headers.source is not None and ACKS_BY_WORD[query.acks] is not Acks.ALL:
        text = f"{SOURCE} goes with acks=all: a position that is remembered and then lost would skip its inputs"
        raise Problem("invalid_query", text, parameter="acks")
    key = query.key if query.key is not None else headers.record_key
    return ProduceRequest(
        request.names["topic"],
        partition,
        is_only or any((headers.conditions, headers.sequenced, headers.source)),
        ACKS_BY_WORD[query.acks],
        query.timeout_ms or context.settings.produce_timeout_ms,
        _decoder(request, content_type, query, headers, context.json_limits),
        None if key is None else key.encode(),
        headers.conditions,
        headers.sequenced,
        headers.idempotency_key,
        headers.is_forwarding_forbidden,
        headers.source,
    )


def with_own(wanted: ProduceRequest, key: str | None, sequence: str | None) -> ProduceRequest:
    """Returns a parsed request with the Idempotency-Key and the Producer-Seq of another one like it.

    Raises Problem invalid_header.
    """
    topic, partition, is_only, acks, timeout_ms, decode, record_key, conditions, sequenced, keyed, *_ = wanted
    if key is not None:
        assert keyed is not None
        keyed = IdempotencyKey(parse_key((key,)), keyed.decides)
    if sequence is not None:
        assert sequenced is not None
        sequenced = ProducerSequence(sequenced[0], sequenced[1], parse_sequence((sequence,)))
    return ProduceRequest(  # `_replace` takes four times as long
        topic, partition, is_only, acks, timeout_ms, decode, record_key, conditions, sequenced, keyed,
        wanted.is_forwarding_forbidden, wanted.source,
    )  # fmt: skip


def _decoder(
    request: Request, content_type: str, query: PartitionQuery, headers: ProduceHeaders, limits: JsonLimits
) -> Decode | None:
    """Returns the decoder of the body's form. A media type without a form of its own is the value of one record."""
    pointer, attributes = query.key_pointer, headers.attributes
    if content_type == record_batch.MEDIA_TYPE and attributes is None:
        _check_stored_batch(query, headers)
        return None
    has_lines = content_type == NDJSON and query.ndjson == "values" and attributes is None
    if pointer is not None and not has_lines:
        text = "key_pointer goes with application/x-ndjson and ndjson=values"
        raise Problem("invalid_query", text, parameter="key_pointer")
    if attributes is not None:  # a CloudEvent in binary mode, whose data may have any media type
        return partial(binary_event, attributes, request.headers.get("Content-Type"))
    if content_type in (JSON, NDJSON, *EVENT_DECODERS):
        check_charset(request)
    if content_type in EVENT_DECODERS:
        return partial(EVENT_DECODERS[content_type], limits=limits)
    if content_type == JSON:
        return partial(decode_envelope, limits=limits)
    if content_type == NDJSON:
        if query.ndjson == "records":
            return partial(decode_record_lines, limits=limits)
        if pointer is None:
            return partial(decode_values, limits=limits)
        return partial(decode_keyed_values, pointer=parse_pointer(pointer), limits=limits)
    check_one_value(content_type)
    kept_type = request.headers.get("Content-Type", "application/octet-stream")
    return partial(_one_value, kept_type=kept_type.encode())


def _check_stored_batch(query: PartitionQuery, headers: ProduceHeaders) -> None:
    """Raises Problem invalid_query, invalid_header: a stored batch has its keys and its sequence in itself."""
    if query.key is not None or query.key_pointer is not None or headers.record_key is not None:
        raise Problem("invalid_query", "a stored batch has its keys in its records", parameter="key")
    if headers.idempotency_key is not None:
        raise Problem("invalid_header", "a stored batch takes Producer-Id, -Epoch and -Seq in place of a key")
    if headers.source is not None:
        raise Problem("invalid_header", f"a stored batch takes no {SOURCE}: send its records as JSON or NDJSON")


def check_charset(request: Request) -> None:
    """Raises Problem unsupported_media_type for JSON in another encoding than UTF-8."""
    if (request.charset or "utf-8").lower() not in ("utf-8", "utf8"):
        raise Problem("unsupported_media_type", f"the charset is {request.charset!r}; JSON is taken as UTF-8 only")


def _one_value(body: bytes, kept_type: bytes) -> Incoming:
    if not body:
        raise Problem("no_records", "the body is empty")
    if kept_type.lower().startswith(FORM) and body[:1] in (b"{", b"["):  # form data has these characters encoded
        text = f"the body looks like JSON, and its Content-Type is {FORM.decode()}, which `curl -d` sends"
        raise Problem("unsupported_media_type", f"{text}: send -H 'Content-Type: {JSON}', or text/plain for a text")
    return [IncomingRow(None, body, [("content-type", kept_type)])]


def is_plain(wanted: ProduceRequest) -> bool:
    """Returns whether no condition or source goes with the records, and other processes may be asked."""
    own = (wanted.conditions, wanted.source)
    return wanted.decode is not None and not any(own) and not wanted.is_forwarding_forbidden


def destination(
    context: ProduceContext,
    wanted: ProduceRequest,
    topic: Topic,
    size_bytes: int,
    now_ms: int,
    entry: KeyEntry | None,
) -> Destination:
    partitioner, sticky = None, 0
    if wanted.is_only:  # all records go to the partition that the request names
        pass
    elif entry is not None:
        partitioner = context.partitioners.among(topic, entry.partitions)
        sticky = partitioner.for_request(entry.key_hash)
    else:
        partitioner = context.partitioners.of(topic)
        if wanted.partition is None:
            sticky = partitioner.sticky(size_bytes, context.clock.monotonic())
    return Destination(
        partitioner,
        topic.settings,
        now_ms,
        sticky,
        wanted.partition,
        wanted.key,
        wanted.sequenced,
        entry,
    )
