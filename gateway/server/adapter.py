"""Runs the aiohttp application behind the HTTP server of gateway/wire.

Beside gateway/server/route_cache.py it is the only file that uses an aiohttp internal. For each exchange it builds a
`web.Request`, runs the application on it and sends its answer. Invariants: (1) an answer is sent as soon as it is
complete, and the rest of the body is read and dropped after it, within bounds; (2) nothing here outlives its request
except values derived from its head, which equal requests of a connection share.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from engine.errors import EngineError
from engine.runtime.loop_waits import loop_waits
from gateway.access.hosts import is_host
from gateway.connections.response_buffers import CONNECTION, ResponseBuffers
from gateway.connections.send_buffers import ClientStalled, SendBuffers
from gateway.fetch.context import FETCH
from gateway.groups.context import GROUPS
from gateway.http.context import HTTP
from gateway.http.messages import COMMON_HEADERS, HttpResponse, NextPiece, StreamedResponse
from gateway.http.problems import Problem
from gateway.produce.context import PRODUCE
from gateway.server.body import Body, BodyLimits
from gateway.server.delayed_fetch import DelayedFetches
from gateway.server.delayed_poll import DelayedPolls
from gateway.server.middleware import MIDDLEWARE
from gateway.server.plain_produce import PlainProduces
from gateway.server.route_cache import RouteCache
from gateway.server.short_path import VERSIONS, KnownHead, ShortPath
from gateway.wire.connection import Connection
from gateway.wire.exchange import Delayed, Exchange, Take
from gateway.wire.messages import Header, RequestHead

log = logging.getLogger("penstock.gateway")

GROUPS_PATH = "/v1/groups/"
NO_ROOM_PAUSE_S = 0.5  # before another look at the room of all answers, which other clients free
WATCH_AFTER_S = 0.05  # most bodies have arrived by then, and need no watch


class Adapter:
    """One aiohttp application, as an application of gateway/wire."""

    def __init__(
        self,
        app: web.Application,
        short_path: ShortPath | None,
        limits: BodyLimits,
        responses: ResponseBuffers,
        streams: SendBuffers,
    ) -> None:
        """Without a `short_path` all requests go to the application."""
        self._routes = RouteCache(app)
        self._short_path = short_path
        self.take = None if short_path is None else _take_of(app, short_path)
        self._limits = limits
        self._responses = responses
        self._streams = streams
        self._loop = asyncio.get_running_loop()
        self._deadlines = loop_waits(self._loop).deadlines
        self._protocol: Any = SimpleNamespace(ssl_context=None, peername=None, sockname=None)
        app.freeze()

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
        head = exchange.head
        memo = head.memo
        if memo is None:
            short = self._short_path
            memo = head.memo = (short and short.find(head)) or _message(head)
        if isinstance(memo, KnownHead):
            assert self._short_path is not None
            try:
                answer = await self._short_path.answer(exchange, body, memo)
            except ConnectionResetError:
                return
            await self._send(exchange, answer)
            if not exchange.is_body_complete:
                await body.discard()
            return
        message: RawRequestMessage = memo
        writer = _StreamWriter(exchange, self._streams)
        request = web.Request(message, body, self._protocol, writer, exchange.task, self._loop)  # type: ignore[arg-type]
        request[CONNECTION] = exchange.connection
        request._transport_peername = exchange.connection.client  # so that `remote` identifies the connection
        try:
            response = await self._routes.handle(request, head.method, head.path)
        except ConnectionResetError as error:
            if isinstance(error, ClientStalled):
                exchange.connection.abort()
            return
        finally:
            writer.close()
        if exchange.has_begun:
            await response.write_eof()
        else:
            self._responses.end_reservation(request)
            await self._send(exchange, response)
        if not exchange.is_body_complete:
            await body.discard()

    async def _send(self, exchange: Exchange, response: web.StreamResponse | HttpResponse) -> None:
        if isinstance(response, HttpResponse) and response.more:
            _send_pieces(exchange, response)
            return
        rest = response.rest if isinstance(response, HttpResponse | StreamedResponse) else None
        if rest is None:
            _send_response(exchange, response)
            return
        assert isinstance(response, HttpResponse | StreamedResponse)
        exchange.begin(response.status, [*response.headers.items(), *COMMON_HEADERS])
        exchange.write(response.body)
        try:
            await self._send_rest(exchange, rest)
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


def _take_of(app: web.Application, short_path: ShortPath) -> Take:
    """Returns the function that takes requests without a task."""
    produces = PlainProduces(short_path, app[MIDDLEWARE], app[PRODUCE])
    fetches = DelayedFetches(short_path, app[MIDDLEWARE], app[FETCH], app[HTTP].compress_bytes_min)
    polls = DelayedPolls(short_path, app[MIDDLEWARE], app[GROUPS], app[HTTP])

    def take(connection: Connection, stream_id: int, head: RequestHead, body: bytes) -> Delayed | None:
        if head.method == "GET":
            return fetches.take(connection, stream_id, head)
        if head.path.startswith(GROUPS_PATH):
            return polls.take(connection, stream_id, head, body)
        return produces.take(connection, stream_id, head, body)

    return take


def problem_response(status: int) -> tuple[list[Header], bytes]:
    """Returns headers and the problem document for a request whose head gateway/wire refuses."""
    response = Problem(*_OF_HEADS[status]).response()
    assert isinstance(response.body, bytes)
    length = ("Content-Length", str(len(response.body)))
    return [*response.headers.items(), *COMMON_HEADERS, length], response.body


def _send_response(exchange: Exchange, response: web.StreamResponse | HttpResponse) -> None:
    headers = [*response.headers.items(), *COMMON_HEADERS]
    content = response.body if isinstance(response, HttpResponse | web.Response) else None
    if not isinstance(content, (bytes, bytearray)):
        content = b""
    if response.status not in _WITHOUT_LENGTH:
        headers.append(("Content-Length", str(len(content))))
    exchange.answer(response.status, headers, b"" if exchange.head.method == "HEAD" else content)


def _send_pieces(exchange: Exchange, response: HttpResponse) -> None:
    """Sends a whole answer without joining its pieces."""
    length = ("Content-Length", str(response.size_bytes))
    exchange.begin(response.status, [*response.headers.items(), *COMMON_HEADERS, length])
    with suppress(ConnectionResetError):
        for piece in (response.body, *response.more):
            exchange.write(piece)
        exchange.finish()


def _message(head: RequestHead) -> RawRequestMessage:
    """Returns the message that aiohttp's own parser makes of a head."""
    headers = CIMultiDict(head.headers)
    headers.popall("Expect", None)  # the server sends 100 Continue itself; aiohttp would send a second one
    if head.authority:
        _name_host(headers, head.authority, is_http1=head.version != "2")
    return RawRequestMessage(
        method=head.method,
        path=head.path,
        version=VERSIONS[head.version],
        headers=CIMultiDictProxy(headers),
        raw_headers=(),
        should_close=False,
        compression=None,
        upgrade=False,
        chunked=False,
        url=URL.build(path=head.path, query_string=head.query, encoded=True),
    )


