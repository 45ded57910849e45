"""Fencing tokens over HTTP: reads, sets and removes the token that a partition demands of every append."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.admin.context import ADMIN
from gateway.admin.partition_calls import FENCE, SET_FENCE, SetFence
from gateway.admin.topics import answer
from gateway.http.json_body import read_json
from gateway.http.query import NoQuery, path_partition, read_query
from gateway.routing.partitions import check_not_internal

Token = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+\Z")]


class _Body(Struct, forbid_unknown_fields=True):
    token: Token | None
    expected: Token | UnsetType | None = UNSET


async def describe_fence(request: web.Request) -> web.Response:
    """GET /v1/topics/{topic}/partitions/{partition}/fence"""
    context = request.app[ADMIN]
    read_query(request, NoQuery)
    document, _ = await context.router.call(FENCE, request.match_info["topic"], path_partition(request), None)
    return answer(document)


async def set_fence(request: web.Request) -> web.Response:
    """PUT /v1/topics/{topic}/partitions/{partition}/fence"""
    context = request.app[ADMIN]
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    wish = await read_json(request, _Body)
    wanted = SetFence(wish.token or "", None if wish.expected is UNSET else wish.expected or "")
    topic, number = request.match_info["topic"], path_partition(request)
    check_not_internal(topic)
    wait_ms = context.settings.produce_timeout_ms
    document, _ = await context.router.call(SET_FENCE, topic, number, wanted, wait_ms=wait_ms)
    return answer(document)
