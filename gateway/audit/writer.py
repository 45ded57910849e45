"""Writes the audit lines of all processes of a node, in the one that has the files: the only one, or the supervisor.

Lines that come while a write is under way leave together in the next one, so that a sync serves all of them.
Invariant: what waits is bounded. Requests under way wait for their lines; other lines are dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor
from typing import NamedTuple, Protocol

from engine.errors import NO_SPACE, EngineError
from engine.runtime.tasks import BackgroundTasks
from gateway.audit.audit_file import AuditFile

log = logging.getLogger("penstock.audit")

POSTED_BYTES_MAX = 8 * 1024 * 1024  # the most that eight processes post at the end of a minute


class AuditFailed(EngineError):
    """The audit trail cannot be written, so the change was not made. Make room for it, or mend its directory; retry."""

    code = "audit_unavailable"
    retryable = True


class AuditSink(Protocol):
    """Takes audit lines: the writer, or its process over a link."""

    async def write(self, lines: bytes) -> None:
        """Returns once the lines are durable. Raises AuditFailed."""

    def post(self, lines: bytes) -> None:
        """Takes lines that no answer waits for."""


class _Waiting(NamedTuple):
    lines: bytes
    written: asyncio.Future[None] | None


class AuditWriter:
    """Writes to one AuditFile, in a thread of the executor. `open` comes first."""

    def __init__(self, file: AuditFile, executor: Executor) -> None:
        self._file = file
        self._executor = executor
        self._waiting: list[_Waiting] = []
        self._posted_bytes = 0
        self._tasks = BackgroundTasks()
        self._is_writing = False
        self._is_closed = False
        self.dropped = 0  # lines that no answer waited for

    def __repr__(self) -> str:
        return f"AuditWriter({self._file}, waiting={len(self._waiting)})"

    async def open(self) -> bool:
        """Opens the files. Returns False if the newest one ended oddly. Raises OSError."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._file.open)

    async def write(self, lines: bytes) -> None:
        """Returns once the lines are durable. Raises AuditFailed."""
        if self._is_closed:
            raise AuditFailed("the node is stopping")
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add(_Waiting(lines, written))
        await written

    def post(self, lines: bytes) -> None:
        """Takes lines that no answer waits for; drops them when the disk is too slow."""
        if self._is_closed or self._posted_bytes + len(lines) > POSTED_BYTES_MAX:
            self.dropped += 1
            log.warning("audit lines of denials are dropped: the disk is too slow", extra={"dropped": self.dropped})
            return
        self._posted_bytes += len(lines)
        self._add(_Waiting(lines, None))

    async def close(self) -> None:
        """Writes what waits, and releases the files."""
        self._is_closed = True
        await self._tasks.wait_ended()
        await asyncio.get_running_loop().run_in_executor(self._executor, self._file.close)

    def _add(self, one: _Waiting) -> None:
        self._waiting.append(one)
        if not self._is_writing:
            self._is_writing = True
            self._tasks.start(self._write_all(), "writing the audit trail")

    async def _write_all(self) -> None:
        loop, append = asyncio.get_running_loop(), self._file.append
        while self._waiting:
            batch, self._waiting = self._waiting, []
            lines = b"".join(one.lines for one in batch)
            failure = None
            try:
                await loop.run_in_executor(self._executor, append, lines)
            except Exception as error:  # the requests that wait have to be answered
                failure = error
                log.error("the audit trail cannot be written", extra={"reason": repr(error), "file": self._file.path})
            self._settle(batch, failure)
        self._is_writing = False

    def _settle(self, batch: list[_Waiting], failure: Exception | None) -> None:
        for lines, written in batch:
            if written is None:
                self._posted_bytes -= len(lines)
                self.dropped += failure is not None
            elif written.done():  # its request was cancelled
                pass
            elif failure is None:
                written.set_result(None)
            else:
                reason = _reason_of(failure)
                text = f"the audit trail of this node cannot be written: {reason}"
                hint = "nothing was changed; make room in its directory, or let the operator mend it"
                written.set_exception(AuditFailed(text, hint=hint))


def _reason_of(failure: Exception) -> str:
    if not isinstance(failure, OSError):
        return "the log of the node has the error"
    return "no space is left" if failure.errno in NO_SPACE else str(failure.strerror)
