"""Waits for a named position: what an acknowledgement and a long poll both are.

Knows neither which position it guards nor why somebody waits. Not thread-safe: one event loop owns it.
Invariant: waiters are sorted by the end that they wait for, and none waits for an end already reached.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from typing import TypeVar

T = TypeVar("T")


class PositionWaiters:
    """Futures sorted by the end they wait for; `advance` wakes all that are reached."""

    def __init__(self, position: int) -> None:
        self.position = position
        self._waiting: list[tuple[int, int, asyncio.Future[int]]] = []
        self._sequence = 0
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        return f"PositionWaiters(position={self.position}, waiting={len(self._waiting)})"

    def __len__(self) -> int:
        return len(self._waiting)

    def wait_for(self, end: int) -> asyncio.Future[int]:
        """A future that is done, with the position, once everything below `end` has been passed."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if end <= self.position:
            future.set_result(self.position)
            return future
        if self._failure is not None:
            future.set_exception(self._failure)
            return future
        self._sequence += 1
        insort(self._waiting, (end, self._sequence, future))
        future.add_done_callback(self._forget_given_up)
        return future

    def advance(self, position: int) -> None:
        """Move on and wake whoever is reached, in the order of what they waited for."""
        assert position >= self.position, f"a position went back from {self.position} to {position}"
        self.position = position
        reached = 0
        for end, _, future in self._waiting:
            if end > position:
                break
            reached += 1
            if not future.done():
                future.set_result(position)
        del self._waiting[:reached]

    def fail(self, error: Exception) -> None:
        """End every wait with an error, later ones too: what is waited for will not come."""
        self._failure = error
        self.fail_present(error)

    def fail_present(self, error: Exception) -> None:
        """End every wait that there is with an error."""
        waiting, self._waiting = self._waiting, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(error)

    def retreat(self, position: int) -> None:
        """What lies at or behind a position is gone; whoever waits goes on waiting."""
        self.position = position

    def wake_all(self) -> None:
        """End every wait at the present position: the waiter looks for itself."""
        waiting, self._waiting = self._waiting, []
        for _, _, future in waiting:
            if not future.done():
                future.set_result(self.position)

    def _forget_given_up(self, future: asyncio.Future[int]) -> None:
        """Who left, or waited too long, must not stay in the list until its position comes, which may be never."""
        if future.cancelled() or isinstance(future.exception(), TimeoutError):
            self._waiting = [entry for entry in self._waiting if entry[2] is not future]


async def done_by(deadline: float, future: asyncio.Future[T]) -> T:
    """Wait for a future of our own until a moment of the loop's clock. Raises TimeoutError.

    Instead of asyncio.timeout, which costs a fourteenth of a small produce: who sets a result finds the future done.
    """
    if future.done():
        return future.result()
    expiry = future.get_loop().call_at(deadline, _expire, future)
    try:
        return await future
    finally:
        expiry.cancel()


def _expire(future: asyncio.Future[T]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())
