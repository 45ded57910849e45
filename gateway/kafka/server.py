"""The server of Kafka's protocol in a process: accepts connections, ends idle and stalled ones, and drains them."""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial

from engine.runtime.tasks import start_task
from gateway.connections.response_buffers import ResponseBuffers
from gateway.http.request import RequestBodies
from gateway.kafka.codec.messages import Buffer
from gateway.kafka.connection import Connection
from gateway.kafka.requests import Client, KafkaRequest
from gateway.kafka.service import Service

RECEIVE_BYTES = 256 * 1024
ACCEPTS_AT_ONCE = 64  # before the loop runs other tasks
ACCEPT_PAUSE_S = 0.5  # when no file can be opened
WATCH_S = 1.0
IDLE_S = 600.0  # Kafka's own: Java's clients leave after 9 minutes, and others log an error if the server is first
HANDSHAKE_S = 10.0


class KafkaServer:
    """`partial_s` bounds how long a frame may take to arrive, `stall_s` how long a client may read nothing."""

    def __init__(
        self,
        service: Service,
        bodies: RequestBodies,
        responses: ResponseBuffers,
        connections_max: int,
        partial_s: float,
        stall_s: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.receive_room = memoryview(bytearray(RECEIVE_BYTES))  # of all connections: one is read at a time
        self.connections: set[Connection] = set()
        self._service = service
        self._bodies = bodies
        self._responses = responses
        self._connections_max = connections_max
        self._partial_s = partial_s
        self._stall_s = stall_s
        self._tls: ssl.SSLContext | None = None
        self._listeners: list[socket.socket] = []
        self._accepting = 0
        self._is_accepting = False

    def __repr__(self) -> str:
        return f"KafkaServer(connections={len(self.connections)})"

    def open(self, listeners: list[socket.socket], tls: ssl.SSLContext | None = None) -> None:
        """Accepts connections from these sockets, which the server owns from now on."""
        self._listeners, self._tls = listeners, tls
        self._accept_more()

    def renew(self, tls: ssl.SSLContext) -> None:
        """Uses this certificate for new connections."""
        self._tls = tls

    async def watch(self) -> None:
        """Looks at connections until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            now = self._loop.time()
            for connection in list(self.connections):
                self._judge(connection, now)

    def _judge(self, connection: Connection, now: float) -> None:
        if connection.stalled_since is not None and now - connection.stalled_since > self._stall_s:
            self._responses.stalled += 1
            self._service.log_closed(connection.client, "the client reads no responses")
            connection.abort()
        elif connection.partial_since is not None and now - connection.partial_since > self._partial_s:
            self._service.log_closed(connection.client, "a frame does not arrive whole")
            connection.abort()
        elif connection.is_idle and now - connection.active_at > IDLE_S:
            connection.leave()

    async def close(self, within_s: float) -> None:
        """Closes the ports, and ends every connection once what has begun is answered; others are reset."""
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        self._listeners = []
        for connection in list(self.connections):
            connection.leave()
        deadline = self._loop.time() + within_s
        while self.connections and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)

    # For connections

    @property
    def has_room(self) -> bool:
        """Returns whether more bytes of requests may be read."""
        return self._bodies.has_room

    def hold(self, size_bytes: int) -> None:
        self._bodies.held_bytes += size_bytes

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._service.forget(connection.client)
        if not self._is_accepting:
            self._accept_more()

    def new_client(self, address: str) -> Client:
        return self._service.new_client(address)

    def frame_bytes_max(self, client: Client) -> int:
        return self._service.frame_bytes_max(client)

    def begin(self, frame: memoryview, client: Client) -> tuple[KafkaRequest, object]:
        return self._service.begin(frame, client)

    def finish(self, request: KafkaRequest, outcome: object) -> list[Buffer] | None:
        return self._service.finish(request, outcome)

    def abandon(self, request: KafkaRequest) -> None:
        self._service.abandon(request)

    def log_closed(self, client: Client, reason: str) -> None:
        self._service.log_closed(client, reason)

    def count_unsent(self, connection: Connection, size_bytes: int) -> None:
        self._responses.give(connection, size_bytes)

    # Within

    @property
    def _has_place(self) -> bool:
        return len(self.connections) + self._accepting < self._connections_max

    def _accept_more(self) -> None:
        if self._listeners and self._has_place:
            self._is_accepting = True
            for listener in self._listeners:
                self._loop.add_reader(listener, partial(self._accept, listener))

    def _accept_no_more(self) -> None:
        self._is_accepting = False
        for listener in self._listeners:
            self._loop.remove_reader(listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            if not self._has_place:
                self._accept_no_more()
                return
            try:
                accepted, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # too many open files: connections wait in the queue until some are closed
                self._accept_no_more()
                self._loop.call_later(ACCEPT_PAUSE_S, self._accept_more)
                return
            accepted.setblocking(False)
            self._accepting += 1
            start_task(self._connect(accepted))

    async def _connect(self, accepted: socket.socket) -> None:
        timeout = HANDSHAKE_S if self._tls is not None else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: Connection(self), accepted, ssl=self._tls, ssl_handshake_timeout=timeout
            )
        except (OSError, TimeoutError):  # the client has left, or does not speak TLS
            accepted.close()
        finally:
            self._accepting -= 1
            if not self._is_accepting:
                self._accept_more()
