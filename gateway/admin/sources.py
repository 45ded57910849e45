"""Source positions over HTTP: reads the position of a source that a partition has, from which a connector continues."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from engine.producers.sources import NAME, source_hash
from gateway.admin.context import AdminContext
from gateway.admin.partition_calls import SOURCE
from gateway.http.problems import Problem
from gateway.http.query import Text, path_partition, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response


class _Query(Struct, frozen=True):
    name: Annotated[str, Text()] = ""


async def describe_source(request: Request, context: AdminContext) -> Response:
    """GET /v1/topics/{topic}/partitions/{partition}/source. Raises Problem, EngineError."""
    name = read_query(request, _Query).name
    if not NAME.fullmatch(name):
        text = "name is the source's Penstock-Source: 1 to 255 visible ASCII characters"
        raise Problem("invalid_query", text, parameter="name")
    topic, number = request.names["topic"], path_partition(request)
    wait_ms = context.settings.produce_timeout_ms
    document, _ = await context.router.call(SOURCE, topic, number, source_hash(name), wait_ms=wait_ms)
    return json_response({**document, "source": name})
