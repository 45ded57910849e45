"""Surrounds every request. Nothing else checks, counts or logs one.

Before its handler, a request gets its id, is counted, and is checked: Host and Origin come first, then the token, then
the other headers: headers that appear once, transfer codings. Nothing else of a request is read before its token. The
server in front checks the framing; it delivers requests without Host, with two of them, or with transfer codings that
it does not decode. After the handler, the answer is counted and logged. Invariant: what a request holds is released,
and its answer is counted, whatever its handler raises.
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
from gateway.access.hosts import Hosts
from gateway.access.origins import Origins
from gateway.connections.response_buffers import COUNTED_BYTES
from gateway.fetch import tail
from gateway.http.problems import Problem, from_engine
from gateway.http.query import partitions_named
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.routing.leader_headers import FORWARD, check_forward
from gateway.server.context import ServerContext
from gateway.server.request_log import RequestLog

log = logging.getLogger("penstock.gateway")

REQUEST_ID_HEADER = "Penstock-Request-Id"
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


class Requests:
    """The requests of one process."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._metrics = context.metrics
        self.responses = context.responses
        self.access = context.access
        self.origins = Origins(context.settings)
        self.log = RequestLog(context.settings, context.clock, context.topics)
        self._hosts = Hosts(context.settings)
        self._ids = itertools.count(1)
        self._id_prefix = f"{context.settings.node_id}.{context.shard}-{context.clock.now_ms():x}"

    def __repr__(self) -> str:
        return f"Requests({self._id_prefix})"

    async def answer(self, request: Request, began: float = 0.0, *, is_checked: bool = False) -> Response:
        """Returns the response of a request's handler, or of its failure.

        `began`: when the request came, by `time.perf_counter`, if it has waited. `is_checked`: its headers are those of
        a request that has passed the checks. Raises ConnectionResetError, CancelledError: the client has left.
        """
        began = began or time.perf_counter()
        self.begin()
        request.id = self.request_id(request.headers)
        request.answer_headers[REQUEST_ID_HEADER] = request.id
        try:
            if is_checked:
                self.access.check(request)
            else:
                self.check(request)
            if not self._context.topics.is_standalone and "topic" in request.names:
                await self._context.topics.refresh(request.names["topic"], partitions_named(request))
            response = await request.route.handle(request)
            size_bytes = response.size_bytes
            if size_bytes >= COUNTED_BYTES or self.responses.connections:
                may_refuse = request.method == "GET" and request.route.operation != "metrics"
                self.responses.count(request, size_bytes, may_refuse=may_refuse)
        except ConnectionResetError:
            raise  # the client of a stream has left: an answer cannot be sent
        except Exception as error:
            response = self.failure(request, error)
        except asyncio.CancelledError:
            self.responses.cancel_reservation(request)
            self.log.log_disconnect(request, time.perf_counter() - began)
            raise
        finally:  # runs for a client that has left, too
            if request.held_bytes:
                self._context.bodies.release(request)
            self.end()
        self.leave(request.route.operation, response, time.perf_counter() - began, lambda: request)
        return response

    def begin(self) -> None:
        """Counts a request that is under way, until `end`."""
        self._metrics.requests_in_flight.value += 1

    def end(self) -> None:
        self._metrics.requests_in_flight.value -= 1

    def leave(self, operation: str, response: Response, seconds: float, request: Callable[[], Request]) -> None:
        """Counts an answer, and logs it if it is to be logged. `request` returns the request, for a line of the log."""
        if not response.is_streamed:  # a stream has counted itself at its beginning
            answers = self._metrics.answers[operation, response.status]
            answers.count += 1
            answers.observe(seconds)
        if seconds >= self.log.least_s or response.status >= 500:
            self.log.log_answer(request(), response, seconds)

    def failure(self, request: Request, error: Exception) -> Response:
        """Returns the answer to a request that has failed."""
        if isinstance(error, Problem | EngineError):
            problem = error if isinstance(error, Problem) else from_engine(error)
            return tail.resume_later(request, self._context.fetch, problem) or problem.response(request.id)
        self.responses.cancel_reservation(request)
        fields = {"request_id": request.id, "operation": request.route.operation}
        log.error("a handler failed", exc_info=error, extra=fields)
        text = "the server failed; its log has the error under this request_id"
        return Problem("internal", text).response(request.id)

    def check(self, request: Request) -> None:
        """Checks the head of a request, in the order that the module names. Raises Problem."""
        self.check_host(request)
        if "Origin" in request.headers or self.origins.is_open:
            request.answer_headers.update(self.origins.answer_headers(request))
        if request.method == "OPTIONS":  # browsers ask without a token
            return
        self.access.check(request)
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

    def request_id(self, headers: CIMultiDictProxy[str]) -> str:
        """Returns the id that the client gave, else a new one."""
        given = headers.get(_REQUEST_ID)
        if given is not None and REQUEST_ID.fullmatch(given):
            return given
        return f"{self._id_prefix}-{next(self._ids):x}"


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
