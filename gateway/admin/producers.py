"""Producer ids over HTTP. With an id, a producer's retries are stored once."""

from __future__ import annotations

from msgspec import Struct

from gateway.http.json_body import read_json
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.produce.context import ProduceContext


class _Body(Struct, forbid_unknown_fields=True):
    """The body of the request. It has no fields yet."""


async def create_producer(request: Request, context: ProduceContext) -> Response:
    """POST /v1/producers"""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    await read_json(request, _Body, _Body())
    return json_response({"producer_id": await context.producer_ids.take(), "producer_epoch": 0}, 201)
