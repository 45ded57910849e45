"""The output of a connection: takes it from the protocol core when the transport has room, and closes behind the last.

Invariants: all output of a turn of the loop goes out in one write; no more is taken while the transport is full.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from gateway.wire.http1 import Http1
from gateway.wire.http2 import Http2

WRITE_BYTES = 1024 * 1024  # taken from the core at a time: an answer of a fetch by default leaves in one write
FULL_BYTES = 256 * 1024  # in the transport: above it no more is taken from the core, until a quarter of it is left
LINGER_S = 2.0  # a client that is still sending receives the end before its connection is reset


class Output:
    """Writes to a transport what a core wants to send."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: Any, core: Http1 | Http2) -> None:
        self._loop = loop
        self._transport = transport
        self._core = core
        self._written_bytes = 0
        self.is_paused = False  # the transport is full
        self._is_flushing = False
        self._is_ending = False
        self._is_lost = False
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._room_waiters: dict[int, asyncio.Future[None]] = {}
        transport.set_write_buffer_limits(high=FULL_BYTES)

    def __repr__(self) -> str:
        return f"Output(unsent_bytes={self.unsent_bytes}, taken_bytes={self.taken_bytes})"

    @property
    def unsent_bytes(self) -> int:
        """Returns the bytes that were given and that the kernel has not taken."""
        if self._is_lost:
            return 0
        waiting: int = self._transport.get_write_buffer_size()
        return self._core.pending_bytes + waiting

    @property
    def taken_bytes(self) -> int:
        """Returns the bytes that the kernel has taken since the connection began."""
        waiting: int = 0 if self._is_lost else self._transport.get_write_buffer_size()
        return self._written_bytes - waiting

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self.flush_soon()
        self._wake_waiters()

    def lose(self) -> None:
        """Drops what was not sent: the connection is closed."""
        self._is_lost = True
        self._core.close()
        self._wake_waiters()
        self._wake_room_waiters()

    async def wait_progress(self) -> None:
        """Wait until some of the output has left. Raises ConnectionResetError when the client has left."""
        if not self._is_lost:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter
        if self._is_lost:
            raise ConnectionResetError("the client has left")

    async def wait_room(self, stream_id: int) -> None:
        """Wait until the transport has taken what was given for a stream, and has room for more.

        Raises ConnectionResetError when the client has left.
        """
        while not self._is_lost and (self.is_paused or self._core.is_waiting(stream_id)):
            waiter = self._room_waiters[stream_id] = self._loop.create_future()
            try:
                await waiter
            finally:
                del self._room_waiters[stream_id]
        if self._is_lost:
            raise ConnectionResetError("the client has left")

    def flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Writes now what waits to be sent."""
        self._is_flushing = False
        core = self._core
        if self._is_lost or self.is_paused:
            return
        out = core.take_output(WRITE_BYTES)
        if out:
            size = len(out[0]) if len(out) == 1 else sum(map(len, out))
            self._written_bytes += size
            if len(out) == 1:
                self._transport.write(out[0])
            elif size < WRITE_BYTES // 4:
                self._transport.write(b"".join(out))  # one copy costs less than many small buffers
            else:
                self._transport.writelines(out)
            if self._waiters:
                self._wake_waiters()
        if self._room_waiters and not self.is_paused:
            self._wake_room_waiters()
        if core.has_output:
            self.flush_soon()
        elif core.is_closing and not core.pending_bytes:
            self._close()

    def _close(self) -> None:
        if self._is_ending:
            return
        self._is_ending = True
        if self._core.has_fault and self._transport.can_write_eof():
            self._transport.write_eof()
            self._loop.call_later(LINGER_S, self._transport.abort)
        else:
            self._transport.close()

    def _wake_room_waiters(self) -> None:
        for stream_id, waiter in self._room_waiters.items():
            if not self._core.is_waiting(stream_id) and not waiter.done():
                waiter.set_result(None)

    def _wake_waiters(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
