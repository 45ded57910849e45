"""The path of a produce request: parse, decode, place, append, answer.

Each stage is a file: request.py; ndjson_values.py, json_records.py, cloud_events.py or stored_batch.py; placing.py;
appending.py, which also answers. All records are decoded, checked, placed and encoded before any is appended, so a bad
record leaves nothing behind. Only requests that need it enter by_topic.py (many topics), idempotency.py (an
Idempotency-Key), headers.py (other headers of ours) and the request order of a connection (HTTP/2).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from aiohttp import web

from engine.errors import Draining
from engine.format.keyed_batch import KeyEntry
from engine.producers.append_validator import AppendConditions
from engine.shard.served_topics import Topic
from gateway.connections.request_order import OrderSlot
from gateway.http.offload import OFF_LOOP_BYTES
from gateway.http.problems import Problem
from gateway.http.query import path_partition, read_query
from gateway.produce.appending import Outcome, Part, answer, append
from gateway.produce.by_topic import place_by_topic
from gateway.produce.context import PRODUCE, ProduceContext
from gateway.produce.idempotency import KeyedRequest, KeyInFlight, keyed_request, window_headers
from gateway.produce.partitioner import unknown_partition
from gateway.produce.placing import Destination, to_batches
from gateway.produce.request import (
    ManyQuery,
    PartitionQuery,
    ProduceManyRequest,
    ProduceRequest,
    TopicQuery,
    parse,
    parse_many,
)
from gateway.produce.stored_batch import check_producer_id, stored_batch
from gateway.routing.leader_headers import demand_direct, leader_headers


class Arrived(NamedTuple):
    """A body, the time of its arrival, and the hashes of its Idempotency-Key."""

    body: bytes
    now_ms: int
    keyed: KeyedRequest | None


async def produce(request: web.Request) -> web.Response:
    """POST /v1/topics/{topic}/records"""
    context, query = request.app[PRODUCE], read_query(request, TopicQuery)
    wanted = parse(request, query, query.partition, context.settings, context.json_limits, is_only=False)
    return await _in_order(request, context, wanted)


async def produce_to_partition(request: web.Request) -> web.Response:
    """POST /v1/topics/{topic}/partitions/{partition}/records"""
    context, query = request.app[PRODUCE], read_query(request, PartitionQuery)
    wanted = parse(request, query, path_partition(request), context.settings, context.json_limits, is_only=True)
    return await _in_order(request, context, wanted)


async def produce_many(request: web.Request) -> web.Response:
    """POST /v1/records"""
    context, query = request.app[PRODUCE], read_query(request, ManyQuery)
    return await _in_order(request, context, parse_many(request, query, context.settings, context.json_limits))


async def _in_order(
    request: web.Request, context: ProduceContext, wanted: ProduceRequest | ProduceManyRequest
) -> web.Response:
    """Keeps the order of the requests of a connection. On HTTP/1.1 there is one at a time."""
    if context.lifecycle.is_refusing:
        raise Draining("the node is stopping")
    if request.version.major < 2:
        return await _produce(request, context, wanted, None)
    slot = context.order.begin(request)
    try:
        return await _produce(request, context, wanted, slot)
    finally:
        slot.end()


async def _produce(
    request: web.Request,
    context: ProduceContext,
    wanted: ProduceRequest | ProduceManyRequest,
    slot: OrderSlot | None,
) -> web.Response:
    topic = await _topic(context, wanted) if isinstance(wanted, ProduceRequest) else None
    began = time.perf_counter()
    bytes_max, has_arrived = context.settings.request_body_bytes_max, None if slot is None else slot.body_is_there
    body = await context.bodies.read(request, bytes_max, has_arrived)
    context.stages.body.observe(time.perf_counter() - began)
    context.metrics.produce_bytes.value += len(body)
    now_ms, keyed, key = context.clock.now_ms(), None, wanted.idempotency_key
    if key is not None:
        keyed = await context.offload.by_size(len(body), lambda: keyed_request(key, body))
    arrived = Arrived(body, now_ms, keyed)
    if isinstance(wanted, ProduceManyRequest):
        return await _store_many(request, context, wanted, arrived, slot)
    assert topic is not None
    partitions = topic.record.partitions
    try:
        return await _store(request, context, wanted, arrived, topic, slot)
    except Problem as problem:  # of a partition that a record names: no record is stored yet
        if problem.code != "unknown_partition" or not await context.topics.has_grown(wanted.topic, partitions):
            raise
    return await _store(request, context, wanted, arrived, context.topics.topic(wanted.topic), slot)


async def _topic(context: ProduceContext, wanted: ProduceRequest) -> Topic:
    """Returns the topic before the body is read. Raises Problem, UnknownTopic."""
    if wanted.sequenced is not None:
        await check_producer_id(context, wanted.sequenced.producer_id)
    topic = await context.topics.to_produce_to(wanted.topic)
    if wanted.partition is not None and wanted.partition >= topic.record.partitions:
        raise unknown_partition(wanted.topic, wanted.partition, topic.record.partitions)
    return topic


async def _store(
    request: web.Request,
    context: ProduceContext,
    wanted: ProduceRequest,
    arrived: Arrived,
    topic: Topic,
    slot: OrderSlot | None,
) -> web.Response:
    if arrived.keyed is None:
        return await _store_one(request, context, wanted, arrived, topic, slot, None)
    async with KeyInFlight(context, topic, arrived.keyed, arrived.now_ms) as entry:
        return await _store_one(request, context, wanted, arrived, topic, slot, entry)


async def _store_one(
    request: web.Request,
    context: ProduceContext,
    wanted: ProduceRequest,
    arrived: Arrived,
    topic: Topic,
    slot: OrderSlot | None,
    entry: KeyEntry | None,
) -> web.Response:
    """Stores the records of one topic. With an `entry` they are placed as those of the key's first request were."""
    began = time.perf_counter()
    body, decode = arrived.body, wanted.decode
    to = _destination(context, wanted, topic, len(body), arrived.now_ms, entry)
    if decode is None:
        batches = [await stored_batch(body, to, context)]
    else:
        records_max = context.settings.records_per_request_max
        if len(body) < OFF_LOOP_BYTES:
            batches = to_batches(decode(body), to, records_max)
        else:
            batches = await context.offload.in_thread(lambda: to_batches(decode(body), to, records_max))
    context.stages.decode.observe(time.perf_counter() - began)
    conditions, name = wanted.conditions, topic.record.name
    if entry is not None:
        conditions = AppendConditions(key=entry) if conditions is None else conditions._replace(key=entry)
    parts = [Part(name, one.partition, one.record_count, topic, one.data, conditions) for one in batches]
    if wanted.is_direct:
        await demand_direct(request, context.router, [(name, one.partition) for one in batches])
    outcomes = await append(context, parts, wanted.acks, wanted.timeout_ms, slot)
    acknowledged = time.perf_counter()
    response = answer(parts, outcomes, wanted.acks, arrived.now_ms, topic)
    if entry is not None:
        response.headers.update(window_headers([topic], outcomes, time.perf_counter() - began))
    if context.peers.view is not None:
        numbers = [batch.partition for batch in batches]
        response.headers.update(leader_headers(context.peers, topic.record.topic_id, numbers))
    context.stages.answer.observe(time.perf_counter() - acknowledged)
    return response


