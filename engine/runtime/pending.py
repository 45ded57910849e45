"""A result that comes later, without a task: its owner completes it, and one receiver takes it.

Belongs to one event loop. Invariants: it ends once, by a result, an error or `cancel`; a receiver is called once, in
the call that completes it; a cancelled one has no receiver. `cancel` ends the wait, never the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_NOTHING: Any = object()


class Pending(Generic[T]):
    """`is_over`: it has a result, an error, or was cancelled."""

    __slots__ = ("_outcome", "_receive", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self._outcome: T | BaseException = _NOTHING  # until a receiver takes it
        self._receive: Callable[[T | BaseException], object] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(is_over={self.is_over})"

    def then(self, receive: Callable[[T | BaseException], object]) -> None:
        """Calls `receive` with the result or the error: now, if it is there."""
        if self.is_over:
            if self._outcome is not _NOTHING:
                receive(self._outcome)
        else:
            self._receive = receive

    def complete(self, outcome: T | BaseException) -> None:
        """Ends it with a result or an error. No-op if it has ended: a coroutine is closed then."""
        if self.is_over:
            _close(outcome)
            return
        self.is_over = True
        if self._receive is None:
            self._outcome = outcome
        else:
            receive, self._receive = self._receive, None
            receive(outcome)

    def cancel(self) -> None:
        """Ends the wait. No-op if it has ended: a coroutine that no receiver has taken is closed then."""
        if self.is_over:
            _close(getattr(self, "_outcome", _NOTHING))  # constructors that save time leave it out
        self.is_over, self._receive, self._outcome = True, None, _NOTHING

    def future(self) -> asyncio.Future[T]:
        """Returns a future of the result. Cancelling it cancels this."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.then(lambda outcome: _resolve(future, outcome))
        if not future.done():
            future.add_done_callback(self._on_future_done)
        return future

    def __await__(self) -> Generator[Any, None, T]:
        """Waits for the result. Raises the error. A cancelled task cancels this."""
        return self.future().__await__()

    def _on_future_done(self, future: asyncio.Future[T]) -> None:
        if future.cancelled():
            self.cancel()


def _close(outcome: object) -> None:
    """Closes a coroutine that would go on with what is left to do, for a receiver that has left."""
    if isinstance(outcome, Coroutine):
        outcome.close()


def _resolve(future: asyncio.Future[T], outcome: T | BaseException) -> None:
    if future.done():
        _close(outcome)
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
