"""A member as an event stream: GET /v1/groups/{group}/members/{member}/events.

One request takes part in the group. The id of an event is a token: sent back as `Last-Event-ID`, it commits all records
up to this event, and the stream goes on behind them. An open stream commits nothing, so it ends from time to time, and
the client confirms by reconnecting, which an EventSource does by itself.
Invariants: (1) nothing is committed but by a token that the client sends; (2) at most `unconfirmed_max` records and one
piece are sent before the stream ends; (3) it ends when the assignment changes: a revoked partition is given up with the
next request; (4) what is read is written before more is read.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Annotated

import orjson
from msgspec import UNSET, Struct, structs

from engine.errors import EngineError, UnknownTopic
from engine.runtime.tasks import start_task
from gateway.fetch import event_stream
from gateway.fetch.multi_fetch import MultiFetch
from gateway.fetch.reader import Limits, PartitionRead
from gateway.fetch.rendered_cache import Part
from gateway.fetch.request import Filter, SchemaForm, check_filter
from gateway.fetch.tail import (
    HEADERS,
    NO_ROOM_PAUSE_S,
    PAUSE_S,
    PIECE_BYTES,
    TRANSIENT,
    WRITE_BYTES,
    stream,
    visible_topic,
    write,
)
from gateway.groups.assignments import Assignments
from gateway.groups.context import GroupContext
from gateway.groups.group_lag import find_bounds
from gateway.groups.hosting.calls import ChangedCall
from gateway.groups.hosting.coordinators import has_moved
from gateway.groups.model.values import Grant, PollCall, Position, Slot, Token
from gateway.groups.names import (
    Subscribing,
    check_all_readable,
    check_subscription,
    client_of,
    find_topics,
    group_name,
    member_name,
    text_of_token,
    token_of,
)
from gateway.http.negotiation import SSE, by_preference
from gateway.http.problems import Problem, from_fields
from gateway.http.query import Number, Text, read_query
from gateway.http.request import Request
from gateway.http.response import Response, Stream
from gateway.routing.leader_failover import is_transient

CONFIRM_S = 5.0  # until the client has to confirm a record: each time costs a request, and redeliveries after a loss
RECONNECT_MS = 10  # after a stream that ended so that the client confirms
BELOW = "offset_below_log_start"
TOPICS_CHARACTERS_MAX = 4096


class EventsQuery(Struct, frozen=True):
    """The query of an event stream of a member."""

    topics: Annotated[str | None, Text(TOPICS_CHARACTERS_MAX)] = None
    topics_pattern: Annotated[str | None, Text(1000)] = None
    topics_exclude: Annotated[str | None, Text(1000)] = None
    value: SchemaForm = None
    filter: Filter = ()
    unconfirmed_max: Annotated[int, Number(1, 100_000)] = 1000
    session_timeout_ms: Annotated[int | None, Number(1000, 3_600_000)] = None


async def group_events(request: Request, context: GroupContext) -> Response:
    """GET /v1/groups/{group}/members/{member}/events. Raises Problem, EngineError."""
    query = read_query(request, EventsQuery)
    check_filter(query.filter)
    context.lifecycle.check_accepting()
    group, member_id = group_name(request), member_name(request.names["member"])
    if SSE not in by_preference(request.headers.get("Accept", "")):
        raise Problem("not_acceptable", f"this is read as {SSE}: request it in Accept, or poll")
    text = request.headers.get("Last-Event-ID")
    token = token_of(request, text) if text else None
    subscribing = Subscribing(
        query.topics.split(",") if query.topics else UNSET, query.topics_pattern or UNSET, query.topics_exclude or ""
    )
    if request.space is not None:
        subscribing = request.space.stored_in(subscribing)
    await find_topics(request, context, subscribing.topics or (), must_exist=token is None)
    topics, pattern = check_subscription(request, context, subscribing, must_exist=token is None)
    if request.method == "HEAD":
        return Response(headers=dict(HEADERS))
    client = client_of(request)
    call = PollCall(group, member_id, topics, token, (), query.session_timeout_ms, None, client, pattern)
    return await _Events(request, context, query, call).answer()


class _Events:
    """One stream. `_positions` are what its next token commits; also offsets of records that no filter passed."""

    def __init__(self, request: Request, context: GroupContext, query: EventsQuery, call: PollCall) -> None:
        self._request = request
        self._context = context
        self._query = query
        self._call = call
        self._assignments = Assignments(request, context, call.group)
        self._grant: Grant | None = None
        self._positions: dict[Slot, Position] = {}
        self._unconfirmed = 0
        self._written_at = 0.0
        self._first_at: float | None = None  # when the first unconfirmed record was sent
        self._delayed_until = math.inf  # then a partition that waits for its failed record may be read again
        self._reading: Sequence[Position] = ()

    async def answer(self) -> Response:
        """Returns the stream once it has ended. Raises Problem, EngineError before it begins."""
        fetch = self._context.fetch
        grant = self._grant = await self._begin()
        delayed = {partition.slot for partition in grant.delayed}
        self._reading = [position for position in grant.assignment if position.slot not in delayed]
        if delayed:
            left_ms = min(partition.left_ms for partition in grant.delayed)
            self._delayed_until = asyncio.get_running_loop().time() + left_ms / 1000
        if not grant.auto_commit:
            self._positions = {position.slot: position for position in grant.assignment}
        with fetch.long_polls.waiting(max(1, len(grant.assignment))):
            answer = self._request.begin_stream(HEADERS | self._request.answer_headers)
            await stream(fetch, self._request, answer, self._run, self._check_rights)
        return Response(is_streamed=True)

    async def _begin(self) -> Grant:
        """Commits what the client confirms, and joins. One that comes too late begins at the committed positions."""
        budget = self._context.budgets.begin()
        while True:
            try:
                grant = await self._assignments.find_starts(self._call, await self._assignments.grant(self._call))
                await self._assignments.wait_stored(grant)
                return grant
            except EngineError as error:
                if error.code == "stale_token" and self._call.topics is not None and self._call.token is not None:
                    self._call = structs.replace(self._call, token=None)
                elif has_moved(error) or is_transient(error):
                    await budget.pause(error)
                else:
                    raise

    def _check_rights(self) -> None:
        """Checks the rights to the group and to the topics that are read. Raises Problem."""
        self._context.fetch.access.check(self._request)
        check_all_readable(self._request, {one.topic for one in self._reading})

    async def _run(self, request: Request, answer: Stream) -> None:
        """Runs until the client has to confirm, the assignment changes, the node drains or a problem ends it."""
        grant, fetch = self._grant, self._context.fetch
        assert grant is not None
        await self._write(answer, b"retry: %d\nid: %b\n\n" % (event_stream.RECONNECT_MS, self._id(grant)))
        entries = [
            PartitionRead(position.topic, position.topic_id, position.partition, position.offset)
            for position in self._reading
        ]
        many = MultiFetch(fetch, entries, self._query.filter) if entries else None
        changing = start_task(self._wait_changed(grant))
        was_woken, reconnect_ms = False, RECONNECT_MS
        try:
            while not changing.done():
                if self._context.lifecycle.is_draining:
                    reconnect_ms = event_stream.RECONNECT_MS
                    break
                has_records = many is not None and await self._send(many, grant, answer)
                if self._unconfirmed >= self._query.unconfirmed_max or self._is_due():
                    break
                if not has_records:
                    if was_woken:  # for records that are not readable, such as while a shard restarts
                        await asyncio.sleep(PAUSE_S)
                    was_woken = await self._wait(many, changing, answer)
            await self._write(answer, b"retry: %d\nid: %b\n\n" % (reconnect_ms, self._id(grant)))
        finally:
            changing.cancel()

    async def _wait_changed(self, grant: Grant) -> None:
        """Returns when the assignment is another one, or the coordinator moves. Keeps the session alive."""
        wait_ms = self._context.settings.stream_heartbeat_ms
        call = ChangedCall(self._call.group, self._call.member_id, grant.version, grant.hosting, wait_ms)
        try:
            while not await self._context.coordinators.wait_changed(self._call.group, call):
                pass
        except EngineError:
            return  # the client comes again, to the present coordinator

    async def _send(self, many: MultiFetch, grant: Grant, answer: Stream) -> bool:
        """Sends what is readable. Returns whether there was something. Raises Problem."""
        fetch = self._context.fetch
        limits = Limits(PIECE_BYTES, None, self._query.value, next(fetch.rotation), as_lines=True)
        parts = await many.read(limits)
        await self._skip_deleted(many, grant, parts)
        size_bytes = 2 * sum(len(part.body) for part in parts)
        if size_bytes > WRITE_BYTES and not fetch.stream_budget.has_room(size_bytes):
            del parts  # they are read again
            await asyncio.sleep(NO_ROOM_PAUSE_S)
            return True
        with fetch.stream_budget.hold(size_bytes):
            before = [entry.offset for entry in many.entries]
            piece = b"".join(self._events(index, grant, many, part) for index, part in enumerate(parts))
            if piece:
                await self._write(answer, piece)
        return any(part.problem is None and part.next_offset > at for part, at in zip(parts, before, strict=True))

    async def _skip_deleted(self, many: MultiFetch, grant: Grant, parts: Sequence[Part]) -> None:
        """Goes on where the log begins, if records were deleted before they were read. Raises the other problems."""
        for index, part in enumerate(parts):
            if part.problem is None or part.problem.code in (*TRANSIENT, UnknownTopic.code):
                continue  # the coordinator takes the partitions of a deleted topic away
            if part.problem.code != BELOW or grant.start == "error":
                raise from_fields(part.problem, partition=many.entries[index].partition)
            [log_bounds] = await find_bounds(self._context.router, [self._reading[index].slot])
            many.advance(index, log_bounds["high_watermark" if grant.start == "latest" else "log_start"])

    def _events(self, index: int, grant: Grant, many: MultiFetch, part: Part) -> bytes:
        if part.problem is not None:
            return b""
        position = self._reading[index]
        topic = visible_topic(self._request, position.topic)
        head = b"data: {" + orjson.dumps({"topic": topic, "partition": position.partition})[1:-1] + b","
        events = []
        for row, end in zip(part.body.split(b"\n"), part.line_ends, strict=False):
            self._positions[position.slot] = Position(position.topic, position.topic_id, position.partition, end)
            events.append(b"id: %b\n%b%b\n\n" % (self._id(grant), head, row[1:]))
        if part.next_offset != many.entries[index].offset:
            self._positions[position.slot] = Position(
                position.topic, position.topic_id, position.partition, part.next_offset
            )
            many.advance(index, part.next_offset)
            if self._first_at is None:
                self._first_at = asyncio.get_running_loop().time()
        self._unconfirmed += len(part.line_ends)
        return b"".join(events)

    def _id(self, grant: Grant) -> bytes:
        positions = tuple(self._positions.values())
        token = Token(self._call.member_id, grant.member_epoch, grant.resets, positions, grant.delivery)
        return text_of_token(self._request, token).encode()

    def _is_due(self) -> bool:
        return asyncio.get_running_loop().time() >= min(self._delayed_until, self._confirm_at)

    @property
    def _confirm_at(self) -> float:
        return math.inf if self._first_at is None else self._first_at + CONFIRM_S

    async def _wait(self, many: MultiFetch | None, changing: asyncio.Task[None], answer: Stream) -> bool:
        """Waits for records, another assignment, or the time to confirm; sends a comment after a long silence.

        Returns whether there may be records.
        """
        heartbeat_s = self._context.settings.stream_heartbeat_ms / 1000
        now = asyncio.get_running_loop().time()
        if now >= self._written_at + heartbeat_s:
            await self._write(answer, event_stream.HEARTBEAT)
        due_s = min(self._written_at + heartbeat_s, self._delayed_until, self._confirm_at) - now
        reading = changing if many is None else start_task(many.wait_for_any(max(0.01, due_s)))
        try:
            await asyncio.wait([changing, reading], timeout=max(0.01, due_s), return_when=asyncio.FIRST_COMPLETED)
            return reading.done()
        finally:
            if reading is not changing:
                reading.cancel()

    async def _write(self, answer: Stream, data: bytes) -> None:
        await write(self._context.fetch, answer, data)
        self._written_at = asyncio.get_running_loop().time()
