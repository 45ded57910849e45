"""Producer ids: numbers that are given out once, whatever restarts in between.

They come from the coordination store in blocks, each taken by compare-and-set; whoever has a block gives its numbers
out alone, and what a restart leaves of one is never given. An id below the end of the last block counts as given.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from replication.coordination.interface import Conflict, Create, Put, Session

KEY = "/producer-ids"
BLOCK_IDS = 1000  # a restart wastes at most so many of 2^63, and a commit is paid once for so many


class Blocks(Protocol):
    """Where blocks come from: the store itself, or the process that has it."""

    async def take(self) -> range:
        """A block that nobody else was or will be given, and that is durably taken."""

    async def end(self) -> int:
        """The end of the last block that anybody has taken."""


class StoredBlocks:
    """Blocks out of a coordination store. The key's value is the end of the last one, in digits."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"StoredBlocks({self._session})"

    async def take(self) -> range:
        while True:
            found = await self._session.get(KEY)
            first = 0 if found is None else int(found.value)
            value = str(first + BLOCK_IDS).encode()
            try:
                await self._session.commit(Create(KEY, value) if found is None else Put(KEY, value, found.version))
            except Conflict:
                continue  # somebody else took it: the next one then
            return range(first, first + BLOCK_IDS)

    async def end(self) -> int:
        found = await self._session.get(KEY)
        return 0 if found is None else int(found.value)


class ProducerIds:
    """Gives ids out in one process."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._left = range(0)
        self._end = 0
        self._taking = asyncio.Lock()

    def __repr__(self) -> str:
        return f"ProducerIds(left={len(self._left)}, end={self._end})"

    async def take(self) -> int:
        """An id that nobody was ever given. Raises what the store fails with."""
        async with self._taking:
            if not self._left:
                self._left = await self._blocks.take()
                self._end = max(self._end, self._left.stop)
            taken, self._left = self._left[0], self._left[1:]
            return taken

    async def is_given(self, producer_id: int) -> bool:
        """Whether the id may have been given to somebody. Asks the store only about ids beyond those it knows of."""
        if producer_id >= self._end:
            self._end = max(self._end, await self._blocks.end())
        return 0 <= producer_id < self._end
