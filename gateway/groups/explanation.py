"""Why a group lags or rebalances, over HTTP: its findings, and the history that they come from."""

from __future__ import annotations

from aiohttp import web
from msgspec import structs

from gateway.groups.bounds import lags
from gateway.groups.calls import EXPLAIN
from gateway.groups.context import GROUPS
from gateway.groups.core.activity import Activity
from gateway.groups.core.findings import Behind, findings
from gateway.groups.core.values import Slot
from gateway.groups.membership import answer
from gateway.groups.names import group_name
from gateway.http.query import NoQuery, read_query


async def explain_group(request: web.Request) -> web.Response:
    """GET /v1/groups/{group}/explanation"""
    context = request.app[GROUPS]
    read_query(request, NoQuery)
    group = group_name(request)
    found = await context.coordinators.call(EXPLAIN, Activity, group, group)
    known = [(one.topic, one.partition, one.offset) for one in found.view.offsets if one.offset is not None]
    behind = {
        Slot(topic, partition): Behind(lag.records, lag.age_ms)
        for (topic, partition, _), lag in zip(known, await lags(context.router, known), strict=True)
        if lag is not None
    }
    return answer(
        {
            "group": group,
            "state": found.view.state,
            "lag": sum(one.records for one in behind.values()),
            "findings": [structs.asdict(one) for one in findings(found, behind)],
            "events": [
                {
                    "at_ms": one.at_ms,
                    "cause": one.cause,
                    "member_id": one.member_id or None,
                    "detail": one.detail or None,
                    "count": one.count,
                }
                for one in reversed(found.events)
            ],
        }
    )
