"""One request and its answer as the application sees them: the head, the body in pieces, and the answer.

The application is a coroutine function that takes an exchange; it is cancelled when the client leaves. It reads the
body or not, and gives one answer, whole or in pieces. An exchange without an answer is reset. An application may take a
whole request by a plain call instead, and answer it later: then it costs no exchange and no task.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from gateway.wire.http1 import Http1
from gateway.wire.http2 import Http2
from gateway.wire.messages import Header, RequestHead, WireLimits
from gateway.wire.output import Output

log = logging.getLogger("penstock.gateway")

Application = Callable[["Exchange"], Coroutine[Any, Any, None]]
Take = Callable[[Any, int, RequestHead, bytes], bool]  # the connection, the stream, head and body
Rejection = Callable[[int], tuple[list[Header], bytes]]  # headers and body of an answer that needs no application

READ_BYTES_LEAST = 256 * 1024  # for a client that takes nothing now: one piece of an answer


class Counted(Protocol):
    """Something that counts a connection as open."""

    def close(self) -> None:
        """Follows the end of the connection."""


class Carrier(Protocol):
    """The connection of an exchange (gateway/wire/connection.py)."""

    client: str
    known_caller: Any  # what gateway/access keeps of its last credential
    counted: Counted | None  # what counts it as open
    listener: Any  # where it came in, as the application knows it; None: nothing special
    tls: ssl.SSLObject | None
    is_http2: bool
    moves: Moves | None
    core: Http1 | Http2
    output: Output

    @property
    def unsent_bytes(self) -> int: ...

    def consumed(self, exchange: Exchange, size_bytes: int) -> None: ...
    def send_continue(self, exchange: Exchange) -> None: ...
    def stop_body(self, exchange: Exchange) -> None: ...
    def answer(self, exchange: Exchange, status: int, headers: list[Header], body: bytes | bytearray) -> None: ...
    def begin(self, exchange: Exchange, status: int, headers: list[Header]) -> None: ...
    def write(self, exchange: Exchange, data: bytes | bytearray) -> None: ...
    def finish(self, exchange: Exchange) -> None: ...
    async def wait_progress(self) -> None: ...
    def abort(self) -> None: ...
    def leave(self) -> None: ...
    def use_owner(self, owner: str) -> None: ...


def sendable_of(connection: Carrier, size_bytes: int) -> int:
    """Returns how many bytes are read for a client of this connection, of `size_bytes`."""
    if size_bytes <= READ_BYTES_LEAST:
        return size_bytes
    return min(size_bytes, max(READ_BYTES_LEAST, connection.core.sendable_bytes))


class Host(Protocol):
    """The server of a connection (gateway/wire/server.py)."""

    loop: asyncio.AbstractEventLoop
    application: Application
    limits: WireLimits
    date: Header
    receive_room: memoryview
    watched: set[Any]
    rejection: Rejection
    take: Take | None
    under_way: int  # requests that have begun and not ended
    ended_at: float  # when the last one ended
    is_idle: asyncio.Event  # set when none is under way

    def opened(self, connection: Any) -> None: ...
    def closed(self, connection: Any) -> None: ...


class Delayed(Protocol):
    """A whole request that the application has taken without a task, and that waits for its answer.

    It ends once: by an answer or a task through its connection, or by `cancel`, when its client leaves.
    """

    def cancel(self) -> None: ...


class Work(Protocol):
    """The work of a task for a request that the application has taken, in place of the application."""

    async def run(self, exchange: Exchange) -> None:
        """Answers the request. Raises CancelledError when the client has left."""

    def cancel(self) -> None:
        """Ends the request: its client has left before `run` was called."""


class Moves(Protocol):
    """Moves a connection to another process between two requests (gateway/connections/connection_migration.py)."""

    def on_request_end(self) -> None:
        """Follows the end of a request."""

    def note_served(self, process: int) -> None:
        """Notes that another process of the node has served a request."""


class BodyIncomplete(Exception):
    """The body breaks its framing, or was cut off: it must not be taken for a whole one."""


class Exchange:
    """A request on a connection. `received_bytes` counts the body so far; `is_body_complete`: the body is complete."""

    __slots__ = ("_is_answered", "_is_cut", "_pieces", "_waiter", "connection", "has_begun", "has_started", "head",
                 "is_body_complete", "is_read", "received_bytes", "stream_id", "task", "unread_bytes",
                 "work")  # fmt: skip

    def __init__(
        self, connection: Carrier, stream_id: int, head: RequestHead, is_complete: bool, body: bytes = b""
    ) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.head = head
        self.is_body_complete = is_complete
        self.received_bytes = self.unread_bytes = len(body)  # unread: received, and not read by the application
        self.is_read = False  # the application has asked for the body
        self.has_started = False  # the application
        self.has_begun = False  # the answer
        self.task: asyncio.Task[None] | None = None
        self.work: Work | None = None  # in place of the application
        self._is_answered = False
        self._is_cut = False
        self._pieces: deque[bytes] = deque((body,) if body else ())
        self._waiter: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"Exchange({self.stream_id}, {self.head})"

    @property
    def is_answered(self) -> bool:
        return self._is_answered

    # The body

    def read_nowait(self) -> bytes | None:
        """Returns the bytes that have arrived; empty at the end; None if none have. Raises BodyIncomplete."""
        self.is_read = True
        if self._pieces:
            data = self._pieces.popleft() if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces.clear()
            self.unread_bytes = 0
            self.connection.consumed(self, len(data))
            return data
        if self._is_cut:
            raise BodyIncomplete(f"{self.received_bytes} bytes of the body came")
        return b"" if self.is_body_complete else None

    async def wait_readable(self) -> None:
        """Wait until `read_nowait` returns something or raises. Raises the error of `fail_read`."""
        if self._pieces or self._is_cut or self.is_body_complete:
            return
        has_answer = self._is_answered or self.has_begun  # a stream takes no 100 behind its answer
        if self.head.expects_continue and not self.received_bytes and not has_answer:
            self.connection.send_continue(self)
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def fail_read(self, error: Exception) -> bool:
        """Ends the wait for the body. Returns False if no task waits."""
        if self._waiter is None or self._waiter.done():
            return False
        self._waiter.set_exception(error)
        return True

    def stop_body(self) -> None:
        """Rejects the rest of the body, once the answer is sent."""
        self.connection.stop_body(self)

    # The answer

    def answer(self, status: int, headers: list[Header], body: bytes | bytearray = b"") -> None:
        """Give the whole answer."""
        assert not self._is_answered
        self._is_answered = True
        self.connection.answer(self, status, headers, body)

    def begin(self, status: int, headers: list[Header]) -> None:
        """Begin an answer in pieces; `write` and `finish` follow."""
        assert not self._is_answered
        self.has_begun = True
        self.connection.begin(self, status, headers)

    def write(self, data: bytes | bytearray) -> None:
        """Give a piece. It is accepted whatever its size: check the unsent bytes, and wait for progress, before."""
        self.connection.write(self, data)

    async def wait_room(self) -> None:
        """Wait until the next piece may be given. Raises ConnectionResetError when the client has left.

        The wait is for this answer alone: other answers of the connection may wait for their windows.
        """
        await self.connection.output.wait_room(self.stream_id)

    def finish(self) -> None:
        """End an answer in pieces."""
        if not self._is_answered:
            self._is_answered = True
            self.connection.finish(self)

    # For the connection

    def feed(self, data: bytes) -> None:
        self.received_bytes += len(data)
        self.unread_bytes += len(data)
        self._pieces.append(data)
        self._wake()

    def end_body(self) -> None:
        self.is_body_complete = True
        self._wake()

    def cut_body(self) -> None:
        self._is_cut = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
