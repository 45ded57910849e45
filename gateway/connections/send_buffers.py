"""How much was sent to the clients of event streams and is not yet taken by them; who is far behind waits.

Granian queues what it is given without bound and its send never waits, so this asks the kernel what a connection's
client has acknowledged. It counts by connection: with HTTP/2 another answer on the same connection that is taken
counts for the stream as well, so a client that reads some of its streams only may be sent more than is meant, up to
`BLIND_BYTES_MAX` a stream where nothing is known at all.
"""

from __future__ import annotations

import asyncio

from gateway.connections.kernel_sockets import KernelSockets

ROOM_BYTES = 1024 * 1024  # a connection's; as much as a far client takes in a tenth of a second at 10 MB/s
ROOM_BYTES_LEAST = 64 * 1024  # when all have too much together, and before the kernel is asked
BLIND_BYTES_MAX = 16 * 1024 * 1024  # a stream's whole length where the kernel tells nothing; its client comes back
PAUSE_S_LEAST, PAUSE_S_MAX = 0.001, 0.1  # between two questions


class ClientStalled(ConnectionResetError):
    """The client of a stream has taken nothing for too long."""


class Unread:
    """All connections of this process that event streams are sent to."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size_bytes = 0
        self.kernel = KernelSockets()
        self._connections: dict[str, ConnectionBuffers] = {}
        self._is_closing = False
        self._left_behind: list[tuple[str, str]] = []

    def __repr__(self) -> str:
        return f"Unread(connections={len(self._connections)}, size_bytes={self.size_bytes})"

    def begin(self, server: str, client: str) -> ConnectionBuffers:
        """A stream begins. Call `end` when it is over."""
        connection = self._connections.get(client)
        if connection is None:
            connection = self._connections[client] = ConnectionBuffers(self, server, client)
        connection.streams += 1
        return connection

    def close(self) -> None:
        """The node stops: nobody waits any more for a client that is behind."""
        self._is_closing = True

    def wait_no_more(self, server: str, client: str) -> None:
        """Called before each wait. Raises ConnectionResetError when the node stops."""
        if self._is_closing:
            self._left_behind.append((server, client))
            raise ConnectionResetError("the node stops, and the client has not taken what it was sent")

    def cut_left_behind(self) -> None:
        """End the connections that were not waited for: the HTTP server would wait for them."""
        self.kernel.shut_down(self._left_behind)
        self._left_behind = []

    def end(self, connection: ConnectionBuffers) -> None:
        connection.streams -= 1
        if connection.streams == 0:
            del self._connections[connection.client]
            self.size_bytes -= connection.size_bytes


class ConnectionBuffers:
    """What one connection was sent and has not acknowledged."""

    def __init__(self, all_of_them: Unread, server: str, client: str) -> None:
        self.streams = 0
        self.size_bytes = 0
        self.client = client
        self._server = server
        self._all = all_of_them
        found = all_of_them.kernel.find(server, client)
        self._acknowledged_bytes = 0 if found is None else found.acknowledged_bytes

    async def room(self, incoming_bytes: int) -> None:
        """Wait until so much more may be sent. Raises ConnectionResetError when the connection is gone."""
        pause_s = PAUSE_S_LEAST
        while self.size_bytes + incoming_bytes > ROOM_BYTES_LEAST:
            if self._look() or self.size_bytes <= self._limit():
                break
            self._all.wait_no_more(self._server, self.client)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
        self._count(incoming_bytes)

    def cut(self) -> None:
        """Give the connection up, and what is kept for it."""
        self._all.kernel.shut_down([(self._server, self.client)])

    def _limit(self) -> int:
        return ROOM_BYTES_LEAST if self._all.size_bytes > self._all.bytes_max else ROOM_BYTES

    def _look(self) -> bool:
        """Ask the kernel how much was taken. True when it tells nothing, so that waiting would be in vain."""
        if not self._all.kernel.is_known:
            if self.size_bytes > BLIND_BYTES_MAX:
                raise ConnectionResetError("enough was sent without knowing whether it is read")
            return True
        found = self._all.kernel.find(self._server, self.client)
        if found is None:
            raise ConnectionResetError("the client has left")
        taken = found.acknowledged_bytes - self._acknowledged_bytes
        self._acknowledged_bytes = found.acknowledged_bytes
        self._count(-min(taken, self.size_bytes))
        return False

    def _count(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._all.size_bytes += size_bytes
