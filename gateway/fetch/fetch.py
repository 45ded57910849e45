"""Fetch over HTTP: what is asked for and in which form. The partition's owner does the work (partition_reads.py)."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from engine.errors import EngineError
from engine.format import batch as record_batch
from gateway.fetch import partition_reads
from gateway.fetch.cloud_events import BINARY
from gateway.fetch.context import FETCH, FetchContext, ReadContext
from gateway.fetch.tail import tail_partition
from gateway.http.caching import STATUS
from gateway.http.negotiation import choose_media_type, prefers_events
from gateway.http.problems import Problem
from gateway.http.query import Number, Rules, Text, Word, path_partition, read_query
from gateway.http.response_compression import packed
from gateway.http.times import parse_timestamp
from gateway.links.link import Handler
from gateway.produce.cloud_events import EVENT, EVENT_BATCH
from gateway.routing.leader_headers import FORWARD, demand_direct, leader_headers, read_leader_epoch, read_rack
from gateway.routing.router import CALL_S, may_repeat

JSON = "application/json"
NDJSON = "application/x-ndjson"

QUERY: Rules = {
    "offset": Number(None, 0, 2**63 - 1),
    "from": Word(None, ("earliest", "latest")),
    "timestamp": Text(None, 64),
    "max_bytes": Number(None, 1, 2**31 - 1),
    "max_records": Number(None, 1, 10_000_000),
    "min_bytes": Number(1, 0, 2**31 - 1),
    "wait_ms": Number(0, 0, 60_000),
    "value": Word(None, ("json", "text", "base64")),
    "ndjson": Word("records", ("values", "records")),
    "cloudevents": Word(None, ("binary",)),
}
OFFERED = (JSON, NDJSON, record_batch.MEDIA_TYPE, EVENT_BATCH)


async def fetch(request: web.Request) -> web.StreamResponse:
    """GET /v1/topics/{topic}/partitions/{partition}/records"""
    if prefers_events(request.headers.get("Accept", ""), OFFERED):
        return await tail_partition(request)
    query = read_query(request, QUERY)
    query["media_type"] = _form(request, query)
    if request.method == "HEAD":
        query["wait_ms"] = 0
    _exactly_one_start(query)
    if query["timestamp"] is not None:
        query["timestamp"] = parse_timestamp(query["timestamp"])
    if "If-None-Match" in request.headers:
        query["if_none_match"] = request.headers["If-None-Match"]
    context, topic, number = request.app[FETCH], request.match_info["topic"], path_partition(request)
    query["leader_epoch"] = read_leader_epoch(request)
    if FORWARD in request.headers:
        await demand_direct(request, context.router, [(topic, number)])
    found = None
    if (rack := read_rack(request)) is not None:
        budget = context.budgets.begin(query["wait_ms"])
        found = await _fetch_nearby(context, topic, number, query, rack)
        query["wait_ms"] = budget.wait_left_ms
    headers, body = found or await context.router.call("fetch", topic, number, query, wait_ms=query["wait_ms"])
    if found is None and context.peers.nodes is not None:
        headers = headers | leader_headers(context.peers, context.partitions.topic_id(topic, number), [number])
    if STATUS in headers:
        return web.Response(status=int(headers.pop(STATUS)), headers=headers)
    if query["media_type"] in (EVENT, BINARY) and not body and "ce-id" not in headers:  # there is none to give
        headers.pop("Content-Type", None)
        return web.Response(status=204, headers=headers)
    return await packed(request, web.Response(body=body, headers=headers))


def _form(request: web.Request, query: dict[str, Any]) -> str:
    """The media type of the answer, or `binary` for a CloudEvent whose data is the body."""
    is_single = query["max_records"] == 1
    if query["cloudevents"] is not None:
        if not is_single:
            raise Problem(
                "invalid_query", "a CloudEvent in binary mode goes with max_records=1", parameter="cloudevents"
            )
        return BINARY
    try:
        return choose_media_type(request.headers.get("Accept", ""), (*OFFERED, EVENT) if is_single else OFFERED)
    except Problem as problem:
        if problem.code == "not_acceptable" and not is_single:
            problem.detail += f", and {EVENT} with max_records=1"
        raise


def _exactly_one_start(query: dict[str, Any]) -> None:
    given = [name for name in ("offset", "from", "timestamp") if query[name] is not None]
    if len(given) != 1:
        text = f"one of offset, from and timestamp is needed, {len(given)} are given"
        raise Problem("invalid_query", text, parameter="offset")


async def find_offsets(request: web.Request) -> web.Response:
    """GET /v1/topics/{topic}/partitions/{partition}/offsets"""
    query = read_query(request, {"timestamp": Text(None, 64)})
    timestamp = None if query["timestamp"] is None else parse_timestamp(query["timestamp"])
    topic, number = request.match_info["topic"], path_partition(request)
    document, _ = await request.app[FETCH].router.call("find_offsets", topic, number, timestamp)
    return web.Response(body=orjson.dumps(document), headers={"Content-Type": JSON})


async def _fetch_nearby(
    context: FetchContext, topic_name: str, number: int, query: dict[str, Any], rack: str
) -> tuple[dict[str, str], bytes | bytearray] | None:
    """Fetches from an in-sync follower in the reader's rack.

    Returns None if the leader must be asked: there is no such follower, or it does not know yet that so much is
    committed.
    """
    topic_id, peers = context.partitions.topic_id(topic_name, number), context.peers
    owner = None if query["offset"] is None else peers.nearby(topic_id, number, rack)
    if owner is None:
        return None
    query = {**query, "from_follower": True}
    try:
        if peers.is_here(owner):
            partition = context.partitions.answered(topic_name, topic_id, number, from_follower=True)
            return await context.router.call_here("fetch", partition, query)
        arguments = (topic_id, topic_name, number, peers.known_epoch(topic_id, number), query)
        return await peers.link(owner).call("fetch_nearby", arguments, timeout_s=query["wait_ms"] / 1000 + CALL_S)
    except EngineError as error:
        if not may_repeat("fetch", error):
            raise
        return None


def nearby_handlers(context: ReadContext) -> dict[str, Handler]:
    """What this process does when another one wants a follower's records."""

    async def fetch_nearby(arguments: Any, _: bytes) -> tuple[Any, bytes | bytearray]:
        topic_id, topic_name, number, epoch, query, *_rest = arguments
        partition = context.partitions.answered(topic_name, topic_id, number, epoch, from_follower=True)
        return await partition_reads.fetch(context, partition, query)

    return {"fetch_nearby": fetch_nearby}
