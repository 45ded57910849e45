"""An object of a store as a file for PyArrow, which then reads the footer of a Parquet file and no more."""

from __future__ import annotations

import io

from engine.tiering.store.store import ObjectInfo, ObjectStore


class StoredObject(io.RawIOBase):
    """Each read is a ranged GET."""

    def __init__(self, store: ObjectStore, info: ObjectInfo) -> None:
        self.info = info
        self._store = store
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.info.size_bytes}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self.info.size_bytes - self._at)
        length = left if size is None or size < 0 else min(size, left)
        data = self._store.get(self.info.key, self._at, self._at + length) if length else b""
        self._at += len(data)
        return data
