"""Answers the requests about quotas: the list, and changes in the coordination store.

Not here: which quota is refused (gateway/quotas/quota.py, gateway/access/state.py), and what a quota does.
"""

from __future__ import annotations

from operator import attrgetter

from msgspec import to_builtins
from msgspec.structs import asdict

from gateway.access.state import RemoveQuota, SetQuota
from gateway.admin.access_routes import AccessContext, change_access
from gateway.http.json_body import read_json
from gateway.http.page import PageQuery, page_of
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.quotas.quota import Limits, Owner, Quota, id_of, principal_of


async def list_quotas(request: Request, context: AccessContext) -> Response:
    """GET /v1/access/quotas"""
    query, state = read_query(request, PageQuery), context.access.snapshot.state
    page, members = page_of(query, state.quotas, attrgetter("id"))
    return json_response({"generation": state.generation, "quotas": [_shown(quota) for quota in page]} | members)


async def set_quota(request: Request, context: AccessContext) -> Response:
    """PUT /v1/access/quotas/{owner}/{name}. Raises Problem, EngineError."""
    query = read_query(request, NoQuery)
    owner, name = _owner_of(request), request.names["name"]
    limits = await read_json(request, Limits)
    quota = Quota(
        **asdict(limits),
        id=id_of(owner, name),
        owner=owner,
        name=name,
        author=request.caller.principal,
        created_ms=context.clock.now_ms(),
    )
    made = await change_access(request, context, SetQuota(quota), query, (principal_of(quota),))
    return json_response(made | {"quota": _shown(quota)})


async def remove_quota(request: Request, context: AccessContext) -> Response:
    """DELETE /v1/access/quotas/{owner}/{name}. Raises Problem, EngineError."""
    query = read_query(request, NoQuery)
    what = RemoveQuota(id_of(_owner_of(request), request.names["name"]))
    return json_response(await change_access(request, context, what, query))


def _owner_of(request: Request) -> Owner:
    try:
        return Owner(request.names["owner"])
    except ValueError:
        text = f"the owner is {request.names['owner'][:100]!r}: it is one of {', '.join(Owner)}"
        raise Problem("invalid_quota", text) from None


def _shown(quota: Quota) -> dict[str, object]:
    shown: dict[str, object] = to_builtins(quota)
    return shown
