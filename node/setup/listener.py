"""Ports and the HTTP servers on them: opened when a node is ready, drained when it stops.

A server listens on one address, so a host that stands for several (localhost is 127.0.0.1 and ::1) has one for each.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial

from engine.errors import StartRefused
from engine.runtime.tasks import keep_running, note_failure, start_task
from gateway.connections.connection_watch import ConnectionWatch
from gateway.connections.memory import MemoryWatch
from gateway.connections.own_sockets import let_nobody_in, own_listeners
from gateway.connections.send_buffers import Unread
from gateway.links.addresses import addresses_of
from gateway.server.app import make_app
from gateway.server.rsgi import HttpServer, RsgiApp, Sent, make_server, stop_server
from gateway.server.rsgi_body import BodyLimits
from gateway.settings import NodeSettings
from node.node import Node

LISTEN_ATTEMPTS = 200
LISTEN_PAUSE_S = 0.02
GRANIAN_STOP_S = 2.0
FAREWELL_S = 0.4  # clients that ask more seldom have an idle connection closed, which theirs are prepared for


class Listener:
    """Serves one node on some ports of its host."""

    def __init__(self, node: Node, settings: NodeSettings, ports: Sequence[int]) -> None:
        self._settings = settings
        self._node = node
        self._unread = Unread(settings.stream_unread_bytes_max)
        count_idle = node.metrics.idle_connections.inc
        self._connections = ConnectionWatch(
            settings, ports, node.responses, node.clock.monotonic, node.offload, count_idle
        )
        sent = Sent(self._unread, node.responses, self._connections.connections)
        self._target = RsgiApp(make_app(node.server), _body_limits(settings), sent)
        self._servers: dict[asyncio.Future[None], HttpServer] = {}
        self._retired: dict[asyncio.Future[None], HttpServer] = {}  # take nothing new, and end what they have
        self._renewing = asyncio.Lock()
        self._has_failed = asyncio.Event()
        self._ports = ports
        self._addresses: list[str] = []

    async def open(self) -> None:
        """Returns once every port answers. Raises StartRefused."""
        self._watching = [
            keep_running(self._node.loop_watch.run, "watching the event loop"),
            keep_running(self._connections.run, "watching connections"),
            keep_running(MemoryWatch(self._node.executor).run, "giving memory back"),
        ]
        self._addresses = await self._node.offload.in_thread(partial(addresses_of, self._settings.host))
        async with self._renewing:
            for address, port in self._places:
                serving, server = self._begin(address, port)
                self._servers[serving] = server
                await _until_listening(serving, address, port)

    async def renew(self) -> None:
        """Take new connections with the certificate that is on disk now.

        Granian's listener keeps the one that it began with. So a second one opens on the same port, and then the first
        stops: what is open there ends after the requests under way, and clients connect again. What must hold: the
        first goes on until the second is known to listen. Raises StartRefused, and then nothing has changed.
        """
        async with self._renewing:
            before, fresh = set(self._servers), dict[asyncio.Future[None], HttpServer]()
            if not before or self._node.lifecycle.is_draining:
                return
            try:
                for address, port in self._places:
                    listening = await self._node.offload.in_thread(partial(own_listeners, port))
                    serving, server = self._begin(address, port)
                    fresh[serving] = server
                    await self._until_another_listens(serving, port, listening)
            except StartRefused:
                self._retire(fresh)
                raise
            self._retire({serving: self._servers.pop(serving) for serving in before})
            self._servers |= fresh

    async def closed_by_itself(self) -> None:
        """Returns only if the HTTP server ends without being told to."""
        await self._has_failed.wait()

    async def say_farewell(self) -> None:
        """Before `drain`, where other nodes do what is asked here: whoever is connected is still served, and leaves.

        Each answer tells its client to come by another connection; then those are let in no more, whoever is in is
        answered, and the ports close. To find nobody at a port is no error of a request: its client asks the next node.
        """
        self._node.let_go()
        self._target.begin_last_call()
        await asyncio.sleep(FAREWELL_S)
        for port in self._ports:
            await self._node.offload.in_thread(partial(let_nobody_in, port))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await self._target.last_call()
        await self._close_ports()

    async def drain(self) -> None:
        """Refuse new work, let waiting clients go, finish what is under way until the deadline, close."""
        await self._node.drain()
        self._unread.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.shutdown_deadline_ms / 1000):
                await self._target.until_idle()
                await self._target.last_call()
        for watching in self._watching:
            watching.cancel()
        self._unread.cut_left_behind()
        await self._close_ports()
        if self._retired:
            _, late = await asyncio.wait(list(self._retired), timeout=GRANIAN_STOP_S)
            for serving in late:
                serving.cancel()

    async def _close_ports(self) -> None:
        """A renewal under way ends before: its fresh listeners would stay, and it looks for those that it replaces."""
        async with self._renewing:
            servers, self._servers = self._servers, {}
            self._retire(servers)

    @property
    def _places(self) -> list[tuple[str, int]]:
        return [(address, port) for port in self._ports for address in self._addresses]

    def _begin(self, address: str, port: int) -> tuple[asyncio.Future[None], HttpServer]:
        server = make_server(self._target, self._settings, address, port)
        serving = start_task(server.serve())
        serving.add_done_callback(self._ended)
        return serving, server

    def _ended(self, serving: asyncio.Future[None]) -> None:
        self._retired.pop(serving, None)
        if not serving.cancelled() and (error := serving.exception()) is not None:
            note_failure("serving HTTP", error)
        if serving in self._servers:
            self._has_failed.set()

    def _retire(self, servers: Mapping[asyncio.Future[None], HttpServer]) -> None:
        for serving, server in servers.items():
            if not serving.done():
                self._retired[serving] = server
                stop_server(server)

    async def _until_another_listens(self, serving: asyncio.Future[None], port: int, before: set[str]) -> None:
        for _ in range(LISTEN_ATTEMPTS):
            if not serving.done() and await self._node.offload.in_thread(partial(own_listeners, port)) - before:
                return
            await asyncio.sleep(LISTEN_PAUSE_S)
        raise StartRefused(f"a second listener on port {port} did not open")


def _body_limits(settings: NodeSettings) -> BodyLimits:
    return BodyLimits(
        settings.body_read_timeout_ms / 1000,
        settings.body_bytes_per_second_min,
        settings.drain_ms_max / 1000,
        settings.drain_bytes_max,
    )


async def _until_listening(serving: asyncio.Future[None], host: str, port: int) -> None:
    for _ in range(LISTEN_ATTEMPTS):
        if serving.done():
            raise StartRefused(
                f"the listener ended at once: {serving.exception()}", hint="check --tls-cert and --tls-key"
            )
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(LISTEN_PAUSE_S)
        else:
            writer.close()
            return
    raise StartRefused(f"the listener on {host}:{port} does not answer")
