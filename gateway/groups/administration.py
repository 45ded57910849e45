"""Groups over HTTP: list, describe, settings, delete."""

from __future__ import annotations

from msgspec import Struct

from engine.settings import rules
from gateway.access.access import limits_of
from gateway.groups.bounds import Lag, lags
from gateway.groups.context import GroupContext
from gateway.groups.hosting.calls import CONFIGURE, DELETE, DESCRIBE
from gateway.groups.model.settings import GroupSettings, group_settings, stored_settings
from gateway.groups.model.values import ConfigCall, GroupRow, GroupView, MemberView, OffsetView, Setting
from gateway.groups.names import PUSH_PREFIX, check_writable, group_name
from gateway.groups.share.values import ShareView
from gateway.http.json_body import read_json
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.http.rights import Caller, Operation, Resource


class _Configure(Struct, forbid_unknown_fields=True):
    config: dict[str, Setting] = {}


async def list_groups(request: Request, context: GroupContext) -> Response:
    """GET /v1/groups"""
    read_query(request, NoQuery)
    caller = request.caller
    rows = [row for row in await context.coordinators.list() if _is_shown(caller, row.group)]
    groups = [
        {"group": row.group, "kind": row.kind, "state": row.state, "members": row.members}
        for row in sorted(rows, key=_name)
    ]
    return json_response({"groups": groups} | limits_of(caller, Operation.DESCRIBE, Resource.GROUP))


async def describe_group(request: Request, context: GroupContext) -> Response:
    """GET /v1/groups/{group}"""
    read_query(request, NoQuery)
    return await _describe(context, group_name(request), 200)


async def configure_group(request: Request, context: GroupContext) -> Response:
    """PUT /v1/groups/{group}"""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    group = group_name(request)
    wish = await read_json(request, _Configure, _Configure())
    settings = group_settings({name: value for name, value in wish.config.items() if value is not None})
    if settings.dead_letter_topic is not None:
        await check_writable(request, context, settings.dead_letter_topic)
    call = ConfigCall(group, wish.config)
    is_new = await context.coordinators.call(CONFIGURE, bool, group, call, creates=True)
    return await _describe(context, group, 201 if is_new else 200)


async def alter_group(request: Request, context: GroupContext) -> Response:
    """PATCH /v1/groups/{group}"""
    read_query(request, NoQuery)
    group = group_name(request)
    await context.coordinators.call(DESCRIBE, GroupView, group, group)
    return await configure_group(request, context)


async def delete_group(request: Request, context: GroupContext) -> Response:
    """DELETE /v1/groups/{group}"""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    group = group_name(request)
    await context.coordinators.call(DELETE, None, group, group)
    return Response(status=204)


async def _describe(context: GroupContext, group: str, status: int) -> Response:
    view = await context.coordinators.call(DESCRIBE, GroupView, group, group)
    known = [one for one in view.offsets if one.offset is not None]
    found = await lags(context.router, [(one.topic, one.partition, one.offset or 0) for one in known])
    behind = {(one.topic, one.partition): lag for one, lag in zip(known, found, strict=True)}
    settings = stored_settings(view.config)
    shares = {(one.topic, one.partition): one for one in view.shares}
    document = {
        "group": group,
        "kind": settings.kind,
        "state": view.state,
        "epoch": view.epoch,
        "config": {rule.name: getattr(settings, rule.name) for rule in rules(GroupSettings)},
        "members": [_member(one) for one in view.members],
        "partitions": [
            _partition(one, behind.get((one.topic, one.partition)), shares.get((one.topic, one.partition)))
            for one in view.offsets
        ],
    }
    if settings.kind == "share":
        document["callers"] = [
            {"member_id": one.member_id or None, "in_flight": one.in_flight, "lock_left_ms": one.lock_left_ms}
            for one in view.holders
        ]
    return json_response(document, status)


def _member(one: MemberView) -> dict[str, object]:
    return {
        "member_id": one.member_id,
        "member_epoch": one.member_epoch,
        "client_id": one.client_id or None,
        "client_address": one.client_address,
        "rack": one.rack or None,
        "topics": list(one.topics),
        "topics_pattern": None if one.pattern is None else one.pattern.include,
        "topics_exclude": None if one.pattern is None else one.pattern.exclude or None,
        "assignment": [{"topic": topic, "partition": partition} for topic, partition in one.assignment],
        "revoking": [{"topic": topic, "partition": partition} for topic, partition in one.revoking],
        "session_left_ms": one.session_left_ms,
    }


def _partition(one: OffsetView, lag: Lag | None, share: ShareView | None) -> dict[str, object]:
    done = 0 if share is None else share.done
    row: dict[str, object] = {
        "topic": one.topic,
        "partition": one.partition,
        "member_id": one.member_id or None,
        "offset": one.offset,
        "metadata": one.metadata or None,
        "high_watermark": None if lag is None else lag.high_watermark,
        "lag": None if lag is None else max(0, lag.records - done),
        "lag_bytes": None if lag is None else lag.size_bytes,
        "lag_ms": None if lag is None else lag.age_ms,
    }
    if share is not None:
        row |= {
            "in_flight": share.in_flight,
            "available": share.available,
            "delayed": share.delayed,
            "dead_letters_pending": share.dead_letters_pending,
            "dead_letters": share.dead_letters,
            "dropped": share.dropped,
        }
    return row


def _is_shown(caller: Caller, group: str) -> bool:
    return caller.allows(Operation.DESCRIBE, group, Resource.GROUP) and not group.startswith(PUSH_PREFIX)


def _name(row: GroupRow) -> str:
    return row.group
