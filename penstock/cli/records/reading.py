"""Reads a file or standard input in a thread, so that reading continues while a request is in flight.

All bytes read since the last call are returned in one piece: a fast input makes large pieces, a slow one is not
delayed.
Invariants: at most `held_bytes_max` and one read are held; only the thread uses and closes the descriptor. Python's own
file objects are not used: one that a thread is reading from cannot be closed, not even at exit.
"""

from __future__ import annotations

import asyncio
import os
import threading
from types import TracebackType
from typing import Self

STDIN = "-"
_READ_BYTES = 256 * 1024


class InputReader:
    """Reads an input: `async with InputReader(name) as reader`; `-` is standard input. Raises OSError on opening."""

    def __init__(self, name: str, held_bytes_max: int) -> None:
        self._descriptor = 0 if name == STDIN else os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        self._held_bytes_max = held_bytes_max
        self._loop = asyncio.get_running_loop()
        self._has_data = asyncio.Event()
        self._changed = threading.Condition()
        self._held = bytearray()
        self._end: OSError | bool = False  # True at the end of the input
        self._is_stopped = False
        # A daemon: a read of a terminal or pipe cannot be interrupted and must not delay the exit.
        threading.Thread(target=self._read_all, name="reader", daemon=True).start()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify()

    async def next(self) -> bytes:
        """Returns the bytes read since the last call, waiting for the first; b"" at the end. Raises OSError."""
        while True:
            self._has_data.clear()
            with self._changed:
                if self._held:
                    piece, self._held = bytes(self._held), bytearray()
                    self._changed.notify()
                    return piece
                if isinstance(self._end, OSError):
                    raise self._end
                if self._end:
                    return b""
            await self._has_data.wait()

    def _read_all(self) -> None:
        while not self._end and not self._is_stopped:
            piece, end = self._read()
            with self._changed:
                self._held += piece
                self._end = end
            try:
                self._loop.call_soon_threadsafe(self._has_data.set)
            except RuntimeError:  # the loop is closed: the command has ended
                break
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopped or len(self._held) < self._held_bytes_max)
        if self._descriptor != 0:
            os.close(self._descriptor)

    def _read(self) -> tuple[bytes, OSError | bool]:
        try:
            piece = os.read(self._descriptor, _READ_BYTES)
        except OSError as error:
            return b"", error
        return piece, not piece
