"""Producer ids, fencing tokens and positions of sources over HTTP: they make the appends of producers safe to repeat.

With a producer id, retries are stored once. A partition demands its fencing token of every append. From the position of
a source a connector continues.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from engine.producers.sources import NAME, source_hash
from gateway.admin.context import AdminContext
from gateway.admin.partition_calls import FENCE, SET_FENCE, SOURCE, SetFence
from gateway.http.json_body import read_json
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, Text, path_partition, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.produce.context import ProduceContext
from gateway.routing.partitions import check_not_internal

Token = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+\Z")]


class _NoFields(Struct, forbid_unknown_fields=True):
    """The body of the request. It has no fields yet."""


async def create_producer(request: Request, context: ProduceContext) -> Response:
    """POST /v1/producers"""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    await read_json(request, _NoFields, _NoFields())
    return json_response({"producer_id": await context.producer_ids.take(), "producer_epoch": 0}, 201)


class _FenceBody(Struct, forbid_unknown_fields=True):
    token: Token | None
    expected: Token | UnsetType | None = UNSET


async def describe_fence(request: Request, context: AdminContext) -> Response:
    """GET /v1/topics/{topic}/partitions/{partition}/fence"""
    read_query(request, NoQuery)
    document, _ = await context.router.call(FENCE, request.names["topic"], path_partition(request), None)
    return json_response(document)


async def set_fence(request: Request, context: AdminContext) -> Response:
    """PUT /v1/topics/{topic}/partitions/{partition}/fence"""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    body = await read_json(request, _FenceBody)
    change = SetFence(body.token or "", None if body.expected is UNSET else body.expected or "")
    topic, number = request.names["topic"], path_partition(request)
    check_not_internal(topic)
    wait_ms = context.settings.produce_timeout_ms
    before = None
    if request.is_audited:  # the tokens are what producers prove themselves with: the trail has none
        present, _ = await context.router.call(FENCE, topic, number, None)
        before = {"partition": number, "is_fenced": present["token"] is not None}
    await request.intend(before=before, after={"partition": number, "is_fenced": bool(change.token)})
    document, _ = await context.router.call(SET_FENCE, topic, number, change, wait_ms=wait_ms)
    return json_response(document)


class _SourceQuery(Struct, frozen=True):
    name: Annotated[str, Text()] = ""


async def describe_source(request: Request, context: AdminContext) -> Response:
    """GET /v1/topics/{topic}/partitions/{partition}/source. Raises Problem, EngineError."""
    name = read_query(request, _SourceQuery).name
    if not NAME.fullmatch(name):
        text = "name is the source's Penstock-Source: 1 to 255 visible ASCII characters"
        raise Problem("invalid_query", text, parameter="name")
    topic, number = request.names["topic"], path_partition(request)
    wait_ms = context.settings.produce_timeout_ms
    document, _ = await context.router.call(SOURCE, topic, number, source_hash(name), wait_ms=wait_ms)
    return json_response({**document, "source": name})
