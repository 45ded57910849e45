"""Producer ids: numbers that are given out once, whatever restarts in between.

They come from the coordination store in blocks, each taken by compare-and-set; whoever has a block gives its numbers
out alone, and what a restart leaves of one is never given. An id below the end of the last block counts as given.

A store that was lost, or that has lost its end, would give ids out again, and the records of a new producer would pass
for repeats of an old one's. So no id is given below `floor`, which is above all that the logs remember.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from engine.partition.partition import Partition
from replication.coordination.interface import Conflict, Create, Put, Session, Versioned

KEY = "/producer-ids"
BLOCK_IDS = 1000  # a restart wastes at most so many of 2^63, and a commit is paid once for so many
MARGIN_IDS = (
    1_000_000  # passed over when the store has lost its count: they may have been given out and not be used yet
)

log = logging.getLogger("penstock.coordination")


class Blocks(Protocol):
    """Where blocks come from: the store itself, or the process that has it."""

    async def take(self) -> range:
        """A block that nobody else was or will be given, and that is durably taken."""

    async def end(self) -> int:
        """The end of the last block that anybody has taken."""


class StoredBlocks:
    """Blocks out of a coordination store. The key's value is the end of the last one, in digits.

    `floor` is above every id that a log remembers; 0 as long as no log is open.
    """

    def __init__(self, session: Session, floor: int = 0) -> None:
        self._session = session
        self.floor = floor

    def __repr__(self) -> str:
        return f"StoredBlocks({self._session})"

    async def take(self) -> range:
        while True:
            found = await self._session.get(KEY)
            first = self._end_of(found)
            value = str(first + BLOCK_IDS).encode()
            try:
                await self._session.commit(Create(KEY, value) if found is None else Put(KEY, value, found.version))
            except Conflict:
                continue  # somebody else took it: the next one then
            return range(first, first + BLOCK_IDS)

    async def end(self) -> int:
        return self._end_of(await self._session.get(KEY))

    def _end_of(self, found: Versioned | None) -> int:
        end = 0 if found is None else int(found.value)
        if end >= self.floor:
            return end
        words = {"end": end, "used": self.floor - 1, "hint": "has the coordination store been lost or cut off?"}
        log.error(
            "producer ids are in use that the coordination store has not given out: they are passed over", extra=words
        )
        return (self.floor // BLOCK_IDS + 1) * BLOCK_IDS + MARGIN_IDS


def floor_of(partitions: Iterable[Partition]) -> int:
    """Above every producer id that these logs remember."""
    return 1 + max((max(one.validator.producers.ids(), default=-1) for one in partitions), default=-1)


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
