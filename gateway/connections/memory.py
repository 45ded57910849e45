"""Returns free memory of this process to the operating system after large bodies.

The C library (glibc) keeps freed memory in two ways. It raises its thresholds with each large block, so that 64 MiB can
stay at the end of each thread's heap: `configure_allocators` fixes the thresholds. It never returns memory that is free
below the end: `malloc_trim` does. Not a limit on memory: those are gateway/connections/response_buffers.py,
gateway/connections/read_budget.py and gateway/http/request_body.py.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple

from gateway.connections.kernel_memory import resident_bytes

MIB = 1024 * 1024
CHECK_S = 2.0
CHECKS_BETWEEN = 5  # a busy node whose memory goes up and down trims every 10 s, some milliseconds in a thread
CHANGE_BYTES = 24 * MIB  # since the last trim; a smaller change does not justify a walk through all heaps


class _Option(NamedTuple):
    """An option of glibc's `mallopt`, and the environment variable that sets it for a child process."""

    number: int
    variable: str
    value: int


OPTIONS = (
    # the end of each heap is kept, and further threads at once wait for Python anyway
    _Option(-8, "MALLOC_ARENA_MAX", 4),
    # kept of each heap until the next trim: the bodies of a group commit are freed at once, and the kernel takes as
    # long to clear their pages for the next ones as the rest of receiving them
    _Option(-1, "MALLOC_TRIM_THRESHOLD_", 32 * MIB),
    _Option(-3, "MALLOC_MMAP_THRESHOLD_", 4 * MIB),  # larger blocks are returned at once; most bodies are smaller
)


def configure_allocators() -> None:
    """Sets the options of the C library. Call it in the first process of a node, before threads are started.

    Child processes inherit the variables. A variable that is set already is the operator's and stays.
    """
    mallopt = _of_c_library("mallopt")
    for option in OPTIONS:
        if option.variable not in os.environ:
            os.environ[option.variable] = str(option.value)
            mallopt(option.number, option.value)


class MemoryWatch:
    """Trims the heaps of the C library after the process has grown or shrunk by CHANGE_BYTES."""

    def __init__(
        self,
        executor: Executor,
        resident: Callable[[], int] = resident_bytes,
        trim: Callable[[], object] | None = None,
    ) -> None:
        self.trims = 0
        self._executor = executor
        self._resident = resident
        self._trim = trim or (lambda: _of_c_library("malloc_trim")(0))
        self._least_bytes = self._most_bytes = 0  # since the last trim; 0 before the first look
        self._checks_left = 0

    def __repr__(self) -> str:
        return f"MemoryWatch(trims={self.trims}, resident={self._least_bytes}..{self._most_bytes})"

    async def run(self) -> None:
        """Watches until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            await asyncio.get_running_loop().run_in_executor(self._executor, self.check)

    def check(self) -> None:
        """Trims if it is due. Call it in a thread: the C library locks each heap during the trim."""
        now_bytes = self._resident()
        self._least_bytes = min(now_bytes, self._least_bytes or now_bytes)
        self._most_bytes = max(now_bytes, self._most_bytes)
        self._checks_left -= 1
        if self._most_bytes - self._least_bytes >= CHANGE_BYTES and self._checks_left <= 0:
            self._trim()
            self.trims += 1
            self._checks_left = CHECKS_BETWEEN
            self._least_bytes = self._most_bytes = self._resident()


def _of_c_library(name: str) -> Callable[..., object]:
    """Returns a function of glibc, called without Python's lock; with another C library, a no-op."""
    return getattr(ctypes.CDLL(None), name, lambda *_: 0)
