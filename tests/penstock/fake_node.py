"""A node of a few dictionaries, for faults that a real one cannot produce on request: errors, resets, stalls, invalid
answers.

It follows openapi/gateway.yaml as far as the client's tests need it. Behaviour without faults is tested against a real
node (tests/penstock/test_against_node.py). Faults are queued, and each matching request consumes one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson
from aiohttp import web

from penstock.producer.partitioners import partition_of_key
from tests.penstock.fake_sequences import FakeSequences

NOW_MS = 1_700_000_000_000


@dataclass
class Stored:
    key: bytes | None
    value: bytes | None
    headers: dict[str, Any]
    timestamp: int


@dataclass
class FakePartition:
    records: list[Stored] = field(default_factory=list)
    log_start: int = 0
    grew: asyncio.Event = field(default_factory=asyncio.Event)
    sequences: FakeSequences = field(default_factory=FakeSequences)

    def append(self, records: list[Stored]) -> int:
        base = len(self.records)
        self.records += records
        self.grew.set()
        self.grew = asyncio.Event()
        return base


@dataclass
class Fault:
    """Replaces the answer to the next request whose method and path contain these."""

    method: str
    path: str
    act: Callable[[web.Request], Any]
    is_after: bool = False  # the request is executed first, and then its answer is lost


@dataclass
class FakeNode:
    topics: dict[str, list[FakePartition]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    seen: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    seen_headers: list[dict[str, str]] = field(default_factory=list)  # pairwise with `seen`
    producers: int = 0  # assigned ids
    gives_ids: bool = True  # False: a node of an older release
    names_requests: bool = True  # False: another program, whose answers have no Penstock-Request-Id
    open_now: int = 0
    open_most: int = 0
    verdicts: list[tuple[int, int, int, str]] = field(
        default_factory=list
    )  # of sequenced requests: id, epoch, seq, code
    bodies_by_path: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    released: asyncio.Event = field(default_factory=asyncio.Event)  # lets held requests go

    def add_topic(self, topic: str, partitions: int = 1) -> list[FakePartition]:
        self.topics[topic] = [FakePartition() for _ in range(partitions)]
        return self.topics[topic]

    def fail(
        self, act: Callable[[web.Request], Any], *, method: str = "POST", path: str = "/records", after: bool = False
    ) -> None:
        self.faults.append(Fault(method, path, act, after))

    async def hold(self, _: web.Request) -> web.Response:
        """A fault: no answer until `released` is set, and then a retryable error."""
        await self.released.wait()
        return problem(503, "overloaded", retryable=True)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=64 * 1024 * 1024, middlewares=[self._watch])
        app.router.add_get("/v1/topics", self._list)
        app.router.add_get("/v1/topics/{topic}", self._describe)
        app.router.add_put("/v1/topics/{topic}", self._create)
        app.router.add_delete("/v1/topics/{topic}", self._delete)
        app.router.add_get("/v1/cluster", self._cluster)
        app.router.add_post("/v1/producers", self._create_producer)
        app.router.add_post("/v1/topics/{topic}/records", self._produce)
        app.router.add_post("/v1/topics/{topic}/partitions/{partition}/records", self._produce)
        app.router.add_get("/v1/topics/{topic}/partitions/{partition}/records", self._fetch)
        app.router.add_get("/v1/topics/{topic}/partitions/{partition}/offsets", self._offsets)
        return app

    @web.middleware
    async def _watch(self, request: web.Request, handler: Any) -> web.StreamResponse:
        response = await self._answer(request, handler)
        if self.names_requests and not response.prepared:
            response.headers.setdefault("Penstock-Request-Id", "fake")
        return response

    async def _answer(self, request: web.Request, handler: Any) -> web.StreamResponse:
        body = await request.read()
        self.seen.append((request.method, request.path, dict(request.query), body))
        self.seen_headers.append(dict(request.headers))
        self.bodies_by_path[request.path].append(body)
        self.open_now += 1
        self.open_most = max(self.open_most, self.open_now)
        try:
            for fault in self.faults:
                if fault.method == request.method and fault.path in request.path:
                    self.faults.remove(fault)
                    if fault.is_after:
                        await handler(request)
                    return await fault.act(request)
            return await handler(request)
        finally:
            self.open_now -= 1

    async def _list(self, request: web.Request) -> web.Response:
        topics = [
            {"topic": name, "topic_id": "x", "partitions": len(parts), "replication_factor": 1}
            for name, parts in sorted(self.topics.items())
        ]
        return web.json_response({"topics": topics})

    async def _describe(self, request: web.Request) -> web.Response:
        topic = request.match_info["topic"]
        if topic not in self.topics:
            return problem(404, "unknown_topic", f"there is no topic {topic!r}")
        partitions = [{"partition": number} for number in range(len(self.topics[topic]))]
        return web.json_response({"topic": topic, "config": {}, "partitions": partitions})

    async def _create(self, request: web.Request) -> web.Response:
        wanted = orjson.loads(await request.read() or b"{}")
        self.add_topic(request.match_info["topic"], wanted.get("partitions", 1))
        return await self._describe(request)

    async def _delete(self, request: web.Request) -> web.Response:
        del self.topics[request.match_info["topic"]]
        return web.Response(status=204)

    async def _cluster(self, request: web.Request) -> web.Response:
        return web.json_response({"cluster_id": "fake", "nodes": [], "controller": 1, "shards": 1})

    async def _create_producer(self, request: web.Request) -> web.Response:
        if not self.gives_ids:
            return problem(404, "not_found", "there is nothing at this path")
        self.producers += 1
        return web.json_response({"producer_id": self.producers, "producer_epoch": 0}, status=201)

    async def _produce(self, request: web.Request) -> web.Response:
        topic = request.match_info["topic"]
        if topic not in self.topics:
            return problem(404, "unknown_topic", f"there is no topic {topic!r}")
        partitions = self.topics[topic]
        chosen = request.match_info.get("partition")
        if chosen is not None and int(chosen) >= len(partitions):
            return problem(404, "unknown_partition", f"there is no partition {chosen}")
        groups: dict[int, list[Stored]] = defaultdict(list)
        for line in (await request.read()).splitlines():
            record = _stored(line, request.query.get("ndjson", "values"))
            number = int(chosen) if chosen is not None else partition_of_key(record.key or b"", len(partitions))
            groups[number].append(record)
        if "Producer-Id" in request.headers:
            return self._sequenced(request, partitions, groups)
        bases = {number: partitions[number].append(records) for number, records in sorted(groups.items())}
        return self._produced(request, bases, groups)

    def _sequenced(
        self, request: web.Request, partitions: list[FakePartition], groups: dict[int, list[Stored]]
    ) -> web.Response:
        ((number, records),) = groups.items()
        numbers = [int(request.headers[f"Producer-{name}"]) for name in ("Id", "Epoch", "Seq")]
        if numbers[0] > self.producers:
            return problem(400, "unknown_producer", f"the id {numbers[0]} was never given out")
        partition = partitions[number]
        verdict = partition.sequences.judge(*numbers, len(records))
        self.verdicts.append((*numbers, verdict.code))
        if verdict.code == "new":
            base = partition.append(records)
            partition.sequences.note(*numbers, len(records), base)
            return self._produced(request, {number: base}, groups)
        if verdict.code == "duplicate":
            assert verdict.value is not None
            return self._produced(request, {number: verdict.value}, groups, {"Penstock-Duplicate": "true"})
        if verdict.code == "sequence_gap":
            members = {"expected_seq": verdict.value, "received_seq": numbers[2]}
            return problem(409, "sequence_gap", retryable=True, **members)
        return problem(403 if verdict.code == "producer_fenced" else 409, verdict.code)

    def _produced(
        self,
        request: web.Request,
        bases: dict[int, int],
        groups: dict[int, list[Stored]],
        headers: dict[str, str] | None = None,
    ) -> web.Response:
        acks = request.query["acks"]
        results = [
            {
                "partition": number,
                "base_offset": base if acks != "0" else None,
                "count": len(groups[number]),
                "timestamp": NOW_MS,
            }
            for number, base in bases.items()
        ]
        answer = {"topic": request.match_info["topic"], "acks": acks, "durability": "fsync", "results": results}
        return web.json_response(answer, status=202 if acks == "0" else 200, headers=headers)

    async def _offsets(self, request: web.Request) -> web.Response:
        partition = self._partition(request)
        end = len(partition.records)
        document = {"log_start": partition.log_start, "log_end": end, "high_watermark": end, "offset": None}
        if "timestamp" in request.query:
            time_ms = int(request.query["timestamp"])
            later = [offset for offset, record in enumerate(partition.records) if record.timestamp >= time_ms]
            document["offset"] = later[0] if later else None
        return web.json_response(document | {"timestamp": None})

    async def _fetch(self, request: web.Request) -> web.Response:
        partition = self._partition(request)
        offset, end = int(request.query["offset"]), len(partition.records)
        bounds = {"log_start": partition.log_start, "high_watermark": end, "log_end": end}
        if offset < partition.log_start:
            return problem(410, "offset_below_log_start", "gone", **bounds)
        if offset > end:
            return problem(416, "offset_above_high_watermark", "not there yet", **bounds)
        if offset == end:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(partition.grew.wait(), int(request.query["wait_ms"]) / 1000)
        budget, records, number = int(request.query["max_bytes"]), [], offset
        while number < len(partition.records) and (budget > 0 or not records):
            records.append(_shown(number, partition.records[number]))
            budget -= len(partition.records[number].value or b"")
            number += 1
        headers = {"Penstock-Next-Offset": str(number), "Penstock-High-Watermark": str(len(partition.records))}
        topic, which = request.match_info["topic"], request.match_info["partition"]
        if request.headers["Accept"] == "application/x-ndjson":
            return web.Response(body=b"".join(line + b"\n" for line in records), headers=headers)
        body = b'{"topic":"%s","partition":%s,"records":[%s],"next_offset":%d}' % (
            topic.encode(), which.encode(), b",".join(records), number,
        )  # fmt: skip
        return web.Response(body=body, headers=headers, content_type="application/json")

    def _partition(self, request: web.Request) -> FakePartition:
        return self.topics[request.match_info["topic"]][int(request.match_info["partition"])]


def problem(
    status: int,
    code: str,
    detail: str = "",
    *,
    retryable: bool = False,
    no_side_effects: bool = True,
    retry_after_s: int | None = None,
    **members: Any,
) -> web.Response:
    document = {"type": f"/docs#problem-{code}", "title": code, "status": status, "code": code, "detail": detail}
    document |= {"retryable": retryable, "no_side_effects": no_side_effects, "request_id": "r1", **members}
    headers = {"Retry-After": str(retry_after_s)} if retry_after_s is not None else {}
    return web.json_response(document, status=status, headers=headers, content_type="application/problem+json")


def answering(response: Callable[[], web.Response]) -> Callable[[web.Request], Any]:
    async def act(request: web.Request) -> web.Response:
        return response()

    return act


async def reset(request: web.Request) -> web.Response:
    """Cut the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    await asyncio.sleep(0)
    return web.Response()


