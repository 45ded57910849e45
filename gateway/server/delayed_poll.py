"""Delayed polls: polls of groups that wait without a task, while their partitions have no records.

A delayed poll is one value among the waiters of its partitions, of its member, of the drain and of the deadlines. At
its deadline it answers by plain calls. Anything else that ends the wait (records, another assignment, a drain, an
error) is for a task, which goes on with the same grant and the time that is left. It takes the stages of
gateway/groups/poll.py and decides nothing that they do not decide.
Invariants: a poll that is not taken has changed nothing but what its repeat changes again, as every call of a group; a
poll ends once, by an answer, a task or its client; nothing is raised into the call that ends its wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import structs

from engine.errors import EngineError
from engine.format.paths import INTERNAL_TOPICS
from engine.partition.high_watermark import PositionWaiters
from engine.runtime.loop_waits import Bucket, loop_waits
from gateway.connections.response_buffers import COUNTED_BYTES
from gateway.groups import poll
from gateway.groups.context import GroupContext
from gateway.groups.hosting.hosted import Hosted
from gateway.groups.model.token import decode_token
from gateway.groups.model.values import Grant, PollCall, Position
from gateway.groups.poll import PollRequest
from gateway.http.lifecycle import DRAINING
from gateway.http.problems import Problem
from gateway.http.request import COUNTED_BY_CONNECTION_BYTES, HttpContext, Request
from gateway.http.response import JSON_TYPE, Response, form_of
from gateway.http.rights import ANONYMOUS, Operation
from gateway.server.head_cache import HeadCache, KnownHead
from gateway.server.requests import Requests
from gateway.wire.connection import Connection
from gateway.wire.messages import NOTHING_VARIES, RequestHead, VariedHead

_decode = msgspec.json.Decoder(PollRequest).decode


class DelayedPolls:
    """Takes the polls of one application that need no task while they wait."""

    def __init__(self, heads: HeadCache, requests: Requests, context: GroupContext, http: HttpContext) -> None:
        self.loop = asyncio.get_running_loop()
        self.heads = heads
        self.requests = requests
        self.context = context
        self.bodies = http.bodies
        self.deadlines, self.turns = loop_waits(self.loop).deadlines, loop_waits(self.loop).turns
        self.small_bytes_max = min(COUNTED_BYTES, http.compress_bytes_min)  # others are counted or compressed
        self._body_bytes_max = min(COUNTED_BY_CONNECTION_BYTES - 1, http.request_body_bytes_max)

    def __repr__(self) -> str:
        return f"DelayedPolls({self.context.coordinators})"

    def take(self, connection: Connection, stream_id: int, head: RequestHead, body: bytes) -> DelayedPoll | None:
        """Takes a poll that may wait. Returns None for one that needs a task."""
        known = self.heads.find(head)
        if known.member is None or len(body) > self._body_bytes_max:
            return None
        began, context = time.perf_counter(), self.context
        group, member_id = known.member
        hosted = context.coordinators.present(group)
        if hosted is None or context.lifecycle.is_draining or not context.fetch.long_polls.has_room:
            return None
        request = None
        if self.requests.access.tokens is not None:
            request = self.heads.request(known, head, connection)
        try:
            if request is not None:
                self.requests.access.check(request)
            wish = _decode(body)
            if not _may_wait(wish) or not body.isascii():
                return None
            call = self._call(request, group, member_id, wish)
            if call is None or not self.bodies.hold_small(len(body)):
                return None
            grant = hosted.grant(call)
        except (Problem, EngineError, msgspec.MsgspecError, RecursionError):  # the task meets it too
            return None
        one = DelayedPoll(self, connection, stream_id, head, known, wish, call, grant, hosted, request)
        one.begin(began, len(body))
        return one

    def _call(self, request: Request | None, group: str, member_id: str, wish: PollRequest) -> PollCall | None:
        """Returns the call of a poll with a token; None if its topics need a look. Raises InvalidToken."""
        topics = None
        if wish.topics is not msgspec.UNSET:
            topics = tuple(wish.topics) if len(wish.topics) == 1 else tuple(sorted(set(wish.topics)))
            if not self.may_read(request, topics):
                return None
        assert wish.token is not None
        token = decode_token(wish.token)
        return PollCall(group, member_id, topics, token, (), wish.session_timeout_ms, wish.rebalance_timeout_ms)

    def may_read(self, request: Request | None, topics: Iterable[str]) -> bool:
        """Returns whether these topics are here, and the client may read them."""
        caller = ANONYMOUS if request is None else request.caller
        for topic in topics:
            if self.context.topics.get(topic) is None or topic in INTERNAL_TOPICS:
                return False
            if not caller.allows(Operation.READ, topic):
                return False
        return True

    def waits(self, reading: Sequence[Position]) -> list[PositionWaiters] | None:
        """Returns the lists of waiters of partitions that are readable and have no records at these positions.

        None if one of them is otherwise, or belongs to another process.
        """
        found: list[PositionWaiters] = []
        name, topic = "", None
        for one in reading:
            if one.topic != name:
                name, topic = one.topic, self.context.topics.get(one.topic)
            if topic is None or topic.record.topic_id != one.topic_id:
                return None
            partition = topic.partitions.get(one.partition)
            if partition is None or partition.offline is not None:
                return None
            if not one.offset == partition.watermark.position >= partition.log.log_start:
                return None
            found.append(partition.watermark.polls)
        return found


class DelayedPoll:
    """One poll: waits for records, another assignment, its deadline, the drain, or for its client to leave."""

    __slots__ = ("_began", "_body_bytes", "_bucket", "_call", "_connection", "_deadline", "_grant", "_head", "_hosted",
                 "_is_over", "_known", "_polls", "_reading", "_request", "_stream_id", "_waits", "_wish")  # fmt: skip

    def __init__(
        self,
        polls: DelayedPolls,
        connection: Connection,
        stream_id: int,
        head: RequestHead,
        known: KnownHead,
        wish: PollRequest,
        call: PollCall,
        grant: Grant,
        hosted: Hosted,
        request: Request | None,
    ) -> None:
        self._polls = polls
        self._connection = connection
        self._stream_id = stream_id
        self._head = head
        self._known = known
        self._wish = wish
        self._call = call
        self._grant = grant
        self._hosted = hosted
        self._request = request
        self._reading = poll.readable(wish, grant)
        self._waits: list[PositionWaiters] = []
        self._bucket: Bucket | None = None
        self._is_over = False
        self._began = self._deadline = 0.0
        self._body_bytes = 0

    def __repr__(self) -> str:
        return f"DelayedPoll({self._call.group}, {self._call.member_id}, is_over={self._is_over})"

    def begin(self, began: float, body_bytes: int) -> None:
        """Begins the wait. A poll that need not wait, or cannot wait here, gets its task in the next turn."""
        polls, grant = self._polls, self._grant
        self._began, self._body_bytes = began, body_bytes
        polls.requests.count_begun()
        self._deadline = polls.loop.time() + self._wish.wait_ms / 1000
        waits = None
        if (
            not grant.sequence
            and not grant.delayed
            and polls.may_read(self._request, {one.topic for one in grant.assignment})
        ):
            waits = polls.waits(self._reading)
        try:
            if waits is not None:
                polls.context.fetch.long_polls.begin(self._weight)
        except Problem:
            waits = None
        if waits is None:
            polls.turns.call(id(self._connection), self._go_on)
            return
        self._waits = waits
        self._hosted.watch(self._call.group, self._call.member_id, self)
        self._bucket = polls.deadlines.put(self._deadline, self, DelayedPoll._expire)
        polls.context.lifecycle.draining.add(DRAINING, self)
        for one, wait in zip(self._reading, waits, strict=True):
            wait.add(one.offset + 1, self)

    # As a wait for high watermarks, for the member's version and for the drain

    def done(self) -> bool:
        return self._is_over

    def set_result(self, result: object, /) -> None:
        self._end_wait(is_due=False)

    def set_exception(self, error: Exception, /) -> None:
        """Leaves the error to a task, which meets it too."""
        self._end_wait(is_due=False)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._polls.loop

    # As a request of the connection

    def recheck(self) -> None:
        """Leaves the request to a task, which answers with the problem, if its client has lost a right to it."""
        try:
            if self._request is not None:
                self._polls.requests.access.check(self._request)
                if self._polls.may_read(self._request, {one.topic for one in self._grant.assignment}):
                    return
                self._end_wait(is_due=False)
        except Problem:
            self._end_wait(is_due=False)

    def cancel(self) -> None:
        """Ends the wait: the client has left."""
        self._end()
        requests = self._polls.requests
        request_id = requests.request_id(self._known.headers)
        requests.log.log_disconnect(self._for_log(request_id), time.perf_counter() - self._began)

    # Within

    @property
    def _weight(self) -> int:
        return max(1, len(self._grant.assignment))

    def _expire(self) -> None:
        if not self._is_over:
            self._end_wait(is_due=True)

    def _go_on(self) -> None:
        if not self._is_over:
            self._end_wait(is_due=False)

    def _end_wait(self, *, is_due: bool) -> None:
        """Raises nothing: the caller is an append, or the call of another member."""
        try:
            self._end()
            if not is_due or not self._give():
                self._run()
        except Exception as error:
            self._connection.fail(self._stream_id, error)

    def _end(self) -> None:
        polls = self._polls
        self._is_over = True
        polls.requests.count_ended()
        polls.bodies.release_small(self._body_bytes)
        if self._bucket is None:
            return
        self._bucket.pop(self, None)
        for one, wait in zip(self._reading, self._waits, strict=True):
            wait.give_up(one.offset + 1, self)
        polls.context.lifecycle.draining.give_up(DRAINING, self)
        polls.context.fetch.long_polls.end(self._weight)
        self._hosted.unwatch(self._call.group, self._call.member_id, self)

    def _run(self) -> None:
        """Starts a task, which goes on with the grant and the time that is left."""
        wait_ms = max(0, round((self._deadline - self._polls.loop.time()) * 1000))
        waiting = poll.WaitingPoll(structs.replace(self._wish, wait_ms=wait_ms), self._call, self._grant)
        head = VariedHead(self._head, self._head.query, NOTHING_VARIES, (), self._head.content_length)
        head.memo = self._known._replace(parsed=waiting, began=self._began)
        self._connection.delayed.run(self._stream_id, head)

    def _give(self) -> bool:
        """Answers that there is nothing to read. Returns False if the answer is a large one."""
        body = poll.empty_answer(self._call, self._grant, self._wish)
        polls, operation = self._polls, self._known.route.operation
        if len(body) >= polls.small_bytes_max:
            return False
        polls.heads.answered += 1
        polls.heads.without_task += 1
        request_id = polls.requests.request_id(self._known.headers)
        seconds = time.perf_counter() - self._began
        polls.requests.leave(operation, Response(body), seconds, lambda: self._for_log(request_id))
        self._connection.delayed.complete_as(self._stream_id, form_of(200, (JSON_TYPE,)), request_id.encode(), body)
        return True

    def _for_log(self, request_id: str) -> Request:
        request = self._request or self._polls.heads.request(self._known, self._head, self._connection)
        request.id = request_id
        return request


def _may_wait(wish: PollRequest) -> bool:
    """Returns whether a poll is of a member with a token, and waits for any record."""
    return (
        bool(wish.token)
        and wish.wait_ms > 0
        and wish.min_bytes == 1
        and not wish.filter
        and not wish.failed
        and wish.topics_pattern is msgspec.UNSET
        and not wish.topics_exclude
    )
