"""Produce of v3: records of a whole body, of a batch, and of a body that its client sends piece by piece.

A whole body is stored or refused as one; each record has a receipt. In a body that comes in pieces each record counts
by itself: receipts leave in the order of the records, while more of them are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import orjson

from engine.errors import EngineError
from engine.producers.appends import Appended
from engine.runtime.tasks import start_task
from engine.shard.served_topics import Topic
from gateway.http.json_limits import JsonLimits, check_utf8
from gateway.http.offload import TIMED_BYTES
from gateway.http.problems import Problem, from_engine
from gateway.http.request import Handled, Request
from gateway.http.response import JSON_TYPE, Response, Stream, form_of
from gateway.http.rights import Names
from gateway.produce.answer import check_one_success
from gateway.produce.batching import Destination, IncomingRow, Part, partition_of, to_batches
from gateway.produce.context import ProduceContext
from gateway.produce.produce import TopicProduce, in_record_order, produce
from gateway.produce.queue import Outcome, PendingOutcomes, check_keys, needs_keys
from gateway.produce.request import ProduceRequest
from gateway.produce.value_checks import NeedsSchemas, TakesLong, with_schemas
from gateway.rest_proxy.context import RestProxyContext
from gateway.rest_proxy.errors import BATCH, Refusal
from gateway.rest_proxy.errors import row_of as error_row
from gateway.rest_proxy.media_types import JSON
from gateway.rest_proxy.records import decode_body
from gateway.rest_proxy.schema_records import ENCODING_COST, Encoding
from gateway.rest_proxy.v3 import check_cluster
from gateway.rest_proxy.v3_records import (
    EntryBody,
    Splitter,
    TypedRow,
    decode_record,
    decode_records,
    row_of,
    text_of_time,
)
from gateway.routing.partitions import check_not_internal
from replication.replica.acks import Acks

ENTRIES_MAX = 50  # Confluent's upper bound
QUEUED_MAX = 64  # pieces of a stream whose receipts have not left
_FORM = form_of(200, (JSON_TYPE,))
_NO_HEADERS: dict[str, str] = {}  # of an answer with a form


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    entries: list[msgspec.Raw]


_BATCH, _ENTRY = msgspec.json.Decoder(_Batch), msgspec.json.Decoder(EntryBody)
_ID = msgspec.json.Decoder(dict[str, msgspec.Raw])


def rest_produce_record(request: Request, context: RestProxyContext) -> Handled:
    """POST /v3/clusters/{cluster}/topics/{topic}/records. Raises Problem, EngineError."""
    check_cluster(request, context)
    if request.body is None and request.content_length is None and "Content-Encoding" not in request.headers:
        return _stream(request, context)
    if request.parsed is None:
        request.parsed = parse(request, context.produce)
    if context.produce.schemas is not None:
        records_max = context.settings.records_per_request_max
        decode = partial(decode_records, _encoding(request, context), records_max)
        is_large = request.body is not None and ENCODING_COST * len(request.body) >= TIMED_BYTES
        must_wait = request.parsed.must_wait or is_large
        request.parsed = request.parsed._replace(decode=decode, must_wait=must_wait, body_cost=ENCODING_COST)
    return produce(request, context.produce)


def _encoding(request: Request, context: RestProxyContext) -> Encoding:
    """Returns what encodes keys and values with a schema, whose types they name each."""
    return Encoding("", request.names["topic"], context.produce.schemas)


def parse(request: Request, context: ProduceContext) -> ProduceRequest:
    """Parses the head of a produce. Raises Problem."""
    _check_type(request)
    check_not_internal(request.names["topic"])
    return ProduceRequest(
        None,
        False,
        Acks.ALL,
        context.settings.produce_timeout_ms,
        partial(decode_records, Encoding("", "", None), context.settings.records_per_request_max),
        None,
        None,
        None,
        None,
        False,
        None,
        "Content-Encoding" in request.headers,
        _answer,
    )


def _check_type(request: Request) -> None:
    if request.content_type != JSON and "Content-Type" in request.headers:
        raise Problem("unsupported_media_type", f"Content-Type is {request.content_type}; give {JSON}")


def _answer(pending: TopicProduce, outcomes: Sequence[Outcome]) -> Response:
    """Returns the receipts of a whole body. Raises a problem if nothing is stored."""
    check_one_success(outcomes)
    rows = pending.placed[0]
    assert isinstance(rows, list), rows
    numbers = [[part.partition or 0] * part.record_count for part in pending.parts]
    results = _results(pending.parts, outcomes, in_record_order(pending, numbers))
    has_failed = any(isinstance(outcome, Problem) for outcome in outcomes)
    texts = [
        orjson.dumps(_receipt(pending.request, row, result, pending.now_ms))
        for row, result in zip(rows, results, strict=True)
    ]
    body = texts[0] if len(texts) == 1 else b"\r\n".join(texts)
    if has_failed:
        return Response(body, dict((JSON_TYPE,)), 207)
    return Response(body, _NO_HEADERS, 200, _FORM)


class _Stored(NamedTuple):
    """The place of a record."""

    partition: int
    offset: int


_Result = _Stored | Problem


def _results(parts: Sequence[Part], outcomes: Sequence[Outcome], partitions: Sequence[int]) -> list[_Result]:
    """Returns the place or the problem of each record."""
    by_partition = {part.partition: outcome for part, outcome in zip(parts, outcomes, strict=True)}
    following = {number: one.base_offset for number, one in by_partition.items() if isinstance(one, Appended)}
    results: list[_Result] = []
    for number in partitions:
        outcome = by_partition[number]
        if isinstance(outcome, Problem):
            results.append(outcome)
            continue
        results.append(_Stored(number, following[number]))
        following[number] += 1
    return results


def _receipt(request: Request, row: IncomingRow, result: _Result, now_ms: int) -> dict[str, object]:
    if isinstance(result, Problem):
        return {**error_row(request, result, of_v3=True)}
    assert isinstance(row, TypedRow), row
    name = request.names["topic"]
    receipt: dict[str, object] = {
        "error_code": 200,
        "cluster_id": request.names["cluster"],
        "topic_name": name if request.space is None else request.space.visible(name),
        "partition_id": result.partition,
        "offset": result.offset,
        "timestamp": text_of_time(now_ms if row.timestamp is None else row.timestamp),
    }
    if row.key_type is not None:
        receipt["key"] = {"type": row.key_type, "size": len(row.key or b"")}
    if row.value_type is not None:
        receipt["value"] = {"type": row.value_type, "size": len(row.value or b"")}
    return receipt


# Records that are queued apart


class _Queued(NamedTuple):
    """Rows that are queued together, and what is pending; or the problem for which they are not."""

    rows: Sequence[TypedRow]
    partitions: Sequence[int]
    parts: Sequence[Part]
    pending: PendingOutcomes | None
    now_ms: int
    problem: Problem | None = None


async def _wait_queued(context: ProduceContext, topic: Topic, rows: list[TypedRow], space: Names | None) -> _Queued:
    """Queues records, all or none of them, once it is seen that they follow their schema."""
    now_ms = context.clock.now_ms()
    size_bytes = sum(len(row.key or b"") + len(row.value or b"") for row in rows)
    partitioner = context.partitioners.of(topic)
    sticky = partitioner.sticky(size_bytes, context.clock.monotonic())
    to = Destination(topic, partitioner, now_ms, sticky, schemas=context.schemas)
    try:
        place = partial(to_batches, list(rows), to, context.settings.records_per_request_max)
        parts = await with_schemas(context.schemas, partial(_wait_placed, place, context))
        for part in parts:
            if needs_keys(part):
                check_keys(part)
        pending = PendingOutcomes(context, space, parts)
        pending.queue(parts, Acks.ALL, context.settings.produce_timeout_ms, now_ms)
    except (Problem, EngineError) as error:
        problem = error if isinstance(error, Problem) else from_engine(error)
        return _Queued(rows, (), (), None, now_ms, problem)
    return _Queued(rows, [partition_of(row, to) for row in rows], parts, pending, now_ms)


async def _wait_placed(place: Callable[..., list[Part]], context: ProduceContext) -> list[Part]:
    """Raises NeedsSchemas."""
    try:
        return place(is_quick=True)
    except NeedsSchemas:
        raise
    except TakesLong:
        return await context.offload.in_thread(place)


async def _wait(queued: _Queued) -> list[_Result]:
    """Returns the place or the problem of each record."""
    if queued.pending is None:
        assert queued.problem is not None
        return [queued.problem] * len(queued.rows)
    return _results(queued.parts, await queued.pending, queued.partitions)


async def _open_topic(request: Request, context: RestProxyContext) -> Topic:
    """Checks a request before its body is read, and returns its topic, which it may create. Raises Problem."""
    _check_type(request)
    context.lifecycle.check_accepting()
    if request.space is not None:
        context.produce.holdings.check_stored(request.space.tenant)
    name = request.names["topic"]
    check_not_internal(name)
    return await context.topics.get_or_create(name, request.caller)


async def rest_produce_batch(request: Request, context: RestProxyContext) -> Response:
    """POST …/records:batch. Raises Refusal, Problem, EngineError."""
    check_cluster(request, context)
    topic = await _open_topic(request, context)
    http = request.http
    body = await http.bodies.read(request, http.request_body_bytes_max)
    entries = await context.produce.offload.by_size(len(body), partial(_entries_of, body))
    if not 0 < len(entries) <= ENTRIES_MAX:
        raise Refusal(BATCH, f"Batch error: it has {len(entries)} entries; give 1 to {ENTRIES_MAX}")
    limits, where = context.produce.json_limits, _encoding(request, context)
    ids: list[str] = []
    rows: list[TypedRow | Problem] = []
    for position, entry in enumerate(entries):
        ids.append(_id_of(entry))
        try:
            decode = partial(_row_of_entry, entry, limits, position, where)
            rows.append(await _wait_row(context, len(entry), decode))
        except Problem as problem:
            rows.append(problem)
    if len(set(ids)) < len(ids):
        raise Refusal(BATCH, "Batch error: the ids of the entries are not distinct")
    queued = [
        None if isinstance(row, Problem) else await _wait_queued(context.produce, topic, [row], request.space)
        for row in rows
    ]
    successes, failures = [], []
    for entry_id, row, one in zip(ids, rows, queued, strict=True):
        if isinstance(row, Problem) or one is None:
            assert isinstance(row, Problem), row
            failures.append({"id": entry_id, **error_row(request, row, of_v3=True)})
            continue
        [result] = await _wait(one)
        if isinstance(result, Problem):
            failures.append({"id": entry_id, **error_row(request, result, of_v3=True)})
        else:
            receipt = _receipt(request, row, result, one.now_ms)
            del receipt["error_code"]
            successes.append({"id": entry_id, **receipt})
    return Response(orjson.dumps({"successes": successes, "failures": failures}), dict((JSON_TYPE,)), 207)


def _entries_of(body: bytes) -> list[bytes]:
    """Returns the JSON of the entries of a batch. Raises Problem."""
    check_utf8(body)
    return [bytes(entry) for entry in decode_body(body, _BATCH, 1).entries]


def _row_of_entry(entry: bytes, limits: JsonLimits, position: int, where: Encoding) -> TypedRow:
    """Returns a record. Raises Problem, Refusal, NeedsSchemas."""
    return row_of(decode_body(entry, _ENTRY, 1), limits, position, where)


async def _wait_row(context: RestProxyContext, size_bytes: int, decode: Callable[[], TypedRow]) -> TypedRow:
    """Returns a record of that size, once the schemas that it names are known. Raises Problem."""
    schemas, offload = context.produce.schemas, context.produce.offload
    cost = size_bytes if schemas is None else ENCODING_COST * size_bytes
    return await with_schemas(schemas, partial(offload.by_size, cost, decode))


def _id_of(raw: bytes) -> str:
    """Returns the id of an entry. Raises Refusal."""
    try:
        found = msgspec.json.decode(_ID.decode(raw)["id"], type=str)
    except (msgspec.DecodeError, KeyError):
        found = ""
    if not 0 < len(found) <= 80:
        raise Refusal(BATCH, "Batch error: each entry has an id of 1 to 80 characters")
    return found


# A body that comes in pieces


async def _stream(request: Request, context: RestProxyContext) -> Response:
    """Stores records as they come. The answer begins with the first receipt. Raises Problem, UnknownTopic."""
    topic = await _open_topic(request, context)
    assert request.content is not None
    request.content.allow_pauses()
    answer = request.begin_stream({"Content-Type": JSON} | request.answer_headers)
    queue: asyncio.Queue[_Queued | None] = asyncio.Queue(QUEUED_MAX)
    writing = start_task(_write_receipts(request, answer, queue))
    try:
        problem = await _read_records(request, context, topic, queue)
        if problem is not None:
            await queue.put(_Queued([TypedRow(None, None, [])], (), (), None, 0, problem))
        await queue.put(None)
        await writing
    finally:
        writing.cancel()
    return Response(is_streamed=True)


async def _read_records(
    request: Request, context: RestProxyContext, topic: Topic, queue: asyncio.Queue[_Queued | None]
) -> Problem | None:
    """Queues the records of a body until its end. Returns the problem that ends it before."""
    splitter, limits, where = Splitter(), context.produce.json_limits, _encoding(request, context)
    most, content = request.http.request_body_bytes_max, request.content
    assert content is not None
    try:
        while data := await content.readany():
            context.access.check(request)  # the right may have ended meanwhile
            context.lifecycle.check_accepting()
            if request.space is not None:
                context.produce.holdings.check_stored(request.space.tenant)
            if request.meter is not None:
                await request.meter.take(len(data))
            context.produce.metrics.produce_bytes.value += len(data)
            topic = context.topics.get(topic.record.name) or topic  # it may have been deleted and made again
            for one in splitter.feed(data):
                try:
                    row = await _wait_row(context, len(one), partial(decode_record, one, limits, where))
                    queued = await _wait_queued(context.produce, topic, [row], request.space)
                except Problem as problem:
                    queued = _Queued([TypedRow(None, None, [])], (), (), None, 0, problem)
                await queue.put(queued)
            if splitter.pending_bytes > most:
                return Problem("body_too_large", f"a record of a stream may have {most} bytes", limit=most)
    except Problem as problem:
        return problem
    except EngineError as error:
        return from_engine(error)
    if splitter.pending_bytes:
        return Problem("malformed_json", "the last JSON object of the body has no end")
    return None


async def _write_receipts(request: Request, answer: Stream, queue: asyncio.Queue[_Queued | None]) -> None:
    """Writes the receipts in the order of their records, until None comes. Raises ConnectionResetError then.

    A client that takes no receipts does not stop it before: a full queue would hold up the reader of the body.
    """
    failure: ConnectionResetError | None = None
    while (queued := await queue.get()) is not None:
        results = await _wait(queued)
        for row, result in zip(queued.rows, results, strict=True):
            if failure is not None:
                break
            try:
                await answer.write(orjson.dumps(_receipt(request, row, result, queued.now_ms)) + b"\r\n")
            except ConnectionResetError as error:
                failure = error
    if failure is not None:
        raise failure
