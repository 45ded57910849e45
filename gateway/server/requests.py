"""Surrounds every request. Nothing else checks, counts or logs one.

Before its handler, a request gets its id, is counted, and is checked: Host and Origin come first, then the token, then
the other headers: headers that appear once, transfer codings. Nothing else of a request is read before its token. The
audit trail, if there is one, stands around the handlers that change something (gateway/server/routes.py), and learns of
each denial here. The server in front checks the framing; it delivers requests without Host, with two of them, or with
transfer codings that it does not decode. After the handler, the answer is counted and logged. Invariant: what a request
holds is released, and its answer is counted, whatever its handler raises.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import time
from collections.abc import Callable

from multidict import CIMultiDictProxy, istr

from engine.errors import EngineError
from gateway.access.access import TENANT
from gateway.access.hosts import Hosts
from gateway.access.origins import Origins
from gateway.access.signed.urls import SIGNATURE
from gateway.connections.response_buffers import COUNTED_BYTES
from gateway.fetch import tail
from gateway.http.problems import Problem, from_engine
from gateway.http.query import min_partitions
from gateway.http.request import Handled, Request, response_of
from gateway.http.response import Response, Stream
from gateway.routing.leader_headers import FORWARD, check_forward
from gateway.server.context import ServerContext
from gateway.server.request_log import RequestLog
from gateway.server.request_spans import RequestSpans, call_in_span
from gateway.server.throttle import Throttle, may_wait
from gateway.tracing.current import TracedCoroutine
from gateway.tracing.trace_context import TRACEPARENT
from gateway.usage.counting import UsageCounting

log = logging.getLogger("penstock.gateway")

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
CLIENT_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
# With two values, the valid one would be a guess. gateway/access/access.py checks Authorization, gateway/wire
# Content-Length.
_ONCE = frozenset({"host", "origin", "content-type", "content-encoding", "idempotency-key", "last-event-id"})
_ONCE_PREFIXES = ("penstock-", "producer-", "ce-")
# The look-up of an istr takes half the time of a plain text.
_HOST, _TRANSFER_ENCODING, _CONTENT_TYPE = istr("Host"), istr("Transfer-Encoding"), istr("Content-Type")
_FORWARD, _CLIENT_ID, _KEY = istr(FORWARD), istr("Penstock-Client-Id"), istr("Penstock-Key")
_SIGNED = f"{SIGNATURE}="
_REQUEST_ID, _TRACEPARENT = istr("X-Request-Id"), istr(TRACEPARENT)


def answer_problem(request: Request, problem: Problem) -> Response:
    """Returns the problem document of the contract."""
    return problem.response(request.id)


class Requests:
    """The requests of one process."""

    def __init__(
        self, context: ServerContext, refuse: Callable[[Request, Problem], Response] = answer_problem, id_mark: str = ""
    ) -> None:
        """`refuse` renders the problem of a request that has failed."""
        self._context = context
        self._refuse = refuse
        self._metrics = context.metrics
        self._topics = context.topics
        self._bodies = context.bodies
        self.responses = context.responses
        self.access = context.access
        self._audit = context.audit
        self._counting = context.usage.keeper.counting
        self._superusers = context.audit if context.settings.superusers else None
        self.origins = Origins(context.settings)
        self.log = RequestLog(context.settings, context.clock, context.topics)
        self.spans = RequestSpans(context.tracer, context.topics, context.metrics)
        self._trace_ratio, self._chance = (0.0, context.random.random)
        if context.tracer is not None:
            self._trace_ratio, self._chance = context.tracer.ratio, context.tracer.chance
        self._hosts = Hosts(context.settings)
        self._quotas = context.access.quotas
        self.throttle = Throttle(
            self._quotas,
            self._call,
            self.access.check,
            context.produce.lifecycle,
            context.metrics,
            context.random,
            delay_ms_max=context.settings.throttle_ms_max,
            body_bytes_max=context.settings.request_body_bytes_max,
        )
        self._ids = itertools.count(1)
        self._id_prefix = f"{id_mark}{context.settings.node_id}.{context.shard}-{context.clock.now_ms():x}"

    def __repr__(self) -> str:
        return f"Requests({self._id_prefix})"

    def begin(self, request: Request, *, is_checked: bool = False) -> Handled:
        """Counts and checks a request, and calls its handler. Raises nothing: a failure is the response.

        `is_checked`: its head has passed all checks but that of the token. `finish` or `abandon` follows.
        """
        request.began = time.perf_counter()
        given = request.headers.get(_REQUEST_ID)
        if given is None or not REQUEST_ID.fullmatch(given):
            given = f"{self._id_prefix}-{next(self._ids):x}"
        request.id = given
        if _TRACEPARENT in request.headers or (self._trace_ratio and self._chance() < self._trace_ratio):
            self.spans.begin(request)
        self._metrics.requests_in_flight.value += 1
        listener = request.connection.listener
        try:
            if listener is not None:
                listener.check_host(request.headers.get(_HOST, ""))
            if is_checked:
                if self.access.tokens is not None:
                    self.access.check(request)
            else:
                self.check(request)
            if self._superusers is not None and request.caller.is_superuser:
                self._superusers.note_superuser(request)
            call = self._call if not self._quotas.is_on else self.throttle.begin
            return call(request) if request.span is None else call_in_span(request.span, call, request)
        except Exception as error:
            return self.failure(request, error)

    def _call(self, request: Request) -> Handled:
        """Calls the handler, once its topic is known. Raises what it raises."""
        names, route = request.names, request.route
        if "topic" in names and self._topics.lacks(
            names["topic"], min_partitions(names["partition"]) if "partition" in names else 1
        ):
            return self._find_topic(request)
        return route.handler(request, route.context)

    async def wait(self, request: Request, handled: Handled) -> Response:
        """Waits for the response of a request that has begun, and finishes it.

        Raises ConnectionResetError, CancelledError: the client has left.
        """
        try:
            if isinstance(handled, Response):
                response = handled
            else:
                guarded = self.access.guard(request, handled) if may_wait(request) else response_of(handled)
                response = await (guarded if request.span is None else TracedCoroutine(guarded, request.span))
        except ConnectionResetError:
            self._release(request)
            raise  # the client of a stream has left: an answer cannot be sent
        except asyncio.CancelledError:
            self.abandon(request)
            raise
        except Exception as error:  # not kept: its traceback has this frame, and answers that were refused
            response = self.failure(request, error)
        return self.finish(request, response)

    def finish(self, request: Request, outcome: Response | Exception) -> Response:
        """Returns the response of a request, or of its failure, once it is counted and logged."""
        response = outcome if isinstance(outcome, Response) else self.failure(request, outcome)
        if request.space is not None:
            response = request.space.leave(request, response)
        if len(response.body) >= COUNTED_BYTES or response.more or self.responses.connections:
            size_bytes = response.size_bytes
            may_refuse = request.method == "GET" and request.route.operation != "metrics"
            try:
                self.responses.count(request, size_bytes, may_refuse=may_refuse)
            except Problem as problem:
                response = self.failure(request, problem)
        if request.charges is not None:
            self.throttle.settle(request, request.charges, response)
        if request.connection_bytes:
            self._bodies.release(request)
        else:  # nothing, or a small body
            self._bodies.held_bytes -= request.held_bytes
            request.held_bytes = 0
        self._metrics.requests_in_flight.value -= 1
        now = time.perf_counter()
        seconds = now - request.began
        if request.space is not None:
            self._count_usage(request, request.space.tenant, response, now)
        if not response.is_streamed:  # a stream has counted itself at its beginning
            answers = self._metrics.answers[request.route.operation, response.status]
            answers.count += 1
            answers.observe(seconds)
        if seconds >= self.log.least_s or response.status >= 500:
            self.log.log_answer(request, response, seconds)
        if request.span is not None:
            self.spans.end(request, request.span, response)
        return response

    def abandon(self, request: Request) -> None:
        """Ends a request whose client has left."""
        self.responses.cancel_reservation(request)
        self.log.log_disconnect(request, time.perf_counter() - request.began)
        self._release(request)

    def _release(self, request: Request) -> None:
        if request.charges is not None:
            self.throttle.settle(request, request.charges, None)
        self._bodies.release(request)
        self._metrics.requests_in_flight.value -= 1
        if request.span is not None:
            self.spans.end(request, request.span, None)

    def begin_stream(self, request: Request, stream: Stream) -> Stream:
        """Returns a stream whose bytes are debited, and counted for its tenant."""
        if request.charges is not None:
            stream = self.throttle.paced(request.charges, stream)
        if request.space is None:
            return stream
        tenant, operation = request.space.tenant, request.route.operation
        self._counting.count_request(tenant, operation, 200, 0, 0, 0, time.perf_counter())
        return _CountedStream(self._counting, tenant, operation, stream)

    def count_piece(self, request: Request, size_bytes: int) -> None:
        """Debits and counts a piece of an answer that leaves in pieces."""
        now = time.perf_counter()
        if request.charges is not None:
            request.charges.take_out(now, size_bytes)
        if request.space is not None:
            self._counting.count_bytes_out(request.space.tenant, request.route.operation, size_bytes, now)

    def _count_usage(self, request: Request, tenant: str, response: Response, now: float) -> None:
        """Counts an answered request for the bills of its tenant."""
        body = request.body
        bytes_in = len(body) if body is not None else 0 if request.content is None else request.content.received_bytes
        if "Penstock-Duplicate" in response.headers:  # the answer that is repeated has counted them
            bytes_in = 0
        bytes_out = 0 if request.head.method == "HEAD" else response.size_bytes
        operation, stored = request.route.operation, request.stored_records
        if response.is_streamed:
            self._counting.count_bytes_in(tenant, operation, bytes_in, now)
            return
        self._counting.count_request(tenant, operation, response.status, bytes_in, bytes_out, stored, now)

    async def _find_topic(self, request: Request) -> Response:
        """Waits for the topic of a request, which another node may have made, and goes on."""
        names = request.names
        await self._topics.refresh(names["topic"], min_partitions(names.get("partition", "")))
        self.access.check(request)  # its right may have ended meanwhile
        return await response_of(request.route.handler(request, request.route.context))

    def failure(self, request: Request, error: Exception) -> Response:
        """Returns the answer to a request that has failed."""
        if isinstance(error, Problem | EngineError):
            problem = error if isinstance(error, Problem) else from_engine(error)
            for each in (error, problem):  # their tracebacks have frames that hold bodies, and are not logged
                each.__traceback__ = each.__context__ = None
            if self._audit is not None:
                self._audit.note_failure(request, problem)
            return tail.resume_later(request, self._context.fetch, problem) or self._refuse(request, problem)
        self.responses.cancel_reservation(request)
        fields = {"request_id": request.id, "operation": request.route.operation}
        log.error("a handler failed", exc_info=error, extra=fields)
        text = "the server failed; its log has the error under this request_id"
        return self._refuse(request, Problem("internal", text))

    def check(self, request: Request) -> None:
        """Checks the head of a request, in the order that the module names. Raises Problem."""
        self.check_host(request)
        if "Origin" in request.headers or self.origins.is_open:
            request.extra_headers = self.origins.answer_headers(request)
        if request.method == "OPTIONS":  # browsers ask without a token
            return
        if _SIGNED in request.head.query:
            self.access.take_signature(request)
        self.access.check(request, request.headers.get(TENANT))
        self.check_headers(request)

    def check_host(self, request: Request) -> None:
        """Checks the Host, which comes before the token. Raises Problem invalid_header, host_not_allowed."""
        headers = request.headers
        hosts = headers.getall(_HOST, ())
        if len(hosts) > 1:
            _check_repeated(headers)
        if hosts:
            if hosts[0] not in self._hosts.accepted:
                self._hosts.check(hosts[0])
        elif request.version != "1.0":
            raise Problem("invalid_header", "the request has no Host, which HTTP/1.1 and HTTP/2 demand")

    def check_headers(self, request: Request) -> None:
        """Checks the other headers. Raises Problem invalid_header, unsupported_transfer_coding, misdirected."""
        headers = request.headers
        if len(headers) != len(list(headers)):  # iterates over distinct names
            _check_repeated(headers)
        content_type = headers.get(_CONTENT_TYPE)
        if content_type is not None and not content_type.isascii():
            _check_utf8("Content-Type", content_type)
        if _TRANSFER_ENCODING in headers:
            _check_transfer_coding(headers)
        if _FORWARD in headers or _CLIENT_ID in headers or _KEY in headers:
            _check_common_headers(request)


class _CountedStream:
    """An answer whose bytes are counted for a tenant."""

    def __init__(self, counting: UsageCounting, tenant: str, operation: str, stream: Stream) -> None:
        self._counting = counting
        self._tenant = tenant
        self._operation = operation
        self._stream = stream

    async def write(self, data: bytes) -> None:
        await self._stream.write(data)
        self._counting.count_bytes_out(self._tenant, self._operation, len(data), time.perf_counter())


def _check_common_headers(request: Request) -> None:
    """Checks the headers that every route takes. Raises Problem invalid_header, misdirected."""
    if FORWARD in request.headers:
        check_forward(request)
    client_id = request.headers.get("Penstock-Client-Id")
    if client_id is not None and not CLIENT_ID.fullmatch(client_id):  # it is written to logs
        raise Problem("invalid_header", "Penstock-Client-Id takes 1 to 128 of A-Z a-z 0-9 . _ -")
    if not request.headers.get("Penstock-Key", "").isascii():
        raise Problem("invalid_header", "Penstock-Key takes ASCII only; give other keys as ?key= or in the body")


def _check_utf8(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:  # gateway/wire has other bytes as halves of surrogate pairs
        shown = value[:100].encode("utf-8", "surrogateescape")
        raise Problem("invalid_header", f"{name} is {shown!r}, which is not UTF-8") from None


def _check_repeated(headers: CIMultiDictProxy[str]) -> None:
    for name in map(str.lower, headers):
        if (name in _ONCE or name.startswith(_ONCE_PREFIXES)) and len(headers.getall(name)) > 1:
            raise Problem("invalid_header", f"the header {name} is there more than once")


def _check_transfer_coding(headers: CIMultiDictProxy[str]) -> None:
    """RFC 9112 6.1: 501 for a coding that is not known; chunked may be applied once."""
    codings = [one.strip().lower() for one in ",".join(headers.getall(_TRANSFER_ENCODING)).split(",")]
    if codings == ["chunked"]:
        return
    if codings.count("chunked") == len(codings):
        raise Problem("invalid_header", "Transfer-Encoding names chunked more than once")
    text = f"Transfer-Encoding is {', '.join(codings)[:100]!r}; this node takes chunked alone, and Content-Encoding"
    raise Problem("unsupported_transfer_coding", text)
