"""Bounds the bytes that are being read for fetches and rendered at once, and gives each fetch its turn.

Each read for a client passes here, of one partition or many, for polls, tables, event streams and pieces of answers.
Without the bound, the thread pool would queue the rendering of many large fetches, each with all that was read for it.
The budget counts the node's own work with all its copies, never what waits for a client; that is counted by
gateway/connections/response_buffers.py. Invariants: (1) further reads wait in a queue, from which the clients are
served in rotation, and each client in its order; (2) a fetch that is larger than the whole budget runs alone; (3) one
that had to wait gets no more than CONTENDED_BYTES if it can do with less; (4) it begins in a turn of the loop that has
time for it (engine/runtime/loop_waits.py).
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import NamedTuple

from engine.runtime.loop_waits import client_key, loop_waits, wait_turn
from engine.runtime.rotation import Rotation

RENDERED_COPIES = 4  # the stored bytes, the values cut out of them, those rendered, the whole body
CONTENDED_BYTES = 4 * 1024 * 1024  # 1 MiB of batches with its copies, as a fetch reads by default


class _Waiting(NamedTuple):
    size_bytes: int
    granted: asyncio.Future[None]


class ReadBudget:
    """`async with budget.hold(size_bytes)`, or `async with budget.share(size_bytes) as granted_bytes`."""

    def __init__(self, bytes_max: int) -> None:
        self.held_bytes = 0
        self._bytes_max = bytes_max
        self._waiting: Rotation[_Waiting] = Rotation(loop_waits().turns.owner_of)

    def __repr__(self) -> str:
        return f"ReadBudget(held_bytes={self.held_bytes}, waiting={self._waiting.count})"

    def hold(self, size_bytes: int) -> _Reservation:
        """Returns a reservation of this many bytes."""
        return _Reservation(self, size_bytes, size_bytes)

    def share(self, size_bytes: int) -> _Reservation:
        """Returns a reservation of this many bytes, or of fewer if others wait."""
        return _Reservation(self, size_bytes, min(size_bytes, CONTENDED_BYTES))

    def has_room(self, size_bytes: int) -> bool:
        """Returns whether a fetch of this size would not wait. One that never waits need not hold what it reads."""
        return not self._waiting.count and self._fits(size_bytes)

    async def acquire(self, size_bytes: int, contended_bytes: int) -> int:
        """Waits for room, and then for a turn of the loop. Returns the bytes that are held."""
        if self.has_room(size_bytes):
            self.held_bytes += size_bytes
        else:
            size_bytes = contended_bytes
            await self._wait_room(size_bytes)
        try:
            await wait_turn()
        except asyncio.CancelledError:
            self.release(size_bytes)
            raise
        return size_bytes

    def release(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        self._wake_waiters()

    async def _wait_room(self, size_bytes: int) -> None:
        client, granted = client_key.get(), asyncio.get_running_loop().create_future()
        waiting = _Waiting(size_bytes, granted)
        self._waiting.put(client, waiting)
        self._wake_waiters()  # with less it may fit now
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():  # cancelled too late
                self.release(size_bytes)
            else:
                self._waiting.remove(client, waiting)
                self._wake_waiters()
            raise

    def _fits(self, size_bytes: int) -> bool:
        return self.held_bytes == 0 or self.held_bytes + size_bytes <= self._bytes_max

    def _wake_waiters(self) -> None:
        while self._waiting.count:
            size_bytes, granted = self._waiting.peek()
            if not granted.done() and not self._fits(size_bytes):
                return
            self._waiting.take()
            if not granted.done():
                self.held_bytes += size_bytes
                granted.set_result(None)


class _Reservation:
    __slots__ = ("_budget", "_contended_bytes", "_size_bytes")

    def __init__(self, budget: ReadBudget, size_bytes: int, contended_bytes: int) -> None:
        self._budget = budget
        self._size_bytes = size_bytes
        self._contended_bytes = contended_bytes

    async def __aenter__(self) -> int:
        self._size_bytes = await self._budget.acquire(self._size_bytes, self._contended_bytes)
        return self._size_bytes

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._budget.release(self._size_bytes)
