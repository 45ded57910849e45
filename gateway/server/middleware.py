"""Surrounds every handler: checks the head of a request, gives it an id, turns each failure into a problem document.

Host and Origin come first, then the token, then the other headers: headers that appear once, transfer codings. Nothing
else of a request is read before its token. The server in front checks the framing; it delivers requests without Host,
with two of them, or with transfer codings that it does not decode. Invariant: what a request holds is released, and
its answer is counted, whatever its handler raises.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import HttpVersion11, web
from multidict import CIMultiDictProxy, istr

from engine.errors import EngineError
from engine.format.paths import INTERNAL_TOPICS
from gateway.access.access import NEEDS, unreadable
from gateway.access.hosts import Hosts
from gateway.access.origins import Origins, options
from gateway.access.tokens_file import Right
from gateway.connections.response_buffers import COUNTED_BYTES
from gateway.fetch import tail
from gateway.http.context import ANSWER_HEADERS
from gateway.http.messages import HttpRequest, HttpResponse, Request, StreamedResponse
from gateway.http.problems import Problem, from_engine
from gateway.http.query import partitions_named
from gateway.http.request_body import HELD_BYTES
from gateway.routing.leader_headers import FORWARD, check_forward
from gateway.server.context import ServerContext
from gateway.server.request_log import RequestLog

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Response = web.StreamResponse | HttpResponse
R = TypeVar("R", web.Request, HttpRequest)

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
_REQUEST_ID = istr("X-Request-Id")


class Middleware:
    """Surrounds every handler: the checks of the head, a request id, the problem of any failure, and the counters."""

    def __init__(self, context: ServerContext, methods: set[str]) -> None:
        """`methods` are those of all routes."""
        self._context = context
        self.responses = context.responses
        self._ids = itertools.count(1)
        self._methods = methods
        self._hosts = Hosts(context.settings)
        self.origins = Origins(context.settings)
        self.access = context.access
        self.log = RequestLog(context.settings, context.clock)
        self._id_prefix = f"{context.settings.node_id}.{context.shard}-{context.clock.now_ms():x}"

    @web.middleware
    async def around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Runs a handler of aiohttp's application inside the middleware."""
        operation = _operation(handler)

        async def checked(request: web.Request) -> web.StreamResponse:
            self.check_host(request)
            if "Origin" in request.headers or self.origins.is_open:
                request[ANSWER_HEADERS].update(self.origins.answer_headers(request))
            if request.method == "OPTIONS":  # browsers ask without a token
                return await _options_of(handler, self._methods)(request)
            self.check_rights(request, operation)
            self.check_headers(request)
            await self._refresh_topic(request)
            return await handler(request)

        response = await self.answer(request, checked, operation)
        assert isinstance(response, web.StreamResponse), operation
        return response

    async def answer(
        self, request: R, handler: Callable[[R], Awaitable[Response]], operation: str, began: float = 0.0
    ) -> Response:
        """Returns a response whatever the handler raises. `operation` is a bounded name of the handler, for metrics.

        `began`: when the request came, by `time.perf_counter`, if it has waited.
        Raises ConnectionResetError, CancelledError: the client has left.
        """
        started = began or time.perf_counter()
        self._context.metrics.requests_in_flight.value += 1
        request_id = self.request_id(request.headers)
        answer_headers = request[ANSWER_HEADERS] = {"Penstock-Request-Id": request_id}
        try:
            response = await handler(request)
            if (
                isinstance(response, HttpResponse | web.Response | StreamedResponse)
                and (body := response.body) is not None
            ):
                is_own = isinstance(response, HttpResponse)
                size_bytes: int = response.size_bytes if is_own else len(body)  # type: ignore[arg-type, union-attr]
                if size_bytes >= COUNTED_BYTES or self.responses.connections:
                    may_refuse = request.method == "GET" and operation != "metrics"
                    self.responses.count(request, size_bytes, may_refuse=may_refuse)
        except (Problem, EngineError) as error:
            response = _error_response(request, error, request_id)
        except ConnectionResetError:
            raise  # the client of a stream has left: an answer cannot be sent
        except web.HTTPException as error:
            assert isinstance(request, web.Request)
            response = _routing_problem(request, error).response(request_id)
        except Exception as error:
            self.responses.cancel_reservation(request)
            response = _failure(error, operation, request_id)
        except asyncio.CancelledError:
            self.responses.cancel_reservation(request)
            self.log.disconnected(request, operation, time.perf_counter() - started, request_id)
            raise
        finally:  # runs for a client that has left, too
            if HELD_BYTES in request:
                self._context.bodies.release(request)
            self._context.metrics.requests_in_flight.value -= 1
        seconds = time.perf_counter() - started
        if not response.prepared:  # a prepared one is a stream: it has sent its headers and counted itself
            if isinstance(response, HttpResponse):
                response.headers.update(answer_headers)
            else:
                response.headers.extend(answer_headers)
            answers = self._context.metrics.answers[operation, response.status]
            answers.count += 1
            answers.observe(seconds)
        if seconds >= self.log.least_s or response.status >= 500:
            self.log.answered(request, operation, response, seconds, request_id)
        return response

    def failed(
        self, request: HttpRequest, error: Exception, operation: str, seconds: float, request_id: str
    ) -> web.Response:
        """Returns the answer to a failed request without a task, as `answer` does. Counts and logs it."""
        if isinstance(error, Problem | EngineError):
            response = _error_response(request, error, request_id)
        else:
            response = _failure(error, operation, request_id)
        response.headers["Penstock-Request-Id"] = request_id
        self._context.metrics.answered(operation, response.status, seconds)
        if seconds >= self.log.least_s or response.status >= 500:
            self.log.answered(request, operation, response, seconds, request_id)
        return response

    async def admit(self, request: Request, operation: str) -> None:
        """Checks the token, and looks for a topic that this process may not know yet. Raises Problem, EngineError."""
        self.check_rights(request, operation)
        await self._refresh_topic(request)

    async def _refresh_topic(self, request: Request) -> None:
        if not self._context.topics.is_standalone and "topic" in request.match_info:
            await self._context.topics.refresh(request.match_info["topic"], partitions_named(request))

    def check_rights(self, request: Request, operation: str) -> None:
        """Checks the token, and that the topic is not internal. Raises Problem."""
        if self.access.tokens is not None:
            self.access.check(request, operation)
        if request.match_info.get("topic") in INTERNAL_TOPICS and NEEDS.get(operation) is Right.READ:
            raise unreadable(request.match_info["topic"])

    def check(self, request: Request) -> None:
        """Checks the headers of a request to any route, its token aside. Raises as check_host and check_headers do."""
        self.check_host(request)
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
        elif request.version >= HttpVersion11:
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

    def request_id(self, headers: CIMultiDictProxy[str]) -> str:
        """Returns the id that the client gave, else a new one."""
        given = headers.get(_REQUEST_ID)
        if given is not None and REQUEST_ID.fullmatch(given):
            return given
        return f"{self._id_prefix}-{next(self._ids):x}"


