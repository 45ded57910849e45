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
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import orjson
from msgspec import UNSET, Meta, UnsetType, structs

from engine.errors import EngineError, UnknownTopic
from engine.runtime.loop_waits import loop_waits
from engine.runtime.pending import Pending
from engine.runtime.tasks import start_task
from gateway.connections.response_buffers import sendable_bytes
from gateway.fetch.multi_fetch import MultiFetch
from gateway.fetch.partition_reads import SEARCHED_BYTES_MAX
from gateway.fetch.reader import Limits, PartitionRead, quiet_waits
from gateway.fetch.rendered_cache import Part
from gateway.filters.condition import InvalidCondition
from gateway.filters.record_filter import record_filter
from gateway.groups.assignments import Assignments
from gateway.groups.context import GroupContext
from gateway.groups.core.failures import trim
from gateway.groups.group_lag import find_bounds
from gateway.groups.hosting.calls import RESET
from gateway.groups.hosting.coordinators import has_moved
from gateway.groups.hosting.hosted import Hosted
from gateway.groups.membership import Owned
from gateway.groups.model.values import Failure, Grant, PollCall, Position, ResetCall, Slot, Token
from gateway.groups.names import (
    Subscribing,
    Timeout,
    check_again,
    check_commit,
    check_subscription,
    client_of,
    find_topics,
    group_name,
    member_name,
    text_of_token,
    token_of,
    unknown_topics,
)
from gateway.groups.poll_wait import Outcome, PollWait, Waits
from gateway.groups.topic_priorities import TopicPriorities
from gateway.http.json_body import parse_json, read_json
from gateway.http.problems import Problem, ProblemFields, from_fields
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Handled, Request, response_of
from gateway.http.response import JSON_TYPE, Response, form_of
from gateway.http.response_compression import compress_response
from gateway.routing.leader_failover import is_transient
from gateway.routing.retry_budget import RetryBudget
from gateway.wire.messages import SMALL_BYTES

BELOW, ABOVE = "offset_below_log_start", "offset_above_high_watermark"
TOKEN_CHARACTERS_MAX = 16_000_000  # 20,000 positions (positions_max) in topics with long names are 7 million
_FORM = form_of(200, (JSON_TYPE,))  # of small answers
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
    value: Literal["json", "text", "base64", "schema"] | UnsetType = UNSET
    filter: tuple[str, ...] = ()
    paused: Annotated[tuple[Owned, ...], Meta(max_length=20_000)] = ()
    failed: Annotated[tuple[FailedRecord, ...], Meta(max_length=20_000)] = ()
    session_timeout_ms: Timeout | None = None
    rebalance_timeout_ms: Timeout | None = None


class PollTarget(NamedTuple):
    """The member that a poll names in its path."""

    group: str
    member_id: str


def parse_target(request: Request) -> PollTarget:
    """Returns the member that a poll is of. Raises Problem."""
    read_query(request, NoQuery)
    return PollTarget(group_name(request), member_name(request.names["member"]))


def group_poll(request: Request, context: GroupContext) -> Handled:
    """POST /v1/groups/{group}/members/{member}/poll. Raises Problem, EngineError."""
    target = request.parsed or parse_target(request)
    if request.space is not None:  # the value of equal heads has the visible name
        target = target._replace(group=request.names["group"])
    context.lifecycle.check_accepting()
    http = request.http
    if request.body is None or "Content-Encoding" in request.headers:
        return _read_and_poll(request, context, target)
    body = http.bodies.read_now(request, http.request_body_bytes_max)
    return _poll(request, context, target, parse_json(request, body, PollRequest))


async def _read_and_poll(request: Request, context: GroupContext, target: PollTarget) -> Response:
    """Waits for the body."""
    return await response_of(_poll(request, context, target, await read_json(request, PollRequest)))


def _poll(request: Request, context: GroupContext, target: PollTarget, wish: PollRequest) -> Handled:
    """Goes on with the body of a poll. Raises Problem, EngineError."""
    try:
        record_filter(wish.filter)
    except InvalidCondition as error:
        raise Problem("invalid_body", f"filter: {error}") from None
    token = token_of(request, wish.token) if wish.token else None
    if wish.topics and unknown_topics(request, context, wish.topics, must_exist=token is None):
        return _find_and_poll(request, context, target, wish, token)
    return _begin(request, context, target, wish, token)


