"""A thread for long work on files: held to a rate, and ended within one step of a stop.

Knows no work: the scrubber (engine/cleaning) and the compactor (engine/compaction) have one each.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Stopped(Exception):
    """The node stops, and the work is given up where it is."""


class ThrottledThread:
    """Runs functions one after another; they call `pace` with the bytes of each step.

    A simulation gives it the executor.
    """

    def __init__(self, name: str, bytes_per_second: int, executor: Executor | None = None) -> None:
        self._name = name
        self._bytes_per_second = bytes_per_second
        self._stopping = threading.Event()
        self._executor = ThreadPoolExecutor(1, name) if executor is None else executor

    def __repr__(self) -> str:
        return f"ThrottledThread({self._name}, {self._bytes_per_second} B/s)"

    def pace(self, size_bytes: int) -> None:
        """Waits as long as a step of this size may take; called in the thread. Raises Stopped."""
        if self._stopping.wait(size_bytes / self._bytes_per_second):
            raise Stopped

    async def run(self, function: Callable[P, T], *args: P.args, **_: P.kwargs) -> T:
        """Runs a function in the thread. Raises Stopped, and what the function raises."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    def end_pauses(self) -> None:
        """Ends the step in progress, and every later one, with Stopped; `run` works still."""
        self._stopping.set()

    async def stop(self, task: asyncio.Task[None] | None) -> None:
        """Ends the step in progress, and the task that calls `run`."""
        self.end_pauses()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(self._executor.shutdown)
