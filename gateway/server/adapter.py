"""Serves the requests that the HTTP server of gateway/wire delivers: makes a `Request`, answers it, sends the answer.

Invariants: (1) an answer is sent as soon as it is complete, and the rest of the body is read and dropped after it,
within bounds; (2) nothing here outlives its request except values derived from its head, which equal requests of a
connection share.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import suppress
from functools import partial

from engine.errors import EngineError
from engine.runtime.loop_waits import loop_waits
from engine.runtime.pending import Pending
from gateway.access.access import LONG_POLLS
from gateway.connections.send_buffers import ClientStalled, SendBuffers
from gateway.http.body import Body, BodyLimits
from gateway.http.problems import Problem
from gateway.http.request import Handled, Request, give_up
from gateway.http.response import COMMON_HEADERS, REQUEST_ID_HEADER, NextPiece, Response, Stream
from gateway.http.routes import RouteTable
from gateway.server.context import ServerContext
from gateway.server.dialect import Dialect, contract_dialect
from gateway.server.head_cache import HeadCache
from gateway.server.requests import Requests
from gateway.wire.connection import Connection
from gateway.wire.exchange import Exchange
from gateway.wire.messages import Header, RequestHead
from gateway.wire.server import HttpServer

log = logging.getLogger("penstock.gateway")

NO_ROOM_PAUSE_S = 0.5  # before another look at the room of all answers, which other clients free
WATCH_AFTER_S = 0.05  # most bodies have arrived by then, and need no watch


class Adapter:
    """The application of one process, as gateway/wire runs it."""

    def __init__(
        self, context: ServerContext, limits: BodyLimits, streams: SendBuffers, dialect: Dialect | None = None
    ) -> None:
        """Without a `dialect` it answers the contract."""
        dialect = dialect or contract_dialect(context)
        self.requests = Requests(context, dialect.refuse, dialect.id_mark)
        routes = RouteTable(dialect.routes, dialect.answer_options)
        self.heads = HeadCache(self.requests, routes, context.http, context.produce, dialect)
        self._http = context.http
        self._limits = limits
        self.responses = context.responses
        self._streams = streams
        self._loop = asyncio.get_running_loop()
        self._deadlines = loop_waits(self._loop).deadlines

    def __repr__(self) -> str:
        return f"Adapter({self.heads})"

    def take(self, connection: Connection, stream_id: int, head: RequestHead, body: bytes) -> bool:
        """Takes a whole request. It has a task only if its handler must wait. Returns True."""
        known = head.memo or self.heads.find(head)
        request = TakenRequest(
            self._http, head, known.route, known.names, known.headers, connection, body, None, known.parsed
        )
        request.adapter, request.stream_id = self, stream_id
        connection.delay(stream_id, request, len(body))
        request.follow(self.requests.begin(request, is_checked=known.is_checked))
        return True

    async def __call__(self, exchange: Exchange) -> None:
        """Answers a request whose body has not arrived, or that had to wait. Raises CancelledError: its client left."""
        known = self.heads.find(exchange.head)
        whole = exchange.read_nowait() if exchange.is_body_complete else None
        body = Body(exchange, self._limits, now := self._loop.time())
        request = Request(
            self._http, exchange.head, known.route, known.names, known.headers, exchange.connection, whole, body,
            known.parsed,
        )  # fmt: skip
        if whole is not None:
            await self.answer(request, exchange, self.requests.begin(request, is_checked=known.is_checked))
            return
        watch = self._deadlines.put(now + WATCH_AFTER_S, body, Body.watch)
        try:
            await self.answer(request, exchange, self.requests.begin(request, is_checked=known.is_checked))
            if not exchange.is_body_complete:
                await body.discard()
        finally:
            watch.pop(body, None)
            body.close()

    async def answer(self, request: Request, exchange: Exchange, handled: Handled) -> None:
        """Answers a request once its handler has ended. Raises CancelledError when its client has left."""
        request.allow_stream(partial(self._begin_stream, request, exchange))
        try:
            response = await self.requests.wait(request, handled)
        except ConnectionResetError as error:
            if isinstance(error, ClientStalled):
                exchange.connection.abort()
            return
        finally:
            if exchange.has_begun:
                self._streams.end(exchange.connection)
        if exchange.has_begun:
            exchange.finish()
        else:
            await self.send(request, exchange, response)

    def send_now(self, request: TakenRequest, response: Response) -> None:
        """Sends a whole response, and any other one in a task."""
        connection, form = request.connection, response.form
        if form is not None and request.extra_headers is None:
            assert isinstance(response.body, bytes), request
            if request.reserved_bytes:
                self.responses.end_reservation(request)
            connection.complete_as(request.stream_id, form, request.id.encode(), response.body)
        elif response.rest is not None or response.more:
            connection.run_delayed(request.stream_id, request.head, _Sending(self, request, response))
        else:
            if request.reserved_bytes:
                self.responses.end_reservation(request)
            body = b"" if request.head.method == "HEAD" else response.body
            connection.complete(request.stream_id, response.status, _headers(request, response, is_whole=True), body)

    async def send(self, request: Request, exchange: Exchange, response: Response) -> None:
        """Sends a response. Pieces of a large one wait until their client takes them."""
        self.responses.end_reservation(request)
        if response.rest is None:
            body = b"" if request.head.method == "HEAD" else response.body
            headers = _headers(request, response, is_whole=True)
            if not response.more or not body:
                exchange.answer(response.status, headers, body)
                return
            exchange.begin(response.status, headers)
            with suppress(ConnectionResetError):
                for piece in (response.body, *response.more):
                    exchange.write(piece)
                exchange.finish()
            return
        exchange.begin(response.status, _headers(request, response, is_whole=False))
        exchange.write(response.body)
        try:
            await self._send_rest(request, exchange, response.rest)
        except EngineError as error:  # without its end, the client does not take the answer for whole
            log.warning("answer cut off", extra={"path": exchange.head.path, "reason": str(error)})
        except ConnectionResetError:
            pass

    def _begin_stream(self, request: Request, exchange: Exchange, headers: dict[str, str]) -> Stream:
        return self.requests.begin_stream(request, _StreamedAnswer(exchange, self._streams, headers))

    async def _send_rest(self, request: Request, exchange: Exchange, rest: NextPiece) -> None:
        """Gives each piece once the pieces before it have left. Raises what `rest` raises, ConnectionResetError."""
        responses, connection = self.responses, exchange.connection
        is_last = False
        while not is_last:
            await exchange.wait_room()
            if responses.is_full:
                await asyncio.sleep(NO_ROOM_PAUSE_S)
                continue
            piece, is_last = await rest()
            responses.give(connection, len(piece))
            exchange.write(piece)
            self.requests.count_piece(request, len(piece))
            if not piece:  # no record passed a filter
                await asyncio.sleep(0)
        exchange.finish()


def problem_response(status: int) -> tuple[list[Header], bytes]:
    """Returns headers and the problem document for a request whose head gateway/wire refuses."""
    response = Problem(*_OF_HEADS[status]).response()
    length = ("Content-Length", str(len(response.body)))
    return [*response.headers.items(), *COMMON_HEADERS, length], bytes(response.body)


def _headers(request: Request, response: Response, *, is_whole: bool) -> list[Header]:
    """Returns the headers of a response. `is_whole`: its length is known."""
    own: Iterable[Header] = response.headers.items() if response.form is None else response.form.before
    extra = () if request.extra_headers is None else request.extra_headers.items()
    if request.extra_headers is not None and "Cache-Control" in request.extra_headers:
        own = [header for header in own if header[0].lower() != "cache-control"]
    headers = [*own, (REQUEST_ID_HEADER, request.id), *extra, *COMMON_HEADERS]
    if is_whole and response.status not in _WITHOUT_LENGTH:
        size_bytes = response.size_bytes if response.more else len(response.body)
        headers.append(("Content-Length", str(size_bytes)))
    return headers


class TakenRequest(Request):
    """A request that is answered without a task, unless its handler must wait."""

    __slots__ = ("_handled", "_is_over", "adapter", "stream_id")

    adapter: Adapter
    stream_id: int
    connection: Connection
    _handled: Handled | None

    def follow(self, handled: Handled) -> None:
        """Answers with what its handler has returned, now or later."""
        self._handled = handled
        self._is_over = False
        if isinstance(handled, Pending):
            handled.then(self.receive)
        elif isinstance(handled, Response):
            self.receive(handled)
        else:
            self.connection.run_delayed(self.stream_id, self.head, self)

    def receive(self, outcome: Handled | BaseException) -> None:
        """Answers with a response, or with the failure of its handler. Raises nothing: the caller is an append."""
        if self._is_over:
            return
        try:
            if type(outcome) is not Response and not isinstance(outcome, Exception):
                if isinstance(outcome, Coroutine):
                    self.follow(outcome)
                else:  # the process stops
                    self.connection.drop(self.stream_id)
                return
            response = self.adapter.requests.finish(self, outcome)
            self._is_over = True
            self._handled = None  # it refers to this request: no cycle is left for the collector
            self.adapter.send_now(self, response)
        except Exception as error:
            self.connection.fail(self.stream_id, error)

    async def run(self, exchange: Exchange) -> None:
        """Answers in a task. Raises CancelledError when its client has left."""
        handled, self._handled = self._handled, None
        assert handled is not None, self
        await self.adapter.answer(self, exchange, handled)

    def recheck(self) -> None:
        """Ends a wait for records whose caller has lost the right to them."""
        handled, access = self._handled, self.adapter.requests.access
        if self._is_over or not isinstance(handled, Pending) or self.route.operation not in LONG_POLLS:
            return
        try:
            access.recheck(self)
        except Problem as problem:
            handled.cancel()
            self.receive(problem)

    def cancel(self) -> None:
        """Ends the wait: the client has left. Queued records are stored."""
        if self._is_over:
            return
        self._is_over = True
        handled, self._handled = self._handled, None
        give_up(handled)
        self.adapter.requests.abandon(self)


def waits_without_task(server: HttpServer) -> Iterator[TakenRequest]:
    """Yields the requests of a server that wait without a task."""
    for connection in server.connections:
        for delayed in connection.delayed.values():
            if isinstance(delayed, TakenRequest):
                yield delayed


class _Sending:
    """A response that leaves in pieces, in a task."""

    def __init__(self, adapter: Adapter, request: Request, response: Response) -> None:
        self._adapter = adapter
        self._request = request
        self._response = response

    async def run(self, exchange: Exchange) -> None:
        await self._adapter.send(self._request, exchange, self._response)

    def cancel(self) -> None:
        self._adapter.responses.cancel_reservation(self._request)


class _StreamedAnswer:
    """An answer that its handler writes until it ends."""

    def __init__(self, exchange: Exchange, streams: SendBuffers, headers: dict[str, str]) -> None:
        self._exchange = exchange
        self._streams = streams
        exchange.begin(200, [*headers.items(), *COMMON_HEADERS])
        streams.begin(exchange.connection)

    async def write(self, data: bytes) -> None:
        """Waits until the client has room for it. Raises ConnectionResetError when the client has left."""
        if data:
            await self._streams.wait_room(self._exchange.connection, len(data))
            self._exchange.write(data)


_OF_HEADS = {
    400: (
        "malformed_request",
        "the bytes are not an HTTP request, or its framing is doubtful (RFC 9112); or http:// is used at a port of https://",
    ),
    431: ("headers_too_large", "the headers are larger or more than the node takes"),
    500: ("internal", "the server failed; its log has the error"),
    501: (
        "unknown_method",
        "the method is not one of HTTP, or is CONNECT; or TLS is spoken to a port without TLS",
    ),
    505: ("unsupported_http_version", "this node speaks HTTP/1.0, HTTP/1.1 and HTTP/2"),
}
_WITHOUT_LENGTH = (204, 304)
