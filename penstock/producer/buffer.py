"""Bounds the unacknowledged bytes: a record takes room when it is sent and gives it back when it has its result.

Invariant: used_bytes exceeds the maximum only by a single record that is larger than the whole buffer, and by the few
bytes that lines grow when their batch changes form.
"""

from __future__ import annotations

import asyncio
from collections import deque

from penstock.errors import BufferFull


class SendBuffer:
    def __init__(self, bytes_max: int, full_policy: str) -> None:
        self._bytes_max = bytes_max
        self._full_policy = full_policy
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.used_bytes = 0

    def __repr__(self) -> str:
        return f"<SendBuffer {self.used_bytes} of {self._bytes_max} bytes, {len(self._waiters)} waiting>"

    def take_nowait(self, size_bytes: int) -> bool:
        """Takes room if there is enough and no earlier caller waits. Returns whether it was taken."""
        if self._waiters or not self._fits(size_bytes):
            return False
        self.used_bytes += size_bytes
        return True

    async def take(self, size_bytes: int) -> None:
        """Takes room, waiting for it if the policy is to block. Raises BufferFull if the policy is to raise."""
        if self.take_nowait(size_bytes):
            return
        if self._full_policy == "raise":
            raise BufferFull(f"{self.used_bytes} of {self._bytes_max} bytes wait for their acknowledgement")
        granted = asyncio.get_running_loop().create_future()
        self._waiters.append((size_bytes, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release(size_bytes)
            raise

    def grow(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0
        while self._waiters and self._fits(self._waiters[0][0]):
            waiting_bytes, granted = self._waiters.popleft()
            if not granted.done():
                self.used_bytes += waiting_bytes
                granted.set_result(None)

    def _fits(self, size_bytes: int) -> bool:
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= self._bytes_max
