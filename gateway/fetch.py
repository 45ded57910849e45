"""Fetch over HTTP: what is asked for and in which form. The partition's owner does the work (partition_reads.py)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson
from aiohttp import web

from engine import batch as record_batch
from gateway.cloud_events import EVENT, EVENT_BATCH
from gateway.cloud_events_out import BINARY
from gateway.json_records import rfc3339_ms
from gateway.node import NODE
from gateway.problems import Problem
from gateway.query import Number, Rules, Text, Word, path_partition, read_query
from gateway.routing import at_owner

JSON = "application/json"
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
_QUALITY = re.compile(r"[01](\.[0-9]{0,3})?")

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


async def fetch(request: web.Request) -> web.Response:
    """GET /v1/topics/{topic}/partitions/{partition}/records"""
    query = read_query(request, QUERY)
    query["media_type"] = _form(request, query)
    _exactly_one_start(query)
    if query["timestamp"] is not None:
        query["timestamp"] = parse_timestamp(query["timestamp"])
    topic, number = request.match_info["topic"], path_partition(request)
    headers, body = await at_owner(request.app[NODE], "fetch", topic, number, query, wait_ms=query["wait_ms"])
    if query["media_type"] in (EVENT, BINARY) and not body and "ce-id" not in headers:  # there is none to give
        headers.pop("Content-Type", None)
        return web.Response(status=204, headers=headers)
    return web.Response(body=body, headers=headers)


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


def choose_media_type(accept: str, offered: Sequence[str] = OFFERED) -> str:
    """The form of the answer: the first accepted type that can be given. Raises Problem not_acceptable."""
    for media_type in _by_preference(accept) if accept else ["*/*"]:
        if media_type in offered:
            return media_type
        if media_type == SSE:
            raise Problem("not_implemented", "text/event-stream is not built yet; poll with wait_ms instead")
        if media_type in ("*/*", "application/*", ""):
            return offered[0]
    raise Problem("not_acceptable", f"Accept is {accept!r}; this can be given: {', '.join(offered)}")


def _by_preference(accept: str) -> list[str]:
    """The media types of an Accept header, the best first. What has quality 0 is not accepted at all."""
    weighed: list[tuple[float, str]] = []
    for part in accept.split(","):
        media_type, *parameters = part.lower().replace(" ", "").replace("\t", "").split(";")
        given = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        quality = float(given) if _QUALITY.fullmatch(given) else 1.0
        if quality > 0:
            weighed.append((quality, media_type))
    return [media_type for _, media_type in sorted(weighed, key=lambda pair: -pair[0])]


def parse_timestamp(text: str) -> int:
    """Milliseconds, or RFC 3339."""
    if text.isascii() and text.isdecimal() and len(text) <= 16 and int(text) < 2**53:
        return int(text)
    moment = rfc3339_ms(text.replace(" ", "+"))  # a bare + in a query means a space
    if moment is None:
        raise Problem("invalid_query", f"timestamp is {text!r}; give milliseconds or RFC 3339", parameter="timestamp")
    return moment


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
    document, _ = await at_owner(request.app[NODE], "find_offsets", topic, number, timestamp)
    return web.Response(body=orjson.dumps(document), headers={"Content-Type": JSON})
