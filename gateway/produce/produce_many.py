"""Produce to many topics with one request: every record names its topic.

What makes the whole body unreadable refuses the whole request. Anything else is between the records and their topic and
partition: these are stored all or none, and an entry of the answer says which, whatever becomes of the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiohttp import web

from engine.errors import EngineError
from engine.format.keyed_batch import KeyEntry
from engine.producers.append_validator import AppendConditions
from engine.shard.served_topics import Topic
from gateway.access.access import Caller, caller_of, forbidden
from gateway.access.tokens_file import Right
from gateway.connections.request_order import OrderSlot
from gateway.http import problems
from gateway.http.json_limits import JsonLimits
from gateway.http.problems import Problem
from gateway.http.query import Number, Rules, Word, read_query
from gateway.http.request_body import read_body
from gateway.produce.appending import Outcome, Part, answer, append, demand_one_success, result_of
from gateway.produce.cloud_events import binary_attributes
from gateway.produce.conditions import refuse_conditions
from gateway.produce.context import PRODUCE, ProduceContext
from gateway.produce.idempotency import KeyedRequest, KeyInFlight, keyed_request, read_key, window_headers
from gateway.produce.incoming import IncomingRow
from gateway.produce.json_records import decode_topic_envelope, decode_topic_lines
from gateway.produce.placing import Batch, Destination, check_count, count_of, encode, place
from gateway.produce.produce import JSON, NDJSON, demand_utf8
from gateway.routing.leader_headers import FORWARD, demand_direct
from replication.replica.acks import ACKS_BY_WORD, Acks, durability_waited_for

QUERY: Rules = {"acks": Word("all", tuple(ACKS_BY_WORD)), "timeout_ms": Number(None, 1, 600_000)}
DURABILITIES = ("none", "page_cache", "fsync")  # the weakest first


_Decode = Callable[[bytes, JsonLimits], tuple[list[str], list[IncomingRow]]]


@dataclass(slots=True)
class _Rows:
    """The records of one topic, their places in the body, and how many partitions the topic must have for them."""

    rows: list[IncomingRow] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    partitions: int = 1


class _Entry(NamedTuple):
    """One entry of the answer. Without a topic or a partition, if the records did not come that far."""

    name: str
    partition: int | None
    record_count: int
    topic: Topic | None
    batch: Batch | None
    outcome: Outcome
    conditions: AppendConditions | None = None


async def produce_many(request: web.Request) -> web.Response:
    """POST /v1/records"""
    slot = request.app[PRODUCE].order.begin(request)
    try:
        return await _produce_in_turn(request, slot)
    finally:
        slot.end()


async def _produce_in_turn(request: web.Request, slot: OrderSlot) -> web.Response:
    query = read_query(request, QUERY)
    context = request.app[PRODUCE]
    context.lifecycle.check_accepting()
    refuse_conditions(request)
    key = read_key(request)
    if request.content_type not in (JSON, NDJSON) or "Content-Type" not in request.headers:
        raise Problem("unsupported_media_type", f"records for many topics come as {JSON} or {NDJSON}")
    demand_utf8(request)
    if binary_attributes(request.headers) is not None:
        raise Problem("invalid_header", "a CloudEvent in binary mode goes to one topic")
    decode = decode_topic_envelope if request.content_type == JSON else decode_topic_lines
    began = time.perf_counter()
    body = await read_body(request, context.settings.request_body_bytes_max, slot.body_is_there)
    context.stages.body.observe(time.perf_counter() - began)
    now_ms = context.clock.now_ms()
    context.metrics.produce_bytes.inc(len(body))
    if key is None:
        return await _store(request, query, decode, body, now_ms, None, slot)
    keyed = await context.offload.by_size(len(body), lambda: keyed_request(key, request, body))
    return await _store(request, query, decode, body, now_ms, keyed, slot)


async def _store(
    request: web.Request,
    query: dict[str, Any],
    decode: _Decode,
    body: bytes,
    now_ms: int,
    keyed: KeyedRequest | None,
    slot: OrderSlot,
) -> web.Response:
    context, here = request.app[PRODUCE], time.perf_counter()
    by_topic = await context.offload.by_size(len(body), lambda: _by_topic(*decode(body, context.json_limits)))
    check_count(sum(len(rows.rows) for rows in by_topic.values()), context.settings.records_per_request_max)
    async with AsyncExitStack() as keys_in_hand:
        caller = caller_of(request)
        entries, destinations = await _destinations(context, caller, by_topic, now_ms, keyed, keys_in_hand)
        entries += await context.offload.by_size(len(body), lambda: _encoded(by_topic, destinations))
        if len(entries) > context.settings.produce_partitions_max:
            raise _too_many_partitions(len(entries), context)
        context.stages.decode.observe(time.perf_counter() - here)
        acks = ACKS_BY_WORD[query["acks"]]
        if FORWARD in request.headers:
            placed = [(one.name, one.partition) for one in entries if one.batch is not None]
            await demand_direct(
                request, context.router, [(name, number) for name, number in placed if number is not None]
            )
        entries = await _appended(context, entries, acks, query["timeout_ms"], slot)
        headers = {} if keyed is None else _window_headers(entries, time.perf_counter() - here)
        return _answer(entries, acks, now_ms, headers)


def _by_topic(names: Sequence[str], rows: Sequence[IncomingRow]) -> dict[str, _Rows]:
    by_topic: dict[str, _Rows] = {}
    for position, (name, row) in enumerate(zip(names, rows, strict=True)):
        of_topic = by_topic.get(name)
        if of_topic is None:
            of_topic = by_topic[name] = _Rows()
        of_topic.rows.append(row)
        of_topic.positions.append(position)
        if row.partition is not None and row.partition >= of_topic.partitions:
            of_topic.partitions = row.partition + 1
    return by_topic


async def _destinations(
    context: ProduceContext,
    caller: Caller,
    by_topic: dict[str, _Rows],
    now_ms: int,
    keyed: KeyedRequest | None,
    keys_in_hand: AsyncExitStack,
) -> tuple[list[_Entry], dict[str, tuple[Topic, Destination]]]:
    """Where the records of each topic go; an entry for each topic that there is not, or not for this caller."""
    if len(by_topic) > context.settings.produce_partitions_max:
        raise _too_many_partitions(len(by_topic), context)
    entries, destinations = [], {}
    for name, of_topic in by_topic.items():
        rows = of_topic.rows
        if not caller.allows(Right.WRITE, name):
            entries.append(_Entry(name, None, len(rows), None, None, forbidden(caller, Right.WRITE, name)))
            continue
        try:
            await context.topics.look_for(name, of_topic.partitions)
            topic = await context.topics.to_produce_to(name)
            if keyed is None:
                to = _destination(context, topic, rows, now_ms)
            else:
                key_entry = await keys_in_hand.enter_async_context(KeyInFlight(context, topic, keyed, now_ms))
                to = _destination_of_key(context, topic, key_entry, now_ms)
        except EngineError as error:
            entries.append(_Entry(name, None, len(rows), None, None, problems.from_engine(error)))
        except Problem as problem:
            entries.append(_Entry(name, None, len(rows), None, None, problem))
        else:
            destinations[name] = (topic, to)
    return entries, destinations


def _destination(context: ProduceContext, topic: Topic, rows: list[IncomingRow], now_ms: int) -> Destination:
    partitioner = context.partitioners.of(topic)
    sticky = partitioner.sticky(sum(len(row.value or b"") for row in rows), context.clock.monotonic())
    return Destination(partitioner, topic.settings, now_ms, sticky)


def _destination_of_key(context: ProduceContext, topic: Topic, entry: KeyEntry, now_ms: int) -> Destination:
    """The same again when the request comes again."""
    partitioner = context.partitioners.among(topic, entry.partitions)
    sticky = partitioner.for_request(entry.key_hash)
    return Destination(partitioner, topic.settings, now_ms, sticky, key_entry=entry)


def _encoded(by_topic: dict[str, _Rows], destinations: dict[str, tuple[Topic, Destination]]) -> list[_Entry]:
    """An entry for each partition: with its batch, or with what is wrong."""
    entries = []
    for name, (topic, to) in destinations.items():
        placed, refused = place(by_topic[name].rows, to, by_topic[name].positions)
        for partition, records in placed.items():
            outcome: Outcome = refused.get(partition)
            batch = None
            if outcome is None:
                try:
                    batch = encode(partition, records, to)
                except Problem as problem:
                    outcome = problem
                except EngineError as error:
                    outcome = problems.from_engine(error)
            conditions = None if to.key_entry is None else AppendConditions(key=to.key_entry)
            entries.append(_Entry(name, partition, count_of(records), topic, batch, outcome, conditions))
    return entries


async def _appended(
    context: ProduceContext, entries: list[_Entry], acks: Acks, timeout_ms: int | None, slot: OrderSlot
) -> list[_Entry]:
    """The entries with what became of them, in the order of topics and partitions."""
    entries.sort(key=lambda entry: (entry.name, entry.partition or 0))
    parts = [
        Part(entry.topic, entry.batch, entry.conditions)
        for entry in entries
        if entry.topic is not None and entry.batch is not None
    ]
    outcomes = iter(await append(context, parts, acks, timeout_ms, slot) if parts else ())
    return [entry if entry.batch is None else entry._replace(outcome=next(outcomes)) for entry in entries]


def _window_headers(entries: list[_Entry], spent_s: float) -> dict[str, str]:
    topics = [entry.topic for entry in entries if entry.topic is not None]
    return window_headers(topics, [entry.outcome for entry in entries], spent_s)


def _answer(entries: list[_Entry], acks: Acks, now_ms: int, headers: dict[str, str]) -> web.Response:
    """As for one topic; when nothing went well, the problem of one entry tells of all of them."""
    success = 202 if acks is Acks.NONE else 200
    is_partial = any(isinstance(entry.outcome, Problem) for entry in entries)
    results = [_result(entry, acks, now_ms, success if is_partial else None) for entry in entries]
    try:
        demand_one_success([entry.outcome for entry in entries])
    except Problem as problem:
        problem.members["results"] = results
        problem.headers |= headers
        raise
    durability = min((one["durability"] for one in results if "problem" not in one), key=DURABILITIES.index)
    document = {"acks": acks.value, "durability": durability, "results": results}
    return answer(document, 207 if is_partial else success, [entry.outcome for entry in entries], headers)


def _result(entry: _Entry, acks: Acks, now_ms: int, status: int | None) -> dict[str, Any]:
    durability = "none"
    if entry.topic is not None and not isinstance(entry.outcome, Problem):
        durability = durability_waited_for(acks, entry.topic.settings.durability)
    result = result_of(entry.partition, entry.record_count, entry.outcome, now_ms, status)
    return {"topic": entry.name, **result, "durability": durability}


def _too_many_partitions(count: int, context: ProduceContext) -> Problem:
    limit = context.settings.produce_partitions_max
    text = f"the request is for {count} topics and partitions, {limit} are allowed"
    return Problem("body_too_large", text, limit=limit)
