"""Consumer instances of v2: creation, subscription, assignments, positions, commits.

An instance is kept by the coordinator of its group, so that any node answers for it and it survives the node that has
created it. gateway/rest_proxy/instance_reads.py reads its records.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gateway.access.names import NAME
from gateway.groups.group_lag import find_bounds
from gateway.groups.hosting.calls import DESCRIBE
from gateway.groups.hosting.instances import CREATE
from gateway.groups.model.instances import (
    CommitInstance,
    CreateInstance,
    InstanceCall,
    InstanceView,
    PlaceInstance,
    SubscribeInstance,
)
from gateway.groups.model.values import GroupView, Position
from gateway.groups.names import (
    Subscribing,
    check_own,
    check_readable,
    check_subscription,
    client_of,
    group_name,
    member_name,
)
from gateway.groups.offsets import METADATA_BYTES_MAX, POSITIONS_MAX
from gateway.groups.visible_topics import VisibleTopics
from gateway.http.json_limits import check_utf8
from gateway.http.problems import Problem
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.times import time_of_body
from gateway.produce.partitioner import unknown_partition
from gateway.rest_proxy.context import RestProxyContext
from gateway.rest_proxy.errors import EXISTS, ILLEGAL_STATE, Refusal
from gateway.rest_proxy.instances import (
    COMMIT,
    DELETE,
    LOOK,
    PLACE,
    SUBSCRIBE,
    CreateBody,
    call_instance,
    check_distinct,
    encode_settings,
    names_of,
)
from gateway.rest_proxy.media_types import check_body_type
from gateway.rest_proxy.metadata import document_response
from gateway.rest_proxy.records import decode_body

_Topic = Annotated[str, NAME]
_Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Offset = Annotated[int, Meta(ge=0, le=2**63 - 2)]


class _Place(Struct):
    topic: _Topic
    partition: _Number


class _OffsetRow(_Place):
    offset: _Offset
    metadata: Annotated[str, Meta(max_length=4096)] | None = None


class _TimeRow(_Place):
    timestamp: int | str
    metadata: str | None = None


_Offsets = Annotated[list[_OffsetRow], Meta(max_length=POSITIONS_MAX)]
_Places = Annotated[list[_Place], Meta(max_length=POSITIONS_MAX)]


class _Subscription(Struct, forbid_unknown_fields=True):
    topics: Annotated[list[Annotated[_Topic, Meta(max_length=249)]], Meta(max_length=1000)] | None = None
    topic_pattern: str | None = None


class _PlacesBody(Struct, forbid_unknown_fields=True):
    partitions: _Places


class _SeekBody(Struct, forbid_unknown_fields=True):
    offsets: _Offsets = []
    timestamps: Annotated[list[_TimeRow], Meta(max_length=POSITIONS_MAX)] = []


class _CommitBody(Struct, forbid_unknown_fields=True):
    """`offsets` are of the last records that were processed; `partitions`, of Redpanda's proxy, are the next ones."""

    offsets: _Offsets = []
    partitions: _Offsets = []


_CREATE, _SUBSCRIPTION, _PLACES, _SEEK, _COMMIT = map(
    msgspec.json.Decoder, (CreateBody, _Subscription, _PlacesBody, _SeekBody, _CommitBody)
)


async def _read(request: Request, decoder: msgspec.json.Decoder[Any], default: Any = None) -> Any:
    """Returns the body; an empty one as `default`. Raises Problem."""
    http = request.http
    body = await http.bodies.read(request, http.request_body_bytes_max)
    if not body.strip():
        if default is None:
            raise Problem("invalid_body", "a JSON body is required")
        return default
    check_body_type(request)
    check_utf8(body)
    decoded = decode_body(body, decoder)
    return decoded if request.space is None else request.space.stored_in(decoded)


