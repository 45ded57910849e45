"""Committed positions over HTTP: read, commit, reset, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from engine.format.paths import TOPIC_CHARS_MAX
from gateway.access.names import NAME
from gateway.groups.context import GroupContext
from gateway.groups.group_lag import find_bounds
from gateway.groups.hosting.calls import COMMIT, DESCRIBE, FORGET, RESET
from gateway.groups.model.errors import CommitTooHigh
from gateway.groups.model.values import CommitCall, ForgetCall, GroupView, OffsetView, Position, ResetCall
from gateway.groups.names import TopicNames, check_again, check_own, check_readable, group_name, member_name
from gateway.groups.visible_topics import VisibleTopics
from gateway.http.json_body import read_json
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, Number, Text, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.http.times import hint_of_time, time_of_body
from gateway.routing.partitions import other_topic

POSITIONS_MAX = 10_000
METADATA_BYTES_MAX = 4 * 1024 * 1024  # of one call: its positions are stored as one batch
_Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class OffsetEntry(Struct, forbid_unknown_fields=True):
    """A position to commit or to reset to. With `topic_id` it is of no other topic of that name."""

    topic: Annotated[str, NAME]
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    offset: _Offset
    metadata: Annotated[str, Meta(max_length=4096)] = ""
    topic_id: Annotated[str, Meta(max_length=64)] | None = None


Offsets = Annotated[list[OffsetEntry], Meta(min_length=1, max_length=POSITIONS_MAX)]


class CommitRequest(Struct, forbid_unknown_fields=True):
    """The body of a commit."""

    offsets: Offsets
    member_id: str | UnsetType = UNSET
    member_epoch: Annotated[int, Meta(ge=1, le=2**53)] | UnsetType = UNSET
    force: bool = False


class ResetRequest(Struct, forbid_unknown_fields=True):
    """The body of a reset: one of `to`, `ago_ms`, `shift` and `offsets`."""

    to: str | int | UnsetType = UNSET
    ago_ms: Annotated[int, Meta(ge=0, le=2**53)] | UnsetType = UNSET
    shift: Annotated[int, Meta(ge=-(2**62), le=2**62)] | UnsetType = UNSET
    offsets: Offsets | UnsetType = UNSET
    topics: TopicNames | UnsetType = UNSET
    dry_run: bool = False
    force: bool = False


async def read_group_offsets(request: Request, context: GroupContext) -> Response:
    """GET /v1/groups/{group}/offsets"""
    read_query(request, NoQuery)
    group = group_name(request)
    return await _answer(request, context, group)


class ForgetQuery(Struct, frozen=True):
    """The query of a deletion of positions."""

    topic: Annotated[str | None, Text(TOPIC_CHARS_MAX), NAME] = None
    partition: Annotated[int | None, Number(0, 2**31 - 1)] = None


async def delete_group_offsets(request: Request, context: GroupContext) -> Response:
    """DELETE /v1/groups/{group}/offsets. Raises Problem, EngineError."""
    query = read_query(request, ForgetQuery)
    context.lifecycle.check_accepting()
    group = group_name(request)
    if query.topic is None:
        raise Problem("invalid_query", "topic is missing: it names the topic whose positions are deleted")
    call = ForgetCall(group, query.topic, query.partition)
    if request.is_audited:
        view = await context.coordinators.call(DESCRIBE, GroupView, group, group)
        offsets = {one.partition: one.offset for one in view.offsets if one.topic == query.topic}
        forgotten = offsets if query.partition is None else {query.partition: offsets.get(query.partition)}
        await request.intend(before={"topic": query.topic, "offsets": forgotten})
    await context.coordinators.call(FORGET, None, group, call)
    return await _answer(request, context, group)


async def commit_group_offsets(request: Request, context: GroupContext) -> Response:
    """PUT /v1/groups/{group}/offsets. Raises Problem, EngineError."""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    group = group_name(request)
    body = await read_json(request, CommitRequest)
    if (body.member_id is UNSET) != (body.member_epoch is UNSET):
        raise Problem("invalid_body", "give both member_id and member_epoch, or none of them")
    positions = await _check_entries(request, context, body.offsets)
    check_again(request, context, {position.topic for position in positions})
    call = CommitCall(
        group,
        None if body.member_id is UNSET else member_name(body.member_id),
        0 if body.member_epoch is UNSET else body.member_epoch,
        positions,
        body.force,
    )
    await context.coordinators.call(COMMIT, None, group, call, creates=True)
    return await _answer(request, context, group)


async def reset_group(request: Request, context: GroupContext) -> Response:
    """POST /v1/groups/{group}/reset. Raises Problem, EngineError."""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    group = group_name(request)
    body = await read_json(request, ResetRequest)
    if sum(choice is not UNSET for choice in (body.to, body.ago_ms, body.shift, body.offsets)) != 1:
        raise Problem("invalid_body", "give exactly one of to, ago_ms, shift and offsets")
    view = await context.coordinators.call(DESCRIBE, GroupView, group, group)
    if body.offsets is not UNSET:
        positions = await _check_entries(request, context, body.offsets)
    else:
        positions = await _resolve_positions(request, context, body, view)
    before = {(position.topic, position.partition): position.offset for position in view.offsets}
    if not body.dry_run:
        moved = [
            {"topic": one.topic, "partition": one.partition, "from": before.get(one.slot), "to": one.offset}
            for one in positions
        ]
        await request.intend(before={"epoch": view.epoch}, after={"moved": moved})
        check_again(request, context, {position.topic for position in positions})
        await context.coordinators.call(RESET, None, group, ResetCall(group, positions, body.force))
    rows = [
        {
            "topic": position.topic,
            "partition": position.partition,
            "offset": position.offset,
            "previous_offset": before.get((position.topic, position.partition)),
        }
        for position in positions
    ]
    response = json_response({"group": group, "dry_run": body.dry_run, "offsets": rows})
    response.headers.update(hint_of_time(body.to))
    return response


async def _resolve_positions(
    request: Request, context: GroupContext, body: ResetRequest, view: GroupView
) -> tuple[Position, ...]:
    """Returns the positions of a reset: of the given topics, else of all that the group has read and that exist."""
    for topic in {position.topic for position in view.offsets}:
        await context.topics.refresh(topic)
    places = [
        (position.topic, position.partition)
        for position in view.offsets
        if context.topics.get(position.topic) is not None
    ]
    if body.topics is not UNSET:
        places = [
            (name, number) for name in body.topics for number in range(context.topics.topic(name).record.partitions)
        ]
    check_own(request, {topic for topic, _ in places}, given=() if body.topics is UNSET else body.topics)
    timestamp = _timestamp(context, body)
    before = {(position.topic, position.topic_id, position.partition): position.offset for position in view.offsets}
    moved = []
    all_bounds = await find_bounds(context.router, places, timestamp)
    for (topic, number), partition_bounds in zip(places, all_bounds, strict=True):
        start, end = partition_bounds["log_start"], partition_bounds["high_watermark"]
        if body.shift is not UNSET:
            committed = before.get((topic, context.partitions.topic_id(topic, number), number)) or start
            offset = min(max(committed + body.shift, start), end)
        elif timestamp is not None:
            offset = end if partition_bounds["offset"] is None else partition_bounds["offset"]
        else:
            offset = start if body.to == "earliest" else end
        moved.append(Position(topic, context.partitions.topic_id(topic, number), number, offset))
    return tuple(moved)


def _timestamp(context: GroupContext, body: ResetRequest) -> int | None:
    """Returns the time of a reset; None for another kind. Raises Problem invalid_body."""
    if body.ago_ms is not UNSET:
        return max(0, context.clock.now_ms() - body.ago_ms)
    if body.to is UNSET or body.to in ("earliest", "latest"):
        return None
    try:
        return time_of_body(body.to)
    except ValueError as error:
        text = f"to {body.to!r} {error}; give earliest, latest, or a time in milliseconds or RFC 3339"
        raise Problem("invalid_body", text) from None


async def _check_entries(
    request: Request, context: GroupContext, entries: Sequence[OffsetEntry]
) -> tuple[Position, ...]:
    """Returns positions that exist. Raises Problem invalid_body, OtherTopic, UnknownPartition, CommitTooHigh, …"""
    places = [(entry.topic, entry.partition) for entry in entries]
    if len(set(places)) < len(places):
        raise Problem("invalid_body", "a partition is named twice")
    if sum(len(entry.metadata.encode()) for entry in entries) > METADATA_BYTES_MAX:
        raise Problem("invalid_body", f"metadata is more than {METADATA_BYTES_MAX} bytes: commit in several calls")
    for topic in {topic for topic, _ in places}:
        check_readable(request, topic)
        await context.topics.refresh(topic, 1 + max(number for name, number in places if name == topic))
    for entry in entries:
        name, meant_id = entry.topic, entry.topic_id
        if meant_id is not None and not await context.topics.confirm_id(name, meant_id.__eq__):
            raise other_topic(name, context.topics.topic(name).record.topic_id)
    for entry, partition_bounds in zip(entries, await find_bounds(context.router, places), strict=True):
        if entry.offset > partition_bounds["high_watermark"]:
            raise CommitTooHigh(
                f"offset {entry.offset} of partition {entry.partition} of topic {entry.topic!r} is above the high "
                f"watermark {partition_bounds['high_watermark']}",
                hint="commit the next offset after the last record that was read",
                high_watermark=partition_bounds["high_watermark"],
            )
    return tuple(
        Position(
            entry.topic,
            context.partitions.topic_id(entry.topic, entry.partition),
            entry.partition,
            entry.offset,
            entry.metadata,
        )
        for entry in entries
    )


async def _answer(request: Request, context: GroupContext, group: str) -> Response:
    visible = VisibleTopics(request.caller)
    view = await context.coordinators.call(DESCRIBE, GroupView, group, group)
    rows = [_row(position) for position in visible.view(view).offsets if position.offset is not None]
    return json_response({"group": group, "offsets": rows} | visible.limits)


def _row(position: OffsetView) -> dict[str, object]:
    row: dict[str, object] = {"topic": position.topic, "topic_id": position.topic_id, "partition": position.partition}
    row["offset"] = position.offset
    if position.metadata:
        row["metadata"] = position.metadata
    return row | {"committed_ms": position.committed_ms}