async def _find_and_poll(
    request: Request, context: GroupContext, target: PollTarget, wish: PollRequest, token: Token | None
) -> Response:
    """Waits for topics that another node may have made."""
    await find_topics(request, context, wish.topics or (), must_exist=token is None)
    return await response_of(_begin(request, context, target, wish, token))


def _begin(
    request: Request, context: GroupContext, target: PollTarget, wish: PollRequest, token: Token | None
) -> Handled:
    failed = tuple(Failure(one.topic, one.partition, one.offset, one.error) for one in wish.failed)
    if failed:
        token = trim(token, failed)
    topics, pattern = check_subscription(request, context, wish, must_exist=token is None)
    call = PollCall(
        *target,
        topics,
        token,
        (),
        wish.session_timeout_ms,
        wish.rebalance_timeout_ms,
        client_of(request),
        pattern,
        failed=failed,
    )
    return _Poll(request, context, wish, call).begin()


class _Poll(Pending[Handled]):
    """One poll. `_moved` has positions that replace those outside of their logs.

    A poll of a coordinator of this process takes the steps by plain calls, each once. It goes on with a task where a
    step has to wait for more than records, or is to be repeated.
    """

    __slots__ = ("_assignments", "_budget", "_call", "_context", "_delayed_until", "_ends_at", "_entries", "_grant",
                 "_hosted", "_moved", "_reading", "_request", "_waiting", "_wish")  # fmt: skip

    _budget: RetryBudget
    _hosted: Hosted
    _reading: Sequence[Position]

    def __init__(self, request: Request, context: GroupContext, wish: PollRequest, call: PollCall) -> None:
        super().__init__()
        self._request = request
        self._context = context
        self._wish = wish
        self._call = call
        self._ends_at = asyncio.get_running_loop().time() + wish.wait_ms / 1000
        self._assignments = Assignments(request, context, call.group)
        self._grant: Grant | None = None
        self._entries: Sequence[PartitionRead] = ()
        self._moved: dict[Slot, int] = {}
        self._delayed_until = math.inf  # then the first partition that waits for its failed record is read again
        self._waiting: Pending[Any] | None = None  # the wait of this poll, by plain calls

    # By plain calls

    def begin(self) -> Handled:
        """Makes the call of the poll. Returns the answer, or what comes to it. Raises Problem, EngineError."""
        hosted = self._context.coordinators.present(self._call.group)
        if hosted is None or self._request.topic_meter is not None:
            return self.answer()
        check_commit(self._request, self._context, self._call)
        try:
            grant = hosted.grant(self._call)
        except EngineError as error:
            if _may_begin_again(error):
                return self.answer()
            raise
        if self._must_wait(grant):
            return self.answer(grant)
        self._hosted = hosted
        self._use(grant)
        waits = quiet_waits(self._context.fetch.reads, self._reading)
        is_checked = waits is not None and self._reading is grant.assignment  # each has an offset
        if not is_checked and any(one.offset < 0 for one in grant.assignment):
            return self.answer(grant)
        if waits is None:  # in a turn of the loop that has time for this client
            loop_waits().turns.call(id(self._request.connection), self._read_now)
        elif self._may_wait():
            self._waiting = wait = self._begin_wait(None, waits, hosted)
            wait.then(self._end_wait)
        else:
            self._store(())
        return self

    def _must_wait(self, grant: Grant) -> bool:
        """Returns whether a poll has to wait for more than records, or for some bytes of them. Raises Problem."""
        topics = self._assignments.check_rights(grant)
        is_unknown = any(self._context.topics.get(topic) is None for topic in topics)
        return is_unknown or bool(grant.dead) or self._wish.min_bytes > 1

    def cancel(self) -> None:
        """Ends the wait. The commit of the poll is stored."""
        super().cancel()
        if self._waiting is not None:
            self._waiting.cancel()

    def _end_wait(self, outcome: Outcome | BaseException) -> None:
        """Goes on after the wait. Raises nothing: the caller may be an append, or the call of another member."""
        self._waiting = None
        if outcome is Outcome.OVER:
            self._store(())
        elif outcome is Outcome.READABLE:
            self._read_now()
        else:
            self._go_on(has_changed=outcome is Outcome.CHANGED)

    def _read_now(self) -> None:
        if self.is_over:
            return
        try:
            parts = self._many_of().read_now(self._limits())
        except Exception as error:
            self.complete(error)
            return
        if parts is None or all(part.next_offset == one.offset for part, one in zip(parts, self._entries, strict=True)):
            self._go_on()
        else:
            self._store(parts)

    def _store(self, parts: Sequence[Part]) -> None:
        """Answers once the commit is durable. Without parts there is nothing to read."""
        assert self._grant is not None
        sequence = self._grant.sequence
        if not sequence:
            self._complete(parts)
            return
        self._waiting = stored = self._hosted.wait_stored(sequence)
        stored.then(lambda error: self._complete(parts) if error is None else self._go_on())

    def _complete(self, parts: Sequence[Part]) -> None:
        self._waiting = None
        try:
            response = self._response(parts) if parts else Response(self._empty_body())
            if response.size_bytes < self._request.http.compress_bytes_min and not response.more:
                response.form = _FORM
                self.complete(response)
            else:
                self.complete(compress_response(self._request, response))
        except Exception as error:
            self.complete(error)

    def _go_on(self, *, has_changed: bool = False) -> None:
        """Goes on in a task, with the same grant: it meets again what could not be done by plain calls."""
        self.complete(self.answer(self._grant, has_changed=has_changed))

    # In a task

    async def answer(self, granted: Grant | None = None, *, has_changed: bool = False) -> Response:
        """Returns the answer. Raises Problem, EngineError.

        `granted`: the grant of the call, if it has been made. `has_changed`: the assignment is another one since.
        """
        self._budget = self._context.budgets.begin(max(0, round(self._left_s() * 1000)))
        return await compress_response(self._request, await self._answer(granted, has_changed=has_changed))

    async def _answer(self, granted: Grant | None, *, has_changed: bool) -> Response:
        while True:
            first = grant = (
                await self._assignments.check(granted) if granted else await self._assignments.grant(self._call)
            )
            granted = None
            storing = start_task(self._assignments.wait_stored(first)) if first.sequence else None
            try:
                grant = await self._assignments.copy_dead_letters(self._call, grant)
                grant = await self._assignments.find_starts(self._call, grant)
                self._use(grant)
                parts = None if has_changed else await self._read()
                has_changed = False
                if parts is None:
                    if storing is not None:
                        await storing
                    self._call = self._next_call(grant)
                    continue
                if await self._has_moved(grant, parts):
                    continue
                if storing is not None:
                    await storing
                if grant is not first:
                    await self._assignments.wait_stored(grant)
                return self._response(parts)
            except EngineError as error:
                if not _may_begin_again(error):
                    raise
                if (refusal := _refusal(storing)) is not None:
                    raise refusal from None
                await self._budget.pause(error)
            finally:
                if storing is not None:
                    storing.cancel()

    async def _read(self) -> list[Part] | None:
        """Waits for records that pass the filters, and reads them. None: the assignment has changed meanwhile."""
        many, searched_bytes = self._many_of() if self._reading else None, 0
        meter = self._request.topic_meter
        if meter is not None and many is not None and (debt_s := meter.debt_s(self._request.topics_read)) > 0:
            # the commit has been made: a refusal now would deny it
            if await self._wait_paid(debt_s) is Outcome.CHANGED:
                return None
            if meter.debt_s(self._request.topics_read) > 0:
                return [Part(one.offset, 0, [], None, b"") for one in many.entries]
        while (outcome := await self._wait(many)) is not Outcome.CHANGED:
            if many is None:
                return []
            if outcome is Outcome.OVER:
                return [Part(one.offset, 0, [], None, b"") for one in many.entries]
            limits = self._limits()
            parts = await many.read_with_retries(limits)
            searched_bytes += limits.max_bytes
            if searched_bytes >= SEARCHED_BYTES_MAX or not many.advance_over(parts):
                if meter is not None:
                    for one, part in zip(self._reading, parts, strict=True):
                        meter.take_read(one.topic, len(part.body))
                return parts
        return None

    async def _wait_paid(self, debt_s: float) -> Outcome:
        """Waits, as a poll without records does, until a debt is paid or the time is over."""
        ends_at = self._ends_at
        self._ends_at = min(ends_at, asyncio.get_running_loop().time() + debt_s)
        try:
            return await self._wait(None)
        finally:
            self._ends_at = ends_at

    async def _wait(self, many: TopicPriorities | MultiFetch | None) -> Outcome:
        """Waits for records if there are none. OVER: there are none until the end. READABLE: there may be some."""
        min_bytes = self._wish.min_bytes
        while True:
            waits: Waits | None = ()
            if many is not None:
                found = await many.check_available()
                if found.size_bytes >= min_bytes or found.has_problem:
                    return Outcome.READABLE
                waits = many.quiet_waits() if min_bytes == 1 and not found.has_moved else None
            if not self._may_wait():
                return Outcome.READABLE
            wait = self._begin_wait(many, waits, self._context.coordinators.present(self._call.group))
            try:
                outcome = await wait
            finally:
                wait.cancel()
            if outcome is Outcome.OVER and not (many is not None and many.is_quiet and min_bytes == 1):
                return Outcome.READABLE  # fewer bytes may have come
            if outcome is not Outcome.READABLE or waits is None:
                return outcome

    # For both

    def _use(self, grant: Grant) -> None:
        """Reads the partitions of a grant from now on."""
        if grant is self._grant:
            return
        self._grant = grant
        self._reading, self._entries = readable(self._wish, grant), ()
        self._request.topics_read = {one.topic for one in self._reading}
        left_ms = min((one.left_ms for one in grant.delayed), default=math.inf)
        self._delayed_until = asyncio.get_running_loop().time() + left_ms / 1000

    def _many_of(self) -> TopicPriorities | MultiFetch:
        grant, reading = self._grant, self._reading
        assert grant is not None
        if self._moved:
            reading = [structs.replace(one, offset=self._moved.get(one.slot, one.offset)) for one in reading]
        self._entries = [PartitionRead(one.topic, one.topic_id, one.partition, max(0, one.offset)) for one in reading]
        fetch, filters, bytes_max = self._context.fetch, self._wish.filter, grant.partition_bytes_max
        if grant.priorities:
            return TopicPriorities(fetch, self._entries, filters, grant.priorities, bytes_max)
        return MultiFetch(fetch, self._entries, filters, bytes_max)

    def _left_s(self) -> float:
        return self._ends_at - asyncio.get_running_loop().time()

    def _may_wait(self) -> bool:
        return self._left_s() > 0 and not self._context.lifecycle.is_draining

    def _begin_wait(
        self, many: TopicPriorities | MultiFetch | None, waits: Waits | None, hosted: Hosted | None
    ) -> PollWait:
        """Begins to wait for records. `waits` are those of all partitions, if they are here and have no records.

        `hosted`: the coordinator, if it is here.

        Raises Problem too_many_long_polls.
        """
        assert self._grant is not None
        wait = PollWait(self._context, self._call, self._grant)
        wait.begin(self._ends_at, self._delayed_until, hosted)
        if waits is not None:
            wait.wait_quiet(waits)
        elif many is not None:
            wait.wait_bytes(many, self._wish.min_bytes, self._left_s())
        return wait

    def _next_call(self, grant: Grant) -> PollCall:
        """Returns the call of a poll that holds no records and looks at its assignment again. It never joins again:

        the member may have been removed meanwhile.
        """
        return structs.replace(self._call, topics=None, pattern=None, delivery=grant.delivery)

    def _limits(self) -> Limits:
        wish, settings = self._wish, self._context.settings
        max_bytes = settings.fetch_bytes_default if wish.max_bytes is UNSET else wish.max_bytes
        max_records = None if wish.max_records is UNSET else wish.max_records
        value = None if wish.value is UNSET else wish.value
        rotation = 0 if self._call.token is None else self._call.token.delivery  # a repeat begins where it began
        max_bytes = sendable_bytes(self._request, min(max_bytes, settings.fetch_bytes_max))
        return Limits(max_bytes, max_records, value, rotation, as_lines=False)

    async def _has_moved(self, grant: Grant, parts: Sequence[Part]) -> bool:
        """Moves positions that are outside of their logs, by the group's `start`: those below at most once each.

        A position above its log is reset to the end of the log. Else the committed position would be higher than the
        tokens of what is appended next, and none of these would be committed.
        """
        outside = [
            (one, part.problem)
            for one, part in zip(self._reading, parts, strict=True)
            if part.problem is not None and part.problem.code in (BELOW, ABOVE) and one.slot not in self._moved
        ]
        if not outside or grant.start == "error":
            return False
        if above := [(one, problem) for one, problem in outside if problem.code == ABOVE]:
            await self._lower(above, grant)
            return True
        found = await find_bounds(self._context.router, [one.slot for one, _ in outside])
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
        check_again(self._request, self._context, {one.topic for one in lowered})
        call = ResetCall(self._call.group, lowered, force=True, resets=grant.resets)
        await self._context.coordinators.call(RESET, None, self._call.group, call)

    def _response(self, parts: Sequence[Part]) -> Response:
        """Returns 200; 207 with a problem each if some partitions failed. Raises the first problem if all failed.

        A partition whose topic was deleted during the call has no records, and has not failed.
        """
        grant = self._grant
        assert grant is not None
        failed = [part.problem for part in parts if part.problem is not None and _is_failure(part.problem)]
        documents = [
            {"topic": one.topic, "partition": one.partition, "problem": from_fields(part.problem).document()}
            for one, part in zip(self._reading, parts, strict=True)
            if part.problem is not None and _is_failure(part.problem)
        ]
        if failed and len(failed) == len(parts):
            problem = from_fields(failed[0])
            problem.members = {**problem.members, "partitions": documents}
            raise problem
        bodies = [part.body for part in parts if part.problem is None and part.record_count]
        head = _head(self._request, self._call, grant, self._delivered(grant, parts))
        space = self._request.space
        if space is not None:
            bodies = [bytes(space.shown_records(body)) for body in bodies]
            documents = space.shown(documents)
        bodies += map(orjson.dumps, documents)
        texts = [head[:-1], b',"partitions":[']
        for number, one in enumerate(bodies):
            texts += (b",", one) if number else (one,)
        body, *more = _large_apart([*texts, b"]}"])
        headers = {"Content-Type": "application/json"}
        return Response(body, headers, 207 if failed else 200, more=more)

    def _empty_body(self) -> bytes:
        """Returns the answer of a poll whose partitions had no records until its time was over."""
        grant, reading = self._grant, self._reading
        assert grant is not None
        delivered = () if grant.auto_commit else (*_unread(grant, reading), *reading)
        return _head(self._request, self._call, grant, delivered)[:-1] + b',"partitions":[]}'

    def _delivered(self, grant: Grant, parts: Sequence[Part]) -> list[Position]:
        """Returns the positions that this delivery moves; all of them if tokens do not commit."""
        delivered = []
        if not grant.auto_commit:
            delivered += _unread(grant, self._reading)
        for one, read, part in zip(self._reading, self._entries, parts, strict=True):
            end = part.next_offset if part.problem is None else read.offset
            if end != one.offset or not grant.auto_commit:
                delivered.append(Position(one.topic, one.topic_id, one.partition, end))
        return delivered


def readable(wish: PollRequest, grant: Grant) -> Sequence[Position]:
    """Returns the partitions that the poll does not name as paused, and that do not wait for a failed record."""
    if not wish.paused and not grant.delayed:
        return grant.assignment
    others = {Slot(one.topic, one.partition) for one in wish.paused} | {one.slot for one in grant.delayed}
    return [one for one in grant.assignment if one.slot not in others]


def _is_failure(problem: ProblemFields) -> bool:
    return problem.code != UnknownTopic.code


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


def _head(request: Request, call: PollCall, grant: Grant, delivered: Sequence[Position]) -> bytes:
    """Returns the document of an answer without its partitions. Its token is of this delivery."""
    token = Token(call.member_id, grant.member_epoch, grant.resets, tuple(delivered), grant.delivery)
    head = {
        "group": call.group,
        "member_id": call.member_id,
        "member_epoch": grant.member_epoch,
        "assigned": len(grant.assignment),
        "topic_ids": {one.topic: one.topic_id for one in grant.assignment},
        "token": text_of_token(request, token),
    }
    return orjson.dumps(head if request.space is None else request.space.shown(head))


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
