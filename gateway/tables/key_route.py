"""One key of a compacted topic: parse, choose the partition as producers do, read there, answer."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from gateway.fetch.context import FetchContext
from gateway.fetch.request import Offset, ValueForm
from gateway.http.caching import STATUS
from gateway.http.problems import Problem
from gateway.http.query import Number, Word, read_query
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.produce.partitioner import kafka_hash, unknown_partition
from gateway.routing.leader_headers import check_leadership, leader_headers, read_leader_epoch
from gateway.tables.tables import READ_KEY, TableKey


class KeyQuery(Struct, frozen=True):
    """The query of a read of one key."""

    partition: Annotated[int | None, Number(0, 2**31 - 1)] = None
    key: Annotated[str, Word(("text", "base64url"))] = "text"
    at_least: Offset = None
    wait_ms: Annotated[int, Number(0, 60_000)] = 0
    value: ValueForm = None


async def read_table_key(request: Request, context: FetchContext) -> Response:
    """GET /v1/topics/{topic}/table/{key}. Raises Problem, EngineError."""
    name, query = request.names["topic"], read_query(request, KeyQuery)
    key, record = _key(request, query.key), context.topics.topic(name).record
    number = kafka_hash(key) % record.partitions if query.partition is None else query.partition
    if number >= record.partitions:
        raise unknown_partition(name, number, record.partitions)
    epoch = read_leader_epoch(request)
    await check_leadership(request, context.router, [(name, number)])
    wait_ms = 0 if request.method == "HEAD" else query.wait_ms
    if_none_match = request.headers.get("If-None-Match")
    table_key = TableKey(key, query.at_least, wait_ms, query.value, if_none_match, epoch)
    headers, body = await context.router.call(READ_KEY, name, number, table_key, wait_ms=wait_ms)
    if context.peers.has_others:
        headers = headers | leader_headers(context.peers, record.topic_id, [number], request.connection)
    status = int(headers.get(STATUS, 200))
    shown = {header: text for header, text in headers.items() if header != STATUS}
    return Response(body=body, status=status, headers=shown)


def _key(request: Request, form: str) -> bytes:
    """Returns the key in the path. Raises Problem invalid_query."""
    raw = unquote_to_bytes(request.path.rpartition("/")[2])
    if form == "text":
        return raw
    try:
        return base64.b64decode(raw + b"=" * (-len(raw) % 4), b"-_", validate=True)
    except binascii.Error:
        raise Problem("invalid_query", "the key in the path is not base64url", parameter="key") from None