MIDDLEWARE = web.AppKey("middleware", Middleware)


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


def _options_of(handler: Handler, methods: set[str]) -> Handler:
    """Answers OPTIONS with the methods of the path. No route takes OPTIONS, so this replaces aiohttp's 404 or 405."""

    async def answer_options(request: web.Request) -> web.StreamResponse:
        if request.path == "*":  # the node as a whole (RFC 9110 9.3.7)
            return options(request, methods)
        try:
            return await handler(request)
        except web.HTTPMethodNotAllowed as error:
            return options(request, error.allowed_methods)

    return answer_options


def _operation(handler: Handler) -> str:
    """Returns a bounded name for metrics: the handler's, whatever path was sent."""
    return getattr(handler, "__name__", "unknown")


def _error_response(request: Request, error: Problem | EngineError, request_id: str) -> web.Response:
    """A function of its own, so that no name in the caller's frame keeps the error, its traceback and the body."""
    problem = error if isinstance(error, Problem) else from_engine(error)
    stream = tail.resume_later(request, problem) if isinstance(request, web.Request) else None
    return stream or problem.response(request_id)


def _failure(error: Exception, operation: str, request_id: str) -> web.Response:
    log.error("a handler failed", exc_info=error, extra={"request_id": request_id, "operation": operation})
    text = "the server failed; its log has the error under this request_id"
    return Problem("internal", text).response(request_id)


def _routing_problem(request: web.Request, error: web.HTTPException) -> Problem:
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return Problem("method_not_allowed", f"{request.path} takes {allowed}", headers={"Allow": allowed})
    path = request.rel_url.raw_path
    hint = "see /docs"
    if path.startswith("/v1/v1/"):
        hint = "a client adds /v1 to the address that it is given: leave it out of that"
    elif path.endswith("/"):
        hint = "leave out the slash at its end, or see /docs"
    return Problem("not_found", f"there is nothing at {path}; {hint}")
