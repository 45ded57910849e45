"""Subscriptions over HTTP: create and change, describe, list, delete, pause, resume, replay.

A caller with the right read to all topics of a subscription may use each of these routes.
"""

from __future__ import annotations

import re
from typing import Annotated, cast
from urllib.parse import urlsplit

from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType, convert
from msgspec.structs import asdict, replace

from engine.errors import EngineError
from gateway.access.access import caller_of
from gateway.access.tokens_file import Right
from gateway.filters.condition import InvalidCondition
from gateway.filters.record_filter import record_filter
from gateway.groups.bounds import bounds
from gateway.groups.membership import answer
from gateway.groups.model.errors import UnknownGroup
from gateway.groups.model.values import Position, PushCall, ResetCall, Slot
from gateway.groups.names import PUSH_PREFIX, check_readable, check_topics, check_writable
from gateway.http.json_body import read_json
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, read_query
from gateway.http.times import rfc3339_ms
from gateway.subscriptions.calls import DELETE, DESCRIBE, LIST, PUT, RESET, View
from gateway.subscriptions.context import PUSH, PushContext
from gateway.subscriptions.core.definition import Definition, Delivery, Secret, decode, encode
from gateway.subscriptions.core.signature import SECRET_BYTES, new_secret
from gateway.subscriptions.core.targets import InvalidTarget
from gateway.subscriptions.handshake import confirm
from gateway.subscriptions.sender import Sender

PARTITIONS_MAX = 1000
_NAME = re.compile(r"[A-Za-z0-9._-]{1,190}")
Start = str | int


class PutSubscription(Struct, forbid_unknown_fields=True):
    """The body of a PUT. Secrets that are not given stay; without any, the node makes one and shows it once."""

    url: str
    topics: Annotated[list[str], Meta(min_length=1, max_length=16)]
    delivery: Delivery = Delivery()
    filter: tuple[str, ...] = ()
    start: Start = "latest"
    secrets: Annotated[list[Secret], Meta(min_length=1, max_length=2)] | UnsetType = UNSET


class Replay(Struct, forbid_unknown_fields=True):
    """The body of a replay: one of `to` and `offsets`."""

    to: Start | UnsetType = UNSET
    offsets: Annotated[list[ReplayOffset], Meta(min_length=1, max_length=1000)] | UnsetType = UNSET


class ReplayOffset(Struct, forbid_unknown_fields=True):
    """The position of one partition."""

    topic: str
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)]


async def put_subscription(request: web.Request) -> web.Response:
    """PUT /v1/subscriptions/{name}. Raises Problem, EngineError."""
    context, sender, group = _begin(request)
    wish = await read_json(request, PutSubscription)
    topics = await _checked_topics(request, context, wish.topics)
    _check(wish)
    if wish.delivery.dead_letter_topic is not None:
        await check_writable(request, context.groups, wish.delivery.dead_letter_topic)
    try:
        sender.allowed.check_url(wish.url)
    except InvalidTarget as error:
        raise Problem("target_not_allowed", str(error)) from None
    before = await _found(request, context, group, is_expected=False)
    secrets, shown = _secrets(context, wish, before)
    is_new_target = before is None or before.url != wish.url
    if is_new_target and not context.groups.settings.push_unconfirmed:
        await confirm(sender, wish.url, _origin(context))
    is_paused = before is not None and before.is_paused
    definition = Definition(wish.url, topics, wish.delivery, wish.filter, secrets, is_paused)
    positions = await _positions(context, topics, wish.start)
    is_new = await _put(context, group, definition, positions)
    document = await _described(context, group)
    return answer(document | ({"secret": shown} if shown else {}), 201 if is_new else 200)


async def describe_subscription(request: web.Request) -> web.Response:
    """GET /v1/subscriptions/{name}"""
    context, group = _read(request)
    await _found(request, context, group)
    return answer(await _described(context, group))


