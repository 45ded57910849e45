"""Subscriptions over HTTP: create, alter, describe, list, delete, pause, resume, replay.

A caller with the right read to all topics of a subscription may use each of these routes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import urlsplit

from msgspec import UNSET, convert
from msgspec.structs import asdict, replace

from engine.errors import EngineError
from gateway.access.access import forbidden, limits_of
from gateway.groups.group_lag import find_bounds
from gateway.groups.model.errors import UnknownGroup
from gateway.groups.model.settings import PUSH_PREFIX
from gateway.groups.model.values import Position, PushCall, ResetCall, Slot
from gateway.groups.names import check_topics, check_writable, find_topics
from gateway.http.json_body import read_json
from gateway.http.page import PageQuery, page_of
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.http.rights import Operation, Resource
from gateway.http.times import hint_of_time, time_of_body
from gateway.subscriptions.bodies import (
    PatchSubscription,
    PutSubscription,
    Replay,
    ReplayOffset,
    Start,
    apply_patch,
    check,
    check_applicable,
    check_secrets,
)
from gateway.subscriptions.calls import DELETE, DESCRIBE, LIST, PUT, RESET, View
from gateway.subscriptions.context import PushContext
from gateway.subscriptions.core.definition import Definition, decode, encode
from gateway.subscriptions.core.signature import SECRET_BYTES, new_secret
from gateway.subscriptions.core.targets import InvalidTarget
from gateway.subscriptions.handshake import confirm

if TYPE_CHECKING:  # it imports aiohttp, which few nodes need
    from gateway.subscriptions.sender import Sender

PARTITIONS_MAX = 1000
_NAME = re.compile(r"[A-Za-z0-9._-]{1,190}")


class _StoredDefinition(NamedTuple):
    """A subscription, and its definition as it is stored, which a change has to name."""

    stored: str
    definition: Definition


async def put_subscription(request: Request, context: PushContext) -> Response:
    """PUT /v1/subscriptions/{name}. Raises Problem, EngineError."""
    sender, group = _begin(request, context)
    body = await read_json(request, PutSubscription)
    topics = await _check_topics(request, context, body.topics)
    delivery = body.delivery.to_delivery()
    check(delivery, body.filter)
    check_applicable(delivery)
    check_secrets(body.secrets)
    if delivery.dead_letter_topic is not None:
        await check_writable(request, context.groups, delivery.dead_letter_topic)
    _check_target(sender, body.url)
    is_new = None
    while is_new is None:  # another request has changed it meanwhile
        existing = await _find(context, group)
        before = None if existing is None else existing.definition
        if before is not None and not _may_read(request, before):
            text = "a subscription has this name, and the token lacks the right read to its topics"
            raise Problem("forbidden", text, right="read")
        secrets, shown = _secrets(context, body, before)
        is_paused, reason = (False, "") if before is None else (before.is_paused, before.pause_reason)
        owner = context.owners.of(request)
        definition = Definition(body.url, topics, delivery, body.filter, secrets, is_paused, reason, owner)
        if before is not None and before != definition:  # equal: the repeat of a PUT whose answer was lost
            _check_may_alter(request)
        if before is None or before.url != body.url:
            await _confirm(context, sender, body.url)
        positions = await _find_positions(context, topics, body.start)
        await request.intend(before=before and _audited(before), after=_audited(definition))
        is_new = await _put(context, group, definition, positions, None if existing is None else existing.stored)
    document = await _describe(context, group)
    response = json_response(document | ({"secret": shown} if shown else {}), 201 if is_new else 200)
    response.headers.update(hint_of_time(body.start))
    return response


async def alter_subscription(request: Request, context: PushContext) -> Response:
    """PATCH /v1/subscriptions/{name}. Raises Problem, EngineError."""
    sender, group = _begin(request, context)
    patch = await read_json(request, PatchSubscription)
    before = (await _get(request, context, group)).definition
    changed = apply_patch(before, patch)
    takes_over = patch.url is not UNSET or (patch.delivery is not UNSET and "dead_letter_topic" in patch.delivery)
    if takes_over and changed.delivery.dead_letter_topic is not None:
        await check_writable(request, context.groups, changed.delivery.dead_letter_topic)
    if patch.url is not UNSET:
        _check_target(sender, patch.url)
        if changed.url != before.url:
            await _confirm(context, sender, patch.url)
    owner = context.owners.of(request)

    def change(definition: Definition) -> Definition:
        patched = apply_patch(definition, patch)
        return replace(patched, owner=owner) if takes_over else patched

    return await _change(request, context, group, change)


async def describe_subscription(request: Request, context: PushContext) -> Response:
    """GET /v1/subscriptions/{name}"""
    group = _group_of(request)
    await _get(request, context, group)
    return json_response(await _describe(context, group))


async def list_subscriptions(request: Request, context: PushContext) -> Response:
    """GET /v1/subscriptions"""
    query = read_query(request, PageQuery)
    views = await context.groups.coordinators.call_all(LIST)
    rows = [_subscription_json(view if isinstance(view, View) else convert(view, View)) for view in views]
    caller = request.caller
    listed = [
        {key: row[key] for key in ("subscription", "url", "topics", "state", "last_error")}
        for row in rows
        if caller.allows(Operation.DESCRIBE, str(row["subscription"]), Resource.SUBSCRIPTION)
        and all(caller.allows(Operation.READ, topic) for topic in cast(list[str], row["topics"]))
    ]
    page, members = page_of(query, listed, lambda row: str(row["subscription"]), request.space)
    return json_response({"subscriptions": page} | members | limits_of(caller, Operation.READ))


async def delete_subscription(request: Request, context: PushContext) -> Response:
    """DELETE /v1/subscriptions/{name}"""
    group = _group_of(request)
    context.groups.lifecycle.check_accepting()
    before = (await _get(request, context, group)).definition
    await request.intend(before=_audited(before))
    await context.groups.coordinators.call(DELETE, None, group, group)
    return Response(status=204)


async def pause_subscription(request: Request, context: PushContext) -> Response:
    """POST /v1/subscriptions/{name}/pause"""
    return await _set_paused(request, context, is_paused=True)


async def resume_subscription(request: Request, context: PushContext) -> Response:
    """POST /v1/subscriptions/{name}/resume"""
    return await _set_paused(request, context, is_paused=False)


async def replay_subscription(request: Request, context: PushContext) -> Response:
    """POST /v1/subscriptions/{name}/replay. Raises Problem, EngineError."""
    _, group = _begin(request, context)
    body = await read_json(request, Replay)
    if (body.to is UNSET) == (body.offsets is UNSET):
        raise Problem("invalid_body", "give one of to and offsets")
    definition = (await _get(request, context, group)).definition
    positions = await _find_positions(context, definition.topics, "latest" if body.to is UNSET else body.to)
    if body.offsets is not UNSET:
        positions = _replay_positions(positions, body.offsets)
    moved = [{"topic": one.topic, "partition": one.partition, "to": one.offset} for one in positions]
    await request.intend(after={"moved": moved})
    await context.groups.coordinators.call(RESET, None, group, ResetCall(group, positions))
    response = json_response(await _describe(context, group))
    response.headers.update(hint_of_time(body.to))
    return response


async def _set_paused(request: Request, context: PushContext, *, is_paused: bool) -> Response:
    _, group = _begin(request, context)
    return await _change(
        request, context, group, lambda definition: replace(definition, is_paused=is_paused, pause_reason="")
    )


async def _change(
    request: Request, context: PushContext, group: str, changed: Callable[[Definition], Definition]
) -> Response:
    """Stores what `changed` makes of a subscription, with what others change meanwhile. Its positions stay."""
    is_stored = False
    while not is_stored:
        before = await _get(request, context, group)
        after = changed(before.definition)
        await request.intend(before=_audited(before.definition), after=_audited(after))
        is_stored = await _put(context, group, after, (), before.stored) is not None
    return json_response(await _describe(context, group))


def _audited(definition: Definition) -> dict[str, object]:
    """Returns what the audit trail has of a subscription: of its URL the host, as the rest may be a secret."""
    return {
        "host": urlsplit(definition.url).hostname,
        "topics": list(definition.topics),
        "filter": list(definition.filters),
        "delivery": asdict(definition.delivery),
        "secrets": len(definition.secrets),
        "is_paused": definition.is_paused,
        "owner": None if definition.owner is None else definition.owner.principal,
    }


def _group_of(request: Request) -> str:
    """Returns the group of the subscription in the path. Raises Problem invalid_group_name."""
    read_query(request, NoQuery)
    name = request.names["subscription"]
    if not _NAME.fullmatch(name):
        raise Problem(
            "invalid_group_name", f"{name[:64]!r} cannot name a subscription; use 1 to 190 of A-Z a-z 0-9 . _ -"
        )
    return PUSH_PREFIX + name


def _begin(request: Request, context: PushContext) -> tuple[Sender, str]:
    """Returns what a change needs. Raises Problem push_disabled, invalid_group_name, Draining."""
    group = _group_of(request)
    context.groups.lifecycle.check_accepting()
    if context.sender is None:
        raise Problem("push_disabled", "the operator has not set push_targets on this node")
    return context.sender, group


async def _check_topics(request: Request, context: PushContext, names: list[str]) -> tuple[str, ...]:
    await find_topics(request, context.groups, names, must_exist=True)
    topics = check_topics(request, context.groups, names, must_exist=True)
    partitions = sum(context.groups.topics.topic(name).record.partitions for name in topics)
    if partitions > PARTITIONS_MAX:
        raise Problem("invalid_body", f"the topics have {partitions} partitions, {PARTITIONS_MAX} are allowed")
    return topics


def _secrets(
    context: PushContext, body: PutSubscription, before: Definition | None
) -> tuple[tuple[str, ...], str | None]:
    """Returns the secrets, and the one that this answer shows: only its maker can."""
    if body.secrets is not UNSET:
        return body.secrets, None
    if before is not None:
        return before.secrets, None
    made = new_secret(context.random_bytes(SECRET_BYTES))
    return (made,), made


async def _put(
    context: PushContext,
    group: str,
    definition: Definition,
    positions: tuple[Position, ...],
    before: str | None,
) -> bool | None:
    """Returns whether the subscription is new; None: it is not `before` any more, and nothing changed.

    `before`: what is stored; None: nothing.
    """
    call = PushCall(group, encode(definition).decode(), positions, before, is_new=before is None)
    return await context.groups.coordinators.call(PUT, None, group, call, creates=True)


async def _get(request: Request, context: PushContext, group: str) -> _StoredDefinition:
    """Returns a subscription that the caller may change. Raises Problem unknown_subscription.

    A caller without the right to its topics gets the same answer as for a name without a subscription.
    """
    subscription = await _find(context, group)
    if subscription is None or not _may_read(request, subscription.definition):
        raise _unknown(group)
    return subscription


async def _find(context: PushContext, group: str) -> _StoredDefinition | None:
    """Returns a subscription, without a check of rights; None: there is none."""
    described = await _fetch_view(context, group)
    if described is None or described.definition is None:
        return None
    return _StoredDefinition(described.definition, decode(described.definition))


def _check_may_alter(request: Request) -> None:
    """Checks that the caller may replace the subscription in the path. Raises Problem forbidden."""
    caller, name = request.caller, request.names["subscription"]
    if not caller.allows(Operation.ALTER, name, Resource.SUBSCRIPTION):
        raise forbidden(caller, Operation.ALTER, name, Resource.SUBSCRIPTION)


def _may_read(request: Request, definition: Definition) -> bool:
    caller = request.caller
    return all(caller.allows(Operation.READ, topic) for topic in definition.topics)


def _unknown(group: str) -> Problem:
    return Problem("unknown_subscription", f"there is no subscription {group.removeprefix(PUSH_PREFIX)!r}")


async def _fetch_view(context: PushContext, group: str) -> View | None:
    try:
        return await context.groups.coordinators.call(DESCRIBE, View, group, group)
    except UnknownGroup:
        return None
    except EngineError as error:
        if error.code == UnknownGroup.code:  # from another process
            return None
        raise


async def _describe(context: PushContext, group: str) -> dict[str, object]:
    described = await _fetch_view(context, group)
    if described is None or described.definition is None:
        raise _unknown(group)
    return _subscription_json(described)


def _subscription_json(view: View) -> dict[str, object]:
    """Returns a subscription as answers show it: without its secrets."""
    assert view.definition is not None
    definition = decode(view.definition)
    if definition.is_paused:
        state = "paused"
    elif view.forbidden:
        state = "forbidden"
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
        **({} if definition.owner is None else {"owner": definition.owner.principal}),
        "state": state,
        "offsets": [dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in view.offsets],
        "delivered": view.counts.delivered,
        "failed": view.counts.failed,
        "dead_lettered": view.counts.dead_lettered,
        "in_flight": view.counts.in_flight,
        "waiting": view.waiting,
        "last_error": definition.pause_reason or view.forbidden or view.last_error,
        "attempts": [attempt._asdict() for attempt in view.attempts],
    }


def _check_target(sender: Sender, url: str) -> None:
    """Raises Problem target_not_allowed."""
    try:
        sender.allowed.check_url(url)
    except InvalidTarget as error:
        hint = "give a URL of a public host on the operator's list, or ask the operator to add yours to push_targets"
        raise Problem("target_not_allowed", str(error), hint=hint) from None


async def _confirm(context: PushContext, sender: Sender, url: str) -> None:
    """Asks a new target, unless the operator does without. Raises Problem target_not_confirmed."""
    if not context.groups.settings.push_unconfirmed:
        await confirm(sender, url, _origin(context))


def _origin(context: PushContext) -> str:
    """Returns the name of this node for targets: the host of its advertised URL."""
    return urlsplit(context.groups.settings.advertised_url).hostname or "penstock"


async def _find_positions(context: PushContext, topics: tuple[str, ...], start: Start) -> tuple[Position, ...]:
    """Returns the positions of a start. Raises Problem invalid_body."""
    timestamp = None
    if start not in ("earliest", "latest"):
        try:
            timestamp = time_of_body(start)
        except ValueError as error:
            text = f"the start {start!r} {error}; give earliest, latest, or a time in milliseconds or RFC 3339"
            raise Problem("invalid_body", text) from None
    served = context.groups.topics
    if topics and not (existing := [name for name in topics if served.get(name) is not None]):
        raise Problem("unknown_topic", f"all topics of the subscription were deleted: {', '.join(topics)}")
    places = [(name, number) for name in existing for number in range(served.topic(name).record.partitions)]
    all_bounds = await find_bounds(context.groups.router, places, timestamp)
    positions = []
    for (name, number), partition_bounds in zip(places, all_bounds, strict=True):
        offset = partition_bounds["log_start"] if start == "earliest" else partition_bounds["high_watermark"]
        if timestamp is not None and partition_bounds["offset"] is not None:
            offset = partition_bounds["offset"]
        positions.append(Position(name, context.groups.partitions.topic_id(name, number), number, offset))
    return tuple(positions)


def _replay_positions(ends: tuple[Position, ...], offsets: list[ReplayOffset]) -> tuple[Position, ...]:
    """Returns the given positions. Raises Problem invalid_body for a partition or an offset that is not there."""
    ends_by_slot = {end.slot: end for end in ends}
    positions = []
    for requested in offsets:
        end = ends_by_slot.get(Slot(requested.topic, requested.partition))
        if end is None or requested.offset > end.offset:
            name = f"partition {requested.partition} of topic {requested.topic!r}"
            text = f"{name} has no offset {requested.offset} that can be replayed"
            raise Problem("invalid_body", text)
        positions.append(replace(end, offset=requested.offset))
    return tuple(positions)
