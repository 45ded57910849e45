"""Groups over HTTP: describe, settings, delete."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from engine.errors import EngineError
from engine.settings import rules
from gateway.access.names import NamesIn
from gateway.groups.context import GroupContext
from gateway.groups.group_lag import Lag, measure_lags
from gateway.groups.hosting.calls import CONFIGURE, DELETE, DESCRIBE
from gateway.groups.model.errors import UnknownGroup
from gateway.groups.model.settings import GroupSettings, group_settings, stored_settings
from gateway.groups.model.values import ConfigCall, GroupView, MemberView, OffsetView, Setting
from gateway.groups.names import check_writable, group_name
from gateway.groups.share.values import ShareView
from gateway.groups.visible_topics import VisibleTopics
from gateway.http.json_body import read_json
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response


class _Configure(Struct, forbid_unknown_fields=True):
    config: Annotated[dict[str, Setting], NamesIn(("dead_letter_topic", "topics_priority"))] = {}


async def describe_group(request: Request, context: GroupContext) -> Response:
    """GET /v1/groups/{group}"""
    read_query(request, NoQuery)
    return await _describe(request, context, group_name(request), 200)


async def configure_group(request: Request, context: GroupContext) -> Response:
    """PUT /v1/groups/{group}"""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    group = group_name(request)
    body = await read_json(request, _Configure, _Configure())
    settings = group_settings({name: value for name, value in body.config.items() if value is not None})
    if settings.dead_letter_topic is not None:
        await check_writable(request, context, settings.dead_letter_topic)
    call = ConfigCall(group, body.config)
    await request.intend(before=await _audited(request, context, group), after={"config": body.config})
    is_new = await context.coordinators.call(CONFIGURE, bool, group, call, creates=True)
    return await _describe(request, context, group, 201 if is_new else 200)


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
    await request.intend(before=await _audited(request, context, group))
    await context.coordinators.call(DELETE, None, group, group)
    return Response(status=204)


async def _audited(request: Request, context: GroupContext, group: str) -> dict[str, object] | None:
    """Returns what the audit trail has of a group before a change; None: there is none."""
    if not request.is_audited:
        return None
    try:
        view = await context.coordinators.call(DESCRIBE, GroupView, group, group)
    except EngineError as error:
        if error.code == UnknownGroup.code:  # also from another process
            return None
        raise
    return {"config": view.config, "members": len(view.members)}


async def _describe(request: Request, context: GroupContext, group: str, status: int) -> Response:
    visible = VisibleTopics(request.caller)
    whole = await context.coordinators.call(DESCRIBE, GroupView, group, group)
    view = visible.view(whole)
    committed = [position for position in view.offsets if position.offset is not None]
    offsets = [(position.topic, position.partition, position.offset or 0) for position in committed]
    measured = await measure_lags(context.router, offsets)
    behind = {(position.topic, position.partition): lag for position, lag in zip(committed, measured, strict=True)}
    settings = stored_settings(view.config)
    config = {rule.name: getattr(settings, rule.name) for rule in rules(GroupSettings)}
    if len(view.config) < len(whole.config):  # without a topic that the caller may not know, and not without any
        del config["dead_letter_topic"]
    shares = {(share.topic, share.partition): share for share in view.shares}
    document = {
        "group": group,
        "kind": settings.kind,
        "state": view.state,
        "epoch": view.epoch,
        "config": config,
        "members": [_member(member) for member in view.members],
        "partitions": [
            _partition(
                position,
                behind.get((position.topic, position.partition)),
                shares.get((position.topic, position.partition)),
            )
            for position in view.offsets
        ],
    }
    if settings.kind == "share":
        document["callers"] = [
            {"member_id": holder.member_id or None, "in_flight": holder.in_flight, "lock_left_ms": holder.lock_left_ms}
            for holder in view.holders
        ]
    return json_response(document | visible.limits, status)


def _member(member: MemberView) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id or None,
        "client_address": member.client_address,
        "rack": member.rack or None,
        "topics": list(member.topics),
        "topics_pattern": None if member.pattern is None else member.pattern.include,
        "topics_exclude": None if member.pattern is None else member.pattern.exclude or None,
        "assignment": [{"topic": topic, "partition": partition} for topic, partition in member.assignment],
        "revoking": [{"topic": topic, "partition": partition} for topic, partition in member.revoking],
        "session_left_ms": member.session_left_ms,
    }


def _partition(position: OffsetView, lag: Lag | None, share: ShareView | None) -> dict[str, object]:
    done = 0 if share is None else share.done
    row: dict[str, object] = {
        "topic": position.topic,
        "partition": position.partition,
        "member_id": position.member_id or None,
        "offset": position.offset,
        "metadata": position.metadata or None,
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
