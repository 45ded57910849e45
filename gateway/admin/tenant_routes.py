"""Answers the requests about tenants: creates, lists, describes and removes them.

Not here: what a tenant's callers see (gateway/access/names.py), and which change is refused (gateway/access/state.py).
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Annotated

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import asdict, replace

from engine.directory.ceilings import count_of
from gateway.access.names import TENANT_ID
from gateway.access.state import AddTenant, LimitTenant, RemoveTenant, Tenant, TenantLimits, unknown_tenant
from gateway.admin.access_routes import AccessContext, ForceQuery, change_access
from gateway.groups.model.settings import PUSH_PREFIX
from gateway.http.json_body import invalid, read_json
from gateway.http.page import PageQuery, page_of
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.http.rights import Operation, Resource

_ID = re.compile(TENANT_ID)
TOPICS_SHOWN = 10  # of those, and of the subscriptions, that keep a tenant from being removed


class _CreateTenant(Struct, forbid_unknown_fields=True):
    note: Annotated[str, Meta(max_length=200)] = ""
    limits: TenantLimits = TenantLimits()


class _AlterTenant(Struct, forbid_unknown_fields=True):
    """The body of a PATCH: limits that are given replace those before; null removes one."""

    limits: dict[str, int | None]


async def list_tenants(request: Request, context: AccessContext) -> Response:
    """GET /v1/tenants"""
    query, caller = read_query(request, PageQuery), request.caller
    tenants = context.access.snapshot.state.tenants
    listed = (tenant for tenant in tenants if caller.allows(Operation.DESCRIBE, tenant.id, Resource.TENANT))
    page, members = page_of(query, listed, attrgetter("id"))
    return json_response({"tenants": [_shown(tenant) for tenant in page]} | members)


async def describe_tenant(request: Request, context: AccessContext) -> Response:
    """GET /v1/tenants/{tenant}. Raises Problem unknown_tenant."""
    read_query(request, NoQuery)
    return json_response(await _describe(context, _find(context, request.names["tenant"])))


async def create_tenant(request: Request, context: AccessContext) -> Response:
    """PUT /v1/tenants/{tenant}. Raises Problem, EngineError."""
    query = read_query(request, NoQuery)
    name = request.names["tenant"]
    if not _ID.fullmatch(name):
        text = "the id of a tenant is 1 to 31 of a-z 0-9 -, and begins with a letter: a dot would end it"
        raise Problem("invalid_body", f"{name[:64]!r} cannot name a tenant: {text}")
    body = await read_json(request, _CreateTenant, _CreateTenant())
    tenant = Tenant(
        id=name, created_ms=context.clock.now_ms(), author=request.caller.principal, note=body.note, limits=body.limits
    )
    made = await change_access(request, context, AddTenant(tenant), query)
    return json_response(made | await _describe(context, tenant), 201)


async def alter_tenant(request: Request, context: AccessContext) -> Response:
    """PATCH /v1/tenants/{tenant}. Raises Problem, EngineError."""
    query = read_query(request, NoQuery)
    body = await read_json(request, _AlterTenant)
    tenant = _find(context, request.names["tenant"])
    try:
        limits = convert(asdict(tenant.limits) | body.limits, TenantLimits)
    except ValidationError as error:
        raise invalid(error, TenantLimits, within="limits") from None
    made = await change_access(request, context, LimitTenant(tenant.id, limits), query)
    return json_response(made | await _describe(context, replace(tenant, limits=limits)))


async def remove_tenant(request: Request, context: AccessContext) -> Response:
    """DELETE /v1/tenants/{tenant}. Raises Problem, EngineError."""
    query = read_query(request, ForceQuery)
    tenant = _find(context, request.names["tenant"])
    topics = _topics_of(context, tenant.id)
    if topics:
        names = ", ".join(topics[:TOPICS_SHOWN])
        count = "1 topic" if len(topics) == 1 else f"{len(topics)} topics"
        text = f"the tenant {tenant.id} has {count} ({names}): delete its topics before it"
        raise Problem("tenant_not_empty", text, topics=topics[:TOPICS_SHOWN])
    # They would run on, for a later tenant of this id, to the receivers of this one.
    prefix = f"{PUSH_PREFIX}{tenant.id}."
    left = sorted(row.group.removeprefix(prefix) for row in await context.groups() if row.group.startswith(prefix))
    if left:
        names = ", ".join(left[:TOPICS_SHOWN])
        text = f"the tenant {tenant.id} has {len(left)} subscriptions ({names}): delete them before it"
        raise Problem("tenant_not_empty", text, subscriptions=left[:TOPICS_SHOWN])
    return json_response(await change_access(request, context, RemoveTenant(tenant.id), query))


def _find(context: AccessContext, name: str) -> Tenant:
    for tenant in context.access.snapshot.state.tenants:
        if tenant.id == name:
            return tenant
    raise unknown_tenant(name)


def _topics_of(context: AccessContext, tenant: str) -> list[str]:
    prefix = f"{tenant}."
    return sorted(topic.record.name for topic in context.topics.all() if topic.record.name.startswith(prefix))


async def _describe(context: AccessContext, tenant: Tenant) -> dict[str, object]:
    held = await context.holdings.collect(tenant.id)
    sizes = ((topic.record.name, topic.record.partitions) for topic in context.topics.all())
    return _shown(tenant) | {"limits": asdict(tenant.limits), **count_of(tenant.id, sizes)._asdict(), **held._asdict()}


def _shown(tenant: Tenant) -> dict[str, object]:
    return {"tenant": tenant.id, "created_ms": tenant.created_ms, "author": tenant.author, "note": tenant.note}
