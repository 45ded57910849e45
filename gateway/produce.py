"""Produce: from a body to batches, from batches to positions.

First everything is decoded, checked, given a partition and encoded; only then is anything appended. So a bad record
leaves nothing behind, and the appends of one request are queued without a pause between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, NamedTuple

import orjson
from aiohttp import web

from engine import batch as record_batch
from engine.batch import Codec, RowFields
from engine.errors import DecodedTooLarge, EngineError
from engine.settings import TopicSettings
from engine.shard import Topic
from gateway import problems
from gateway.incoming import Incoming, IncomingRow, IncomingValues
from gateway.json_records import decode_envelope, decode_record_lines
from gateway.ndjson_values import decode_keyed_values, decode_values, parse_pointer
from gateway.node import NODE, OFF_LOOP_BYTES, OFF_LOOP_RECORDS, AnyLeader, Node
from gateway.partitioner import Partitioner
from gateway.problems import Problem
from gateway.query import Number, Rules, Text, Word, path_partition, read_query
from gateway.request_body import read_body
from replication.acks import ACKS_BY_WORD, Acks, durability_waited_for

JSON = "application/json"
NDJSON = "application/x-ndjson"
PLANNED_MEDIA_TYPES = ("application/cloudevents+json", "application/cloudevents-batch+json")
PLANNED_HEADERS = ("Idempotency-Key", "Producer-Id", "Producer-Epoch", "Producer-Seq", "Penstock-Expected-End")

QUERY: Rules = {
    "acks": Word("all", tuple(ACKS_BY_WORD)),
    "timeout_ms": Number(None, 1, 600_000),
    "key": Text(None),
    "key_pointer": Text(None),
    "ndjson": Word("values", ("values", "records")),
}
QUERY_WITH_PARTITION: Rules = {**QUERY, "partition": Number(None, 0, 2**31 - 1)}


class Batch(NamedTuple):
    """What goes to one partition, encoded and waiting for its offset."""

    partition: int
    data: bytearray
    record_count: int


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
    node = request.app[NODE]
    node.check_accepting()
    _refuse_planned(request)
    topic = await node.topic_to_produce_to(request.match_info["topic"])
    partitioner = node.partitioner(topic)
    if partition is not None:
        partitioner.check(partition)
    body = await read_body(request, node.settings.request_body_bytes_max)
    now_ms = node.clock.now_ms()
    content_type = request.content_type if "Content-Type" in request.headers else ""
    node.metrics.produce_bytes.inc(len(body))
    key = query["key"] if query["key"] is not None else request.headers.get("Penstock-Key")
    if content_type == record_batch.MEDIA_TYPE:
        if key is not None or query["key_pointer"] is not None:
            raise Problem("invalid_query", "a stored batch has its keys in its records", parameter="key")
        batches = [await _stored_batch(body, partition, partitioner, topic.settings, now_ms, node)]
    else:
        incoming = _raw(request, query, body, content_type)
        if incoming is None:
            pointer = None if query["key_pointer"] is None else parse_pointer(query["key_pointer"])
            as_records = query["ndjson"] == "records"
            incoming = await node.off_loop(len(body), lambda: _decode(body, content_type, pointer, as_records))
        if is_only:
            _refuse_other_partitions(incoming, partition)
        rules = _Rules(topic.settings, now_ms)
        placed = _place(incoming, partition, partitioner, node, key, rules)
        batches = await node.off_loop(len(body), lambda: _encode(placed, rules))
    return await _append(node, topic, batches, ACKS_BY_WORD[query["acks"]], query["timeout_ms"], now_ms)


def _refuse_planned(request: web.Request) -> None:
    """In the contract, not built yet: honest words instead of silence, since ignoring these could store twice."""
    for header in PLANNED_HEADERS:
        if header in request.headers:
            raise Problem("not_implemented", f"the header {header} is not built yet")
    if any(name.lower().startswith("ce-") for name in request.headers):
        raise Problem("not_implemented", "CloudEvents are not built yet")


def _decode(body: bytes, content_type: str, pointer: list[str] | None, as_records: bool) -> Incoming:
    if content_type == JSON:
        return decode_envelope(body)
    if as_records:
        return decode_record_lines(body)
    return decode_values(body) if pointer is None else decode_keyed_values(body, pointer)


def _raw(request: web.Request, query: dict[str, Any], body: bytes, content_type: str) -> Incoming | None:
    """Any other media type: the body is one record's value. None for the types that hold records."""
    if content_type in PLANNED_MEDIA_TYPES:
        raise Problem("not_implemented", "CloudEvents are not built yet")
    if query["key_pointer"] is not None and (content_type != NDJSON or query["ndjson"] == "records"):
        text = "key_pointer goes with application/x-ndjson and ndjson=values"
        raise Problem("invalid_query", text, parameter="key_pointer")
    if content_type in (JSON, NDJSON):
        if (request.charset or "utf-8").lower() not in ("utf-8", "utf8"):
            raise Problem("unsupported_media_type", f"the charset is {request.charset!r}; JSON is taken as UTF-8 only")
        return None
    if not body:
        raise Problem("no_records", "the body is empty")
    kept_type = request.headers.get("Content-Type", "application/octet-stream")
    return [IncomingRow(None, body, [("content-type", kept_type.encode())])]


