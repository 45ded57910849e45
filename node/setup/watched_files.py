"""Watches files for changes: at an interval, and at once on request (SIGHUP).

A change counts when two consecutive looks see the same state, so that a half-written file, or a certificate whose key
is still missing, is skipped. The content is the callback's; its failure is logged, and the previous content stays in
use.
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
    """Files that belong together, and the callback for a change of any of them."""

    def __init__(self, paths: Sequence[str], executor: Executor, changed: Callable[[], Awaitable[None]]) -> None:
        """`changed` may raise EngineError, which is logged."""
        self._paths = paths
        self._executor = executor
        self._changed = changed
        self._is_check_requested = asyncio.Event()
        self._applied = self._last = stamp_of(paths)

    def __repr__(self) -> str:
        return f"WatchedFiles({', '.join(self._paths)})"

    def check_now(self) -> None:
        """Calls back with the files as they are, changed or not."""
        self._is_check_requested.set()

    async def watch(self, every_s: float) -> None:
        """Watch until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._is_check_requested.wait()
            stamp = await asyncio.get_running_loop().run_in_executor(self._executor, stamp_of, self._paths)
            is_settled = stamp == self._last
            self._last = stamp
            if self._is_check_requested.is_set() or (is_settled and stamp != self._applied):
                self._is_check_requested.clear()
                self._applied = stamp
                await self._notify()

    async def _notify(self) -> None:
        try:
            await self._changed()
        except EngineError as error:
            log.error("changed files rejected", extra={"files": list(self._paths), "reason": error.detail})
        else:
            log.info("files reloaded", extra={"files": list(self._paths)})


def stamp_of(paths: Sequence[str]) -> Stamp:
    """Returns a value that differs when the file has changed; None if it cannot be read."""
    return tuple(map(_stamp_of_one, paths))


def _stamp_of_one(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
