"""Serves the requests that the HTTP server of gateway/wire delivers: makes a `Request`, answers it, sends the answer.

Invariants: (1) an answer is sent as soon as it is complete, and the rest of the body is read and dropped after it,
within bounds; (2) nothing here outlives its request except values derived from its head, which equal requests of a
connection share.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial

from engine.errors import EngineError
from engine.runtime.loop_waits import loop_waits
from gateway.access.origins import answer_options
from gateway.connections.send_buffers import ClientStalled, SendBuffers
from gateway.http.problems import Problem
from gateway.http.response import COMMON_HEADERS, NextPiece, Response
from gateway.http.routes import RouteTable
from gateway.server.body import Body, BodyLimits
from gateway.server.context import ServerContext
from gateway.server.delayed_fetch import DelayedFetches
from gateway.server.delayed_poll import DelayedPolls
from gateway.server.head_cache import HeadCache
from gateway.server.plain_produce import PlainProduces
from gateway.server.requests import Requests
from gateway.server.routes import routes_of
from gateway.wire.connection import Connection
from gateway.wire.exchange import Delayed, Exchange
from gateway.wire.messages import Header, RequestHead

log = logging.getLogger("penstock.gateway")

GROUPS_PATH = "/v1/groups/"
NO_ROOM_PAUSE_S = 0.5  # before another look at the room of all answers, which other clients free
WATCH_AFTER_S = 0.05  # most bodies have arrived by then, and need no watch


class Adapter:
    """The application of one process, as gateway/wire runs it."""

    def __init__(self, context: ServerContext, limits: BodyLimits, streams: SendBuffers) -> None:
        self.requests = Requests(context)
        self.heads = HeadCache(
            self.requests, RouteTable(routes_of(context), answer_options), context.http, context.produce
        )
        self._produces = PlainProduces(self.heads, self.requests, context.produce)
        self._fetches = DelayedFetches(self.heads, self.requests, context.fetch, context.http.compress_bytes_min)
        self._polls = DelayedPolls(self.heads, self.requests, context.groups, context.http)
        self._limits = limits
        self._responses = context.responses
        self._streams = streams
        self._loop = asyncio.get_running_loop()
        self._deadlines = loop_waits(self._loop).deadlines

    def __repr__(self) -> str:
        return f"Adapter({self.heads})"

    def take(self, connection: Connection, stream_id: int, head: RequestHead, body: bytes) -> Delayed | None:
        """Takes a whole request without a task. Returns None, with nothing done, for one that needs a task."""
        if head.method == "GET":
            return self._fetches.take(connection, stream_id, head)
        if head.path.startswith(GROUPS_PATH):
            return self._polls.take(connection, stream_id, head, body)
        return self._produces.take(connection, stream_id, head, body)

    async def __call__(self, exchange: Exchange) -> None:
        """Answers a request. Raises CancelledError when its client has left."""
        now = self._loop.time()
        body = Body(exchange, self._limits, now)
        if exchange.is_body_complete:
            await self._answer(exchange, body)
            return
        watch = self._deadlines.put(now + WATCH_AFTER_S, body, Body.watch)
        try:
            await self._answer(exchange, body)
        finally:
            watch.pop(body, None)
            body.close()

    async def _answer(self, exchange: Exchange, body: Body) -> None:
        known = self.heads.find(exchange.head)
        self.heads.answered += known.is_checked
        start = partial(_StreamedAnswer, exchange, self._streams)
        request = self.heads.request(known, exchange.head, body, exchange.connection, start)
        try:
            response = await self.requests.answer(request, known.began, is_checked=known.is_checked)
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
            self._responses.end_reservation(request)
            await self._send(exchange, response, request.answer_headers)
        if not exchange.is_body_complete:
            await body.discard()

    async def _send(self, exchange: Exchange, response: Response, answer_headers: dict[str, str]) -> None:
        headers = [*response.headers.items(), *answer_headers.items(), *COMMON_HEADERS]
        if response.rest is None:
            _send_whole(exchange, response, headers)
            return
        exchange.begin(response.status, headers)
        exchange.write(response.body)
        try:
            await self._send_rest(exchange, response.rest)
        except EngineError as error:  # without its end, the client does not take the answer for whole
            log.warning("answer cut off", extra={"path": exchange.head.path, "reason": str(error)})
        except ConnectionResetError:
            pass

    async def _send_rest(self, exchange: Exchange, rest: NextPiece) -> None:
        """Gives each piece once the pieces before it have left. Raises what `rest` raises, ConnectionResetError."""
        responses, connection = self._responses, exchange.connection
        is_last = False
        while not is_last:
            await exchange.wait_room()
            if responses.is_full:
                await asyncio.sleep(NO_ROOM_PAUSE_S)
                continue
            piece, is_last = await rest()
            responses.give(connection, len(piece))
            exchange.write(piece)
            if not piece:  # no record passed a filter
                await asyncio.sleep(0)
        exchange.finish()


def problem_response(status: int) -> tuple[list[Header], bytes]:
    """Returns headers and the problem document for a request whose head gateway/wire refuses."""
    response = Problem(*_OF_HEADS[status]).response()
    length = ("Content-Length", str(len(response.body)))
    return [*response.headers.items(), *COMMON_HEADERS, length], bytes(response.body)


def _send_whole(exchange: Exchange, response: Response, headers: list[Header]) -> None:
    """Sends a whole answer, without joining its pieces."""
    if response.status not in _WITHOUT_LENGTH:
        headers.append(("Content-Length", str(response.size_bytes)))
    is_head = exchange.head.method == "HEAD"
    if is_head or not response.more:
        exchange.answer(response.status, headers, b"" if is_head else response.body)
        return
    exchange.begin(response.status, headers)
    with suppress(ConnectionResetError):
        for piece in (response.body, *response.more):
            exchange.write(piece)
        exchange.finish()


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
    400: ("malformed_request", "the bytes are not an HTTP request, or its framing is doubtful (RFC 9112)"),
    431: ("headers_too_large", "the headers are larger or more than the node takes"),
    500: ("internal", "the server failed; its log has the error"),
    501: (
        "unknown_method",
        "the method is not one of HTTP, or is CONNECT; or TLS is spoken to a port without TLS",
    ),
    505: ("unsupported_http_version", "this node speaks HTTP/1.0, HTTP/1.1 and HTTP/2"),
}
_WITHOUT_LENGTH = (204, 304)