def _refuse_other_partitions(incoming: Incoming, partition: int | None) -> None:
    if isinstance(incoming, IncomingValues):
        return
    for position, row in enumerate(incoming):
        if row.partition not in (None, partition):
            text = f"record {position} names partition {row.partition}, the request is for {partition}"
            raise Problem("invalid_body", text, record=position)


async def _stored_batch(
    body: bytes,
    partition: int | None,
    partitioner: Partitioner,
    settings: TopicSettings,
    now_ms: int,
    node: Node,
) -> Batch:
    """A client's own RecordBatch: checked, by its records too where the topic says so; stamped, never encoded again."""
    header = record_batch.check_client_batch(body, batch_bytes_max=settings.batch_bytes_max)
    _check_timestamp(header.max_timestamp, _Rules(settings, now_ms), 0)
    if header.record_count > node.settings.records_per_request_max:
        raise _too_many_records(header.record_count, node)
    if settings.verify == "full":
        await _check_records(body, header.record_count, settings, node)
    data = bytearray(body)
    if settings.timestamp_type == "append":
        record_batch.stamp_append_time(data, now_ms)
    target = partition if partition is not None else partitioner.sticky(len(data), node.clock.monotonic())
    return Batch(target, data, header.record_count)


async def _check_records(body: bytes, count: int, settings: TopicSettings, node: Node) -> None:
    """Here as far as that is quick, else in a thread: how much a batch unpacks to is known only afterwards."""
    bound = settings.batch_decoded_bytes_max

    def check(decoded_bytes_max: int) -> None:
        record_batch.check_records(
            body, record_bytes_max=settings.record_bytes_max, decoded_bytes_max=decoded_bytes_max
        )

    if len(body) < OFF_LOOP_BYTES and count < OFF_LOOP_RECORDS:
        try:
            check(min(bound, OFF_LOOP_BYTES))
        except DecodedTooLarge:
            if bound <= OFF_LOOP_BYTES:
                raise
        else:
            return
    await node.in_thread(lambda: check(bound))


class _Rules(NamedTuple):
    """What a topic demands of records that arrive now."""

    settings: TopicSettings
    now_ms: int


Placed = dict[int, list[RowFields] | IncomingValues]


def _place(
    incoming: Incoming, partition: int | None, partitioner: Partitioner, node: Node, key: str | None, rules: _Rules
) -> Placed:
    """Each partition's records in the order of the body. Raises Problem no_records, unknown_partition."""
    count = len(incoming.values) if isinstance(incoming, IncomingValues) else len(incoming)
    if count == 0:
        raise Problem("no_records", "the body holds no record")
    if count > node.settings.records_per_request_max:
        raise _too_many_records(count, node)
    if isinstance(incoming, IncomingValues):
        if key is None:
            if partition is None:
                partition = partitioner.sticky(incoming.size_bytes, node.clock.monotonic())
            return {partition: incoming}
        incoming = [IncomingRow(None, bytes(value), []) for value in incoming.values]
    return _place_rows(incoming, partition, partitioner, node, None if key is None else key.encode(), rules)


def _place_rows(
    rows: list[IncomingRow],
    partition: int | None,
    partitioner: Partitioner,
    node: Node,
    default_key: bytes | None,
    rules: _Rules,
) -> Placed:
    """`?key=` and Penstock-Key are the key of every record that has none of its own."""
    placed: dict[int, list[RowFields]] = {}
    sticky: int | None = None
    for position, row in enumerate(rows):
        key = default_key if row.key is None else row.key
        target = partition if row.partition is None else partitioner.check(row.partition)
        if target is None:
            if key is not None:
                target = partitioner.for_key(key)
            else:
                if sticky is None:
                    size_bytes = sum(len(one.value or b"") for one in rows)
                    sticky = partitioner.sticky(size_bytes, node.clock.monotonic())
                target = sticky
        timestamp = row.timestamp
        if timestamp is None:
            timestamp = rules.now_ms
        else:
            _check_timestamp(timestamp, rules, position)
        into = placed.get(target)
        if into is None:
            into = placed[target] = []
        into.append((timestamp, key, row.value, row.headers))
    return dict(placed)