def _name_host(headers: CIMultiDict[str], authority: str, *, is_http1: bool) -> None:
    """Puts the authority of the target where handlers look for the host.

    RFC 9112 3.2.2: the target `http://host/path` of an HTTP/1.1 request replaces a Host that is well-formed. RFC 9113
    8.3.1: in HTTP/2 a Host that differs from `:authority` makes the request malformed; both stay, which is rejected.
    """
    given = headers.getall("host", ())
    if is_http1 and len(given) == 1 and is_host(given[0]):
        headers["host"] = authority
    elif not is_http1 and [host.lower() for host in given] != [authority.lower()]:
        headers.add("host", authority)


class _StreamWriter(AbstractStreamWriter):
    """Lets an aiohttp StreamResponse write an answer in pieces."""

    buffer_size = 0
    output_size = 0
    length: int | None = None

    def __init__(self, exchange: Exchange, streams: SendBuffers) -> None:
        self._exchange = exchange
        self._streams = streams

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        status = int(status_line.split(" ", 2)[1])
        kept = [(name, value) for name, value in headers.items() if name.lower() not in _NOT_OURS]
        self._exchange.begin(status, [*kept, *COMMON_HEADERS])
        self._streams.begin(self._exchange.connection)

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Waits until the client has room for it. Raises ConnectionResetError when the client has left."""
        if chunk:
            await self._streams.wait_room(self._exchange.connection, len(chunk))
            self._exchange.write(bytes(chunk))

    def close(self) -> None:
        if self._exchange.has_begun:
            self._streams.end(self._exchange.connection)

    async def write_eof(self, chunk: bytes = b"") -> None:
        if chunk:
            self._exchange.write(chunk)
        self._exchange.finish()

    async def drain(self) -> None:
        """No-op: `write` has waited already."""

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        raise NotImplementedError("the gateway compresses whole bodies, never a stream")

    def enable_chunking(self) -> None:
        """No-op: the server chooses the transfer coding."""

    def send_headers(self) -> None:
        """No-op: write_headers sends them."""


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
# aiohttp sets them, and the server sets its own
_NOT_OURS = ("transfer-encoding", "connection", "keep-alive", "date", "server", "x-content-type-options")
_WITHOUT_LENGTH = (204, 304)
