"""Counts the bytes sent to clients of event streams and not taken by them; a stream that is far behind waits.

A connection has room for 1 MiB, and for 64 KiB while all streams together exceed their bound. The count is what the
server holds for a connection, other answers on it included; the kernel's own buffers come on top.
"""

from __future__ import annotations

from collections import Counter

from gateway.wire.exchange import Carrier

ROOM_BYTES = 1024 * 1024  # of a connection; as much as a distant client takes in a tenth of a second at 10 MB/s
ROOM_BYTES_LEAST = 64 * 1024  # while all streams together exceed their bound


class ClientStalled(ConnectionResetError):
    """The client of a stream has taken nothing for too long."""


class SendBuffers:
    """The connections of this process that have event streams."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._streams: Counter[Carrier] = Counter()
        self._is_closing = False

    def __repr__(self) -> str:
        return f"SendBuffers(connections={len(self._streams)}, size_bytes={self.size_bytes})"

    @property
    def size_bytes(self) -> int:
        return sum(connection.unsent_bytes for connection in self._streams)

    def begin(self, connection: Carrier) -> None:
        """Begins a stream. Call `end` when it is over."""
        self._streams[connection] += 1

    def end(self, connection: Carrier) -> None:
        self._streams[connection] -= 1
        if not self._streams[connection]:
            del self._streams[connection]

    async def wait_room(self, connection: Carrier, incoming_bytes: int) -> None:
        """Waits until `incoming_bytes` more may be sent. Raises ConnectionResetError when the client has left."""
        while connection.unsent_bytes and connection.unsent_bytes + incoming_bytes > ROOM_BYTES_LEAST:
            if connection.unsent_bytes + incoming_bytes <= ROOM_BYTES and self.size_bytes <= self.bytes_max:
                return
            if self._is_closing:
                connection.abort()
                raise ConnectionResetError("the node is stopping, and the client did not read its stream")
            await connection.wait_progress()

    def close(self) -> None:
        """Ends all waits for clients that are behind: the node stops."""
        self._is_closing = True
        for connection in list(self._streams):
            if connection.unsent_bytes > ROOM_BYTES_LEAST:
                connection.abort()
