"""A produce to many topics: each record names its topic.

It goes the way of produce.py, with a destination for each topic. A body that cannot be read fails the whole request.
Any other problem fails the records of one topic and partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from msgspec import Struct

from engine.errors import EngineError
from gateway.access.access import forbidden
from gateway.connections.request_order import OrderSlot
from gateway.http.json_limits import JsonLimits
from gateway.http.problems import Problem, from_engine
from gateway.http.query import read_query
from gateway.http.record_content_type import JSON, LINES, NDJSON
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.rights import Caller, Names, Operation
from gateway.produce.answer import answer
from gateway.produce.batching import (
    Destination,
    IncomingRow,
    Part,
    check_count,
    count_of,
    encode,
    group_by_partition,
    partition_of,
)
from gateway.produce.context import ProduceContext
from gateway.produce.headers import IdempotencyKey, read_headers_of_many
from gateway.produce.idempotency import HeldKey, KeyedRequest, window_header
from gateway.produce.json_records import decode_topic_envelope, decode_topic_lines
from gateway.produce.produce import wait_body
from gateway.produce.queue import (
    Outcome,
    PendingProduce,
    check_keys,
    count_abandoned,
    needs_keys,
    stored_records,
)
from gateway.produce.request import AcksWord, TimeoutMs, check_charset
from gateway.produce.spans import note_produce
from gateway.produce.trace_headers import rows_with_context, takes_context
from gateway.produce.value_checks import check_bytes, find_mismatches, must_check, with_schemas
from gateway.quotas.topic_meter import TopicMeter
from gateway.routing.leader_headers import check_leadership
from gateway.settings import NodeSettings
from gateway.tracing.trace_context import TraceContext
from gateway.wire.messages import Header
from replication.replica.acks import ACKS_BY_WORD, Acks

DecodeTopics = Callable[[bytes], tuple[list[str], list[IncomingRow]]]


class ManyQuery(Struct, frozen=True):
    """The query of POST /v1/records."""

    acks: AcksWord = "all"
    timeout_ms: TimeoutMs = None


class ProduceManyRequest(NamedTuple):
    """A produce to many topics: each record names its own."""

    acks: Acks
    timeout_ms: int
    decode: DecodeTopics
    idempotency_key: IdempotencyKey | None
    is_forwarding_forbidden: bool
    caller: Caller
    trace: TraceContext | None = None


@dataclass(slots=True)
class _Rows:
    """The records of one topic, their places in the body, and how many partitions the topic must have for them."""

    rows: list[IncomingRow] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    partitions: int = 1


class _Target(NamedTuple):
    to: Destination
    rows: _Rows


async def produce_many(request: Request, context: ProduceContext) -> Response:
    """POST /v1/records"""
    query = read_query(request, ManyQuery)
    parsed = parse_many(request, query, context.settings, context.json_limits)
    context.lifecycle.check_accepting()
    if request.space is not None:
        context.holdings.check_stored(request.space.tenant)
    slot = context.order.begin(request) if request.version == "2" else None
    try:
        return await _produce_many(request, context, parsed, slot)
    finally:
        if slot is not None:
            slot.end()


async def _produce_many(
    request: Request, context: ProduceContext, parsed: ProduceManyRequest, slot: OrderSlot | None
) -> Response:
    body, keyed = await wait_body(request, context, parsed.idempotency_key, slot)
    parsed = parsed._replace(caller=request.caller, trace=request.trace)  # the caller was checked again
    began, now_ms = time.perf_counter(), context.clock.now_ms()
    with ExitStack() as keys:
        meter = request.topic_meter
        parts = await _group_by_topic(context, parsed, body, now_ms, keyed, keys, request.space, meter)
        context.stages.decode.observe(time.perf_counter() - began)
        ready = [part for part in parts if part.problem is None]
        for part in ready:
            if needs_keys(part):
                await context.offload.by_size(len(part.batch), partial(check_keys, part))
        if parsed.is_forwarding_forbidden:
            which = [(part.topic_name, part.partition) for part in ready if part.partition is not None]
            await check_leadership(request, context.router, which)
        if slot is not None and not slot.is_next:
            await slot.wait()
        held = keys.pop_all()  # until all outcomes are there, whether the client waits for them or not
        pending = _PendingMany(request, context, parts, parsed.acks, now_ms, began, held, is_keyed=keyed is not None)
        try:
            pending.queue(parts, parsed.acks, parsed.timeout_ms, now_ms)
        except BaseException:
            keys.push(held)
            raise
        if slot is not None:
            slot.end()
        return await pending


class _KeysOfTopics(NamedTuple):
    """The key of a request, held in each of its topics."""

    keys: ExitStack

    def release(self) -> None:
        self.keys.close()

    def with_window(self, error: Exception) -> Exception:
        return error


class _PendingMany(PendingProduce[Response]):
    """The parts of a request for many topics."""

    __slots__ = ("_acks", "_began", "_is_keyed", "_now_ms", "_parts", "_request")

    def __init__(
        self,
        request: Request,
        context: ProduceContext,
        parts: Sequence[Part],
        acks: Acks,
        now_ms: int,
        began: float,
        keys: ExitStack,
        *,
        is_keyed: bool,
    ) -> None:
        """`keys` releases the keys of the request."""
        super().__init__(context, _KeysOfTopics(keys))
        self._request = request
        self._parts = parts
        self._acks = acks
        self._now_ms = now_ms
        self._is_keyed = is_keyed
        self._began = began

    def result(self, outcomes: Sequence[Outcome]) -> Response:
        if self._request.space is not None:
            self._request.stored_records = stored_records(self._parts, outcomes)
        if self._request.span is not None:
            note_produce(self._request.span, self, self._began, self._parts, outcomes, self._acks)
        headers: tuple[Header, ...] = ()
        if self._is_keyed:
            settings = [part.topic.settings for part in self._parts if part.topic is not None]
            window_ms = min((each.idempotency_window_ms for each in settings), default=0)
            headers = (window_header(window_ms, outcomes, time.perf_counter() - self._began),)
        try:
            return answer(self._parts, outcomes, self._acks, self._now_ms, None, headers)
        except Problem as problem:
            problem.headers |= dict(headers)
            raise

    def count_abandoned(self, outcomes: Sequence[Outcome]) -> None:
        count_abandoned(self._request.space, self.context, self._parts, outcomes)


def parse_many(request: Request, query: ManyQuery, settings: NodeSettings, limits: JsonLimits) -> ProduceManyRequest:
    """Parses a produce to many topics. Raises Problem invalid_header, unsupported_media_type."""
    headers = read_headers_of_many(request)
    if request.content_type not in (JSON, *LINES) or "Content-Type" not in request.headers:
        raise Problem("unsupported_media_type", f"records for many topics come as {JSON} or {NDJSON}")
    check_charset(request)
    if headers.attributes is not None:
        raise Problem("invalid_header", "a CloudEvent in binary mode goes to one topic")
    decode = decode_topic_envelope if request.content_type == JSON else decode_topic_lines
    return ProduceManyRequest(
        ACKS_BY_WORD[query.acks],
        query.timeout_ms or settings.produce_timeout_ms,
        partial(decode, limits=limits),
        headers.idempotency_key,
        headers.is_forwarding_forbidden,
        request.caller,
    )


async def _group_by_topic(
    context: ProduceContext,
    parsed: ProduceManyRequest,
    body: bytes,
    now_ms: int,
    keyed: KeyedRequest | None,
    keys: ExitStack,
    space: Names | None,
    meter: TopicMeter | None,
) -> list[Part]:
    """Returns the parts of a body in the order of topics and partitions. `keys` releases the keys in flight.

    Raises Problem for a body that cannot be read, no_records, body_too_large, quota_exceeded.
    """
    by_topic = await context.offload.by_size(len(body), lambda: _by_topic(*parsed.decode(body)))
    if space is not None:
        by_topic = {space.stored(name): rows for name, rows in by_topic.items()}
    check_count(sum(len(rows.rows) for rows in by_topic.values()), context.settings.records_per_request_max)
    if len(by_topic) > context.settings.produce_partitions_max:
        raise _too_many_partitions(len(by_topic), context)
    if meter is not None:
        of_record = len(body) / max(sum(len(rows.rows) for rows in by_topic.values()), 1)
        mine = {name: rows for name, rows in by_topic.items() if parsed.caller.allows(Operation.WRITE, name)}
        meter.take({name: round(of_record * len(rows.rows)) for name, rows in mine.items()})
    parts: list[Part] = []
    targets: list[_Target] = []
    for name, rows in by_topic.items():
        try:
            target = await _target(context, parsed, name, rows, now_ms, keyed, keys)
            targets.append(_traced(target, parsed.trace))
        except EngineError as error:
            parts.append(Part(name, None, len(rows.rows), None, problem=from_engine(error)))
        except Problem as problem:
            parts.append(Part(name, None, len(rows.rows), None, problem=problem))
    size_bytes = max((check_bytes(body, target.to.settings) for target in targets), default=0)
    place = partial(context.offload.by_size, size_bytes, lambda: [part for one in targets for part in _parts(one)])
    parts += await with_schemas(context.schemas, place)
    if len(parts) > context.settings.produce_partitions_max:
        raise _too_many_partitions(len(parts), context)
    return sorted(parts, key=lambda part: (part.topic_name, part.partition or 0))


def _by_topic(names: Sequence[str], rows: Sequence[IncomingRow]) -> Mapping[str, _Rows]:
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


async def _target(
    context: ProduceContext,
    parsed: ProduceManyRequest,
    name: str,
    rows: _Rows,
    now_ms: int,
    keyed: KeyedRequest | None,
    keys: ExitStack,
) -> _Target:
    """Returns the destination of the records of one topic. Raises Problem, EngineError."""
    if not parsed.caller.allows(Operation.WRITE, name):
        raise forbidden(parsed.caller, Operation.WRITE, name)
    await context.topics.refresh(name, rows.partitions)
    topic = await context.topics.get_or_create(name, parsed.caller)
    if keyed is not None:
        held = keys.enter_context(HeldKey(context, topic, keyed, now_ms))
        if held.may_be_known:
            await held.look_up()
        entry = held.entry
        partitioner = context.partitioners.among(topic, entry.partitions)
        sticky = partitioner.for_request(entry.key_hash)
        return _Target(Destination(topic, partitioner, now_ms, sticky, entry=entry, schemas=context.schemas), rows)
    partitioner = context.partitioners.of(topic)
    sticky = partitioner.sticky(sum(len(row.value or b"") for row in rows.rows), context.clock.monotonic())
    return _Target(Destination(topic, partitioner, now_ms, sticky, schemas=context.schemas), rows)


def _traced(target: _Target, trace: TraceContext | None) -> _Target:
    if trace is not None and takes_context(trace, target.to.settings):
        target.rows.rows = rows_with_context(target.rows.rows, trace, target.to)
    return target


def _parts(target: _Target) -> list[Part]:
    """Returns a part for each partition of a topic, with its batch or its problem."""
    to, rows = target
    name, parts = to.topic.record.name, []
    grouped, problems = group_by_partition(rows.rows, to, rows.positions)
    if must_check(to.settings):
        problems |= _schema_mismatches(target)
    for partition, records in grouped.items():
        problem = problems.get(partition)
        if problem is None:
            try:
                parts.append(encode(partition, records, to))
                continue
            except Problem as error:
                problem = error
            except EngineError as error:
                problem = from_engine(error)
        parts.append(Part(name, partition, count_of(records), to.topic, problem=problem))
    return parts


def _schema_mismatches(target: _Target) -> dict[int, Problem]:
    """Returns the problem of each partition with a value that does not follow the topic's schema."""
    to, rows = target
    row_at = dict(zip(rows.positions, rows.rows, strict=True))
    mismatches: dict[int, Problem] = {}
    for position, problem in find_mismatches({at: row.value for at, row in row_at.items()}, to.value_rules):
        mismatches.setdefault(partition_of(row_at[position], to), problem)
    return mismatches


def _too_many_partitions(count: int, context: ProduceContext) -> Problem:
    limit = context.settings.produce_partitions_max
    text = f"the request is for {count} topics and partitions, {limit} are allowed"
    return Problem("body_too_large", text, limit=limit)
