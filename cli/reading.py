"""Reads a file or standard input in a thread, so that reading goes on while a request is under way.

What has been read meanwhile is given out in one piece: a fast input makes large pieces, a slow one is not delayed.
Invariant: it holds at most `held_bytes_max` and one read.
"""

from __future__ import annotations

import asyncio
import threading
from typing import BinaryIO

_READ_BYTES = 256 * 1024


class InputReader:
    def __init__(self, file: BinaryIO, held_bytes_max: int) -> None:
        self._file = file
        self._held_bytes_max = held_bytes_max
        self._loop = asyncio.get_running_loop()
        self._has_news = asyncio.Event()
        self._changed = threading.Condition()
        self._held = bytearray()
        self._end: OSError | bool = False  # True at the end of the input
        # A daemon, because a read of a terminal or pipe cannot be interrupted and must not hold up the end.
        threading.Thread(target=self._read_all, name="reader", daemon=True).start()

    async def next(self) -> bytes:
        """What has come since the last call; waits for something; nothing at the end. Raises OSError."""
        while True:
            self._has_news.clear()
            with self._changed:
                if self._held:
                    piece, self._held = bytes(self._held), bytearray()
                    self._changed.notify()
                    return piece
                if isinstance(self._end, OSError):
                    raise self._end
                if self._end:
                    return b""
            await self._has_news.wait()

    def _read_all(self) -> None:
        while not self._end:
            piece, end = self._read()
            with self._changed:
                self._held += piece
                self._end = end
            try:
                self._loop.call_soon_threadsafe(self._has_news.set)
            except RuntimeError:  # the loop is closed: the command is over
                return
            with self._changed:
                self._changed.wait_for(lambda: len(self._held) < self._held_bytes_max)

    def _read(self) -> tuple[bytes, OSError | bool]:
        try:
            piece: bytes = self._file.read1(_READ_BYTES)  # type: ignore[attr-defined]
        except OSError as error:
            return b"", error
        return piece, not piece
