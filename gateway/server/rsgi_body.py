"""The body of a request as Granian gives it, in the form in which handlers read it: the body half of
gateway/server/rsgi.py.

What must hold: (1) a body that was cut off is never taken for a whole one; (2) a body that does not come, or trickles,
ends its request in bounded time; (3) a body that arrives in time costs no timer.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, NoReturn

from multidict import CIMultiDict

from gateway.http.problems import Problem

WHOLE_BODY_BYTES = 1024 * 1024  # bodies up to here are taken in one piece; larger ones in chunks, against a limit
METHODS_WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")


class BodyLimits(NamedTuple):
    """How long a body may take: `read_s`, and beyond that what its bytes need at the slowest rate that is allowed."""

    read_s: float
    bytes_per_second_min: int
    drain_s: float
    drain_bytes_max: int


class Body:
    """What aiohttp calls `request.content`: the body in pieces, as far as handlers here use it.

    Granian's pieces do not tell a body that was cut off from one that ended, so this has to find out: by the announced
    length where there is one. In a chunked HTTP/1.1 body a failure shows as one empty piece more than a proper end
    has, and so do trailers, which therefore are refused. In HTTP/2 the stream is reset, which ends the handler.
    """

    def __init__(
        self, proto: Any, method: str, is_http1: bool, headers: CIMultiDict[str], limits: BodyLimits, now: float
    ) -> None:
        length = headers.get("Content-Length", "")
        self._announced = int(length) if length.isdecimal() else None
        self.is_http1 = is_http1
        self._proto = proto
        self._limits = limits
        self._began = now
        self._chunks: Any = None
        self._received = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_awaited = False
        self._is_overdue = False
        self.is_untouched = True
        self.is_done = self._announced == 0 or (self._announced is None and method not in METHODS_WITH_BODY)

    async def readany(self) -> bytes:
        """The next piece; empty at the end. Raises Problem when the body stops before it, or does not come."""
        if self.is_done:
            return b""
        self.is_untouched = False
        self._is_awaited = True
        try:
            if self._is_taken_whole:
                whole: bytes = await self._proto()
                self.is_done = True
                return whole if len(whole) == self._announced else self._cut_off()
            return await self._next_chunk()
        except (RuntimeError, OSError):
            self.is_done = True
            return self._cut_off()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not self._is_overdue or task.uncancel() > 0:
                raise
            self.is_done = True
            raise Problem("body_timeout", f"{self._received} bytes of the body came in time") from None
        finally:
            self._is_awaited = False

    def watch(self, task: asyncio.Task[Any]) -> None:
        """From now on a body that is late ends its wait. Asked for once a request turns out not to be a quick one."""
        if not self.is_done:
            loop = task.get_loop()
            self._timer = loop.call_at(self._deadline(), self._check_pace, task)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def hold(self) -> None:
        """Keep the rest of the body although its answer is sent: Granian resets a stream whose body is dropped."""
        self.is_untouched = False
        if self._chunks is None:
            self._chunks = aiter(self._proto)  # once: Granian gives the body away with it

    async def discard(self) -> None:
        """Read and drop what is left of a held body, within bounds of size and time."""
        bytes_left = self._limits.drain_bytes_max
        try:
            async with asyncio.timeout(self._limits.drain_s):
                while bytes_left > 0 and (chunk := await self.readany()):
                    bytes_left -= len(chunk)
        except (TimeoutError, Problem):
            return

    @property
    def _is_taken_whole(self) -> bool:
        return self._chunks is None and self._announced is not None and self._announced <= WHOLE_BODY_BYTES

    def _deadline(self) -> float:
        """What came moves it; of a body that is taken whole nothing is seen until it is there."""
        seen = (self._announced or 0) if self._is_taken_whole else self._received
        return self._began + self._limits.read_s + seen / self._limits.bytes_per_second_min

    def _check_pace(self, task: asyncio.Task[Any]) -> None:
        """A handler that reads nothing just now is not held up by its body: it is looked at again a round later."""
        if self.is_done:
            return
        loop = task.get_loop()
        now, deadline = loop.time(), self._deadline()
        if deadline > now:
            self._timer = loop.call_at(deadline, self._check_pace, task)
        elif self._is_awaited:
            self._is_overdue = True
            task.cancel()
        else:
            self._timer = loop.call_at(now + self._limits.read_s, self._check_pace, task)

    async def _next_chunk(self) -> bytes:
        self.hold()
        empty_pieces = 0
        try:
            while not (chunk := await anext(self._chunks)):  # anext's default argument crashes on Granian's awaitables
                empty_pieces += 1
            self._received += len(chunk)
            return bytes(chunk)
        except StopAsyncIteration:
            self.is_done = True
        is_short = self._announced is not None and self._received < self._announced
        return self._cut_off() if is_short or (self.is_http1 and empty_pieces > 1) else b""

    def _cut_off(self) -> NoReturn:
        raise Problem("invalid_body", "the body was cut off, or carries trailers, which are not taken")