async def _store_many(
    request: web.Request,
    context: ProduceContext,
    wanted: ProduceManyRequest,
    arrived: Arrived,
    slot: OrderSlot | None,
) -> web.Response:
    began = time.perf_counter()
    async with AsyncExitStack() as keys:
        parts = await place_by_topic(context, wanted, arrived.body, arrived.now_ms, arrived.keyed, keys)
        context.stages.decode.observe(time.perf_counter() - began)
        ready = [(one.topic_name, one.partition) for one in parts if one.problem is None]
        if wanted.is_direct:
            await demand_direct(request, context.router, [(name, part) for name, part in ready if part is not None])
        outcomes = await append(context, parts, wanted.acks, wanted.timeout_ms, slot) if ready else _problems(parts)
        headers = {}
        if arrived.keyed is not None:
            topics = [part.topic for part in parts if part.topic is not None]
            headers = window_headers(topics, outcomes, time.perf_counter() - began)
        try:
            response = answer(parts, outcomes, wanted.acks, arrived.now_ms, None)
        except Problem as problem:
            problem.headers |= headers
            raise
        response.headers.update(headers)
        return response


def _problems(parts: Sequence[Part]) -> list[Outcome]:
    return [part.problem for part in parts]


def _destination(
    context: ProduceContext,
    wanted: ProduceRequest,
    topic: Topic,
    size_bytes: int,
    now_ms: int,
    entry: KeyEntry | None,
) -> Destination:
    partitioner, sticky = None, 0
    if entry is not None:
        partitioner = context.partitioners.among(topic, entry.partitions)
        sticky = partitioner.for_request(entry.key_hash)
    elif not wanted.is_only:
        partitioner = context.partitioners.of(topic)
        if wanted.partition is None:
            sticky = partitioner.sticky(size_bytes, context.clock.monotonic())
    if wanted.is_only:
        partitioner = None
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
