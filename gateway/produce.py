"""Produce: from a body to batches, from batches to positions.

First everything is decoded, checked, given a partition and encoded; only then is anything appended. So a bad record
leaves nothing behind, and the appends of one request are queued without a pause between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
from aiohttp import web

from engine import batch as record_batch
from engine.batch import Codec, Row
from engine.errors import EngineError
from engine.settings import TopicSettings
from engine.shard import Topic
from gateway import problems
from gateway.incoming import Incoming, IncomingRow, IncomingValues
from gateway.json_records import decode_envelope, decode_record_lines, to_row
from gateway.ndjson_values import decode_keyed_values, decode_values, parse_pointer
from gateway.node import NODE, Node
from gateway.partitioner import Partitioner
from gateway.problems import Problem
from gateway.query import Number, Rules, Text, Word, path_partition, read_query
from gateway.request_body import read_body
from replication.acks import ACKS_BY_WORD, Acks, durability_waited_for
from replication.leader import Leader

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
    return await _produce(request, query, query.pop("partition"))


async def produce_to_partition(request: web.Request) -> web.Response:
    """POST /v1/topics/{topic}/partitions/{partition}/records"""
    return await _produce(request, read_query(request, QUERY), path_partition(request))


async def _produce(request: web.Request, query: dict[str, Any], partition: int | None) -> web.Response:
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
        batches = [_stored_batch(body, partition, partitioner, topic.record.settings, now_ms, node)]
    else:
        incoming = _raw(request, query, body, content_type)
        if incoming is None:
            pointer = None if query["key_pointer"] is None else parse_pointer(query["key_pointer"])
            as_records = query["ndjson"] == "records"
            incoming = await node.off_loop(len(body), lambda: _decode(body, content_type, pointer, as_records))
        placed = _place(incoming, partition, partitioner, node, key)
        batches = await node.off_loop(len(body), lambda: _encode(placed, topic.record.settings, now_ms, node))
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
        return [to_row(record, position) for position, record in enumerate(decode_envelope(body))]
    if as_records:
        return [to_row(record, position) for position, record in enumerate(decode_record_lines(body))]
    return decode_values(body) if pointer is None else decode_keyed_values(body, pointer)


def _raw(request: web.Request, query: dict[str, Any], body: bytes, content_type: str) -> Incoming | None:
    """Any other media type: the body is one record's value. None for the types that hold records."""
    if content_type in PLANNED_MEDIA_TYPES:
        raise Problem("not_implemented", "CloudEvents are not built yet")
    if query["key_pointer"] is not None and (content_type != NDJSON or query["ndjson"] == "records"):
        text = "key_pointer goes with application/x-ndjson and ndjson=values"
        raise Problem("invalid_query", text, parameter="key_pointer")
    if content_type in (JSON, NDJSON):
        return None
    if not body:
        raise Problem("no_records", "the body is empty")
    kept_type = request.headers.get("Content-Type", "application/octet-stream")
    return [IncomingRow(None, body, [("content-type", kept_type.encode())], None, None)]


def _stored_batch(
    body: bytes,
    partition: int | None,
    partitioner: Partitioner,
    settings: TopicSettings,
    now_ms: int,
    node: Node,
) -> Batch:
    """A client's own RecordBatch: checked by header and checksum, stamped, never encoded again."""
    header = record_batch.check_client_batch(body, batch_bytes_max=settings.batch_bytes_max)
    _check_timestamp(header.max_timestamp, settings, now_ms, 0)
    if header.record_count > node.settings.records_per_request_max:
        raise _too_many_records(header.record_count, node)
    data = bytearray(body)
    if settings.timestamp_type == "append":
        record_batch.stamp_append_time(data, now_ms)
    target = partition if partition is not None else partitioner.sticky(len(data), node.clock.monotonic())
    return Batch(target, data, header.record_count)


Placed = dict[int, list[IncomingRow] | Sequence[bytes]]


def _place(incoming: Incoming, partition: int | None, partitioner: Partitioner, node: Node, key: str | None) -> Placed:
    """Each partition's records in the order of the body. Raises Problem no_records, unknown_partition."""
    count = len(incoming.values) if isinstance(incoming, IncomingValues) else len(incoming)
    if count == 0:
        raise Problem("no_records", "the body holds no record")
    if count > node.settings.records_per_request_max:
        raise _too_many_records(count, node)
    if isinstance(incoming, IncomingValues) and key is None:
        if partition is None:
            partition = partitioner.sticky(sum(map(len, incoming.values)), node.clock.monotonic())
        return {partition: incoming.values}
    rows = _rows(incoming, key)
    sticky: int | None = None
    placed: dict[int, list[IncomingRow]] = {}
    for row in rows:
        target = partition if row.partition is None else partitioner.check(row.partition)
        if target is None and row.key is not None:
            target = partitioner.for_key(row.key)
        if target is None:
            sticky = target = partitioner.sticky(0, node.clock.monotonic()) if sticky is None else sticky
        placed.setdefault(target, []).append(row)
    return dict(placed)