async def list_subscriptions(request: web.Request) -> web.Response:
    """GET /v1/subscriptions"""
    context = request.app[PUSH]
    read_query(request, NoQuery)
    views = await context.groups.coordinators.all_of(LIST)
    rows = [_shown(one if isinstance(one, View) else convert(one, View)) for one in views]
    caller = caller_of(request)
    listed = [
        {key: row[key] for key in ("subscription", "url", "topics", "state", "last_error")}
        for row in sorted(rows, key=lambda row: str(row["subscription"]))
        if all(caller.allows(Right.READ, topic) for topic in cast(list[str], row["topics"]))
    ]
    return answer({"subscriptions": listed})


async def delete_subscription(request: web.Request) -> web.Response:
    """DELETE /v1/subscriptions/{name}"""
    context, group = _read(request)
    context.groups.lifecycle.check_accepting()
    await _found(request, context, group)
    await context.groups.coordinators.call(DELETE, None, group, group)
    return web.Response(status=204)


async def pause_subscription(request: web.Request) -> web.Response:
    """POST /v1/subscriptions/{name}/pause"""
    return await _set_paused(request, is_paused=True)


async def resume_subscription(request: web.Request) -> web.Response:
    """POST /v1/subscriptions/{name}/resume"""
    return await _set_paused(request, is_paused=False)


async def replay_subscription(request: web.Request) -> web.Response:
    """POST /v1/subscriptions/{name}/replay. Raises Problem, EngineError."""
    context, _, group = _begin(request)
    wish = await read_json(request, Replay)
    if (wish.to is UNSET) == (wish.offsets is UNSET):
        raise Problem("invalid_body", "give one of to and offsets")
    definition = await _found(request, context, group)
    assert definition is not None
    positions = await _positions(context, definition.topics, "latest" if wish.to is UNSET else wish.to)
    if wish.offsets is not UNSET:
        positions = _given(positions, wish.offsets)
    await context.groups.coordinators.call(RESET, None, group, ResetCall(group, positions))
    return answer(await _described(context, group))


async def _set_paused(request: web.Request, *, is_paused: bool) -> web.Response:
    context, _, group = _begin(request)
    definition = await _found(request, context, group)
    assert definition is not None
    await _put(context, group, replace(definition, is_paused=is_paused), ())
    return answer(await _described(context, group))


def _read(request: web.Request) -> tuple[PushContext, str]:
    """Returns the context, and the group of the subscription in the path. Raises Problem invalid_group_name."""
    read_query(request, NoQuery)
    name = request.match_info["subscription"]
    if not _NAME.fullmatch(name):
        raise Problem(
            "invalid_group_name", f"{name[:64]!r} cannot name a subscription; use 1 to 190 of A-Z a-z 0-9 . _ -"
        )
    return request.app[PUSH], PUSH_PREFIX + name


def _begin(request: web.Request) -> tuple[PushContext, Sender, str]:
    """Returns what a change needs. Raises Problem push_disabled, invalid_group_name, Draining."""
    context, group = _read(request)
    context.groups.lifecycle.check_accepting()
    if context.sender is None:
        raise Problem("push_disabled", "the operator has not set push_targets on this node")
    return context, context.sender, group


async def _checked_topics(request: web.Request, context: PushContext, names: list[str]) -> tuple[str, ...]:
    topics = await check_topics(request, context.groups, names, must_exist=True)
    partitions = sum(context.groups.topics.topic(name).record.partitions for name in topics)
    if partitions > PARTITIONS_MAX:
        raise Problem("invalid_body", f"the topics have {partitions} partitions, {PARTITIONS_MAX} are allowed")
    return topics


def _check(wish: PutSubscription) -> None:
    """Raises Problem invalid_body."""
    try:
        record_filter(wish.filter)
    except InvalidCondition as error:
        raise Problem("invalid_body", f"filter: {error}") from None
    delivery = wish.delivery
    if delivery.backoff_ms_min > delivery.backoff_ms_max:
        raise Problem("invalid_body", "backoff_ms_min is above backoff_ms_max")
    if (delivery.deliveries_max is None) != (delivery.dead_letter_topic is None):
        raise Problem("invalid_body", "give both deliveries_max and dead_letter_topic, or none of them")


def _secrets(
    context: PushContext, wish: PutSubscription, before: Definition | None
) -> tuple[tuple[str, ...], str | None]:
    """Returns the secrets, and the one that this answer shows: only its maker can."""
    if wish.secrets is not UNSET:
        return tuple(wish.secrets), None
    if before is not None:
        return before.secrets, None
    made = new_secret(context.random_bytes(SECRET_BYTES))
    return (made,), made


