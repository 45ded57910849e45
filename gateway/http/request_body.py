"""Reads the bodies of requests within limits, decodes their Content-Encoding, and counts the bytes that are held.

A limit applies to the received and to the unpacked bytes: unpacking stops at the limit, and large bodies are unpacked
in a thread. Bytes count as they arrive and not as they are announced, so a client that announces much and sends nothing
takes no room. All bytes of a request are released when it has been answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from aiohttp import web

from engine.format.decompression import DoesNotFit
from gateway.http.content_encoding import IDENTITY, check_encoding, decoded
from gateway.http.messages import Request
from gateway.http.offload import Offload
from gateway.http.problems import Problem

COUNTED_BY_CONNECTION_BYTES = 64 * 1024  # smaller bodies are bounded by the limits of streams and connections
HELD_BYTES = web.RequestKey("penstock.held_bytes", tuple[int, int])


class RequestBodies:
    """The bodies of a process. `held_bytes` is the sum over requests that are not answered yet."""

    def __init__(self, bytes_max: int, connection_bytes_max: int, offload: Offload) -> None:
        self.held_bytes = 0
        self._bytes_max = bytes_max
        self._connection_bytes_max = connection_bytes_max
        self._offload = offload
        self._by_connection: dict[str | None, int] = {}

    def __repr__(self) -> str:
        return f"RequestBodies(held_bytes={self.held_bytes}, large_connections={len(self._by_connection)})"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each gauge."""
        yield "penstock_request_bytes_in_flight", "Bytes of the bodies of requests in flight", self.held_bytes

    async def read(self, request: Request, limit: int, on_received: Callable[[], None] | None = None) -> bytes:
        """Returns the body, unpacked. Calls `on_received` once it has arrived, before it is unpacked.

        Raises Problem body_too_large, unsupported_encoding, invalid_body, overloaded, too_many_requests.
        """
        announced = request.content_length
        if announced is not None and announced > limit:
            raise _too_large(limit)
        encoding = IDENTITY
        if "Content-Encoding" in request.headers:
            encoding = check_encoding(request.headers["Content-Encoding"])
        body = await self._read_up_to(request, limit)
        if on_received is not None:
            on_received()
        if encoding == IDENTITY or not body:
            return body
        try:
            unpacked = await decoded(encoding, body, limit, self._offload)
        except DoesNotFit:
            raise _too_large(limit) from None
        self.hold(request, len(unpacked))
        return unpacked

    def hold_small(self, size_bytes: int) -> bool:
        """Counts a body of less than COUNTED_BY_CONNECTION_BYTES until `release_small`. Returns False without room."""
        if self.held_bytes + size_bytes > self._bytes_max:
            return False
        self.held_bytes += size_bytes
        return True

    def release_small(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes

    def hold(self, request: Request, size_bytes: int) -> None:
        """Counts bytes that a request holds. Raises Problem overloaded, too_many_requests."""
        total, of_connection = request.get(HELD_BYTES, (0, 0))
        self.held_bytes += size_bytes
        total += size_bytes
        is_large = total >= COUNTED_BY_CONNECTION_BYTES
        if is_large:
            others = self._by_connection.get(request.remote, 0) - of_connection
            self._by_connection[request.remote] = others + total
            of_connection = total
        request[HELD_BYTES] = (total, of_connection)
        if self.held_bytes > self._bytes_max:
            raise Problem("overloaded", "the bodies of requests under way fill the room for them")
        if is_large and self._by_connection[request.remote] > self._connection_bytes_max:
            text = "requests under way on this connection hold too many bytes"
            raise Problem("too_many_requests", text, limit=self._connection_bytes_max)

    def release(self, request: Request) -> None:
        """Stops counting what a request holds. No-op for a request without a body."""
        held = request.get(HELD_BYTES)
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

    async def _read_up_to(self, request: Request, limit: int) -> bytes:
        content = request.content
        first = await content.readany()
        self.hold(request, len(first))
        size, chunks = len(first), [first]
        while not content.is_eof() and (chunk := await content.readany()):
            self.hold(request, len(chunk))
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            chunks.append(chunk)
        if size > limit:
            raise _too_large(limit)
        return first if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit: int) -> Problem:
    return Problem("body_too_large", f"a body may have {limit} bytes, unpacked too", limit=limit)
