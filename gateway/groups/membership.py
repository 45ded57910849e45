"""Membership over HTTP: join, heartbeat, leave. Members that poll need none of it (gateway/groups/poll.py)."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.access.names import NAME
from gateway.groups.context import GroupContext
from gateway.groups.hosting.calls import HEARTBEAT, LEAVE
from gateway.groups.model.values import START_POLICY, HeartbeatCall, LeaveCall, Membership, Position
from gateway.groups.names import (
    Subscribing,
    Timeout,
    check_subscription,
    client_of,
    find_topics,
    group_name,
    member_name,
)
from gateway.groups.visible_topics import VisibleTopics
from gateway.http.json_body import read_json
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response


class Owned(Struct, forbid_unknown_fields=True):
    """A partition that a member reads."""

    topic: Annotated[str, NAME]
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class HeartbeatRequest(Subscribing, forbid_unknown_fields=True):
    """The body of a heartbeat."""

    member_epoch: Annotated[int, Meta(ge=0, le=2**53)] = 0
    member_id: str | UnsetType = UNSET
    owned: list[Owned] | UnsetType = UNSET
    session_timeout_ms: Timeout | None = None
    rebalance_timeout_ms: Timeout | None = None


async def group_heartbeat(request: Request, context: GroupContext) -> Response:
    """POST /v1/groups/{group}/heartbeat. Raises Problem, EngineError."""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    group = group_name(request)
    body = await read_json(request, HeartbeatRequest)
    if body.member_epoch and body.member_id is UNSET:
        raise Problem("invalid_body", "member_id is missing: a member that has joined names itself")
    if not body.member_epoch and body.topics is UNSET and body.topics_pattern is UNSET:
        raise Problem("invalid_body", "topics is missing: a member that joins names the topics that it reads")
    member_id = context.new_id() if body.member_id is UNSET else member_name(body.member_id)
    await find_topics(request, context, body.topics or (), must_exist=not body.member_epoch)
    topics, pattern = check_subscription(request, context, body, must_exist=not body.member_epoch)
    call = HeartbeatCall(
        group,
        member_id,
        body.member_epoch,
        topics,
        None if body.owned is UNSET else tuple((partition.topic, partition.partition) for partition in body.owned),
        body.session_timeout_ms,
        body.rebalance_timeout_ms,
        client_of(request),
        pattern,
    )
    membership = await context.coordinators.call(HEARTBEAT, Membership, group, call, creates=not body.member_epoch)
    visible = VisibleTopics(request.caller)
    assignment = [position for position in membership.assignment if visible.has(position.topic)]
    document = {
        "group": group,
        "member_id": membership.member_id,
        "member_epoch": membership.member_epoch,
        "assignment": [_assignment_row(position, membership) for position in assignment],
        "heartbeat_ms": membership.heartbeat_ms,
        "session_timeout_ms": membership.session_timeout_ms,
    }
    if len(assignment) < len(membership.assignment):
        document |= visible.limits
    return json_response(document)


def _assignment_row(position: Position, membership: Membership) -> dict[str, object]:
    """Returns a partition with its position, or with the place where it begins without one."""
    assigned: dict[str, object] = {"topic": position.topic, "partition": position.partition}
    if position.offset >= 0:
        return assigned | {"offset": position.offset}
    start = membership.start if position.offset == START_POLICY else "earliest"
    time = {"start_time_ms": membership.start_time_ms} if start == "time" else {}
    return assigned | {"offset": None, "start": start, **time}


async def leave_group(request: Request, context: GroupContext) -> Response:
    """DELETE /v1/groups/{group}/members/{member}"""
    read_query(request, NoQuery)
    group, member_id = group_name(request), member_name(request.names["member"])
    await context.coordinators.call(LEAVE, None, group, LeaveCall(group, member_id))
    return Response(status=204)
