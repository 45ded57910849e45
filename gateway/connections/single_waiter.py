"""Lets one of several equal callers wait for a record; the next one waits when it has taken a record.

Without it one new record wakes every waiting caller of a share group, and all but one look for nothing.
Invariant: at most one caller of a key waits. The others follow in their order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class SingleWaiters:
    """The callers of all keys of a process."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, asyncio.Lock] = {}
        self._callers: Counter[Hashable] = Counter()

    def __repr__(self) -> str:
        return f"SingleWaiters({len(self._locks)} keys, {self._callers.total()} callers)"

    @contextmanager
    def caller(self, key: Hashable) -> Iterator[SingleWaiter]:
        """Gives a caller its place in the order of its key, and ends it with the block."""
        waiter = SingleWaiter(self._locks.setdefault(key, asyncio.Lock()))
        self._callers[key] += 1
        try:
            yield waiter
        finally:
            waiter.end()
            self._callers[key] -= 1
            if not self._callers[key]:
                del self._callers[key], self._locks[key]


class SingleWaiter:
    """One caller. `has_turn`: it is the one that waits for a record."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self.has_turn = False

    def __repr__(self) -> str:
        return f"SingleWaiter(has_turn={self.has_turn})"

    async def begin(self, wait_s: float) -> bool:
        """Waits for the turn. Returns False if the time is over."""
        try:
            async with asyncio.timeout(wait_s):
                await self._lock.acquire()
        except TimeoutError:
            return False
        self.has_turn = True
        return True

    def end(self) -> None:
        """Passes the turn to the next caller."""
        if self.has_turn:
            self.has_turn = False
            self._lock.release()