def _stored(line: bytes, form: str) -> Stored:
    if form == "values":
        orjson.loads(line)
        return Stored(None, line, {}, NOW_MS)
    fields = orjson.loads(line)
    assert set(fields) <= {"key", "key_base64", "value", "value_base64", "headers", "timestamp"}
    key = base64.b64decode(fields["key_base64"]) if "key_base64" in fields else _text(fields.get("key"))
    if "value_base64" in fields:
        value: bytes | None = base64.b64decode(fields["value_base64"])
    else:
        value = None if fields["value"] is None else _raw_value(line)
    return Stored(key, value, fields.get("headers", {}), fields.get("timestamp", NOW_MS))


def _raw_value(line: bytes) -> bytes:
    """Return the value as it was sent: a node stores that."""
    return bytes(msgspec.json.decode(line, type=dict[str, msgspec.Raw])["value"])


def _text(key: Any) -> bytes | None:
    if key is None or isinstance(key, str):
        return None if key is None else key.encode()
    return orjson.dumps(key)


def _shown(offset: int, record: Stored) -> bytes:
    fields: dict[str, Any] = {"offset": offset, "timestamp": record.timestamp, "headers": record.headers}
    try:
        fields["key"] = None if record.key is None else record.key.decode()
    except UnicodeDecodeError:
        fields["key_base64"] = base64.b64encode(record.key or b"").decode()
    try:
        value = None if record.value is None else orjson.Fragment(_checked(record.value))
        fields["value"] = value
    except ValueError:
        fields["value_base64"] = base64.b64encode(record.value or b"").decode()
    return orjson.dumps(fields)


def _checked(value: bytes) -> bytes:
    orjson.loads(value)
    if value == b"null":
        raise ValueError("would look like a tombstone")
    return value
