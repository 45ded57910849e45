"""Bounds the bytes that are being read for fetches and rendered at once: further reads wait in a queue.

Without it, the thread pool would queue the rendering of many large fetches, each with all that was read for it. The
budget counts the node's own work with all its copies, never what waits for a client; that is counted by
gateway/connections/response_buffers.py. Invariants: (1) first come, first served; (2) a fetch that is larger than the
whole budget runs alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from types import TracebackType

RENDERED_COPIES = 4  # the stored bytes, the values cut out of them, those rendered, the whole body


class ReadBudget:
    """`async with room.hold(size_bytes)`"""

    def __init__(self, bytes_max: int) -> None:
        self.held_bytes = 0
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def __repr__(self) -> str:
        return f"ReadBudget(held_bytes={self.held_bytes}, waiting={len(self._waiting)})"

    def hold(self, size_bytes: int) -> _Reservation:
        return _Reservation(self, size_bytes)

    def has_room(self, size_bytes: int) -> bool:
        """Returns whether a fetch of this size would not wait. One that never waits need not hold what it reads."""
        return not self._waiting and self._fits(size_bytes)

    async def acquire(self, size_bytes: int) -> None:
        if self.has_room(size_bytes):
            self.held_bytes += size_bytes
            return
        rotation: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, rotation))
        try:
            await rotation
        except asyncio.CancelledError:
            if rotation.done() and not rotation.cancelled():  # cancelled too late
                self.release(size_bytes)
            else:
                with suppress(ValueError):  # removed from the queue already
                    self._waiting.remove((size_bytes, rotation))
                self._wake_waiters()
            raise

    def release(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        self._wake_waiters()

    def _fits(self, size_bytes: int) -> bool:
        return self.held_bytes == 0 or self.held_bytes + size_bytes <= self._bytes_max

    def _wake_waiters(self) -> None:
        while self._waiting and (self._waiting[0][1].done() or self._fits(self._waiting[0][0])):
            size_bytes, rotation = self._waiting.popleft()
            if not rotation.done():
                self.held_bytes += size_bytes
                rotation.set_result(None)


class _Reservation:
    __slots__ = ("_room", "_size_bytes")

    def __init__(self, room: ReadBudget, size_bytes: int) -> None:
        self._room = room
        self._size_bytes = size_bytes

    async def __aenter__(self) -> None:
        await self._room.acquire(self._size_bytes)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._room.release(self._size_bytes)