async def rest_create_instance(request: Request, context: RestProxyContext) -> Response:
    """POST /consumers/{group}. Raises Refusal, Problem, EngineError."""
    context.lifecycle.check_accepting()
    group = group_name(request)
    body = await _read(request, _CREATE, CreateBody())
    settings, commits = body.settings(has_registry=context.fetch.schemas is not None), body.is_committing()
    name = member_name(body.name or f"rest-consumer-{context.groups.new_id()}")
    idle_ms = context.settings.rest_proxy_instance_timeout_ms
    call = CreateInstance(group, name, encode_settings(settings), idle_ms, context.groups.new_id(), commits)
    view = await context.groups.coordinators.call(CREATE, InstanceView, group, call, creates=True)
    if not view.is_new:
        raise Refusal(EXISTS, "Consumer with specified consumer ID already exists in the specified consumer group.")
    scheme = "https" if request.connection.tls is not None else "http"
    shown = group if request.space is None else request.space.visible(group)
    base_uri = f"{scheme}://{request.headers.get('Host', '')}/consumers/{shown}/instances/{name}"
    return document_response(request, {"instance_id": name, "base_uri": base_uri})


async def rest_delete_instance(request: Request, context: RestProxyContext) -> Response:
    """DELETE /consumers/{group}/instances/{instance}. Raises Problem, EngineError."""
    await call_instance(context, DELETE, InstanceCall(*names_of(request)))
    return Response(status=204)


async def rest_subscribe(request: Request, context: RestProxyContext) -> Response:
    """POST …/subscription. Raises Refusal, Problem, EngineError."""
    context.lifecycle.check_accepting()
    group, name = names_of(request)
    body = await _read(request, _SUBSCRIPTION)
    if body.topics and body.topic_pattern:
        raise Refusal(ILLEGAL_STATE, "Illegal state: give topics or topic_pattern, and not both")
    if not body.topics and not body.topic_pattern:
        if body.topics is None:
            raise Refusal(ILLEGAL_STATE, "Illegal state: neither topics nor topic_pattern is given")
        return await rest_unsubscribe(request, context)
    for topic in body.topics or ():
        await context.topics.refresh(topic)
    subscribing = Subscribing(topics_pattern=body.topic_pattern) if body.topic_pattern else Subscribing(body.topics)
    topics, pattern = check_subscription(request, context.groups, subscribing, must_exist=False)
    call = SubscribeInstance(group, name, topics or (), pattern, client_of(request))
    await call_instance(context, SUBSCRIBE, call)
    return Response(status=204)


async def rest_unsubscribe(request: Request, context: RestProxyContext) -> Response:
    """DELETE …/subscription. Raises Problem, EngineError."""
    await call_instance(context, SUBSCRIBE, SubscribeInstance(*names_of(request)))
    return Response(status=204)


async def rest_read_subscription(request: Request, context: RestProxyContext) -> Response:
    """GET …/subscription. Raises Problem, EngineError."""
    view = await call_instance(context, LOOK, InstanceCall(*names_of(request)))
    check_own(request, view.topics)
    return document_response(request, {"topics": list(view.topics)})


async def rest_assign(request: Request, context: RestProxyContext) -> Response:
    """POST …/assignments. Raises Refusal, Problem, EngineError."""
    context.lifecycle.check_accepting()
    group, name = names_of(request)
    body = await _read(request, _PLACES)
    places = [(one.topic, one.partition) for one in body.partitions]
    check_distinct(places)
    positions = [await _position(request, context, *place, 0) for place in places]
    await call_instance(context, PLACE, PlaceInstance(group, name, tuple(positions)))
    return Response(status=204)


async def rest_read_assignments(request: Request, context: RestProxyContext) -> Response:
    """GET …/assignments. Raises Problem, EngineError."""
    view = await call_instance(context, LOOK, InstanceCall(*names_of(request)))
    check_own(request, {one.topic for one in view.positions})
    rows = [{"topic": one.topic, "partition": one.partition} for one in view.positions]
    return document_response(request, {"partitions": rows})


async def rest_seek(request: Request, context: RestProxyContext) -> Response:
    """POST …/positions. Raises Refusal, Problem, EngineError."""
    context.lifecycle.check_accepting()
    body = await _read(request, _SEEK)
    check_distinct([(one.topic, one.partition) for one in (*body.offsets, *body.timestamps)])
    positions = [await _seek_position(request, context, one.topic, one.partition, one.offset) for one in body.offsets]
    for one in body.timestamps:
        try:
            moment = time_of_body(one.timestamp)
        except ValueError as error:
            raise Problem("invalid_body", f"timestamp {one.timestamp!r} {error}") from None
        position = await _seek_position(request, context, one.topic, one.partition, 0)
        if position.topic_id:
            [bounds] = await find_bounds(context.fetch.router, [position.slot], moment)
            offset = bounds["high_watermark"] if bounds["offset"] is None else bounds["offset"]
            position = msgspec.structs.replace(position, offset=offset)
        positions.append(position)
    await call_instance(context, PLACE, PlaceInstance(*names_of(request), tuple(positions), is_seek=True))
    return Response(status=204)


