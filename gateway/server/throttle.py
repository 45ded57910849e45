"""Applies the quotas to requests: debits them, delays or refuses those whose owners have a debt.

A request is debited after its rights and before its body: its announced bytes at once, those of a body without a length
as they come. The bytes of an answer are debited when it is there, and paid by the next request. A delayed request waits
before its handler: nothing of its body is read, so that the client sends no more than the window of its stream, or what
the socket takes. Heartbeats, leaving and commits have a bucket of their own; health, and all requests about the
cluster, are never refused: an operator can always raise a quota.
Invariants: a refused request has debited nothing and stored nothing, so that a retry is safe; what a request
counts as open is given back when it ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from random import Random

from msgspec import structs
from multidict import istr

from engine.runtime.pending import Pending
from engine.runtime.timed_coroutine import TimedCoroutine
from gateway.access.access import LONG_POLLS
from gateway.fetch.request import FetchRequest
from gateway.http.lifecycle import Lifecycle
from gateway.http.problems import Problem
from gateway.http.request import Handled, Request, response_of
from gateway.http.response import Response, Stream
from gateway.http.rights import Resource
from gateway.metrics.metrics import Metrics
from gateway.quotas.charges import NOTHING, Charges, Verdict
from gateway.quotas.quota import Dimension
from gateway.quotas.quotas import Key, Quotas, Requester
from gateway.quotas.topic_meter import TopicMeter
from gateway.server.quota_answers import THROTTLE_HEADER, limit_headers, quota_problem

CONTROL = frozenset({"group_heartbeat", "leave_group", "commit_group_offsets", "acknowledge_records", "rest_commit",
                     "rest_delete_instance"})  # fmt: skip
NAMES_TOPICS = frozenset({"produce_many", "fetch_many", "group_poll", "acquire_records", "rest_read_records"})
WAITING = LONG_POLLS | {"tail_topic", "group_events", "rest_read_records"}  # they count as long polls while they wait
PAUSE_S_MAX = 1.0  # of a wait, before it looks again whether the node stops
LEAVE_AFTER_S = 1.0  # of a connection too many: its client reads the answer first (h2 for Python would lose it)
_CLIENT_ID = istr("Penstock-Client-Id")


class Throttle:
    """The quotas of a process as its requests meet them. `call` calls the handler of a request.

    `check` is that of its caller's right, which may have ended while it waited.
    """

    def __init__(
        self,
        quotas: Quotas,
        call: Callable[[Request], Handled],
        check: Callable[[Request], None],
        lifecycle: Lifecycle,
        metrics: Metrics,
        random: Random,
        *,
        delay_ms_max: int,
        body_bytes_max: int,
    ) -> None:
        self.quotas = quotas
        self._call = call
        self._check = check
        self._lifecycle = lifecycle
        self._throttled, self._refused = metrics.quota_throttled, metrics.quota_refused
        self._random = random
        self._delay_s_max = delay_ms_max / 1000
        self._body_bytes_max = body_bytes_max
        self._topic_meter = TopicMeter(quotas, self._refusal, self._throttled, self._delay_s_max)

    def __repr__(self) -> str:
        return f"Throttle({self.quotas})"

    def begin(self, request: Request) -> Handled:
        """Debits a request, and calls its handler, now or later. Raises Problem quota_exceeded, what it raises."""
        body, known = request.body, request.connection.known_caller
        is_like_last = (
            known is not None
            and known.headers is request.headers
            and known.names is request.names
            and known.route is request.route
        )
        if is_like_last and known.charged_by is self.quotas.kept:
            charges = known.charges
        else:
            charges = self._find(request)
            if is_like_last:
                known.charges, known.charged_by = charges, self.quotas.kept
        if charges.is_plain and body is not None and charges.enter_at_once(request.began, len(body)):
            request.charges = charges
            return self._call(request)
        return self._begin(request, charges)

    def _find(self, request: Request) -> Charges:
        """Returns the charges of a request."""
        quotas = self.quotas
        client_id = request.headers.get(_CLIENT_ID, "") if quotas.has_clients else ""
        topic = request.names.get("topic", "") if quotas.has_topics else ""
        key = (request.caller.owner_name, request.route.operation, client_id, topic)
        charges = quotas.kept.get(key)
        return self._keep(request, key) if charges is None else charges

    def _begin(self, request: Request, charges: Charges) -> Handled:
        """Does what few requests need: they have a body to come, wait, are refused, or are counted otherwise."""
        if charges is NOTHING:
            return self._call(request)
        if charges.names_topics:
            request.topic_meter = self._topic_meter
        if charges.is_control:
            if (verdict := charges.enter_control(request.began)) is not None:
                raise self._refusal(verdict)
            return self._call(request)
        if charges.counts_connections and request.connection.counted is None:
            self._count_connection(request, charges)
        size_bytes = self._announced_bytes(request)
        verdict = charges.enter(request.began, size_bytes, self._longest_wait_s(request))
        if verdict is not None and verdict.is_refused:
            raise self._refusal(verdict)
        request.charges = charges
        request.debited_bytes = size_bytes
        if verdict is None:
            return self._follow(request, charges)
        self._show(request, verdict)
        return self._follow_later(request, charges, verdict) if verdict.wait_s else self._follow(request, charges)

    def settle(self, request: Request, charges: Charges, response: Response | None) -> None:
        """Debits an answer, and gives back what the request did not use. None: its client has left."""
        if request.is_counted_poll:
            request.is_counted_poll = False
            charges.close_one(Dimension.LONG_POLLS)
        if request.content is not None and request.content_length is not None:  # its body came behind its head
            unsent = request.debited_bytes - request.content.received_bytes
            if unsent > 0:
                charges.return_in(unsent)
                request.debited_bytes -= unsent
        if response is None:
            return
        if "Penstock-Duplicate" in response.headers:  # a repeated answer
            charges.return_in(request.debited_bytes if request.body is None else len(request.body))
        if charges.bytes_out and not response.is_streamed:
            charges.take_out(time.perf_counter(), response.size_bytes)

    def _keep(self, request: Request, key: Key) -> Charges:
        owner_name, operation, client_id, topic = key
        requester = None
        if request.route.need.resource is not Resource.CLUSTER:  # that of a route without a caller too
            space = request.caller.space
            requester = Requester("" if space is None else space.tenant, owner_name, client_id, topic)
        return self.quotas.keep(
            key,
            requester,
            request.began,
            is_control=operation in CONTROL,
            names_topics=operation in NAMES_TOPICS,
        )

    def _announced_bytes(self, request: Request) -> int:
        """Returns the bytes of a body that are debited at once; those of one without a length are as they come."""
        if request.body is not None:
            return len(request.body)
        if request.content_length is None:
            request.meter = _ChunkedBody(self, request)
            return 0
        return min(request.content_length, self._body_bytes_max)  # a larger one is refused

    def _longest_wait_s(self, request: Request) -> float:
        """Returns how long a request is delayed: a fetch as long as it would wait for records."""
        parsed = request.parsed
        wait_ms = parsed.wait_ms if type(parsed) is FetchRequest else 0
        return max(wait_ms / 1000, self._delay_s_max)

    def _follow(self, request: Request, charges: Charges) -> Handled:
        """Calls the handler. Debits the time that the loop spends in it, and counts it while it waits for records."""
        if not charges.loop:
            handled = self._call(request)
        else:
            began = time.perf_counter()
            try:
                handled = self._call(request)
            finally:
                now = time.perf_counter()
                charges.take_loop(now, now - began)
            if isinstance(handled, Coroutine):
                handled = TimedCoroutine(handled, charges.take_loop)
        if charges.counts_polls and type(handled) is not Response and may_wait(request):
            self._count_poll(request, charges, handled)
        return handled

    async def _follow_later(self, request: Request, charges: Charges, verdict: Verdict) -> Response:
        for policy in verdict.violated:
            self._throttled[policy.dimension.field] += 1
        charges.park()
        ends_at = time.perf_counter() + verdict.wait_s
        try:
            while not self._lifecycle.is_draining:
                left_s = ends_at - time.perf_counter()
                if left_s <= 0:
                    break
                await asyncio.sleep(min(left_s, PAUSE_S_MAX))
        finally:
            charges.unpark()
        self._check(request)
        if type(request.parsed) is FetchRequest:
            left_ms = max(request.parsed.wait_ms - round(verdict.wait_s * 1000), 0)
            request.parsed = structs.replace(request.parsed, wait_ms=left_ms)
        return await response_of(self._follow(request, charges))

    def _show(self, request: Request, verdict: Verdict) -> None:
        """Adds the limits that are low to any answer to the request."""
        headers = limit_headers(verdict.low)
        if verdict.wait_s:
            headers[THROTTLE_HEADER] = str(round(verdict.wait_s * 1000) or 1)
        request.extra_headers = headers if request.extra_headers is None else request.extra_headers | headers

    def _refusal(self, verdict: Verdict) -> Problem:
        for policy in verdict.violated:
            self._refused[policy.dimension.field] += 1
        return quota_problem(verdict, self._random)

    def _count_connection(self, request: Request, charges: Charges) -> None:
        """Counts a connection for the owners of its first request. One too many ends after its answer."""
        verdict = charges.open_one(Dimension.CONNECTIONS)
        if verdict is not None:
            asyncio.get_running_loop().call_later(LEAVE_AFTER_S, request.connection.leave)
            raise self._refusal(verdict)
        request.connection.counted = _CountedConnection(charges)

    def _count_poll(self, request: Request, charges: Charges, handled: Handled) -> None:
        verdict = charges.open_one(Dimension.LONG_POLLS)
        if verdict is None:
            request.is_counted_poll = True
            return
        if isinstance(handled, Pending):
            handled.cancel()
        elif isinstance(handled, Coroutine):
            handled.close()
        raise self._refusal(verdict)

    def paced(self, charges: Charges, stream: Stream) -> Stream:
        """Returns a stream that waits while its owner has a debt."""
        return _PacedStream(self, charges, stream)

    async def wait_paid(self, charges: Charges) -> None:
        """Waits until there is no debt, or the node stops."""
        while not self._lifecycle.is_draining and (wait_s := charges.wait_s(time.perf_counter())) > 0:
            self._throttled[Dimension.BYTES_OUT.field] += 1
            await asyncio.sleep(min(wait_s, PAUSE_S_MAX))

    async def wait_for_body(self, request: Request, charges: Charges, delayed_s: float) -> float:
        """Waits until the bodies of others are paid, and returns the time. Raises Problem quota_exceeded."""
        now = time.perf_counter()
        wait_s = charges.excess_wait_s(now, request.debited_bytes)
        if wait_s <= 0:
            return 0.0
        if wait_s + delayed_s > self._delay_s_max:
            violated = charges.violated(now)
            raise self._refusal(Verdict(wait_s, True, violated, violated))
        self._throttled[Dimension.BYTES_IN.field] += 1
        await asyncio.sleep(wait_s)
        return wait_s


def may_wait(request: Request) -> bool:
    """Returns whether a request may wait for records."""
    parsed = request.parsed
    return request.route.operation in WAITING and not (type(parsed) is FetchRequest and not parsed.wait_ms)


class _ChunkedBody:
    """Debits a body without a length, piece by piece. Its own bytes may exceed the balance, as those of a length do."""

    def __init__(self, throttle: Throttle, request: Request) -> None:
        self._throttle = throttle
        self._request = request
        self._delayed_s = 0.0

    async def take(self, size_bytes: int) -> None:
        """Debits a piece, and waits if others have used the balance. Raises Problem quota_exceeded."""
        request, charges = self._request, self._request.charges
        assert charges is not None, request
        charges.take_in(time.perf_counter(), size_bytes)
        request.debited_bytes += size_bytes
        self._delayed_s += await self._throttle.wait_for_body(request, charges, self._delayed_s)


class _PacedStream:
    """An event stream whose bytes are debited. It waits after a piece, so that its client reads at the rate it has."""

    def __init__(self, throttle: Throttle, charges: Charges, stream: Stream) -> None:
        self._throttle = throttle
        self._charges = charges
        self._stream = stream

    async def write(self, data: bytes) -> None:
        await self._stream.write(data)
        self._charges.take_out(time.perf_counter(), len(data))
        await self._throttle.wait_paid(self._charges)


class _CountedConnection:
    """A connection that its owners have open."""

    def __init__(self, charges: Charges) -> None:
        self._charges = charges

    def close(self) -> None:
        self._charges.close_one(Dimension.CONNECTIONS)
