"""A store whose client dies at a chosen PUT, for the exactly-once protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from engine.testing.store_proxy import StoreProxy
from engine.tiering.store.store import ObjectStore

T = TypeVar("T")


class Killed(BaseException):
    """The process dies here. Not an Exception, so that no handler catches it."""


class KillingStore(StoreProxy):
    """The client dies at the n-th PUT, before or after the object is stored. Counts from 1; 0 is never."""

    def __init__(self, inner: ObjectStore, kill_at: int, *, is_after: bool) -> None:
        super().__init__(inner)
        self._kill_at = kill_at
        self._is_after = is_after
        self.puts = 0

    def relay(self, method: str, key: str, do: Callable[[], T]) -> T:
        if method != "put":
            return do()
        self.puts += 1
        if self.puts == self._kill_at and not self._is_after:
            raise Killed(key)
        done = do()
        if self.puts == self._kill_at:
            raise Killed(key)
        return done


class DyingStore(StoreProxy):
    """The client dies at the n-th operation of any kind, before or after it takes effect. Counts from 1; 0 is never."""

    def __init__(self, inner: ObjectStore, kill_at: int, error: BaseException | None = None, *, is_after: bool) -> None:
        super().__init__(inner)
        self._kill_at, self._is_after = kill_at, is_after
        self._error = error or Killed("here")
        self.operations = 0

    def relay(self, method: str, key: str, do: Callable[[], T]) -> T:
        self.operations += 1
        is_last = self.operations == self._kill_at
        if is_last and not self._is_after:
            raise self._error
        try:
            return do()
        finally:
            if is_last:
                raise self._error
