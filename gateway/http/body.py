"""The body of a request in the form in which handlers read it: `Request.content`.

Invariants: (1) a body that was cut off is never taken for a whole one; (2) a body that does not arrive, or trickles,
ends its request in bounded time; (3) a body that arrives in time costs no timer.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from gateway.http.problems import Problem
from gateway.wire.exchange import BodyIncomplete, Exchange


class BodyLimits(NamedTuple):
    """The time limits of a body: `read_s`, and beyond that the time of its bytes at the slowest rate that is allowed.

    A rejected body is read and dropped for `drain_s` and `lingering_close_bytes_max` after its answer.
    """

    read_s: float
    bytes_per_second_min: int
    drain_s: float
    lingering_close_bytes_max: int


class Body:
    """The body in pieces, as far as handlers here use it. `began` is the loop's time when its head was received."""

    def __init__(self, exchange: Exchange, limits: BodyLimits, began: float) -> None:
        self._exchange = exchange
        self._limits = limits
        self._began = began
        self._timer: asyncio.TimerHandle | None = None
        self._is_paced = True

    async def readany(self) -> bytes:
        """Returns the next piece; empty at the end. Raises Problem invalid_body, body_timeout."""
        try:
            while (data := self._exchange.read_nowait()) is None:
                await self._exchange.wait_readable()
        except BodyIncomplete as error:
            raise Problem("invalid_body", f"the body was cut off: {error}") from None
        return data

    @property
    def received_bytes(self) -> int:
        return self._exchange.received_bytes

    def is_eof(self) -> bool:
        """Returns whether all of it has arrived, whether it was read or not."""
        return self._exchange.is_body_complete

    def watch(self) -> None:
        """Ends the wait for a body that is late. Called for requests that take longer than WATCH_AFTER_S."""
        if self._is_paced and not self._exchange.is_body_complete:
            self._check_pace()

    def allow_pauses(self) -> None:
        """Ends the bound on its time: its client may send for as long as it wants."""
        self._is_paced = False
        self.close()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def discard(self) -> None:
        """Reads and drops what the handler left of the body, within bounds; the client is stopped beyond them.

        Many clients read an answer only when they have sent everything.
        """
        exchange = self._exchange
        if exchange.is_body_complete:
            return
        if not (exchange.head.expects_continue and not exchange.is_read and not exchange.received_bytes):
            bytes_left = self._limits.lingering_close_bytes_max
            try:
                async with asyncio.timeout(self._limits.drain_s):
                    while bytes_left > 0 and (data := await self.readany()):
                        bytes_left -= len(data)
            except (TimeoutError, Problem):
                pass
        if not exchange.is_body_complete:
            exchange.stop_body()

    def _check_pace(self) -> None:
        """Checks the rate of the body, repeatedly. Does not interrupt a handler that is not reading."""
        exchange = self._exchange
        if exchange.is_body_complete:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        deadline = self._began + self._limits.read_s + exchange.received_bytes / self._limits.bytes_per_second_min
        if deadline <= now:
            text = f"{exchange.received_bytes} bytes of the body came in time"
            if exchange.fail_read(Problem("body_timeout", text)):
                return
            deadline = now + self._limits.read_s
        self._timer = loop.call_at(deadline, self._check_pace)
