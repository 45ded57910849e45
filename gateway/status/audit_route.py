"""`GET /v1/cluster/nodes/{node_id}/audit`: the audit trail of one node, the newest events first, in pages."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
import orjson
from msgspec import Struct

from engine.errors import EngineError
from gateway.admin.cluster_operations import path_node_id
from gateway.audit.events import Kind
from gateway.audit.reading import AuditAsked, AuditFilters, AuditPage
from gateway.http.documents import answer_document
from gateway.http.problems import Problem
from gateway.http.query import Number, Text, Word, read_query
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.status.context import StatusContext

LIMIT_MAX = 200
CALL_S = 5.0  # another node reads 4 MiB of its disk
_CURSOR = re.compile(r"(\d{1,18}):(\d{1,18})", re.ASCII)  # numbers that fit into a call to another node


class AuditQuery(Struct, frozen=True):
    """`after` is what `next` of the page before has: a file's number and a position in it."""

    limit: Annotated[int, Number(1, LIMIT_MAX)] = 50
    after: Annotated[str, Text(40)] = ""
    principal: Annotated[str, Text(300)] = ""
    resource: Annotated[str, Text(300)] = ""
    kind: Annotated[str | None, Word(tuple(kind.value for kind in Kind))] = None


async def read_audit(request: Request, context: StatusContext) -> Response:
    """GET /v1/cluster/nodes/{node_id}/audit. Raises Problem invalid_query, storage_failed."""
    query, node_id = read_query(request, AuditQuery), path_node_id(request)
    kinds = () if query.kind is None else (query.kind,)
    filters = AuditFilters(query.principal or None, query.resource or None, kinds)
    asked = AuditAsked(_position(query.after), query.limit, filters)
    page = await _read(context, node_id, asked)
    document = {
        "node_id": node_id,
        "recorded": None if page is None else page.is_recorded,
        "events": [] if page is None else [orjson.Fragment(event) for event in page.events],
        "next": None if page is None or page.next is None else "{}:{}".format(*page.next),
        "odd_lines": 0 if page is None else page.odd,
        "nodes_missing": [node_id] if page is None else [],
    }
    return await answer_document(request, document)


async def _read(context: StatusContext, node_id: int, asked: AuditAsked) -> AuditPage | None:
    """Returns a page of a node; None: the node does not answer, or is none of this cluster."""
    peers = context.admin.peers
    if node_id == peers.node_id:
        return await context.audit.read(asked)
    for other, caller in peers.links.of_other_nodes():
        if other == node_id:
            try:
                answer, _ = await caller.link().call("audit_page", asked, timeout_s=CALL_S)
                return msgspec.convert(answer, AuditPage)
            except (EngineError, msgspec.ValidationError):  # it restarts, hangs, or is of a version without this call
                return None
    return None


def _position(after: str) -> tuple[int, int] | None:
    """Returns the position in a cursor. Raises Problem invalid_query."""
    if not after:
        return None
    found = _CURSOR.fullmatch(after)
    if found is None:
        raise Problem("invalid_query", f"after is {after!r}; give what `next` has", parameter="after")
    return int(found[1]), int(found[2])
