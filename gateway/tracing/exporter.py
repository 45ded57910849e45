"""Exports the spans of a process: every few seconds, or as soon as there are enough, to whatever `send` reaches.

In a node of one process, and in the worker of others, that is the collector; a shard's is the worker. Spans that cannot
be sent now wait here, and later ones in the ring. A request never waits for an export.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from engine.runtime.tasks import keep_running
from gateway.tracing.span import SpanRecord
from gateway.tracing.tracer import SpanRing

EXPORT_S = 5.0
PAUSE_S, PAUSE_S_MAX = 1.0, 60.0  # between attempts; the longest a collector may ask for
STOP_S = 2.0  # for the last export: a collector that is silent does not hold up the stop of a node

Send = Callable[[Sequence[SpanRecord]], Awaitable[None]]

log = logging.getLogger("penstock.tracing")


class NotNow(Exception):
    """The spans may be retried, after `pause_s` if the other side names a pause."""

    def __init__(self, reason: str, pause_s: float | None = None) -> None:
        super().__init__(reason)
        self.pause_s = pause_s


class Refused(Exception):
    """The spans were refused. A retry does not help, so they are dropped."""


class Exporter:
    """Takes the spans of a ring and sends them."""

    def __init__(self, ring: SpanRing, send: Send) -> None:
        """`send` raises NotNow, Refused."""
        self._ring = ring
        self._send = send
        self._pending: list[SpanRecord] = []  # that the last attempt has not sent
        self._reason = ""  # of the last failure, which is logged once
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"Exporter({self._ring}, pending={len(self._pending)})"

    def start(self) -> None:
        self._task = keep_running(self._run, "exporting spans")

    async def stop(self) -> None:
        """Tries once more to send what is there, and drops the rest."""
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                while self._ring or self._pending:
                    if await self.export() is not None:
                        break

    async def export(self) -> float | None:
        """Sends the oldest spans. Returns the pause before a retry; 0: the sender leaves it to the caller.

        None: there is nothing to retry.
        """
        self._pending = self._pending or self._ring.take()
        if not self._pending:
            return None
        try:
            await self._send(self._pending)
        except NotNow as error:
            self._note(str(error))
            return error.pause_s or 0.0
        except Refused as error:
            self._note(str(error))
            self._ring.dropped += len(self._pending)
        except Exception as error:  # a name that is no host, a text that is no UTF-8: later spans are not to wait
            self._note(f"{type(error).__name__}: {error}")
            self._ring.dropped += len(self._pending)
        else:
            self._reason = ""
        self._pending = []
        return None

    async def _run(self) -> None:
        pause_s = PAUSE_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(EXPORT_S):
                    await self._ring.has_enough.wait()
            self._ring.has_enough.clear()
            while (asked_s := await self.export()) is not None:
                await asyncio.sleep(min(asked_s or pause_s, PAUSE_S_MAX))
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
            pause_s = PAUSE_S

    def _note(self, reason: str) -> None:
        if reason != self._reason:
            self._reason = reason
            log.warning("spans are not exported", extra={"reason": reason})
