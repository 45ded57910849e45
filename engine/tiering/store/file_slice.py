"""A part of a local file as a body that can be rewound for a retry, and read in pieces."""

from __future__ import annotations

import errno
import io
import os
from typing import Any


class FileSlice(io.RawIOBase):
    """`size_bytes` of a file from byte `start` on. Raises OSError if the file ends before."""

    def __init__(self, path: str, start: int, size_bytes: int) -> None:
        super().__init__()
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._start = start
        self._size_bytes = size_bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size_bytes}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Reads on. Raises OSError if the file ends before the slice does."""
        size_bytes = max(0, min(len(buffer), self._size_bytes - self._at))
        data = os.pread(self._handle, size_bytes, self._start + self._at)
        if size_bytes and not data:
            raise OSError(errno.EIO, f"the file ends before byte {self._start + self._size_bytes}")
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def piece(self, at: int, length: int) -> bytes:
        """Returns bytes of the slice, cut short at its end."""
        self.seek(at)
        return self.read(length) or b""

    def close(self) -> None:
        if not self.closed:
            os.close(self._handle)
        super().close()
