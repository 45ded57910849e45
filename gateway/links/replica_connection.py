"""A connection for replica fetches: HTTP/1.1, one request at a time, the answer's body received in place.

As small as possible: replica fetches are most of the traffic between nodes, and an HTTP client copies each byte three
times between the socket and the body; this copies it once, into memory that earlier answers have left. Not a general
client: no chunks, no redirects, no compression, and a head that is longer than our nodes write is an error.
"""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple

from engine.runtime.read_buffers import ReceiveBuffers

HEAD_BYTES_MAX = 64 * 1024  # the part of the body that is received with the head is copied
BODY_BYTES_MAX = 1 << 30  # a fetch asks for a few MB; one batch may be larger
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class FetchAnswerBody(NamedTuple):
    status: int
    body: memoryview


class ReplicaConnection(asyncio.BufferedProtocol):
    """`send` returns a future: done with the answer, or with the OSError that ended the connection."""

    def __init__(self, buffers: ReceiveBuffers) -> None:
        self._buffers = buffers
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[FetchAnswerBody] | None = None
        self._head = bytearray(HEAD_BYTES_MAX)
        self._status = 0
        self._body: memoryview | None = None  # None until the whole head is received
        self._received = 0  # of the head, then of the body
        self.received_bytes = 0  # of all answers together

    @property
    def is_idle(self) -> bool:
        """True if another request may be sent: connected, and no answer is pending."""
        return self._transport is not None and not self._transport.is_closing() and self._waiting is None

    def send(self, request: bytes) -> asyncio.Future[FetchAnswerBody]:
        assert self.is_idle
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiting

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # uvloop's transports do not inherit from it

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = memoryview(self._head) if self._body is None else self._body
        return buffer[self._received :]

    def buffer_updated(self, nbytes: int) -> None:
        self._received += nbytes
        self.received_bytes += nbytes
        try:
            if self._body is None:
                self._parse_head()
            if self._body is not None and self._received == len(self._body):
                self._finish(self._body)
        except ValueError as error:
            self._fail(ConnectionResetError(f"an answer that no node writes: {error}"))

    def eof_received(self) -> None:
        """No-op: the other side sends no more, and the transport closes itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc if isinstance(exc, OSError) else ConnectionResetError("the node closed the connection"))

    def _parse_head(self) -> None:
        end = self._head.find(b"\r\n\r\n", 0, self._received)
        if end < 0:
            if self._received == HEAD_BYTES_MAX:
                raise ValueError(f"its head has more than {HEAD_BYTES_MAX} bytes")
            return
        status, length = _STATUS.match(self._head), _LENGTH.search(self._head, 0, end + 2)
        if status is None or length is None or int(length[1]) > BODY_BYTES_MAX:
            raise ValueError(repr(bytes(self._head[: min(end, 200)])))
        begun = self._head[end + 4 : self._received]
        self._status, self._body = int(status[1]), self._buffers.take(int(length[1]))
        if len(begun) > len(self._body):
            raise ValueError("it goes on behind its end")
        self._body[: len(begun)] = begun
        self._received = len(begun)

    def _finish(self, body: memoryview) -> None:
        waiting, self._waiting = self._waiting, None
        self._body, self._received = None, 0
        if waiting is None:
            raise ValueError("an answer without a request")
        if not waiting.done():
            waiting.set_result(FetchAnswerBody(self._status, body))

    def _fail(self, error: OSError) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
        self.close()