def _rows(incoming: Incoming, key: str | None) -> list[IncomingRow]:
    """`?key=` and Penstock-Key are the key of every record that has none of its own."""
    if isinstance(incoming, IncomingValues):
        incoming = [IncomingRow(None, value, [], None, None) for value in incoming.values]
    if key is None:
        return incoming
    key_bytes = key.encode()
    return [row if row.key is not None else row._replace(key=key_bytes) for row in incoming]


def _encode(placed: Placed, settings: TopicSettings, now_ms: int, node: Node) -> list[Batch]:
    """Encode every partition's batch before anything is appended. Raises Problem record_too_large, batch_too_large."""
    codec = Codec[settings.compression.upper()]
    batches = []
    for partition, records in placed.items():
        if isinstance(records[0], IncomingRow):
            data = record_batch.encode(_stamped(records, settings, now_ms), codec)  # type: ignore[arg-type]
        else:
            _check_sizes(max(map(len, records)), settings)
            data = record_batch.encode_values(records, now_ms, codec)  # type: ignore[arg-type]
        if len(data) > settings.batch_bytes_max:
            limit = settings.batch_bytes_max
            text = f"partition {partition} would get a batch of {len(data)} bytes, the topic allows {limit}"
            raise Problem("batch_too_large", text, limit=limit)
        if settings.timestamp_type == "append":
            record_batch.stamp_append_time(data, now_ms)
        batches.append(Batch(partition, data, len(records)))
    return batches


def _stamped(rows: list[IncomingRow], settings: TopicSettings, now_ms: int) -> list[Row]:
    stamped = []
    for position, row in enumerate(rows):
        size = len(row.key or b"") + len(row.value or b"") + sum(len(n) + len(v or b"") for n, v in row.headers)
        _check_sizes(size, settings)
        if row.timestamp is not None:
            _check_timestamp(row.timestamp, settings, now_ms, position)
        stamped.append(Row(now_ms if row.timestamp is None else row.timestamp, row.key, row.value, row.headers))
    return stamped


def _check_sizes(size_bytes: int, settings: TopicSettings) -> None:
    if size_bytes > settings.record_bytes_max:
        text = f"a record has {size_bytes} bytes, the topic allows {settings.record_bytes_max}"
        raise Problem("record_too_large", text, limit=settings.record_bytes_max)


def _check_timestamp(timestamp: int, settings: TopicSettings, now_ms: int, position: int) -> None:
    if settings.timestamp_type == "create" and timestamp > now_ms + settings.timestamp_ahead_ms_max:
        ahead, allowed = timestamp - now_ms, settings.timestamp_ahead_ms_max
        text = f"record {position}: its timestamp lies {ahead} ms in the future, {allowed} are allowed"
        raise Problem("invalid_body", text, record=position)


def _too_many_records(count: int, node: Node) -> Problem:
    limit = node.settings.records_per_request_max
    return Problem("body_too_large", f"the request has {count} records, {limit} are allowed", limit=limit)


async def _append(
    node: Node, topic: Topic, batches: list[Batch], acks: Acks, timeout_ms: int | None, now_ms: int
) -> web.Response:
    node.check_capacity(sum(len(batch.data) for batch in batches))
    leaders = [(batch, node.leader(topic.record.name, batch.partition)) for batch in batches]
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
        base_offset = await leader.acknowledged(leader.append(batch.data, acks), batch.record_count, acks, timeout)
        return _answer(topic, acks, [_result(batch, base_offset, now_ms)], 200)
    appended = [_append_one(leader, batch, acks) for batch, leader in leaders]
    waits = [
        _acknowledge_one(leader, future, batch, acks, timeout)
        for (batch, leader), future in zip(leaders, appended, strict=True)
    ]
    return _several(topic, acks, batches, await asyncio.gather(*waits), now_ms)


def _append_one(leader: Leader, batch: Batch, acks: Acks) -> asyncio.Future[int] | Problem:
    try:
        return leader.append(batch.data, acks)
    except EngineError as error:
        return problems.from_engine(error)


async def _acknowledge_one(
    leader: Leader, appended: asyncio.Future[int] | Problem, batch: Batch, acks: Acks, timeout_ms: int
) -> int | Problem:
    if isinstance(appended, Problem):
        return appended
    try:
        return await leader.acknowledged(appended, batch.record_count, acks, timeout_ms)
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
        "durability": durability_waited_for(acks, topic.record.settings.durability),
        "results": results,
    }
    return web.Response(status=status, body=orjson.dumps(document), headers=_JSON_HEADERS)


_JSON_HEADERS = {"Content-Type": JSON}
