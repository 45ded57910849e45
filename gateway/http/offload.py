"""Runs work that grows with a body off the event loop, once it is large."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from engine.runtime.loop_waits import wait_turn

T = TypeVar("T")

OFF_LOOP_BYTES = 512 * 1024  # coding this much takes about 2 ms; the limit for a loop callback is 20
OFF_LOOP_RECORDS = 10_000  # this many take as long, however small they are
TIMED_BYTES = 32 * 1024  # less is coded while the loop takes an empty turn


class Offload:
    """Runs a function on the loop or in a thread of `executor`, by the size of its input."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def by_size(self, size_bytes: int, work: Callable[[], T]) -> T:
        """Runs `work` on the loop below OFF_LOOP_BYTES, else in a thread. Raises what `work` raises.

        On the loop, large work waits for a turn that has time for it.
        """
        if size_bytes >= OFF_LOOP_BYTES:
            return await self.in_thread(work)
        if size_bytes >= TIMED_BYTES:
            await wait_turn()
        return work()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Runs `work` in a thread. Raises what `work` raises."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
