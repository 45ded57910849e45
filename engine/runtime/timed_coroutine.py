"""A coroutine whose steps are timed: what the loop does for it, without the time that it waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class TimedCoroutine(Coroutine[Any, Any, T]):
    """Calls `debit` after each step, with the present time and the seconds that the step took."""

    def __init__(self, work: Coroutine[Any, Any, T], debit: Callable[[float, float], object]) -> None:
        self._work = work
        self._debit = debit

    def send(self, value: Any) -> Any:
        began_s = time.perf_counter()
        try:
            return self._work.send(value)
        finally:
            self._end_step(began_s)

    def throw(self, *error: Any) -> Any:
        began_s = time.perf_counter()
        try:
            return self._work.throw(*error)
        finally:
            self._end_step(began_s)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self  # a coroutine has all that an await calls

    def __iter__(self) -> TimedCoroutine[T]:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def _end_step(self, began_s: float) -> None:
        now_s = time.perf_counter()
        self._debit(now_s, now_s - began_s)
