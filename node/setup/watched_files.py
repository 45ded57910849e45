"""Tells when files on disk have changed: looked at every few seconds, and at once when asked (SIGHUP).

A change counts when two looks in a row see the same, so that a file half written, or a certificate whose key is still
to come, is left alone. What the files mean is not known here; whoever is told may fail, which is logged, and keeps
what it had.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress

from engine.errors import EngineError

Stamp = tuple[tuple[int, int, int] | None, ...]

log = logging.getLogger("penstock.files")


class WatchedFiles:
    """Some files that belong together, and what to do when one of them has changed."""

    def __init__(self, paths: Sequence[str], executor: Executor, changed: Callable[[], Awaitable[None]]) -> None:
        """`changed` may raise EngineError: what there was then stays, and the log says why."""
        self._paths = paths
        self._executor = executor
        self._changed = changed
        self._is_asked = asyncio.Event()
        self._adopted = self._last = stamp_of(paths)

    def __repr__(self) -> str:
        return f"WatchedFiles({', '.join(self._paths)})"

    def look_now(self) -> None:
        """Take the files as they are, changed or not."""
        self._is_asked.set()

    async def watch(self, every_s: float) -> None:
        """Until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._is_asked.wait()
            stamp = await asyncio.get_running_loop().run_in_executor(self._executor, stamp_of, self._paths)
            is_settled = stamp == self._last
            self._last = stamp
            if self._is_asked.is_set() or (is_settled and stamp != self._adopted):
                self._is_asked.clear()
                self._adopted = stamp
                await self._tell()

    async def _tell(self) -> None:
        try:
            await self._changed()
        except EngineError as error:
            log.error("files not taken over", extra={"files": list(self._paths), "reason": error.detail})
        else:
            log.info("files taken over", extra={"files": list(self._paths)})


def stamp_of(paths: Sequence[str]) -> Stamp:
    """What tells one state of the files from another; None for one that cannot be looked at."""
    return tuple(map(_stamp_of_one, paths))


def _stamp_of_one(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
