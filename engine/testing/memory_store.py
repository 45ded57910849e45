"""`MemoryStore`: an ObjectStore in memory, which keeps its promises and never fails.

For tests and the simulation. It takes no time and has no clock: `now_ms` dates its objects, and the test moves it.
`objects` has every object by its key; a test may change it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from engine.runtime.disk import RealDisk
from engine.tiering.store.store import NoSuchObject, ObjectExists, ObjectInfo, UnfinishedUpload, check_guarantees


class MemoryStore:
    url = "memory://"
    checks_uploads = False

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self.objects: dict[str, bytes] = {}
        self._modified_ms: dict[str, int] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"MemoryStore({len(self.objects)} objects)"

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """Store an object. Raises ObjectExists."""
        with self._lock:
            if if_absent and key in self.objects:
                raise ObjectExists(key)
            self.objects[key] = bytes(data)
            self._modified_ms[key] = self.now_ms

    def put_file(
        self,
        key: str,
        path: str,
        *,
        size_bytes: int,
        start: int = 0,
        crc32: int | None = None,
        if_absent: bool = False,
    ) -> None:
        disk = RealDisk()
        handle = disk.open(path)
        try:
            self.put(key, disk.pread(handle, size_bytes, start), if_absent=if_absent)
        finally:
            disk.close(handle)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return the bytes of an object. Raises NoSuchObject."""
        try:
            return self.objects[key][start:end]
        except KeyError:
            raise NoSuchObject(f"no object {key}") from None

    def head(self, key: str) -> ObjectInfo | None:
        data = self.objects.get(key)
        return None if data is None else ObjectInfo(key, len(data), self._modified_ms.get(key, 0))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """Return the objects as they are now, whatever changes before the caller has read them."""
        with self._lock:
            keys = sorted(key for key in self.objects if key.startswith(prefix) and key > start_after)
            return iter([ObjectInfo(key, len(self.objects[key]), self._modified_ms.get(key, 0)) for key in keys])

    def list_prefixes(self, prefix: str) -> Sequence[str]:
        rests = (info.key[len(prefix) :].partition("/") for info in self.list(prefix))
        return list(dict.fromkeys(f"{prefix}{name}/" for name, slash, _ in rests if slash))

    def delete(self, key: str) -> None:
        with self._lock:
            self.objects.pop(key, None)

    def unfinished(self, prefix: str) -> Sequence[UnfinishedUpload]:
        """Return nothing: a put is whole or absent here."""
        return ()

    def abort(self, upload: UnfinishedUpload) -> None:
        """No-op: there is no unfinished upload."""

    def probe(self) -> None:
        check_guarantees(self, "a nonce")
