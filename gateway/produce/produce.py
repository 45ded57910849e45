"""The path of a produce to one topic: parse, decode, place, queue, answer.

The stages are request.py; ndjson_values.py, json_records.py, cloud_events.py or stored_batch.py; batching.py; queue.py
and accumulator.py; answer.py. All records are decoded, checked and placed before any is queued, so a bad record leaves
nothing behind. Most requests take the stages in one call. Only those that must wait have a task: for a body that is not
whole, for a thread, for a topic that is to be created, for a key that another process may know, or for earlier requests
of their HTTP/2 connection.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import TypeVar

from engine.format.keyed_batch import KeyEntry, SourceEntry
from engine.shard.served_topics import Topic
from gateway.connections.request_order import OrderSlot
from gateway.http.offload import OFF_LOOP_BYTES, TIMED_BYTES
from gateway.http.problems import Problem
from gateway.http.request import Handled, Request
from gateway.http.response import Response
from gateway.produce.accumulator import REQUEST_BYTES_MAX, shared_bytes_max
from gateway.produce.answer import answer
from gateway.produce.batching import (
    Destination,
    Incoming,
    IncomingObjects,
    Part,
    ProducerSequence,
    check_count,
    count_of,
    grouped_objects,
    partition_of,
    to_batches,
)
from gateway.produce.context import ProduceContext
from gateway.produce.headers import IdempotencyKey, own_key, own_sequence
from gateway.produce.idempotency import HeldKey, KeyedRequest, keyed_request, window_header
from gateway.produce.partitioner import unknown_partition
from gateway.produce.queue import (
    Outcome,
    PendingProduce,
    check_keys,
    count_abandoned,
    needs_keys,
    stored_records,
)
from gateway.produce.request import ProduceRequest, parse
from gateway.produce.spans import note_produce
from gateway.produce.stored_batch import check_producer_id, stored_batch
from gateway.produce.trace_headers import takes_context, with_context
from gateway.produce.value_checks import NeedsSchemas, TakesLong, with_schemas
from gateway.routing.leader_headers import check_leadership, leader_headers, note_owner
from gateway.wire.messages import Header

T = TypeVar("T")

_new = tuple.__new__  # of a value without a frame for it
_ROW_WORDS = 10  # of 4 bytes, in a row of the compiled codec (rows.h)
_VALUE_WORD = 2  # of them: where the value begins


class TopicProduce(PendingProduce[Response]):
    """A produce whose body is there: what its stages take and make, until it is answered.

    `keyed` are the hashes of its Idempotency-Key. `began`: when its records were decoded. `placed` has these and their
    destination, for an answer that names the partition of each record.
    """

    __slots__ = ("began", "body", "keyed", "now_ms", "parsed", "parts", "placed", "request", "sequenced", "topic")

    parts: Sequence[Part]
    placed: tuple[Incoming, Destination]
    held: HeldKey | None

    def __init__(
        self,
        request: Request,
        context: ProduceContext,
        parsed: ProduceRequest,
        topic: Topic,
        body: bytes,
        keyed: KeyedRequest | None,
        sequenced: ProducerSequence | None,
    ) -> None:
        self.is_over = False  # without the constructors above: each has a frame
        self._receive = None
        self.context = context
        self.held = None
        self.request = request
        self.parsed = parsed
        self.topic = topic
        self.body = body
        self.keyed = keyed
        self.sequenced = sequenced
        self.now_ms = context.clock.now_ms()
        self.began = time.perf_counter()

    def result(self, outcomes: Sequence[Outcome]) -> Response:
        context, topic, acknowledged = self.context, self.topic, time.perf_counter()
        if self.request.space is not None:
            self.request.stored_records = stored_records(self.parts, outcomes)
        if self.request.span is not None:
            note_produce(self.request.span, self, self.began, self.parts, outcomes, self.parsed.acks)
        if self.parsed.render is not None:
            return self.parsed.render(self, outcomes)
        headers: tuple[Header, ...] = ()
        if self.keyed is not None:
            headers = (window_header(topic.settings.idempotency_window_ms, outcomes, acknowledged - self.began),)
        if context.peers.has_others:
            numbers = [part.partition for part in self.parts if part.partition is not None]
            connection = self.request.connection
            headers += tuple(leader_headers(context.peers, topic.record.topic_id, numbers, connection).items())
            note_owner(connection, context.peers, topic.record.topic_id, numbers)
        response = answer(self.parts, outcomes, self.parsed.acks, self.now_ms, topic, headers)
        context.stages.answer.observe(time.perf_counter() - acknowledged)
        return response

    def count_abandoned(self, outcomes: Sequence[Outcome]) -> None:
        count_abandoned(self.request.space, self.context, self.parts, outcomes)


def produce(request: Request, context: ProduceContext) -> Handled:
    """POST /v1/topics/{topic}/records. Raises Problem, EngineError."""
    parsed: ProduceRequest = request.parsed or parse(request, context)
    key, sequenced = parsed.idempotency_key, parsed.sequenced
    if key is not None:
        key = own_key(request, key)
    if sequenced is not None:
        sequenced = own_sequence(request, sequenced)
    if context.lifecycle.is_refusing:
        context.lifecycle.check_accepting()
    if request.space is not None:
        context.holdings.check_stored(request.space.tenant)
    body, connection = request.body, request.connection
    topic = context.topics.get(request.names["topic"])
    if (
        topic is None
        or body is None
        or len(body) >= TIMED_BYTES
        or parsed.must_wait
        or (sequenced is not None and not context.producer_ids.is_known(sequenced.producer_id))
        or (connection.is_http2 and context.order.has_slots(connection.client))
    ):
        return _wait_and_store(request, context, parsed._replace(idempotency_key=key, sequenced=sequenced))
    if parsed.partition is not None:
        _check_partition(parsed.partition, topic)
    body = context.bodies.read_now(request, request.http.request_body_bytes_max)
    context.stages.body.observe(0.0)
    context.metrics.produce_bytes.value += len(body)
    keyed = None if key is None else keyed_request(key, body)
    return _store(TopicProduce(request, context, parsed, topic, body, keyed, sequenced))


def produce_to_partition(request: Request, context: ProduceContext) -> Handled:
    """POST /v1/topics/{topic}/partitions/{partition}/records. Raises Problem, EngineError."""
    return produce(request, context)


def _check_partition(partition: int, topic: Topic) -> None:
    if partition >= topic.record.partitions:
        raise unknown_partition(topic.record.name, partition, topic.record.partitions)


def _store(pending: TopicProduce) -> Handled:
    """Decodes, places and queues the records of a request that need not wait."""
    parsed = pending.parsed
    try:
        if (keyed := pending.keyed) is not None:
            pending.held = HeldKey(pending.context, pending.topic, keyed, pending.now_ms)
            if pending.held.may_be_known:
                return _store_later(pending)
        pending.parts = parts = _place(pending, is_quick=True)
        if pending.topic.settings.cleanup_policy != "delete":
            for part in parts:
                check_keys(part)
        pending.context.stages.decode.observe(time.perf_counter() - pending.began)
        pending.queue(parts, parsed.acks, parsed.timeout_ms, pending.now_ms)
    except TakesLong:
        return _store_later(pending)
    except Exception as error:
        if isinstance(error, Problem) and error.code == "unknown_partition":  # the topic may have grown in the cluster
            return _store_later(pending)
        raise _release_key(pending, error) from None
    return pending


def _store_later(pending: TopicProduce) -> Handled:
    """Goes on in a task, which holds the key again: a coroutine that is closed before it runs releases nothing."""
    if pending.held is not None:
        pending.held.release()
        pending.held = None
    return _wait_and_store(pending.request, pending.context, pending.parsed, pending)


def _release_key(pending: TopicProduce, error: Exception) -> Exception:
    """Returns the error of a request that is not queued, and releases its key."""
    if pending.held is None:
        return error
    pending.held.release()
    return pending.held.with_window(error)


async def _wait_and_store(
    request: Request, context: ProduceContext, parsed: ProduceRequest, pending: TopicProduce | None = None
) -> Response:
    """Stores the records of a request that has to wait. `pending` has its body, if that was there."""
    slot = context.order.begin(request) if request.version == "2" else None
    try:
        if pending is None:
            pending = await _wait_received(request, context, parsed, slot)
        elif slot is not None:
            slot.mark_body_received()
        partitions = pending.topic.record.partitions
        try:
            await _wait_queued(pending, slot)
        except Problem as problem:  # of a partition that a record names: no record is stored yet
            is_unknown = problem.code == "unknown_partition"
            name = request.names["topic"]
            if not (is_unknown and await context.topics.has_grown(name, partitions)):
                raise
            pending.topic, pending.held = context.topics.topic(name), None
            await _wait_queued(pending, slot)
    finally:
        if slot is not None:
            slot.end()
    return await pending


async def _wait_received(
    request: Request, context: ProduceContext, parsed: ProduceRequest, slot: OrderSlot | None
) -> TopicProduce:
    """Waits for the topic, and then for the body. Raises Problem, UnknownTopic."""
    if parsed.sequenced is not None:
        await check_producer_id(context, parsed.sequenced.producer_id)
    topic = await context.topics.get_or_create(request.names["topic"], request.caller)
    if parsed.partition is not None:
        _check_partition(parsed.partition, topic)
    body, keyed = await wait_body(request, context, parsed.idempotency_key, slot)
    return TopicProduce(request, context, parsed, topic, body, keyed, parsed.sequenced)


async def wait_body(
    request: Request, context: ProduceContext, key: IdempotencyKey | None, slot: OrderSlot | None
) -> tuple[bytes, KeyedRequest | None]:
    """Returns the body of a produce and the hashes of its key. Raises as RequestBodies.read does."""
    began = time.perf_counter()
    bytes_max, on_received = request.http.request_body_bytes_max, None if slot is None else slot.mark_body_received
    body = await context.bodies.read(request, bytes_max, on_received)
    context.stages.body.observe(time.perf_counter() - began)
    context.metrics.produce_bytes.value += len(body)
    if key is None:
        return body, None
    if len(body) < OFF_LOOP_BYTES:
        return body, keyed_request(key, body)
    return body, await context.offload.in_thread(lambda: keyed_request(key, body))


async def _wait_queued(pending: TopicProduce, slot: OrderSlot | None) -> None:
    """Takes the stages of `_store`, and waits before each that needs it."""
    request, context, parsed = pending.request, pending.context, pending.parsed
    try:
        if pending.keyed is not None:
            pending.held = HeldKey(context, pending.topic, pending.keyed, pending.now_ms)
            if pending.held.may_be_known:
                await pending.held.look_up()
        if parsed.decode is None:
            parts = [await stored_batch(pending.body, _destination(pending), context)]
        else:
            parts = await with_schemas(context.schemas, partial(_wait_placed, pending))
        for part in parts:
            if needs_keys(part):
                await context.offload.by_size(len(part.batch), partial(check_keys, part))
        pending.parts = parts
        context.stages.decode.observe(time.perf_counter() - pending.began)
        if parsed.is_forwarding_forbidden:
            which = [(part.topic_name, part.partition) for part in parts if part.partition is not None]
            await check_leadership(request, context.router, which)
        if slot is not None and not slot.is_next:
            await slot.wait()
        pending.queue(parts, parsed.acks, parsed.timeout_ms, pending.now_ms)
    except Exception as error:
        raise _release_key(pending, error) from None
    except BaseException:
        if pending.held is not None:
            pending.held.release()
        raise


async def _wait_placed(pending: TopicProduce) -> list[Part]:
    """Returns what `_place` does, with a thread where it takes long. Raises NeedsSchemas."""
    offload = pending.context.offload
    try:
        cost = pending.parsed.body_cost * len(pending.body)
        return await offload.by_size(cost, partial(_place, pending, is_quick=True))
    except NeedsSchemas:
        raise
    except TakesLong:
        return await offload.in_thread(partial(_place, pending, is_quick=False))


def _place(pending: TopicProduce, *, is_quick: bool) -> list[Part]:
    """Decodes a body, and returns its records by partition. Raises Problem; TakesLong if it `is_quick`."""
    parsed, body = pending.parsed, pending.body
    assert parsed.decode is not None
    share_max = 0  # the records share no batch with others
    if len(body) <= REQUEST_BYTES_MAX and parsed.conditions is None and parsed.source is None:
        share_max = shared_bytes_max(pending.topic.settings) // 2
    context = pending.context
    incoming, to = parsed.decode(body, context.json_limits), _destination(pending)
    if parsed.render is not None:
        pending.placed = incoming, to
    trace = pending.request.trace
    records_max = context.settings.records_per_request_max
    if trace is not None and takes_context(trace, to.settings):
        check_count(count_of(incoming), records_max)  # before each record becomes an object
        incoming = with_context(incoming, trace, to)
    return to_batches(incoming, to, records_max, share_max, is_quick=is_quick)


def in_record_order(pending: TopicProduce, of_parts: Sequence[Sequence[T]]) -> list[T]:
    """Returns what each record of a placed produce has, in their order: a part has that of its records in theirs."""
    if len(of_parts) == 1:
        return list(of_parts[0])
    incoming, to = pending.placed
    by_partition = {part.partition: each for part, each in zip(pending.parts, of_parts, strict=True)}
    if isinstance(incoming, IncomingObjects):
        grouped = grouped_objects(incoming, to)
        if grouped is not None:
            places = [
                place
                for number, rows in grouped.items()
                for place in zip(memoryview(rows).cast("I")[_VALUE_WORD::_ROW_WORDS], by_partition[number], strict=True)
            ]
            places.sort(key=itemgetter(0))
            return [each for _, each in places]
        incoming = incoming.plainly()
    assert isinstance(incoming, list), "values alone all go to one partition"
    following = {number: iter(each) for number, each in by_partition.items()}
    return [next(following[partition_of(row, to)]) for row in incoming]


def _destination(pending: TopicProduce) -> Destination:
    """Returns the destination of the records. With a key they are placed as those of the key's first request were."""
    context, parsed, topic, held = pending.context, pending.parsed, pending.topic, pending.held
    entry: KeyEntry | SourceEntry | None = None if held is None else held.entry
    partitioner, sticky = None, 0
    if parsed.is_only:  # all records go to the partition that the request names
        pass
    elif held is not None:
        partitioner = context.partitioners.among(topic, held.entry.partitions)
        sticky = partitioner.for_request(held.entry.key_hash)
    else:
        partitioner = context.partitioners.of(topic)
        if parsed.partition is None:
            sticky = partitioner.sticky(len(pending.body), context.clock.monotonic())
    if parsed.source is not None:
        entry = parsed.source.entry(pending.now_ms)
    fields = (
        topic, partitioner, pending.now_ms, sticky, parsed.partition, parsed.key, pending.sequenced, entry,
        parsed.conditions, context.schemas,
    )  # fmt: skip
    return _new(Destination, fields)
