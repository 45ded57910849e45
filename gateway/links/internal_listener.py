"""The port on which other nodes of the cluster reach one process: replica fetches, and links for all other calls.

Not for clients, and it decides nothing: it accepts connections with the cluster's secret and id, and hands them on.
Each process of a node has its own port, since a follower fetches from the process that leads. replica_listener.py
receives every connection first and answers fetches.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from aiohttp import web

from engine.errors import EngineError, StartRefused
from engine.runtime.tasks import in_background, keep_running
from gateway.http.problems import Problem, from_engine
from gateway.links.addresses import bind_sockets
from gateway.links.internal_link import CLUSTER_ID, LINK_PATH, PROTOCOL, SCHEME, Credentials, watch_silence
from gateway.links.link import Handler, Link
from gateway.links.replica_listener import HEAD_S, FetchConnection, Fetching, FetchListening
from gateway.wire.handshakes import Handshakes, first_byte

CLOSE_S = 1.0
IDLE_CHECK_S = 0.02
BACKLOG = 128
ACCEPT_PAUSE_S = 0.1
_UPGRADED = f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {PROTOCOL}\r\n\r\n".encode()

log = logging.getLogger("penstock.link")


class InternalListener:
    """Serves other nodes until closed."""

    def __init__(self, credentials: Credentials, handlers: Mapping[str, Handler], fetching: Fetching) -> None:
        self._credentials = credentials
        self._handlers = handlers
        self._links: dict[_IncomingLink, None] = {}
        app = web.Application(middlewares=[self._around])
        app.router.add_get(LINK_PATH, self._link)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=CLOSE_S)
        self._fetches = FetchListening(fetching, self._check, self._other, credentials.tls.check)
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._beginning: set[asyncio.Task[None]] = set()
        self._handshakes = Handshakes()
        self._refusal = ""  # the last one that was logged

    def __repr__(self) -> str:
        return f"InternalListener({self.port}, links={len(self._links)}, fetching={len(self._fetches.connections)})"

    @property
    def port(self) -> int:
        """The port; 0 while it is not open."""
        return self._sockets[0].getsockname()[1] if self._sockets else 0

    async def open(self, host: str, port: int) -> None:
        """Listens. Raises StartRefused."""
        await self._runner.setup()
        try:
            for bound in await asyncio.to_thread(bind_sockets, host, port):
                bound.setblocking(False)
                bound.listen(BACKLOG)
                self._sockets.append(bound)
        except OSError as error:
            text = f"cannot listen on {host}:{port} for other nodes: {error.strerror}"
            raise StartRefused(text, hint="give --internal-port-base another port") from None
        self._accepting = [
            keep_running(partial(self._accept_forever, one), "accepting connections of other nodes")
            for one in self._sockets
        ]

    async def wait_idle(self, seconds: float) -> None:
        """Waits until every call over a link has its reply, for at most `seconds`. So waits for acks can complete."""
        for _ in range(round(seconds / IDLE_CHECK_S)):
            if not any(link.is_serving for link in self._links):
                return
            await asyncio.sleep(IDLE_CHECK_S)

    async def close(self) -> None:
        for task in (*self._accepting, *self._beginning):
            task.cancel()
        for one in self._sockets:
            one.close()
        self._sockets = []
        await self._fetches.close()
        for link in list(self._links):
            link.close()
        await self._runner.cleanup()

    async def _accept_forever(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(ACCEPT_PAUSE_S)  # out of descriptors, or the connection is gone already
                continue
            task = in_background(self._begin(connection), "accepting a connection of another node")
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, connection: socket.socket) -> None:
        """Begin with or without TLS, as the first byte is."""
        loop, tls = asyncio.get_running_loop(), self._credentials.tls
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(HEAD_S):
                first = await first_byte(connection)
                make = partial(FetchConnection, self._fetches)
                if tls.context_from(first) is None:
                    await loop.connect_accepted_socket(make, connection)
                else:
                    await self._handshakes.connect(make, connection, partial(tls.context_from, first), HEAD_S)
        except (TimeoutError, OSError) as error:  # includes SSLError
            connection.close()
            self._log_refusal(str(error))
        except BaseException:
            connection.close()
            raise

    def _log_refusal(self, reason: str) -> None:
        """Log a reason once: the other node tries again and again."""
        if reason and reason != self._refusal:
            self._refusal = reason
            log.warning("a connection to the port for other nodes was refused", extra={"reason": reason})

    @web.middleware
    async def _around(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            self._check(request.headers.get("Authorization", ""), request.headers.get(CLUSTER_ID))
            return await handler(request)
        except Problem as problem:
            return _refusal(problem)
        except EngineError as error:
            return _refusal(from_engine(error))
        except web.HTTPException:
            return _refusal(Problem("not_found", f"there is nothing at {request.path}"))

    def _check(self, authorization: str, cluster_id: str | None) -> None:
        """Checks the secret first: without it, a caller learns nothing else. Raises Problem unauthorized, forbidden."""
        scheme, _, secret = authorization.partition(" ")
        if not self._credentials.accepts(secret) or scheme != SCHEME:
            raise Problem("unauthorized", "this port is for nodes of its cluster", headers={"WWW-Authenticate": SCHEME})
        if cluster_id != self._credentials.cluster_id:
            text = f"this node is of cluster {self._credentials.cluster_id}, not {cluster_id}"
            raise Problem("forbidden", text)

    def _other(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        return server()

    async def _link(self, request: web.Request) -> web.Response:
        """GET /internal/v1/link: the connection becomes a link until it is lost."""
        if request.headers.get("Upgrade") != PROTOCOL:
            text = f"this node speaks {PROTOCOL}, not {request.headers.get('Upgrade')}"
            raise Problem("invalid_header", text)
        transport = request.transport
        if transport is None:
            raise ConnectionResetError
        link = _IncomingLink(self._handlers, request)
        self._links[link] = None
        try:
            watch_silence(transport)
            transport.set_protocol(link)
            transport.write(_UPGRADED)
            link.connection_made(transport)
            await link.lost.wait()
        finally:
            del self._links[link]
        return web.Response()  # never sent: the connection is lost


def _refusal(problem: Problem) -> web.Response:
    response = problem.response("internal")
    return web.Response(status=response.status, body=bytes(response.body), headers=response.headers)


class _IncomingLink(Link):
    """An incoming link. It reports its loss to aiohttp's protocol, which made the connection."""

    def __init__(self, handlers: Mapping[str, Handler], request: web.Request) -> None:
        super().__init__(handlers)
        self.lost = asyncio.Event()
        self._before = request.protocol

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._before.connection_lost(exc)
        self.lost.set()
