"""Runs the aiohttp application on Granian, which speaks HTTP/1.1, h2c and, with TLS, HTTP/2 by ALPN.

The only file that touches Granian, and beside gateway/server/route_cache.py the only one that touches an aiohttp
internal; both are pinned. Per request it builds a `web.Request`, runs the application on it and hands the answer to
Granian. What must hold: (1) a body that is dropped resets its stream, and a client that still sends then loses its
answer: so an answer is sent as soon as it is there, and what is left of the body is read and thrown away after it,
within bounds;
(2) a client that leaves ends its handler's wait; (3) nothing here outlives its request.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

from aiohttp import HttpVersion, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings, HTTP2Settings
from granian.server.embed import Server
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from engine.runtime.loop_waits import loop_waits
from engine.runtime.tasks import in_background
from gateway.access.hosts import is_host
from gateway.connections.open_connections import OpenConnections
from gateway.connections.response_buffers import ENDS, ResponseBuffers
from gateway.connections.send_buffers import ClientStalled, ConnectionBuffers, Unread
from gateway.server.route_cache import RouteCache
from gateway.server.rsgi_body import Body, BodyLimits
from gateway.settings import NodeSettings

log = logging.getLogger("penstock.gateway")

WATCH_AFTER_S = 0.05  # most requests are over by then, and need no watch over their client and their body
BACKLOG = 4096
QUIET_S = 0.1  # a client on this side of the world is heard of within this time
LAST_CALL_S = 0.5
UNREADABLE = "\ufffd"  # stands for a header value that Granian does not give out, so that it is refused and not missed
PING_ANSWER_S = 20


class Sent(NamedTuple):
    """What is known of the clients' side of connections."""

    streams: Unread
    answers: ResponseBuffers
    connections: OpenConnections


