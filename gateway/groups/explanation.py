"""Why a group lags or rebalances, over HTTP: its findings, and the history that they come from."""

from __future__ import annotations

from msgspec import structs

from gateway.groups.bounds import lags
from gateway.groups.causes.activity import Activity
from gateway.groups.causes.facts import Behind
from gateway.groups.causes.findings import findings
from gateway.groups.context import GroupContext
from gateway.groups.hosting.calls import EXPLAIN
from gateway.groups.model.values import Slot
from gateway.groups.names import group_name
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response


async def explain_group(request: Request, context: GroupContext) -> Response:
    """GET /v1/groups/{group}/explanation"""
    read_query(request, NoQuery)
    group = group_name(request)
    found = await context.coordinators.call(EXPLAIN, Activity, group, group)
    known = [(one.topic, one.partition, one.offset) for one in found.view.offsets if one.offset is not None]
    behind = {
        Slot(topic, partition): Behind(lag.records, lag.age_ms)
        for (topic, partition, _), lag in zip(known, await lags(context.router, known), strict=True)
        if lag is not None
    }
    done = sum(one.done for one in found.view.shares)
    return json_response(
        {
            "group": group,
            "state": found.view.state,
            "lag": max(0, sum(one.records for one in behind.values()) - done),
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
