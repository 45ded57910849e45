"""Source positions over HTTP: reads the position of a source that a partition has, from which a connector continues."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from msgspec import Struct

from engine.producers.sources import NAME, source_hash
from gateway.admin.context import ADMIN
from gateway.admin.partition_calls import SOURCE
from gateway.admin.topics import answer
from gateway.http.problems import Problem
from gateway.http.query import Text, path_partition, read_query


class _Query(Struct, frozen=True):
    name: Annotated[str, Text()] = ""


async def describe_source(request: web.Request) -> web.Response:
    """GET /v1/topics/{topic}/partitions/{partition}/source. Raises Problem, EngineError."""
    context = request.app[ADMIN]
    name = read_query(request, _Query).name
    if not NAME.fullmatch(name):
        text = "name is the source's Penstock-Source: 1 to 255 visible ASCII characters"
        raise Problem("invalid_query", text, parameter="name")
    topic, number = request.match_info["topic"], path_partition(request)
    wait_ms = context.settings.produce_timeout_ms
    document, _ = await context.router.call(SOURCE, topic, number, source_hash(name), wait_ms=wait_ms)
    return answer({**document, "source": name})
