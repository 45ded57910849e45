"""Counts responses that were given to the HTTP server and not yet taken by their clients: per connection and in total.

Most responses are complete in memory before they are given, so clients that ask and never read would fill the memory.
Large ones are counted here from the moment that they are reserved, as are the pieces of those that are given in pieces.
Event streams, which can wait, are counted by gateway/connections/send_buffers.py. The server ends connections whose
clients take nothing (gateway/wire/idle.py).
Invariant: a response beyond a bound is rejected and not given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from gateway.http.problems import Problem
from gateway.http.request import Request
from gateway.wire.exchange import sendable_of

COUNTED_BYTES = 64 * 1024  # of smaller responses, a connection bounds what waits (gateway/wire/connection.py)
REFRESH_S = 0.1  # between two sums over all connections,
REFRESH_PART = 4  # unless this part of the bound was given meanwhile: clients that read at once took it long ago


class Sending(Protocol):
    """A connection, of any protocol, with the bytes that it was given and its client has not taken."""

    @property
    def unsent_bytes(self) -> int: ...


class ResponseLimits(NamedTuple):
    """The bounds. One response may exceed `bytes_max`; a connection without unsent responses takes one of any size."""

    bytes_max: int
    connection_bytes_max: int


def sendable_bytes(request: Request, size_bytes: int) -> int:
    """Returns how many bytes are read for a request, of `size_bytes`: what its connection can be sent, or a piece."""
    return sendable_of(request.connection, size_bytes)


class ResponseBuffers:
    """`connections` are those with a large response unsent, each with the bytes reserved to it and not given yet.

    While it is empty, a response below COUNTED_BYTES need not be counted.
    """

    def __init__(self, limits: ResponseLimits, now: Callable[[], float]) -> None:
        self.refused = 0
        self.stalled = 0  # connections that the server ended
        self.connections: Counter[Sending] = Counter()
        self._limits = limits
        self._now = now
        self._size_bytes = 0
        self._summed_bytes = 0
        self._summed_at = now()

    def __repr__(self) -> str:
        return f"ResponseBuffers(connections={len(self.connections)}, size_bytes={self.size_bytes})"

    @property
    def size_bytes(self) -> int:
        """The bytes that are reserved or given, and not taken. Forgets connections without any."""
        for connection, reserved in list(self.connections.items()):
            if not reserved and not connection.unsent_bytes:
                del self.connections[connection]
        self._size_bytes = sum(connection.unsent_bytes + more for connection, more in self.connections.items())
        self._summed_bytes = self._size_bytes
        self._summed_at = self._now()
        return self._size_bytes

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each gauge."""
        yield (
            "penstock_send_buffer_bytes",
            "Bytes of large responses that clients have not received yet",
            self.size_bytes,
        )
        yield "penstock_rejected_responses_total", "Responses rejected because the send buffers were full", self.refused
        yield (
            "penstock_stalled_connections_closed_total",
            "Connections closed because the client did not read its responses",
            self.stalled,
        )

    def count(self, request: Request, size_bytes: int, *, may_refuse: bool = True) -> None:
        """Counts a response of this size before it is given. Call it again when the size changes.

        Only reads may be refused: the outcome of a write and the health of the node must be answered.
        Raises Problem overloaded, too_many_requests: then the response must not be given.
        """
        connection = request.connection
        if request.method == "HEAD":
            return
        before = request.reserved_bytes
        if before == 0 and size_bytes < COUNTED_BYTES:
            return
        if before == 0 and may_refuse:
            self._check_room(connection, size_bytes)
        self.connections[connection] += size_bytes - before
        self._size_bytes += size_bytes - before
        request.reserved_bytes = size_bytes

    @property
    def is_full(self) -> bool:
        """True while all responses together exceed their bound."""
        bytes_max = self._limits.bytes_max
        if self._size_bytes < bytes_max:
            return False
        given_bytes = self._size_bytes - self._summed_bytes
        if given_bytes * REFRESH_PART < bytes_max and self._now() < self._summed_at + REFRESH_S:
            return True
        return self.size_bytes >= bytes_max

    def give(self, connection: Sending, size_bytes: int) -> None:
        """Counts a response, or a piece of one, that the server gets now. Nothing is reserved for it."""
        self.connections[connection] += 0  # its unsent bytes count
        self._size_bytes += size_bytes

    def end_reservation(self, request: Request) -> None:
        """Ends the reservation: the server has the response now, and counts it."""
        self._release(request)

    def cancel_reservation(self, request: Request) -> None:
        """Cancels the reservation: the request's response is not given."""
        self._release(request)

    def _release(self, request: Request) -> None:
        if request.reserved_bytes:
            self.connections[request.connection] -= request.reserved_bytes
            request.reserved_bytes = 0

    def _check_room(self, connection: Sending, size_bytes: int) -> None:
        out_bytes = connection.unsent_bytes + self.connections.get(connection, 0)
        if out_bytes > 0 and out_bytes + size_bytes > self._limits.connection_bytes_max:
            self.refused += 1
            text = "the send buffer of this connection is full: its client does not read its responses"
            raise Problem("too_many_requests", text, limit=self._limits.connection_bytes_max)
        if self.is_full:
            self.refused += 1
            raise Problem("overloaded", "the send buffers are full: clients do not read their responses")