def _encode(placed: Placed, rules: _Rules) -> list[Batch]:
    """Encode every partition's batch before anything is appended. Raises Problem record_too_large, batch_too_large."""
    settings = rules.settings
    codec = Codec[settings.compression.upper()]
    limit, unpacked = settings.batch_bytes_max, settings.batch_decoded_bytes_max
    batches = []
    for partition, records in placed.items():
        if isinstance(records, IncomingValues):
            if records.size_bytes > settings.record_bytes_max:  # else none of them can be
                _check_size(max(len(bytes(value)) for value in records.values), settings)
            data, count = record_batch.encode_values(records.values, rules.now_ms, codec, unpacked), len(records.values)
        else:
            _check_size(max(map(_row_bytes, records)), settings)
            data, count = record_batch.encode(records, codec, unpacked), len(records)
        if len(data) > limit:
            text = f"partition {partition} would get a batch of {len(data)} bytes, the topic allows {limit}"
            raise Problem("batch_too_large", text, limit=limit)
        if settings.timestamp_type == "append":
            record_batch.stamp_append_time(data, rules.now_ms)
        batches.append(Batch(partition, data, count))
    return batches


def _row_bytes(row: RowFields) -> int:
    _, key, value, headers = row
    size = len(key or b"") + len(value or b"")
    return size + sum(len(name) + len(content or b"") for name, content in headers) if headers else size


def _check_size(size_bytes: int, settings: TopicSettings) -> None:
    if size_bytes > settings.record_bytes_max:
        text = f"a record has {size_bytes} bytes, the topic allows {settings.record_bytes_max}"
        raise Problem("record_too_large", text, limit=settings.record_bytes_max)


def _check_timestamp(timestamp: int, rules: _Rules, position: int) -> None:
    ahead, allowed = timestamp - rules.now_ms, rules.settings.timestamp_ahead_ms_max
    if ahead > allowed and rules.settings.timestamp_type == "create":
        text = f"record {position}: its timestamp lies {ahead} ms in the future, {allowed} are allowed"
        raise Problem("invalid_body", text, record=position)


def _too_many_records(count: int, node: Node) -> Problem:
    limit = node.settings.records_per_request_max
    return Problem("body_too_large", f"the request has {count} records, {limit} are allowed", limit=limit)


async def _append(
    node: Node, topic: Topic, batches: list[Batch], acks: Acks, timeout_ms: int | None, now_ms: int
) -> web.Response:
    node.check_capacity(sum(len(batch.data) for batch in batches))
    leaders = [(batch, node.leader(topic, batch.partition)) for batch in batches]
    for batch in batches:
        node.metrics.produce_records.inc(batch.record_count)
    if acks is Acks.NONE:
        for batch, leader in leaders:
            leader.append_nowait(batch.data)
        results: list[Any] = [_result(batch, None, now_ms) for batch in batches]
        return _answer(topic, acks, results, 202)
    timeout = timeout_ms or node.settings.produce_timeout_ms
    if len(leaders) == 1:
        batch, leader = leaders[0]
        base_offset = await leader.produce(batch.data, batch.record_count, acks, timeout)
        return _answer(topic, acks, [_result(batch, base_offset, now_ms)], 200)
    queued = [_queue_one(leader, batch, acks, timeout) for batch, leader in leaders]
    return _several(topic, acks, batches, await asyncio.gather(*map(_acknowledge_one, queued)), now_ms)


def _queue_one(leader: AnyLeader, batch: Batch, acks: Acks, timeout_ms: int) -> Awaitable[int] | Problem:
    try:
        return leader.produce(batch.data, batch.record_count, acks, timeout_ms)
    except EngineError as error:
        return problems.from_engine(error)


async def _acknowledge_one(queued: Awaitable[int] | Problem) -> int | Problem:
    if isinstance(queued, Problem):
        return queued
    try:
        return await queued
    except EngineError as error:
        return problems.from_engine(error)


def _several(
    topic: Topic, acks: Acks, batches: list[Batch], outcomes: list[int | Problem], now_ms: int
) -> web.Response:
    """All went well: 200. Some did not: 207 with a status each. None did: the first one's problem."""
    failed = [outcome for outcome in outcomes if isinstance(outcome, Problem)]
    if len(failed) == len(outcomes):
        raise failed[0]
    results = []
    for batch, outcome in zip(batches, outcomes, strict=True):
        if isinstance(outcome, Problem):
            result = _result(batch, None, now_ms) | {"status": outcome.status, "problem": outcome.document()}
        else:
            result = _result(batch, outcome, now_ms) | ({"status": 200} if failed else {})
        results.append(result)
    return _answer(topic, acks, results, 207 if failed else 200)


def _result(batch: Batch, base_offset: int | None, now_ms: int) -> dict[str, Any]:
    return {"partition": batch.partition, "base_offset": base_offset, "count": batch.record_count, "timestamp": now_ms}


def _answer(topic: Topic, acks: Acks, results: list[dict[str, Any]], status: int) -> web.Response:
    document = {
        "topic": topic.record.name,
        "acks": acks.value,
        "durability": durability_waited_for(acks, topic.settings.durability),
        "results": results,
    }
    return web.Response(status=status, body=orjson.dumps(document), headers=_JSON_HEADERS)


_JSON_HEADERS = {"Content-Type": JSON}
