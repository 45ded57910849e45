"""Why a group lags or rebalances, over HTTP: its findings, and the history that they come from."""

from __future__ import annotations

from msgspec import structs

from gateway.groups.context import GroupContext
from gateway.groups.diagnosis.activity import Activity
from gateway.groups.diagnosis.facts import Behind
from gateway.groups.diagnosis.findings import findings
from gateway.groups.group_lag import measure_lags
from gateway.groups.hosting.calls import EXPLAIN
from gateway.groups.model.values import Slot
from gateway.groups.names import group_name
from gateway.groups.visible_topics import VisibleTopics
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response


async def explain_group(request: Request, context: GroupContext) -> Response:
    """GET /v1/groups/{group}/explanation"""
    read_query(request, NoQuery)
    group = group_name(request)
    activity = await context.coordinators.call(EXPLAIN, Activity, group, group)
    committed = [
        (position.topic, position.partition, position.offset)
        for position in activity.view.offsets
        if position.offset is not None
    ]
    behind = {
        Slot(topic, partition): Behind(lag.records, lag.age_ms)
        for (topic, partition, _), lag in zip(committed, await measure_lags(context.router, committed), strict=True)
        if lag is not None
    }
    visible = VisibleTopics(request.caller)
    lags = [lag.records for slot, lag in behind.items() if visible.has(slot.topic)]
    done = sum(share.done for share in activity.view.shares if visible.has(share.topic))
    return json_response(
        {
            "group": group,
            "state": activity.view.state,
            "lag": max(0, sum(lags) - done),
            "findings": [structs.asdict(finding) for finding in findings(activity, behind) if visible.finding(finding)],
            "events": [
                {
                    "at_ms": event.at_ms,
                    "cause": event.cause,
                    "member_id": event.member_id or None,
                    "detail": event.detail or None,
                    "count": event.count,
                }
                for event in visible.events(reversed(activity.events))
            ],
        }
        | visible.limits
    )