async def _put(context: PushContext, group: str, definition: Definition, positions: tuple[Position, ...]) -> bool:
    call = PushCall(group, encode(definition).decode(), positions)
    return await context.groups.coordinators.call(PUT, bool, group, call, creates=True)


async def _found(
    request: web.Request, context: PushContext, group: str, *, is_expected: bool = True
) -> Definition | None:
    """Returns a subscription that the caller may change. Raises Problem unknown_subscription, forbidden."""
    view = await _view(context, group)
    if view is None or view.definition is None:
        if is_expected:
            raise Problem("unknown_subscription", f"there is no subscription {group.removeprefix(PUSH_PREFIX)!r}")
        return None
    definition = decode(view.definition)
    for topic in definition.topics:
        check_readable(request, topic)
    return definition


async def _view(context: PushContext, group: str) -> View | None:
    try:
        return await context.groups.coordinators.call(DESCRIBE, View, group, group)
    except UnknownGroup:
        return None
    except EngineError as error:
        if error.code == UnknownGroup.code:  # from another process
            return None
        raise


async def _described(context: PushContext, group: str) -> dict[str, object]:
    view = await _view(context, group)
    if view is None or view.definition is None:
        raise Problem("unknown_subscription", f"there is no subscription {group.removeprefix(PUSH_PREFIX)!r}")
    return _shown(view)


def _shown(view: View) -> dict[str, object]:
    """Returns a subscription as answers show it: without its secrets."""
    assert view.definition is not None
    definition = decode(view.definition)
    if definition.is_paused:
        state = "paused"
    elif view.waiting:
        state = "failing"
    else:
        state = "running" if view.is_running else "stopped"
    return {
        "subscription": view.name,
        "url": definition.url,
        "topics": list(definition.topics),
        "filter": list(definition.filters),
        "delivery": asdict(definition.delivery),
        "secrets": len(definition.secrets),
        "state": state,
        "offsets": [dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in view.offsets],
        "delivered": view.counts.delivered,
        "failed": view.counts.failed,
        "dead_lettered": view.counts.dead_lettered,
        "in_flight": view.counts.in_flight,
        "waiting": view.waiting,
        "last_error": view.last_error,
        "attempts": [one._asdict() for one in view.attempts],
    }


def _origin(context: PushContext) -> str:
    """Returns the name of this node for targets: the host of its advertised URL."""
    return urlsplit(context.groups.settings.advertised_url).hostname or "penstock"


async def _positions(context: PushContext, topics: tuple[str, ...], start: Start) -> tuple[Position, ...]:
    """Returns the positions of a start. Raises Problem invalid_body."""
    timestamp = None
    if start not in ("earliest", "latest"):
        timestamp = start if isinstance(start, int) else rfc3339_ms(start)
        if timestamp is None or not 0 <= timestamp < 2**53:
            raise Problem("invalid_body", "a start is earliest, latest, or a time in milliseconds or RFC 3339")
    known = context.groups.topics
    places = [(name, number) for name in topics for number in range(known.topic(name).record.partitions)]
    found = await bounds(context.groups.router, places, timestamp)
    positions = []
    for (name, number), place in zip(places, found, strict=True):
        offset = place["log_start"] if start == "earliest" else place["high_watermark"]
        if timestamp is not None and place["offset"] is not None:
            offset = place["offset"]
        positions.append(Position(name, context.groups.partitions.topic_id(name, number), number, offset))
    return tuple(positions)


def _given(ends: tuple[Position, ...], offsets: list[ReplayOffset]) -> tuple[Position, ...]:
    """Returns the given positions. Raises Problem invalid_body for a partition or an offset that is not there."""
    known = {one.slot: one for one in ends}
    positions = []
    for one in offsets:
        end = known.get(Slot(one.topic, one.partition))
        if end is None or one.offset > end.offset:
            text = f"partition {one.partition} of topic {one.topic!r} has no offset {one.offset} that can be replayed"
            raise Problem("invalid_body", text)
        positions.append(replace(end, offset=one.offset))
    return tuple(positions)
