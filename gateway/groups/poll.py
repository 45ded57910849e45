"""A poll of a member over HTTP: POST /v1/groups/{group}/members/{member}/poll.

One long poll over all partitions of the member, which is its heartbeat too. The token in its answer commits exactly
that delivery with the next poll.
Steps: (1) the coordinator commits the delivery of the token and grants partitions with their positions; (2) partitions
without a position get one by the group's `start`; (3) if there is nothing to read, the poll waits for records or for
another assignment, which it takes over; (4) it reads until a record passes the filters, while the coordinator stores
the commit; (5) the answer leaves once the commit is durable. If the coordinator moves meanwhile, the poll begins again:
each step may be repeated.
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal, NamedTuple

import msgspec
import orjson
from msgspec import UNSET, Meta, UnsetType, structs

from engine.errors import EngineError
from engine.runtime.tasks import start_task
from gateway.connections.response_buffers import sendable_bytes
from gateway.fetch.multi_fetch import MultiFetch
from gateway.fetch.partition_reads import SEARCHED_BYTES_MAX
from gateway.fetch.reader import Limits, PartitionRead
from gateway.fetch.rendered_cache import Part
from gateway.filters.condition import InvalidCondition
from gateway.filters.record_filter import record_filter
from gateway.groups.bounds import bounds
from gateway.groups.context import GroupContext
from gateway.groups.core.failures import trimmed
from gateway.groups.grants import Grants
from gateway.groups.hosting.calls import RESET, ChangedCall
from gateway.groups.hosting.coordinators import has_moved
from gateway.groups.levels import Levels
from gateway.groups.membership import Owned
from gateway.groups.model.token import decode_token, encode_token
from gateway.groups.model.values import Failure, Grant, PollCall, Position, ResetCall, Slot, Token
from gateway.groups.names import (
    Subscribing,
    Timeout,
    check_all_readable,
    check_subscription,
    client_of,
    group_name,
    member_name,
)
from gateway.http.json_body import read_json
from gateway.http.problems import Problem, ProblemFields, from_fields
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.response_compression import compress_response
from gateway.routing.leader_failover import is_transient
from gateway.wire.messages import SMALL_BYTES

BELOW, ABOVE = "offset_below_log_start", "offset_above_high_watermark"
TOKEN_CHARACTERS_MAX = 16_000_000  # 20,000 positions (positions_max) in topics with long names are 7 million
_Size = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class FailedRecord(Owned, forbid_unknown_fields=True):
    """The first record of a partition that the member could not process."""

    offset: Annotated[int, Meta(ge=0, le=2**63 - 2)]
    error: Annotated[str, Meta(max_length=1000)] = ""


class PollRequest(Subscribing, forbid_unknown_fields=True):
    """The body of a poll. An empty token is none, so that a shell needs no branch for its first poll."""

    token: Annotated[str, Meta(max_length=TOKEN_CHARACTERS_MAX)] | None = None
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0
    max_bytes: _Size | UnsetType = UNSET
    min_bytes: _Size = 1
    max_records: Annotated[int, Meta(ge=1, le=10_000_000)] | UnsetType = UNSET
    value: Literal["json", "text", "base64"] | UnsetType = UNSET
    filter: tuple[str, ...] = ()
    paused: Annotated[tuple[Owned, ...], Meta(max_length=20_000)] = ()
    failed: Annotated[tuple[FailedRecord, ...], Meta(max_length=20_000)] = ()
    session_timeout_ms: Timeout | None = None
    rebalance_timeout_ms: Timeout | None = None


class WaitingPoll(NamedTuple):
    """A poll that has waited without a task (gateway/server/delayed_poll.py), and goes on with its grant."""

    wish: PollRequest
    call: PollCall
    grant: Grant


async def group_poll(request: Request, context: GroupContext) -> Response:
    """POST /v1/groups/{group}/members/{member}/poll. Raises Problem, EngineError."""
    if request.parsed is not None:
        waiting: WaitingPoll = request.parsed
        return await compress_response(
            request, await _Poll(request, context, waiting.wish, waiting.call).answer(waiting.grant)
        )
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    group, member_id = group_name(request), member_name(request.names["member"])
    wish = await read_json(request, PollRequest)
    try:
        record_filter(wish.filter)
    except InvalidCondition as error:
        raise Problem("invalid_body", f"filter: {error}") from None
    token = decode_token(wish.token) if wish.token else None
    failed = tuple(Failure(one.topic, one.partition, one.offset, one.error) for one in wish.failed)
    if failed:
        token = trimmed(token, failed)
    topics, pattern = await check_subscription(request, context, wish, must_exist=token is None)
    call = PollCall(
        group,
        member_id,
        topics,
        token,
        (),
        wish.session_timeout_ms,
        wish.rebalance_timeout_ms,
        client_of(request),
        pattern,
        failed=failed,
    )
    return await compress_response(request, await _Poll(request, context, wish, call).answer())


class Outcome(enum.Enum):
    """The outcome of a wait. NOTHING: the time is over, or the node drains."""

    CHANGED = enum.auto()
    READABLE = enum.auto()
    NOTHING = enum.auto()


class _Poll:
    """One poll. `_moved` has positions that replace those outside of their logs."""

    def __init__(self, request: Request, context: GroupContext, wish: PollRequest, call: PollCall) -> None:
        self._request = request
        self._context = context
        self._wish = wish
        self._call = call
        self._budget = context.budgets.begin(wish.wait_ms)
        self._grants = Grants(request, context, call.group)
        self._moved: dict[Slot, int] = {}
        self._delayed_until = math.inf  # then the first partition that waits for its failed record is read again

    async def answer(self, granted: Grant | None = None) -> Response:
        """Returns the answer. `granted`: the grant of the call, if it has been made. Raises Problem, EngineError."""
        while True:
            first = grant = await self._grants.checked(granted) if granted else await self._grants.grant(self._call)
            granted = None
            storing = start_task(self._grants.stored(first)) if first.sequence else None
            try:
                grant = await self._grants.with_burials(self._call, grant)
                grant = await self._grants.with_starts(self._call, grant)
                reading = readable(self._wish, grant)
                self._note_delays(grant)
                entries = self._entries(reading)
                check = partial(check_all_readable, self._request, {one.topic for one in reading})
                self._context.fetch.access.waits.also(self._request, check)
                parts = await self._read(entries, grant)
                if parts is None:
                    if storing is not None:
                        await storing
                    self._call = self._next_call(grant)
                    continue
                if await self._has_moved(grant, reading, parts):
                    continue
                if storing is not None:
                    await storing
                if grant is not first:
                    await self._grants.stored(grant)
                return self._response(grant, reading, entries, parts)
            except EngineError as error:
                if not _may_begin_again(error):
                    raise
                if (refusal := _refusal(storing)) is not None:
                    raise refusal from None
                await self._budget.pause(error)
            finally:
                if storing is not None:
                    storing.cancel()

    def _note_delays(self, grant: Grant) -> None:
        left_ms = min((one.left_ms for one in grant.delayed), default=None)
        now_s = asyncio.get_running_loop().time()
        self._delayed_until = math.inf if left_ms is None else now_s + left_ms / 1000

    def _next_call(self, grant: Grant) -> PollCall:
        """Returns the call of a poll that holds no records and looks at its assignment again. It never joins again:

        the member may have been removed meanwhile.
        """
        return structs.replace(self._call, topics=None, pattern=None, delivery=grant.delivery)

    def _entries(self, reading: Sequence[Position]) -> list[PartitionRead]:
        if self._moved:
            reading = [structs.replace(one, offset=self._moved.get(one.slot, one.offset)) for one in reading]
        return [PartitionRead(one.topic, one.topic_id, one.partition, max(0, one.offset)) for one in reading]

    async def _read(self, entries: Sequence[PartitionRead], grant: Grant) -> list[Part] | None:
        """Waits for records that pass the filters, and reads them. None: the assignment has changed meanwhile."""
        many: Levels | MultiFetch | None = None
        if entries:
            fetch, filters, bytes_max = self._context.fetch, self._wish.filter, grant.partition_bytes_max
            if grant.priorities:
                many = Levels(fetch, entries, filters, grant.priorities, bytes_max)
            else:
                many = MultiFetch(fetch, entries, filters, bytes_max)
        searched_bytes = 0
        while (outcome := await self._wait(many, grant)) is not Outcome.CHANGED:
            if many is None:
                return []
            if outcome is Outcome.NOTHING:
                return [Part(one.offset, 0, [], None, b"") for one in many.entries]
            limits = self._limits()
            parts = await many.read_with_retries(limits)
            searched_bytes += limits.max_bytes
            if searched_bytes >= SEARCHED_BYTES_MAX or not many.advance_over(parts):
                return parts
        return None

    async def _wait(self, many: Levels | MultiFetch | None, grant: Grant) -> Outcome:
        """Waits for records if there are none. CHANGED: so has the assignment meanwhile, and there is time left."""
        found = None
        if many is not None:
            found = await many.check_available()
            if found.size_bytes >= self._wish.min_bytes or found.has_problem:
                return Outcome.READABLE
        loop = asyncio.get_running_loop()
        left_ms = self._budget.wait_left_ms
        if left_ms <= 0 or self._context.lifecycle.is_draining:
            return Outcome.READABLE
        if self._delayed_until < loop.time() + left_ms / 1000:
            left_ms = max(1, 1 + math.ceil((self._delayed_until - loop.time()) * 1000))
        with self._context.fetch.long_polls.waiting(max(1, len(grant.assignment))):
            changing = start_task(self._changed(grant, left_ms))
            try:
                if many is None:
                    await asyncio.wait([changing])
                else:
                    await many.wait(self._wish.min_bytes, left_ms / 1000, changing, found)
                is_over = self._context.lifecycle.is_draining or self._budget.wait_left_ms <= 0
                if not is_over and ((changing.done() and changing.result()) or loop.time() >= self._delayed_until):
                    return Outcome.CHANGED
                is_quiet = many is not None and many.is_quiet and self._wish.min_bytes == 1  # fewer bytes may have come
                return Outcome.NOTHING if is_over and is_quiet else Outcome.READABLE
            finally:
                changing.cancel()

    async def _changed(self, grant: Grant, wait_ms: int) -> bool:
        call = ChangedCall(self._call.group, self._call.member_id, grant.version, grant.hosting, wait_ms)
        return await self._context.coordinators.changed(self._call.group, call)

    def _limits(self) -> Limits:
        wish, settings = self._wish, self._context.settings
        max_bytes = settings.fetch_bytes_default if wish.max_bytes is UNSET else wish.max_bytes
        max_records = None if wish.max_records is UNSET else wish.max_records
        value = None if wish.value is UNSET else wish.value
        rotation = 0 if self._call.token is None else self._call.token.delivery  # a repeat begins where it began
        max_bytes = sendable_bytes(self._request, min(max_bytes, settings.fetch_bytes_max))
        return Limits(max_bytes, max_records, value, rotation, as_lines=False)

    async def _has_moved(self, grant: Grant, reading: Sequence[Position], parts: Sequence[Part]) -> bool:
        """Moves positions that are outside of their logs, by the group's `start`: those below at most once each.

        A position above its log is reset to the end of the log. Else the committed position would be higher than the
        tokens of what is appended next, and none of these would be committed.
        """
        outside = [
            (one, part.problem)
            for one, part in zip(reading, parts, strict=True)
            if part.problem is not None and part.problem.code in (BELOW, ABOVE) and one.slot not in self._moved
        ]
        if not outside or grant.start == "error":
            return False
        if above := [(one, problem) for one, problem in outside if problem.code == ABOVE]:
            await self._lower(above, grant)
            return True
        found = await bounds(self._context.router, [one.slot for one, _ in outside])
        for (one, _), place in zip(outside, found, strict=True):
            self._moved[one.slot] = place["high_watermark" if grant.start == "latest" else "log_start"]
        return True

    async def _lower(self, above: Sequence[tuple[Position, ProblemFields]], grant: Grant) -> None:
        """Resets positions above their logs. The token has been committed, or it has the position that is too high."""
        is_of_token = self._call.token is not None and not grant.auto_commit
        self._call = structs.replace(self._call, token=None)
        if is_of_token:
            return  # the committed position may be lower
        lowered = tuple(
            Position(one.topic, one.topic_id, one.partition, msgspec.convert(problem.members["high_watermark"], int))
            for one, problem in above
        )
        call = ResetCall(self._call.group, lowered, force=True, resets=grant.resets)
        await self._context.coordinators.call(RESET, None, self._call.group, call)

    def _response(
        self, grant: Grant, reading: Sequence[Position], entries: Sequence[PartitionRead], parts: Sequence[Part]
    ) -> Response:
        """Returns 200; 207 with a problem each if some partitions failed. Raises the first problem if all failed."""
        failed = [part.problem for part in parts if part.problem is not None]
        documents = [
            {"topic": one.topic, "partition": one.partition, "problem": from_fields(part.problem).document()}
            for one, part in zip(reading, parts, strict=True)
            if part.problem is not None
        ]
        if failed and len(failed) == len(parts):
            problem = from_fields(failed[0])
            problem.members = {**problem.members, "partitions": documents}
            raise problem
        bodies = [part.body for part in parts if part.problem is None and part.record_count]
        head = _head(self._call, grant, self._delivered(grant, reading, entries, parts))
        bodies += map(orjson.dumps, documents)
        texts = [head[:-1], b',"partitions":[']
        for number, one in enumerate(bodies):
            texts += (b",", one) if number else (one,)
        body, *more = _large_apart([*texts, b"]}"])
        headers = {"Content-Type": "application/json"}
        return Response(body, headers, 207 if failed else 200, more=more)

    def _delivered(
        self, grant: Grant, reading: Sequence[Position], entries: Sequence[PartitionRead], parts: Sequence[Part]
    ) -> list[Position]:
        """Returns the positions that this delivery moves; all of them if tokens do not commit."""
        delivered = []
        if not grant.auto_commit:
            delivered += _unread(grant, reading)
        for one, read, part in zip(reading, entries, parts, strict=True):
            end = part.next_offset if part.problem is None else read.offset
            if end != one.offset or not grant.auto_commit:
                delivered.append(Position(one.topic, one.topic_id, one.partition, end))
        return delivered


def empty_answer(call: PollCall, grant: Grant, wish: PollRequest) -> bytes:
    """Returns the answer of a poll whose partitions had no records until its time was over."""
    reading = readable(wish, grant)
    delivered = () if grant.auto_commit else (*_unread(grant, reading), *reading)
    return _head(call, grant, delivered)[:-1] + b',"partitions":[]}'


def readable(wish: PollRequest, grant: Grant) -> Sequence[Position]:
    """Returns the partitions that the poll does not name as paused, and that do not wait for a failed record."""
    if not wish.paused and not grant.delayed:
        return grant.assignment
    others = {Slot(one.topic, one.partition) for one in wish.paused} | {one.slot for one in grant.delayed}
    return [one for one in grant.assignment if one.slot not in others]


def _unread(grant: Grant, reading: Sequence[Position]) -> list[Position]:
    slots = {one.slot for one in reading}
    return [one for one in grant.assignment if one.slot not in slots]


def _may_begin_again(error: BaseException) -> bool:
    """Returns whether a poll may find another coordinator, or a new leader, when it begins again."""
    return isinstance(error, EngineError) and (has_moved(error) or is_transient(error))


def _refusal(storing: asyncio.Task[None] | None) -> BaseException | None:
    """Returns why a commit was refused while its poll waited: the wait only learns that the coordinator has ended."""
    if storing is None or not storing.done() or storing.cancelled():
        return None
    error = storing.exception()
    return None if error is None or _may_begin_again(error) else error


def _head(call: PollCall, grant: Grant, delivered: Sequence[Position]) -> bytes:
    """Returns the document of an answer without its partitions. Its token is of this delivery."""
    token = Token(call.member_id, grant.member_epoch, grant.resets, tuple(delivered), grant.delivery)
    head = {
        "group": call.group,
        "member_id": call.member_id,
        "member_epoch": grant.member_epoch,
        "assigned": len(grant.assignment),
        "topic_ids": {one.topic: one.topic_id for one in grant.assignment},
        "token": encode_token(token),
    }
    return orjson.dumps(head)


def _large_apart(texts: Sequence[bytes]) -> list[bytes]:
    """Returns texts as pieces: small ones joined, large ones as they are."""
    pieces: list[bytes] = []
    small: list[bytes] = []
    for text in texts:
        if len(text) <= SMALL_BYTES:
            small.append(text)
            continue
        pieces += (b"".join(small), text)
        small = []
    return [*pieces, b"".join(small)]
