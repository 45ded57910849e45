"""The HTTP server of a node on its ports: opened when the node is ready, drained when it stops.

A socket listens on one address, so a host with several (localhost is 127.0.0.1 and ::1) has one socket for each.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from engine.errors import StartRefused
from engine.runtime.tasks import keep_running
from gateway.access.listeners.listener import PublicListener
from gateway.access.listeners.listeners_file import DEFAULT, ListenerSpec
from gateway.access.listeners.tls_context import Generation
from gateway.connections.memory import MemoryWatch
from gateway.connections.send_buffers import SendBuffers
from gateway.connections.socket_passing import SocketPassing
from gateway.links.addresses import addresses_of
from gateway.server.adapter import Adapter, problem_response, waits_without_task
from gateway.settings import NodeSettings
from gateway.wire.idle import Verdict
from gateway.wire.listening import Door, listen
from gateway.wire.server import QUIET_S, HttpServer
from node.node import Node
from node.setup.http_limits import body_limits, times, wire_limits
from node.setup.public_listeners import default_listener, read_generation

if TYPE_CHECKING:
    from node.setup.kafka_listener import KafkaListener
    from node.setup.rest_proxy_listener import RestProxyListener

CLOSE_S = 2.0  # for answers that are complete and not sent yet
SHUTDOWN_NOTICE_S = 0.4  # the idle connections of clients that ask less often are closed, which HTTP clients expect


class Listener:
    """Serves one node on some ports of its host."""

    def __init__(
        self,
        node: Node,
        settings: NodeSettings,
        ports: Sequence[int],
        socket_passing: SocketPassing | None = None,
        specs: Sequence[ListenerSpec] = (),
    ) -> None:
        """`ports` are those of the default listener. `specs` are all listeners, the default one first; empty: only it.

        `socket_passing` moves connections between the processes of a standalone node.
        """
        self._settings = settings
        self._socket_passing = socket_passing
        self._node = node
        self._ports = ports
        self._specs = specs or [default_listener(settings)]
        self._doors: dict[str, Door] = {}
        self._expiries_ms: dict[str, int] = {}
        self._streams = SendBuffers(settings.stream_send_buffer_bytes_max)
        adapter = Adapter(node.server, body_limits(settings), self._streams)
        self._server = HttpServer(
            adapter,
            wire_limits(settings),
            times(settings),
            settings.connections_max * len(ports),
            lambda: node.clock.now_ms() / 1000,
            self._count_ended,
            problem_response,
            adapter.take,
            None if socket_passing is None else socket_passing.moves_of,
        )
        node.access.waits.include(partial(waits_without_task, self._server))
        node.observer.follow(self._server.connections, self._expiries_ms)
        self._rest_proxy: RestProxyListener | None = None
        if settings.rest_proxy_listen:
            from node.setup.rest_proxy_listener import RestProxyListener

            self._rest_proxy = RestProxyListener(node.server, settings, self._count_ended)
        self._kafka: KafkaListener | None = None
        if settings.kafka_listen:
            from node.setup.kafka_listener import KafkaListener  # only a node that has it pays for its import

            self._kafka = KafkaListener(node.server, settings)

    async def open(self) -> None:
        """Open every port. Raises StartRefused."""
        for spec in self._specs:
            self._doors[spec.name] = await self._door(spec)
        if self._socket_passing is not None and not self._settings.is_tls:
            self._socket_passing.open(self._server)
        self._server.open(list(self._doors.values()))
        if self._kafka is not None:
            await self._kafka.open()
        if self._rest_proxy is not None:
            await self._rest_proxy.open()
        self._node.start_push()
        self._watching = [
            keep_running(self._node.loop_watch.run, "watching the event loop"),
            keep_running(self._server.watch, "watching connections"),
            keep_running(MemoryWatch(self._node.executor).run, "giving memory back"),
        ]

    async def renew(self, name: str) -> None:
        """Use the TLS files of a listener that are on disk now for new connections. Open ones end after their answers.

        A connection of a revoked certificate ends at once. Raises StartRefused; then nothing has changed.
        """
        (spec,) = (spec for spec in self._specs if spec.name == name)
        generation = await self._generation(spec)
        if generation is not None and not self._node.lifecycle.is_draining:
            door = self._doors[name]
            if door.listener is not None:
                door.listener.use_names(generation.names)
            self._server.renew(door, generation.context, generation.refuses)
            if name == DEFAULT and self._kafka is not None:
                await self._kafka.renew()
            if name == DEFAULT and self._rest_proxy is not None:
                await self._rest_proxy.renew()

    async def _door(self, spec: ListenerSpec) -> Door:
        """Raises StartRefused."""
        generation = await self._generation(spec)
        listener = PublicListener(spec) if spec != default_listener(self._settings) else None
        if listener is not None and generation is not None:
            listener.use_names(generation.names)
        ports = self._ports if spec.name == DEFAULT else [spec.port]
        addresses = await self._node.offload.in_thread(partial(addresses_of, spec.host))
        places = [(address, port) for port in ports for address in addresses]
        try:
            sockets = listen(places)
        except OSError as error:
            raise StartRefused(f"cannot listen on {places}: {error.strerror}") from None
        return Door(sockets, None if generation is None else generation.context, listener)

    async def announce_shutdown(self) -> None:
        """Move clients to other nodes before `drain`: serve connected clients, reject new ones, then close the ports.

        Each answer announces the end of its connection, and connections without a request end. So none is left whose
        next request would be refused. A client that finds the port closed asks the next node, so no request fails.
        """
        self._node.end_long_polls()
        self._server.announce_leave()
        if self._rest_proxy is not None:
            self._rest_proxy.announce_leave()
        await asyncio.sleep(SHUTDOWN_NOTICE_S)
        self._server.reject_new_connections()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_NOTICE_S):
                await self._server.wait_last_responses()
        self._server.close_ports()
        await asyncio.sleep(QUIET_S)  # connections that were in the queue bring their requests
        await self._server.leave(CLOSE_S)

    async def drain(self) -> None:
        """Reject new work, end long polls, finish the requests in progress until the deadline, close."""
        if self._socket_passing is not None:
            self._socket_passing.close()
        await self._node.drain()
        if self._kafka is not None:
            await self._kafka.drain()
        if self._rest_proxy is not None:
            await self._rest_proxy.drain()
        self._streams.close()
        await self._server.drain(self._settings.shutdown_timeout_ms / 1000)
        for watching in self._watching:
            watching.cancel()
        await self._server.close(CLOSE_S)

    def _count_ended(self, verdict: Verdict) -> None:
        if verdict is Verdict.IDLE:
            self._node.metrics.idle_connections.value += 1
        elif verdict is Verdict.STALLED:
            self._node.responses.stalled += 1

    async def _generation(self, spec: ListenerSpec) -> Generation | None:
        generation = await self._node.offload.in_thread(partial(read_generation, spec, self._node.clock.now_ms()))
        if generation is not None:
            self._expiries_ms[spec.name] = generation.expires_ms
        return generation
