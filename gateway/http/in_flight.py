"""The bytes of request bodies that a process holds at the moment: of all requests, and of each connection.

Counted as they arrive and not as they are announced, so that who announces much and sends nothing takes no room from
others. What is over a bound is refused at once, and all of a request is given back when it has been answered.
"""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import web

from gateway.http.problems import Problem

COUNTED_BY_CONNECTION_BYTES = 64 * 1024  # smaller bodies are bounded well enough by streams and connections
_HELD = web.RequestKey("penstock.held_bytes", tuple[int, int])


class InFlight:
    """`held_bytes` is the sum over requests that are not answered yet."""

    def __init__(self, bytes_max: int, connection_bytes_max: int) -> None:
        self.held_bytes = 0
        self._bytes_max = bytes_max
        self._connection_bytes_max = connection_bytes_max
        self._by_connection: dict[str | None, int] = {}

    def __repr__(self) -> str:
        return f"InFlight(held_bytes={self.held_bytes}, large_connections={len(self._by_connection)})"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Name, text and value of each, for the metrics."""
        yield "penstock_request_bytes_in_flight", "Bytes of bodies of open requests", self.held_bytes

    def hold(self, request: web.Request, size_bytes: int) -> None:
        """A piece of the request's body is there. Raises Problem overloaded, too_many_requests."""
        total, of_connection = request.get(_HELD, (0, 0))
        self.held_bytes += size_bytes
        total += size_bytes
        is_large = total >= COUNTED_BY_CONNECTION_BYTES
        if is_large:
            others = self._by_connection.get(request.remote, 0) - of_connection
            self._by_connection[request.remote] = others + total
            of_connection = total
        request[_HELD] = (total, of_connection)
        if self.held_bytes > self._bytes_max:
            raise Problem("overloaded", "the bodies of requests under way fill the room for them")
        if is_large and self._by_connection[request.remote] > self._connection_bytes_max:
            text = "requests under way on this connection hold too many bytes"
            raise Problem("too_many_requests", text, limit=self._connection_bytes_max)

    def release(self, request: web.Request) -> None:
        """The request has its answer."""
        held = request.get(_HELD)
        if held is None:
            return
        total, of_connection = held
        self.held_bytes -= total
        if of_connection:
            left = self._by_connection[request.remote] - of_connection
            if left:
                self._by_connection[request.remote] = left
            else:
                del self._by_connection[request.remote]
