"""`MemoryStore`: an ObjectStore in memory, which keeps its promises and never fails.

For tests and the simulation. It takes no time and has no clock: `now_ms` dates its objects, and the test moves it.
`objects` has every object by its key; a test may change or replace it. A listing costs what it returns, so simulated
years stay fast.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, MutableMapping, Sequence

from engine.runtime.disk import RealDisk
from engine.tiering.store.store import NoSuchObject, ObjectExists, ObjectInfo, UnfinishedUpload, check_guarantees


class _Objects(MutableMapping[str, bytes]):
    """A dict that also has its keys in order."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self._data = dict(objects)
        self.keys_in_order = sorted(self._data)

    def __getitem__(self, key: str) -> bytes:
        return self._data[key]

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __setitem__(self, key: str, data: bytes) -> None:
        if key not in self._data:
            insort(self.keys_in_order, key)
        self._data[key] = data

    def __delitem__(self, key: str) -> None:
        del self._data[key]
        del self.keys_in_order[bisect_left(self.keys_in_order, key)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __repr__(self) -> str:
        return repr(self._data)


class MemoryStore:
    url = "memory://"
    checks_uploads = False

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self._objects = _Objects({})
        self._modified_ms: dict[str, int] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"MemoryStore({len(self.objects)} objects)"

    @property
    def objects(self) -> MutableMapping[str, bytes]:
        return self._objects

    @objects.setter
    def objects(self, objects: Mapping[str, bytes]) -> None:
        self._objects = _Objects(objects)

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """Stores an object. Raises ObjectExists."""
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
        """Returns the bytes of an object. Raises NoSuchObject."""
        try:
            return self.objects[key][start:end]
        except KeyError:
            raise NoSuchObject(f"no object {key}") from None

    def head(self, key: str) -> ObjectInfo | None:
        data = self.objects.get(key)
        return None if data is None else ObjectInfo(key, len(data), self._modified_ms.get(key, 0))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """Returns the objects as they are now, whatever changes before the caller has read them."""
        with self._lock:
            ordered = self._objects.keys_in_order
            first = last = bisect_left(ordered, max(prefix, f"{start_after}\0" if start_after else ""))
            while last < len(ordered) and ordered[last].startswith(prefix):
                last += 1
            keys = ordered[first:last]
            return iter([ObjectInfo(key, len(self.objects[key]), self._modified_ms.get(key, 0)) for key in keys])

    def list_prefixes(self, prefix: str) -> Sequence[str]:
        rests = (info.key[len(prefix) :].partition("/") for info in self.list(prefix))
        return list(dict.fromkeys(f"{prefix}{name}/" for name, slash, _ in rests if slash))

    def delete(self, key: str) -> None:
        with self._lock:
            self.objects.pop(key, None)

    def unfinished(self, prefix: str) -> Sequence[UnfinishedUpload]:
        """Returns nothing: a put is whole or absent here."""
        return ()

    def abort(self, upload: UnfinishedUpload) -> None:
        """No-op: there is no unfinished upload."""

    def probe(self) -> str:
        check_guarantees(self, "a nonce")
        return ""
