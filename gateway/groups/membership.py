"""Membership over HTTP: join, heartbeat, leave. Members that poll need none of it (gateway/groups/poll.py)."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

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
from gateway.http.json_body import read_json
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response


class Owned(Struct, forbid_unknown_fields=True):
    """A partition that a member reads."""

    topic: str
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
    wish = await read_json(request, HeartbeatRequest)
    if wish.member_epoch and wish.member_id is UNSET:
        raise Problem("invalid_body", "member_id is missing: a member that has joined names itself")
    if not wish.member_epoch and wish.topics is UNSET and wish.topics_pattern is UNSET:
        raise Problem("invalid_body", "topics is missing: a member that joins names the topics that it reads")
    member_id = context.new_id() if wish.member_id is UNSET else member_name(wish.member_id)
    await find_topics(request, context, wish.topics or (), must_exist=not wish.member_epoch)
    topics, pattern = check_subscription(request, context, wish, must_exist=not wish.member_epoch)
    call = HeartbeatCall(
        group,
        member_id,
        wish.member_epoch,
        topics,
        None if wish.owned is UNSET else tuple((one.topic, one.partition) for one in wish.owned),
        wish.session_timeout_ms,
        wish.rebalance_timeout_ms,
        client_of(request),
        pattern,
    )
    found = await context.coordinators.call(HEARTBEAT, Membership, group, call, creates=not wish.member_epoch)
    return json_response(
        {
            "group": group,
            "member_id": found.member_id,
            "member_epoch": found.member_epoch,
            "assignment": [_assigned(one, found) for one in found.assignment],
            "heartbeat_ms": found.heartbeat_ms,
            "session_timeout_ms": found.session_timeout_ms,
        }
    )


def _assigned(one: Position, found: Membership) -> dict[str, object]:
    """Returns a partition with its position, or with the place where it begins without one."""
    assigned: dict[str, object] = {"topic": one.topic, "partition": one.partition}
    if one.offset >= 0:
        return assigned | {"offset": one.offset}
    start = found.start if one.offset == START_POLICY else "earliest"
    time = {"start_time_ms": found.start_time_ms} if start == "time" else {}
    return assigned | {"offset": None, "start": start, **time}


async def leave_group(request: Request, context: GroupContext) -> Response:
    """DELETE /v1/groups/{group}/members/{member}"""
    read_query(request, NoQuery)
    group, member_id = group_name(request), member_name(request.names["member"])
    await context.coordinators.call(LEAVE, None, group, LeaveCall(group, member_id))
    return Response(status=204)
