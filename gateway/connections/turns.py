"""Turns of callers that wait for the same thing: one watches, and the next one looks when it has got something.

Without turns one new record wakes every waiting caller of a share group, and all but one look for nothing.
Invariant: at most one caller of a key has the turn. It passes to the others in their order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class Turns:
    """The turns of all keys of a process."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, asyncio.Lock] = {}
        self._callers: Counter[Hashable] = Counter()

    def __repr__(self) -> str:
        return f"Turns({len(self._locks)} keys, {self._callers.total()} callers)"

    @contextmanager
    def caller(self, key: Hashable) -> Iterator[Turn]:
        """Gives a caller its turn to ask for, and ends it with the block."""
        turn = Turn(self._locks.setdefault(key, asyncio.Lock()))
        self._callers[key] += 1
        try:
            yield turn
        finally:
            turn.end()
            self._callers[key] -= 1
            if not self._callers[key]:
                del self._callers[key], self._locks[key]


class Turn:
    """The turn of one caller."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self.is_ours = False

    def __repr__(self) -> str:
        return f"Turn(is_ours={self.is_ours})"

    async def begin(self, wait_s: float) -> bool:
        """Waits for the turn. Returns False if the time is over."""
        try:
            async with asyncio.timeout(wait_s):
                await self._lock.acquire()
        except TimeoutError:
            return False
        self.is_ours = True
        return True

    def end(self) -> None:
        """Passes the turn to the next caller."""
        if self.is_ours:
            self.is_ours = False
            self._lock.release()
