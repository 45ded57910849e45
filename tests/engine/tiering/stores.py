"""Stores around a store: one that counts, one that fails or loses answers at a chosen call; and one with a clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from engine.tiering.store.store import ObjectInfo, ObjectStore, StoreUnavailable
from tests.spark_ingest.memory_store import MemoryStore

FAILS = "fails"  # nothing is done, and the caller is told so
LOSES = "loses"  # it is done, and the caller is told that the store did not answer

Decide = Callable[[int, str, str], str | None]


class Watched:
    """Passes every call on, numbers them from 0, and lets `decide(number, method, key)` spoil one."""

    def __init__(self, inner: ObjectStore, decide: Decide = lambda number, method, key: None) -> None:
        self.inner = inner
        self.decide = decide
        self.calls: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def checks_uploads(self) -> bool:
        return self.inner.checks_uploads

    def count(self, method: str) -> int:
        return sum(1 for called, _ in self.calls if called == method)

    def _call(self, method: str, key: str, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            number = len(self.calls)
            self.calls.append((method, key))
        verdict = self.decide(number, method, key)
        if verdict == FAILS:
            raise StoreUnavailable(f"{method} {key} fails by design")
        answer = getattr(self.inner, method)(key, *args, **kwargs)
        if verdict == LOSES:
            raise StoreUnavailable(f"the answer to {method} {key} is lost by design")
        return answer

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        self._call("put", key, data, if_absent=if_absent)

    def put_file(self, key: str, path: str, **kwargs: Any) -> None:
        self._call("put_file", key, path, **kwargs)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        data: bytes = self._call("get", key, start, end)
        return data

    def head(self, key: str) -> ObjectInfo | None:
        found: ObjectInfo | None = self._call("head", key)
        return found

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        found: Iterator[ObjectInfo] = self._call("list", prefix, start_after)
        return found

    def list_prefixes(self, prefix: str) -> Sequence[str]:
        found: Sequence[str] = self._call("list_prefixes", prefix)
        return found

    def delete(self, key: str) -> None:
        self._call("delete", key)

    def probe(self) -> None:
        self.inner.probe()


class DatedStore(MemoryStore):
    """In memory, under a clock of its own that the test turns."""

    checks_uploads = False

    def __init__(self, now_ms: int = 0) -> None:
        super().__init__()
        self.now_ms = now_ms

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        super().put(key, data, if_absent=if_absent)
        self._modified[key] = self.now_ms

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
        self.put(key, Path(path).read_bytes()[start : start + size_bytes], if_absent=if_absent)

    def probe(self) -> None:
        """It keeps what it promises."""