async def rest_seek_beginning(request: Request, context: RestProxyContext) -> Response:
    """POST …/positions/beginning. Raises Refusal, Problem, EngineError."""
    return await _seek_bound(request, context, is_end=False)


async def rest_seek_end(request: Request, context: RestProxyContext) -> Response:
    """POST …/positions/end. Raises Refusal, Problem, EngineError."""
    return await _seek_bound(request, context, is_end=True)


async def _seek_bound(request: Request, context: RestProxyContext, *, is_end: bool) -> Response:
    context.lifecycle.check_accepting()
    body = await _read(request, _PLACES)
    places = [(one.topic, one.partition) for one in body.partitions]
    check_distinct(places)
    positions = [await _seek_position(request, context, *place, 0) for place in places]
    there = [position.slot for position in positions if position.topic_id]
    bounds = dict(zip(there, await find_bounds(context.fetch.router, there), strict=True))
    moved = [
        msgspec.structs.replace(one, offset=found["high_watermark" if is_end else "log_start"])
        if (found := bounds.get(one.slot)) is not None
        else one
        for one in positions
    ]
    await call_instance(context, PLACE, PlaceInstance(*names_of(request), tuple(moved), is_seek=True))
    return Response(status=204)


async def rest_commit(request: Request, context: RestProxyContext) -> Response:
    """POST …/offsets: of the body, or of all that was read. Raises Refusal, Problem, EngineError."""
    context.lifecycle.check_accepting()
    group, name = names_of(request)
    body = await _read(request, _COMMIT, _CommitBody())
    given = [(one, one.offset + 1) for one in body.offsets] + [(one, one.offset) for one in body.partitions]
    check_distinct([(one.topic, one.partition) for one, _ in given])
    if sum(len((one.metadata or "").encode()) for one, _ in given) > METADATA_BYTES_MAX:
        raise Problem("invalid_body", f"metadata is more than {METADATA_BYTES_MAX} bytes: commit in several calls")
    positions = [
        await _position(request, context, one.topic, one.partition, offset, one.metadata or "") for one, offset in given
    ]
    await call_instance(context, COMMIT, CommitInstance(group, name, tuple(positions)))
    return Response(status=204)


async def rest_read_offsets(request: Request, context: RestProxyContext) -> Response:
    """GET …/offsets: the committed positions of the partitions in the body. Raises Problem, EngineError."""
    group, name = names_of(request)
    body = await _read(request, _PLACES, _PlacesBody([]))
    await call_instance(context, LOOK, InstanceCall(group, name))
    view = await context.groups.coordinators.call(DESCRIBE, GroupView, group, group)
    asked = {(one.topic, one.partition) for one in body.partitions}
    for topic, _ in asked:
        check_readable(request, topic)
    rows = [
        {"topic": one.topic, "partition": one.partition, "offset": one.offset, "metadata": one.metadata}
        for one in VisibleTopics(request.caller).view(view).offsets
        if one.offset is not None and (not asked or (one.topic, one.partition) in asked)
    ]
    return document_response(request, {"offsets": rows})


async def _position(
    request: Request, context: RestProxyContext, name: str, number: int, offset: int, metadata: str = ""
) -> Position:
    """Returns a position of a partition that exists. Raises UnknownTopic, Problem unknown_partition, forbidden."""
    check_readable(request, name)
    await context.topics.refresh(name, number + 1)
    record = context.topics.topic(name).record
    if number >= record.partitions:
        raise unknown_partition(name, number, record.partitions)
    return Position(name, record.topic_id, number, offset, metadata)


async def _seek_position(request: Request, context: RestProxyContext, name: str, number: int, offset: int) -> Position:
    """Returns a position to seek; without a topic id if there is no such partition, which is then not assigned."""
    check_readable(request, name)
    await context.topics.refresh(name, number + 1)
    topic = context.topics.get(name)
    is_there = topic is not None and number < topic.record.partitions
    return Position(name, topic.record.topic_id if topic is not None and is_there else "", number, offset)
