"""Reads a file from front to back through a window, at any position in it."""

from __future__ import annotations

import errno
from collections.abc import Callable

from engine.format.checksum import PIECE_BYTES
from engine.runtime.disk import Disk


class FileWindow:
    """A window on an open file. Calls `pace` with the bytes of each disk read. The caller closes the handle."""

    def __init__(self, disk: Disk, handle: int, pace: Callable[[int], None] = lambda _: None) -> None:
        self._disk = disk
        self._handle = handle
        self._pace = pace
        self._bytes, self._at = b"", 0

    def read(self, position: int, length: int) -> bytes:
        """Returns up to `length` bytes, without those that the disk cannot read (EIO). Raises other OSErrors."""
        start = position - self._at
        if start < 0 or start + length > len(self._bytes):
            try:
                self._bytes = self._disk.pread(self._handle, max(length, PIECE_BYTES), position)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                self._bytes = b""
            self._at, start = position, 0
            self._pace(len(self._bytes))
        return self._bytes[start : start + length]

    def rest(self, position: int) -> bytes:
        """Returns the bytes of the window from a position on."""
        return self._bytes[position - self._at :]
