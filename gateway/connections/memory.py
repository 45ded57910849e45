"""Returns free memory of this process to the operating system after large bodies, and after waves of any requests.

The C library (glibc) keeps freed memory in two ways. It raises its thresholds with each large block, so that 64 MiB can
stay at the end of each thread's heap: `configure_allocators` fixes the thresholds. It never returns memory that is free
below the end: `malloc_trim` does. Not a limit on memory: those are gateway/connections/response_buffers.py,
gateway/connections/read_budget.py and gateway/http/request.py.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
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


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
    ))  # fmt: skip


def free_bytes() -> int:
    """Returns the free bytes in all heaps of the C library; 0 if it does not report them."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # not glibc, or before 2.33
        return 0
    mallinfo.restype = _Mallinfo2
    return int(mallinfo().fordblks)


class MemoryWatch:
    """Trims the heaps of the C library after CHANGE_BYTES were taken, given back, or freed within the heaps.

    Memory that was in use while the process grew is freed without a change of its size: only the heaps report it.
    """

    def __init__(
        self,
        executor: Executor,
        resident: Callable[[], int] = resident_bytes,
        trim: Callable[[], object] | None = None,
        free: Callable[[], int] = free_bytes,
    ) -> None:
        self.trims = 0
        self._executor = executor
        self._resident = resident
        self._trim = trim or _collect_and_trim
        self._free = free
        self._least_free_bytes = 0  # since the last trim
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
        free_bytes = self._free()
        self._least_free_bytes = min(free_bytes, self._least_free_bytes)
        self._checks_left -= 1
        changed_bytes = max(self._most_bytes - self._least_bytes, free_bytes - self._least_free_bytes)
        if changed_bytes >= CHANGE_BYTES and self._checks_left <= 0:
            self._trim()
            self.trims += 1
            self._checks_left = CHECKS_BETWEEN
            self._least_bytes = self._most_bytes = self._resident()
            self._least_free_bytes = self._free()


def _collect_and_trim() -> None:
    gc.collect(0)  # a cycle that was left by what ended; the older generations would hold up the loop
    _of_c_library("malloc_trim")(0)


def _of_c_library(name: str) -> Callable[..., object]:
    """Returns a function of glibc, called without Python's lock; with another C library, a no-op."""
    return getattr(ctypes.CDLL(None), name, lambda *_: 0)
