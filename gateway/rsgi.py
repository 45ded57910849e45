"""Runs the aiohttp application on Granian, which speaks HTTP/1.1, h2c and, with TLS, HTTP/2 by ALPN.

The only file that touches Granian or an aiohttp internal; both are pinned. Per request it builds a `web.Request`, runs
the application on it and hands the answer to Granian.
What must hold: (1) an answer sent before the body was read is lost by HTTP/2 clients, so what is left of a body is read
and thrown away first, within bounds; (2) a client that leaves ends its handler's wait; (3) nothing here outlives
its request.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, TypeAlias

from aiohttp import HttpVersion, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings, HTTP2Settings
from granian.server.embed import Server
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from gateway.problems import Problem
from gateway.settings import NodeSettings

log = logging.getLogger("penstock.gateway")

WHOLE_BODY_BYTES = 1024 * 1024  # bodies up to here are taken in one piece; larger ones in chunks, against a limit
DRAIN_S = 2.0
WATCH_DISCONNECT_AFTER_S = 0.05  # most requests are over by then and need no watcher
BACKLOG = 4096
QUIET_S = 0.1  # a client on this side of the world is heard of within this time
LAST_CALL_S = 0.5
UNREADABLE = "\ufffd"  # stands for a header value that Granian does not give out, so that it is refused and not missed
METHODS_WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")


class RsgiApp:
    """Granian's callback around one aiohttp application."""

    def __init__(self, app: web.Application, drain_bytes_max: int) -> None:
        self._app = app
        self._drain_bytes_max = drain_bytes_max
        self._loop = asyncio.get_running_loop()
        self._protocol: Any = SimpleNamespace(ssl_context=None, peername=None, sockname=None)
        self.under_way = 0
        self.idle = asyncio.Event()
        self._answered_at = 0.0
        self._is_last_call = False
        app.freeze()

    async def until_idle(self) -> None:
        """Wait until no request is under way."""
        while self.under_way:
            self.idle.clear()
            await self.idle.wait()

    async def last_call(self) -> None:
        """Wait until nothing comes any more, for a little while at most: what was sent before its client knew of the
        end is still answered, and HTTP/1.1 clients are told to leave.
        """
        self._is_last_call = True
        deadline = self._loop.time() + LAST_CALL_S
        while (now := self._loop.time()) < min(deadline, self._answered_at + QUIET_S):
            await asyncio.sleep(min(deadline, self._answered_at + QUIET_S) - now)
            await self.until_idle()

    async def __call__(self, scope: Any, proto: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.under_way += 1
        watch = self._loop.call_later(WATCH_DISCONNECT_AFTER_S, self._watch, proto, task)
        try:
            await self._answer(scope, proto, task)
        except asyncio.CancelledError:
            pass  # the client has left, or the server stops: nobody is there to be answered
        except Exception:  # a bug here, not in a handler: those have their problem document already
            log.exception("the adapter failed")
            raise
        finally:
            watch.cancel()
            self._answered_at = self._loop.time()
            self.under_way -= 1
            if self.under_way == 0:
                self.idle.set()

    async def _answer(self, scope: Any, proto: Any, task: asyncio.Task[Any]) -> None:
        headers = CIMultiDict(scope.headers.items())
        headers.popall("Expect", None)  # Granian says 100 Continue itself; aiohttp would try to write it as well
        for name in scope.headers.keys():  # noqa: SIM118 - no mapping; items() leaves out values that are not ASCII
            if name not in headers and name != "expect":
                headers.add(name, UNREADABLE)
        body = _Body(proto, scope.method, scope.http_version.startswith("1"), headers)
        writer = _StreamWriter(proto)
        message = RawRequestMessage(
            method=scope.method,
            path=scope.path,
            version=_VERSIONS.get(scope.http_version, HttpVersion(2, 0)),
            headers=CIMultiDictProxy(headers),
            raw_headers=(),
            should_close=False,
            compression=None,
            upgrade=False,
            chunked=False,
            # Granian has decoded the path once; a percent sign that is left must not be decoded again.
            url=URL.build(path=scope.path.replace("%", "%25"), query_string=scope.query_string, encoded=True),
        )
        request = web.Request(message, body, self._protocol, writer, task, self._loop)  # type: ignore[arg-type]
        try:
            response = await self._app._handle(request)
        except ConnectionResetError:
            return
        if not body.is_done:
            await body.discard(self._drain_bytes_max)
        await self._send(request, response, proto, writer)

    async def _send(
        self, request: web.Request, response: web.StreamResponse, proto: Any, writer: _StreamWriter
    ) -> None:
        if writer.has_begun:
            await response.write_eof()
            return
        headers = [*response.headers.items(), _SERVER]
        if self._is_last_call and request.version < HttpVersion(2, 0):
            headers.append(("Connection", "close"))
        content = response.body if isinstance(response, web.Response) else None
        if isinstance(content, (bytes, bytearray)) and request.method != "HEAD":
            proto.response_bytes(response.status, headers, content)
        else:
            proto.response_empty(response.status, headers)

    def _watch(self, proto: Any, task: asyncio.Task[Any]) -> None:
        watcher = self._loop.create_task(_cancel_on_disconnect(proto, task))
        task.add_done_callback(lambda _: watcher.cancel())


async def _cancel_on_disconnect(proto: Any, task: asyncio.Task[Any]) -> None:
    await proto.client_disconnect()
    task.cancel()


class _Body:
    """What aiohttp calls `request.content`: the body in pieces, as far as handlers here use it.

    Granian's pieces do not tell a body that was cut off from one that ended, so this has to find out: by the announced
    length where there is one. In a chunked HTTP/1.1 body a failure shows as one empty piece more than a proper end
    has, and so do trailers, which therefore are refused. In HTTP/2 the stream is reset, which ends the handler.
    """

    def __init__(self, proto: Any, method: str, is_http1: bool, headers: CIMultiDict[str]) -> None:
        length = headers.get("Content-Length", "")
        self._announced = int(length) if length.isdecimal() else None
        self._is_http1 = is_http1
        self._proto = proto
        self._chunks: Any = None
        self._received = 0
        self.is_done = self._announced == 0 or (self._announced is None and method not in METHODS_WITH_BODY)

    async def readany(self) -> bytes:
        """The next piece; empty at the end. Raises Problem when the body stops before it."""
        if self.is_done:
            return b""
        try:
            if self._chunks is None and self._announced is not None and self._announced <= WHOLE_BODY_BYTES:
                self.is_done = True
                whole: bytes = await self._proto()
                return whole if len(whole) == self._announced else self._cut_off()
            return await self._next_chunk()
        except (RuntimeError, OSError):
            self.is_done = True
            return self._cut_off()

    async def _next_chunk(self) -> bytes:
        if self._chunks is None:
            self._chunks = aiter(self._proto)  # once: Granian gives the body away with it
        empty_pieces = 0
        try:
            while not (chunk := await anext(self._chunks)):  # anext's default argument crashes on Granian's awaitables
                empty_pieces += 1
            self._received += len(chunk)
            return bytes(chunk)
        except StopAsyncIteration:
            self.is_done = True
        is_short = self._announced is not None and self._received < self._announced
        return self._cut_off() if is_short or (self._is_http1 and empty_pieces > 1) else b""

    def _cut_off(self) -> NoReturn:
        raise Problem("invalid_body", "the body was cut off, or carries trailers, which are not taken")

    async def discard(self, bytes_max: int) -> None:
        """Read what is left of a body that nobody wants, within bounds of size and time."""
        try:
            async with asyncio.timeout(DRAIN_S):
                while bytes_max > 0 and (chunk := await self.readany()):
                    bytes_max -= len(chunk)
        except (TimeoutError, Problem):
            return


class _StreamWriter(AbstractStreamWriter):
    """Lets an aiohttp StreamResponse write into Granian's streaming answer."""

    buffer_size = 0
    output_size = 0
    length: int | None = None

    def __init__(self, proto: Any) -> None:
        self._proto = proto
        self._transport: Any = None
        self.has_begun = False

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        status = int(status_line.split(" ", 2)[1])
        kept = [(name, value) for name, value in headers.items() if name.lower() not in _HOP_BY_HOP]
        kept.append(_SERVER)
        self._transport = self._proto.response_stream(status, kept)
        self.has_begun = True

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        if chunk:
            await self._transport.send_bytes(bytes(chunk))

    async def write_eof(self, chunk: bytes = b"") -> None:
        await self.write(chunk)

    async def drain(self) -> None:
        """Granian's send waits for room itself."""

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        raise NotImplementedError("the gateway compresses whole bodies, never a stream")

    def enable_chunking(self) -> None:
        """Granian chooses the transfer coding."""

    def send_headers(self) -> None:
        """They are sent by write_headers."""


_SERVER = ("Server", "penstock")
_HOP_BY_HOP = ("transfer-encoding", "connection", "keep-alive")
_VERSIONS = {"1": HttpVersion(1, 1), "1.0": HttpVersion(1, 0), "1.1": HttpVersion(1, 1)}


HttpServer: TypeAlias = Server  # by this name others may hold one


def make_server(target: RsgiApp, settings: NodeSettings, port: int) -> HttpServer:
    """Granian, embedded in this process's loop."""
    logging.getLogger("_granian").setLevel(logging.ERROR)
    logging.getLogger("granian").setLevel(logging.ERROR)
    return Server(
        target,
        address=settings.host,
        port=port,
        interface=Interfaces.RSGI,
        http=HTTPModes.auto,
        websockets=False,
        backlog=BACKLOG,
        backpressure=settings.connections_max,
        http1_settings=HTTP1Settings(max_buffer_size=max(settings.header_bytes_max, 8192)),
        http2_settings=HTTP2Settings(
            max_concurrent_streams=settings.http2_streams_max,
            max_headers_size=settings.header_bytes_max,
            initial_connection_window_size=16 * 1024 * 1024,
            initial_stream_window_size=4 * 1024 * 1024,
            max_frame_size=256 * 1024,
        ),
        log_enabled=False,
        ssl_cert=Path(settings.tls_cert) if settings.is_tls else None,
        ssl_key=Path(settings.tls_key) if settings.is_tls else None,
    )


def stop_server(server: HttpServer) -> None:
    """Accept nothing more; `serve` returns soon. Requests under way are the caller's business."""
    server.stop()
    server.main_loop_interrupt.set()
