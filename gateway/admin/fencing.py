"""Fencing tokens over HTTP: reads, sets and removes the token that a partition demands of every append."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.admin.context import AdminContext
from gateway.admin.partition_calls import FENCE, SET_FENCE, SetFence
from gateway.http.json_body import read_json
from gateway.http.query import NoQuery, path_partition, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.routing.partitions import check_not_internal

Token = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+\Z")]


class _Body(Struct, forbid_unknown_fields=True):
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
    body = await read_json(request, _Body)
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
