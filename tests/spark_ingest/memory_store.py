"""An object store in memory, and stores that fail: for tests of the protocol, which must not depend on a real one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from engine.tiering.store.store import NoSuchObject, ObjectExists, ObjectInfo, ObjectStore


class MemoryStore:
    """Keeps promises, forgets nothing, needs no disk."""

    url = "memory://"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._modified: dict[str, int] = {}

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        with self._lock:
            if if_absent and key in self.objects:
                raise ObjectExists(key)
            self.objects[key] = bytes(data)
            self._modified[key] = len(self._modified)  # a clock that ticks with every object

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        try:
            return self.objects[key][start:end]
        except KeyError:
            raise NoSuchObject(f"no object {key}") from None

    def head(self, key: str) -> ObjectInfo | None:
        return ObjectInfo(key, len(self.objects[key]), self._modified.get(key, 0)) if key in self.objects else None

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        for key in sorted(self.objects):
            if key.startswith(prefix) and key > start_after:
                yield ObjectInfo(key, len(self.objects[key]), self._modified.get(key, 0))

    def list_prefixes(self, prefix: str) -> list[str]:
        rests = [key[len(prefix) :] for key in self.objects if key.startswith(prefix)]
        return sorted({prefix + rest.partition("/")[0] + "/" for rest in rests if "/" in rest})

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)


class Killed(BaseException):
    """The process dies here. Not an Exception: nothing may handle it."""


class KillingStore:
    """A store whose client dies at its n-th PUT: before the object is there, or after. Counts from 1; 0 is never."""

    def __init__(self, store: ObjectStore, kill_at: int, *, is_after: bool) -> None:
        self._store = store
        self._kill_at = kill_at
        self._is_after = is_after
        self.puts = 0

    def __getattr__(self, name: str) -> Callable[..., object]:
        return getattr(self._store, name)

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        self.puts += 1
        if self.puts == self._kill_at and not self._is_after:
            raise Killed(key)
        self._store.put(key, data, if_absent=if_absent)
        if self.puts == self._kill_at:
            raise Killed(key)
