"""A store around a store, which counts its calls and fails or loses answers at a chosen one."""

import threading
from collections.abc import Callable
from typing import TypeVar

from engine.testing.store_proxy import StoreProxy
from engine.tiering.store.store import ObjectStore, StoreUnavailable

T = TypeVar("T")

FAILS = "fails"  # not executed, and the caller gets an error
LOSES = "loses"  # executed, and the caller gets "no answer"

Decide = Callable[[int, str, str], str | None]


class Watched(StoreProxy):
    """Forwards every call, numbers them from 0, and lets `decide(number, method, key)` inject a fault into one."""

    def __init__(self, inner: ObjectStore, decide: Decide = lambda number, method, key: None) -> None:
        super().__init__(inner)
        self.decide = decide
        self.calls: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def count(self, method: str) -> int:
        return sum(1 for called, _ in self.calls if called == method)

    def relay(self, method: str, key: str, do: Callable[[], T]) -> T:
        with self._lock:
            number = len(self.calls)
            self.calls.append((method, key))
        verdict = self.decide(number, method, key)
        if verdict == FAILS:
            raise StoreUnavailable(f"{method} {key} fails by design")
        answer = do()
        if verdict == LOSES:
            raise StoreUnavailable(f"the answer to {method} {key} is lost by design")
        return answer
