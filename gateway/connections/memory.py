"""Gives memory that is free inside this process back to the operating system after large bodies.

Three things keep what was freed. The C library (glibc) raises its thresholds with each large block, so that 64 MiB can
stay at the end of each thread's heap: `settle_allocators` fixes them. It never gives back what is free below the end:
`malloc_trim` does. Granian's allocator (jemalloc) gives back only while it is used, unless it has a thread for that.
Not a limit on memory: those are gateway/connections/response_buffers.py, gateway/connections/read_budget.py and
gateway/http/in_flight.py.
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
LOOK_S = 2.0
LOOKS_BETWEEN = 5  # a busy node whose memory goes up and down trims every 10 s, some milliseconds in a thread
CHANGE_BYTES = 24 * MIB  # since the last trim; less is not worth a walk through all heaps


class _Option(NamedTuple):
    """An option of glibc's `mallopt`, and the variable by which a process that is started gets it."""

    number: int
    variable: str
    value: int


OPTIONS = (
    _Option(-8, "MALLOC_ARENA_MAX", 4),  # the end of each heap is kept, and more threads at once wait for Python anyway
    _Option(-1, "MALLOC_TRIM_THRESHOLD_", 8 * MIB),  # so much of each; less would go and come with each fetch
    _Option(-3, "MALLOC_MMAP_THRESHOLD_", 4 * MIB),  # larger blocks go back at once; most bodies are smaller
)
JEMALLOC_VARIABLE, JEMALLOC = "_RJEM_MALLOC_CONF", "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0"


def settle_allocators() -> None:
    """To be called before Granian is imported and threads are started, in the first process of a node.

    Its children inherit the variables. One that is set already is the operator's and stays.
    """
    os.environ.setdefault(JEMALLOC_VARIABLE, JEMALLOC)
    mallopt = _of_c_library("mallopt")
    for option in OPTIONS:
        if option.variable not in os.environ:
            os.environ[option.variable] = str(option.value)
            mallopt(option.number, option.value)


class MemoryWatch:
    """Trims the heaps of the C library after the process has grown or shrunk by much: some of that is free memory."""

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
        self._looks_left = 0

    def __repr__(self) -> str:
        return f"MemoryWatch(trims={self.trims}, resident={self._least_bytes}..{self._most_bytes})"

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.get_running_loop().run_in_executor(self._executor, self.look)

    def look(self) -> None:
        """Trim if it is due. In a thread: the kernel is asked, and the C library locks each heap while it looks."""
        now_bytes = self._resident()
        self._least_bytes = min(now_bytes, self._least_bytes or now_bytes)
        self._most_bytes = max(now_bytes, self._most_bytes)
        self._looks_left -= 1
        if self._most_bytes - self._least_bytes >= CHANGE_BYTES and self._looks_left <= 0:
            self._trim()
            self.trims += 1
            self._looks_left = LOOKS_BETWEEN
            self._least_bytes = self._most_bytes = self._resident()


def _of_c_library(name: str) -> Callable[..., object]:
    """A function of glibc's, called without Python's lock; elsewhere one that does nothing."""
    return getattr(ctypes.CDLL(None), name, lambda *_: 0)