class RsgiApp:
    """Granian's callback around one aiohttp application."""

    def __init__(self, app: web.Application, limits: BodyLimits, sent: Sent) -> None:
        self._routes = RouteCache(app)
        self._limits = limits
        self._sent = sent
        self._loop = asyncio.get_running_loop()
        self._deadlines = loop_waits(self._loop).deadlines
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

    def begin_last_call(self) -> None:
        """From now on HTTP/1.1 clients are told to leave with their answers."""
        self._is_last_call = True

    async def last_call(self) -> None:
        """Wait until nothing comes any more, for a little while at most: what was sent before its client knew of the
        end is still answered, and HTTP/1.1 clients are told to leave.
        """
        self.begin_last_call()
        deadline = self._loop.time() + LAST_CALL_S
        while (now := self._loop.time()) < min(deadline, self._answered_at + QUIET_S):
            await asyncio.sleep(min(deadline, self._answered_at + QUIET_S) - now)
            await self.until_idle()

    async def __call__(self, scope: Any, proto: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.under_way += 1
        client: str = scope.client
        self._sent.connections.began(client)
        try:
            await self._answer(scope, client, proto, task)
        except asyncio.CancelledError:
            pass  # the client has left, or the server stops: nobody is there to be answered
        except Exception:  # a bug here, not in a handler: those have their problem document already
            log.exception("the adapter failed")
            raise
        finally:
            self._answered_at = self._loop.time()
            self._sent.connections.ended(client, self._answered_at)
            self.under_way -= 1
            if self.under_way == 0:
                self.idle.set()

    async def _answer(self, scope: Any, client: str, proto: Any, task: asyncio.Task[Any]) -> None:
        headers = CIMultiDict(scope.headers.items())
        headers.popall("Expect", None)  # Granian says 100 Continue itself; aiohttp would try to write it as well
        for name in scope.headers.keys():  # noqa: SIM118 - no mapping; items() leaves out values that are not ASCII
            if name not in headers and name != "expect":
                headers.add(name, UNREADABLE)
        is_http1 = scope.http_version.startswith("1")
        if scope.authority:
            _name_host(headers, scope.authority, is_http1)
        now = self._loop.time()
        body = Body(proto, scope.method, is_http1, headers, self._limits, now)
        watch = self._deadlines.put(now + WATCH_AFTER_S, body, partial(self._watch, proto, task))
        try:
            await self._answer_with(scope, client, headers, body, proto, task)
        finally:
            watch.pop(body, None)
            body.close()

    async def _answer_with(
        self, scope: Any, client: str, headers: CIMultiDict[str], body: Body, proto: Any, task: asyncio.Task[Any]
    ) -> None:
        writer = _StreamWriter(proto, self._sent, scope)
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
        request[ENDS] = scope
        request._transport_peername = client  # so that `remote` tells one connection from another
        try:
            response = await self._routes.handle(request, scope.method, scope.path)
        except ConnectionResetError as error:
            if isinstance(error, ClientStalled):
                writer.cut()
            return
        finally:
            writer.close()
        waits_for_100 = body.is_untouched and body.is_http1 and "expect" in scope.headers
        leaves_body = not body.is_done and not waits_for_100  # a client that waits for 100 has sent nothing yet
        if leaves_body:
            body.hold()
        await self._send(request, response, proto, writer)
        if leaves_body:
            await body.discard()

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
            if isinstance(content, (bytes, bytearray)):
                headers.append(("Content-Length", str(len(content))))
            proto.response_empty(response.status, headers)

    def _watch(self, proto: Any, task: asyncio.Task[Any], body: Body) -> None:
        body.watch(task)
        watcher = in_background(_cancel_on_disconnect(proto, task), "watching for the end of a connection")
        task.add_done_callback(lambda _: watcher.cancel())


def _name_host(headers: CIMultiDict[str], authority: str, is_http1: bool) -> None:
    """Put the authority of the target where handlers look for the host.

    RFC 9112 3.2.2: the target `http://host/path` of an HTTP/1.1 request replaces a Host that is well-formed. RFC 9113
    8.3.1: in HTTP/2 a Host that differs from `:authority` makes the request malformed; both stay, which is refused.
    """
    given = headers.getall("host", ())
    if is_http1 and len(given) == 1 and is_host(given[0]):
        headers["host"] = authority
    elif not is_http1 and [host.lower() for host in given] != [authority.lower()]:
        headers.add("host", authority)


async def _cancel_on_disconnect(proto: Any, task: asyncio.Task[Any]) -> None:
    await proto.client_disconnect()
    task.cancel()


class _StreamWriter(AbstractStreamWriter):
    """Lets an aiohttp StreamResponse write into Granian's streaming answer."""

    buffer_size = 0
    output_size = 0
    length: int | None = None

    def __init__(self, proto: Any, sent: Sent, scope: Any) -> None:
        self._proto = proto
        self._scope = scope
        self._sent = sent
        self._connection: ConnectionBuffers | None = None
        self._transport: Any = None
        self.has_begun = False

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        status = int(status_line.split(" ", 2)[1])
        kept = [(name, value) for name, value in headers.items() if name.lower() not in _NOT_OURS]
        kept.append(_SERVER)
        self._transport = self._proto.response_stream(status, kept)
        self.has_begun = True
        self._connection = self._sent.streams.begin(self._scope.server, self._scope.client)

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Granian's send never waits, so this does. Raises ConnectionResetError when the client has left."""
        if not chunk:
            return
        assert self._connection is not None
        await self._connection.room(len(chunk))
        self._sent.answers.streamed(self._connection.client, len(chunk))
        try:
            await self._transport.send_bytes(bytes(chunk))
        except RuntimeError as error:
            raise ConnectionResetError(str(error)) from None

    def cut(self) -> None:
        """End the connection: what Granian keeps for a client that does not read goes with it."""
        if self._connection is not None:
            self._connection.cut()

    def close(self) -> None:
        if self._connection is not None:
            self._sent.streams.end(self._connection)
            self._connection = None
            self._transport = None  # Granian ends the answer once nobody holds this

    async def write_eof(self, chunk: bytes = b"") -> None:
        await self.write(chunk)

    async def drain(self) -> None:
        """`write` has waited already."""

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        raise NotImplementedError("the gateway compresses whole bodies, never a stream")

    def enable_chunking(self) -> None:
        """Granian chooses the transfer coding."""

    def send_headers(self) -> None:
        """They are sent by write_headers."""


_SERVER = ("Server", "penstock")
_NOT_OURS = ("transfer-encoding", "connection", "keep-alive", "date", "server")  # aiohttp sets them, Granian says them
_VERSIONS = {"1": HttpVersion(1, 0), "1.1": HttpVersion(1, 1)}


HttpServer: TypeAlias = Server  # by this name others may hold one


def make_server(target: RsgiApp, settings: NodeSettings, address: str, port: int) -> HttpServer:
    """Granian, embedded in this process's loop; it takes an IP address, and no name. `::` takes IPv4 too."""
    logging.getLogger("_granian").setLevel(logging.ERROR)
    logging.getLogger("granian").setLevel(logging.ERROR)
    return Server(
        target,
        address=address,
        port=port,
        interface=Interfaces.RSGI,
        http=HTTPModes.auto,
        websockets=False,
        backlog=BACKLOG,
        backpressure=settings.connections_max,
        http1_settings=HTTP1Settings(
            max_buffer_size=max(settings.header_bytes_max, 8192), header_read_timeout=settings.header_read_timeout_ms
        ),
        http2_settings=HTTP2Settings(
            max_concurrent_streams=settings.http2_streams_max,
            max_headers_size=settings.header_bytes_max,
            initial_connection_window_size=16 * 1024 * 1024,
            initial_stream_window_size=4 * 1024 * 1024,
            max_frame_size=256 * 1024,
            keep_alive_interval=settings.http2_ping_ms,
            keep_alive_timeout=PING_ANSWER_S,
        ),
        log_enabled=False,
        ssl_cert=Path(settings.tls_cert) if settings.is_tls else None,
        ssl_key=Path(settings.tls_key) if settings.is_tls else None,
    )


def stop_server(server: HttpServer) -> None:
    """Accept nothing more; `serve` returns soon. Requests under way are the caller's business."""
    server.stop()
    server.main_loop_interrupt.set()
