"""Produce to one topic: which kind of body it is, and from its records to positions.

First everything is decoded, checked, given a partition and encoded (placing.py); only then is anything appended
(appending.py). So a bad record leaves nothing behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from aiohttp import web

from engine.format import batch as record_batch
from engine.format.keyed_batch import KeyEntry
from engine.producers.append_validator import AppendConditions
from engine.shard.served_topics import Topic
from gateway.connections.request_order import OrderSlot
from gateway.http.problems import Problem
from gateway.http.query import Number, Rules, Text, Word, path_partition, read_query
from gateway.http.request_body import read_body
from gateway.produce.appending import Part, answer, append, demand_one_success, result_of
from gateway.produce.client_batch import client_batch
from gateway.produce.cloud_events import (
    EVENT,
    EVENT_BATCH,
    binary_attributes,
    binary_event,
    decode_event,
    decode_event_batch,
)
from gateway.produce.conditions import demand_given, read_conditions, read_sequence
from gateway.produce.context import PRODUCE, ProduceContext
from gateway.produce.idempotency import KeyedRequest, KeyInFlight, keyed_request, read_key, window_headers
from gateway.produce.incoming import Incoming, IncomingRow
from gateway.produce.json_records import decode_envelope, decode_record_lines
from gateway.produce.ndjson_values import decode_keyed_values, decode_values, parse_pointer
from gateway.produce.placing import Batch, Destination, Sequenced, check_count, count_of, to_batches
from gateway.routing.leader_headers import FORWARD, demand_direct, leader_headers
from replication.replica.acks import ACKS_BY_WORD, Acks, durability_waited_for

JSON = "application/json"
NDJSON = "application/x-ndjson"
EVENT_DECODERS: dict[str, Callable[..., Incoming]] = {
    EVENT: decode_event,
    EVENT_BATCH: decode_event_batch,
}

QUERY: Rules = {
    "acks": Word("all", tuple(ACKS_BY_WORD)),
    "timeout_ms": Number(None, 1, 600_000),
    "key": Text(None),
    "key_pointer": Text(None),
    "ndjson": Word("values", ("values", "records")),
}
QUERY_WITH_PARTITION: Rules = {**QUERY, "partition": Number(None, 0, 2**31 - 1)}


class _Wish(NamedTuple):
    """What a request says beside its body. `is_only`: no record may name another partition."""

    query: dict[str, Any]
    partition: int | None
    is_only: bool
    conditions: AppendConditions | None
    sequenced: Sequenced | None
    slot: OrderSlot


async def produce(request: web.Request) -> web.Response:
    """POST /v1/topics/{topic}/records"""
    query = read_query(request, QUERY_WITH_PARTITION)
    return await _produce(request, query, query.pop("partition"), is_only=False)


async def produce_to_partition(request: web.Request) -> web.Response:
    """POST /v1/topics/{topic}/partitions/{partition}/records"""
    return await _produce(request, read_query(request, QUERY), path_partition(request), is_only=True)


async def _produce(
    request: web.Request, query: dict[str, Any], partition: int | None, *, is_only: bool
) -> web.Response:
    """`is_only`: no record may name another partition."""
    slot = request.app[PRODUCE].order.begin(request)
    try:
        return await _produce_in_turn(request, query, partition, slot, is_only=is_only)
    finally:
        slot.end()


async def _produce_in_turn(
    request: web.Request, query: dict[str, Any], partition: int | None, slot: OrderSlot, *, is_only: bool
) -> web.Response:
    context = request.app[PRODUCE]
    context.lifecycle.check_accepting()
    conditions, sequenced = read_conditions(request, partition), read_sequence(request, partition)
    key = read_key(request)
    if sequenced is not None:
        await demand_given(context, sequenced.producer_id)
    wish = _Wish(
        query, partition, is_only or conditions is not None or sequenced is not None, conditions, sequenced, slot
    )
    topic = await context.topics.to_produce_to(request.match_info["topic"])
    if partition is not None:
        context.partitioners.of(topic).check(partition)
    began = time.perf_counter()
    body = await read_body(request, context.settings.request_body_bytes_max, slot.body_is_there)
    context.stages.body.observe(time.perf_counter() - began)
    now_ms = context.clock.now_ms()
    context.metrics.produce_bytes.inc(len(body))
    keyed = None if key is None else await context.offload.by_size(len(body), lambda: keyed_request(key, request, body))
    partitions = topic.record.partitions
    try:
        return await _store_keyed(request, context, topic, wish, body, now_ms, keyed)
    except Problem as problem:  # of a partition that a record names: nothing is stored yet
        if problem.code != "unknown_partition" or not await context.topics.has_grown(topic.record.name, partitions):
            raise
    return await _store_keyed(request, context, context.topics.topic(topic.record.name), wish, body, now_ms, keyed)


async def _store_keyed(
    request: web.Request,
    context: ProduceContext,
    topic: Topic,
    wish: _Wish,
    body: bytes,
    now_ms: int,
    keyed: KeyedRequest | None,
) -> web.Response:
    if keyed is None:
        return await _store(request, context, topic, wish, body, now_ms, None)
    async with KeyInFlight(context, topic, keyed, now_ms) as entry:
        return await _store(request, context, topic, wish, body, now_ms, entry)


async def _store(
    request: web.Request,
    context: ProduceContext,
    topic: Topic,
    wish: _Wish,
    body: bytes,
    now_ms: int,
    entry: KeyEntry | None,
) -> web.Response:
    """Everything after the body has come. With an `entry` its records are placed as the first request of its key."""
    began = time.perf_counter()
    query = wish.query
    content_type = request.content_type if "Content-Type" in request.headers else ""
    key = query["key"] if query["key"] is not None else request.headers.get("Penstock-Key")
    if entry is None:
        partitioner = context.partitioners.of(topic)
        sticky = 0 if wish.partition is not None else partitioner.sticky(len(body), context.clock.monotonic())
    else:
        partitioner = context.partitioners.among(topic, entry.partitions)
        sticky = partitioner.for_request(entry.key_hash)
    to = Destination(
        partitioner,
        topic.settings,
        now_ms,
        sticky,
        wish.partition,
        wish.is_only,
        None if key is None else key.encode(),
        wish.sequenced,
        entry,
    )
    attributes = None if content_type in EVENT_DECODERS else binary_attributes(request.headers)
    if content_type == record_batch.MEDIA_TYPE and attributes is None:
        if key is not None or query["key_pointer"] is not None:
            raise Problem("invalid_query", "a stored batch has its keys in its records", parameter="key")
        if entry is not None:
            raise Problem("invalid_header", "a stored batch takes Producer-Id, -Epoch and -Seq in place of a key")
        batches = [await client_batch(body, to, context)]
    else:
        decode = _decoder(request, query, content_type, attributes)
        records_max = context.settings.records_per_request_max
        batches = await context.offload.by_size(len(body), lambda: _batches(decode(body), to, records_max))
    context.stages.decode.observe(time.perf_counter() - began)
    conditions = wish.conditions if entry is None else _with_key(wish.conditions, entry)
    parts = [Part(topic, batch, conditions) for batch in batches]
    if FORWARD in request.headers:
        await demand_direct(request, context.router, [(topic.record.name, batch.partition) for batch in batches])
    return await _append(context, topic, parts, ACKS_BY_WORD[query["acks"]], wish, now_ms, entry)


def _with_key(conditions: AppendConditions | None, entry: KeyEntry) -> AppendConditions:
    return AppendConditions(key=entry) if conditions is None else conditions._replace(key=entry)


def _batches(incoming: Incoming, to: Destination, records_max: int) -> list[Batch]:
    check_count(count_of(incoming), records_max)
    return to_batches(incoming, to)


def _decoder(
    request: web.Request, query: dict[str, Any], content_type: str, attributes: dict[str, str] | None
) -> Callable[[bytes], Incoming]:
    """What takes a body of this kind apart. Any media type without a form of its own is one record's value.

    `attributes` make it a CloudEvent in binary mode, whose data may have any media type.
    """
    pointer = query["key_pointer"]
    has_lines = content_type == NDJSON and query["ndjson"] == "values" and attributes is None
    if pointer is not None and not has_lines:
        text = "key_pointer goes with application/x-ndjson and ndjson=values"
        raise Problem("invalid_query", text, parameter="key_pointer")
    if attributes is not None:
        return partial(binary_event, attributes, request.headers.get("Content-Type"))
    if content_type in (JSON, NDJSON, *EVENT_DECODERS):
        demand_utf8(request)
    limits = request.app[PRODUCE].json_limits
    if content_type in EVENT_DECODERS:
        return partial(EVENT_DECODERS[content_type], limits=limits)
    if content_type == JSON:
        return partial(decode_envelope, limits=limits)
    if content_type == NDJSON:
        if query["ndjson"] == "records":
            return partial(decode_record_lines, limits=limits)
        if pointer is None:
            return partial(decode_values, limits=limits)
        return partial(decode_keyed_values, pointer=parse_pointer(pointer), limits=limits)
    kept_type = request.headers.get("Content-Type", "application/octet-stream")
    return partial(_raw, kept_type=kept_type.encode())


def demand_utf8(request: web.Request) -> None:
    """Raises Problem unsupported_media_type when the charset says that JSON is in another encoding."""
    if (request.charset or "utf-8").lower() not in ("utf-8", "utf8"):
        raise Problem("unsupported_media_type", f"the charset is {request.charset!r}; JSON is taken as UTF-8 only")


def _raw(body: bytes, kept_type: bytes) -> Incoming:
    if not body:
        raise Problem("no_records", "the body is empty")
    return [IncomingRow(None, body, [("content-type", kept_type)])]


async def _append(
    context: ProduceContext,
    topic: Topic,
    parts: list[Part],
    acks: Acks,
    wish: _Wish,
    now_ms: int,
    entry: KeyEntry | None,
) -> web.Response:
    """All went well: 200, or 202 when nobody waits. Some did not: 207 with a status each."""
    success = 202 if acks is Acks.NONE else 200
    began = time.perf_counter()
    outcomes = await append(context, parts, acks, wish.query["timeout_ms"], wish.slot)
    acknowledged = time.perf_counter()
    status = success if demand_one_success(outcomes) else 207
    told = success if status == 207 else None
    results = [
        result_of(part.batch.partition, part.batch.record_count, outcome, now_ms, told)
        for part, outcome in zip(parts, outcomes, strict=True)
    ]
    document = {
        "topic": topic.record.name,
        "acks": acks.value,
        "durability": durability_waited_for(acks, topic.settings.durability),
        "results": results,
    }
    headers = window_headers([topic], outcomes, time.perf_counter() - began) if entry is not None else {}
    if context.peers.nodes is not None:
        headers |= leader_headers(context.peers, topic.record.topic_id, [part.batch.partition for part in parts])
    response = answer(document, status, outcomes, headers)
    context.stages.answer.observe(time.perf_counter() - acknowledged)
    return response
