"""`StoreProxy`: an ObjectStore that passes every call on to another one, through one method for subclasses to change.

For tests and the simulation: stores that count calls, fail, lose answers, take time or end the process. Any thread may
call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from engine.tiering.store.store import ObjectInfo, ObjectStore, UnfinishedUpload

T = TypeVar("T")


class StoreProxy:
    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def checks_uploads(self) -> bool:
        return self.inner.checks_uploads

    def relay(self, method: str, key: str, do: Callable[[], T]) -> T:
        """Makes a call of the inner store: `do` makes it. `key` is the prefix for a list."""
        return do()

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        self.relay("put", key, lambda: self.inner.put(key, data, if_absent=if_absent))

    def put_file(
        self,
        key: str,
        path: str,
        *,
        size_bytes: int,
        start: int = 0,
        crc32: int | None = None,
        if_absent: bool = False,
    ) -> int | None:
        def do() -> int | None:
            return self.inner.put_file(key, path, size_bytes=size_bytes, start=start, crc32=crc32, if_absent=if_absent)

        return self.relay("put_file", key, do)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        return self.relay("get", key, lambda: self.inner.get(key, start, end))

    def head(self, key: str) -> ObjectInfo | None:
        return self.relay("head", key, lambda: self.inner.head(key))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        return self.relay("list", prefix, lambda: self.inner.list(prefix, start_after))

    def list_prefixes(self, prefix: str) -> Sequence[str]:
        return self.relay("list_prefixes", prefix, lambda: self.inner.list_prefixes(prefix))

    def delete(self, key: str) -> None:
        self.relay("delete", key, lambda: self.inner.delete(key))

    def unfinished(self, prefix: str) -> Sequence[UnfinishedUpload]:
        return self.relay("unfinished", prefix, lambda: self.inner.unfinished(prefix))

    def abort(self, upload: UnfinishedUpload) -> None:
        self.relay("abort", upload.key, lambda: self.inner.abort(upload))

    def probe(self) -> str:
        return self.inner.probe()
