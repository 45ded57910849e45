"""Allocates producer ids, each once, across restarts (Kafka: AllocateProducerIds, KIP-730).

The coordination store hands them out in blocks by compare-and-set; the holder of a block allocates its ids alone, and a
restart drops the rest of it. Every id below the end of the last block counts as allocated.

A store that was lost would allocate ids again, and records of a new producer would be dropped as duplicates of an old
one. So no id is allocated below `floor`, which is above every id in the logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from engine.partition.partition import Partition
from replication.coordination.interface import Conflict, Create, Put, Session, Versioned

KEY = "/producer-ids"
BLOCK_IDS = 1000  # a restart drops at most this many of 2^63, and this many ids share one commit
MARGIN_IDS = 1_000_000  # skipped when the store has lost its end: these may be allocated and not used yet

log = logging.getLogger("penstock.coordination")


class Blocks(Protocol):
    """The source of blocks: the store itself, or the process that has its session."""

    async def take(self) -> range:
        """Takes a block that is allocated to no other holder, durably."""

    async def end(self) -> int:
        """Returns the end of the last block that any holder has taken."""


class StoredBlocks:
    """Blocks from a coordination store. The value of the key is the end of the last block, in decimal digits.

    `floor` is above every id in the logs; 0 before the logs are open.
    """

    def __init__(self, session: Session, floor: int = 0) -> None:
        self._session = session
        self.floor = floor

    def __repr__(self) -> str:
        return f"StoredBlocks({self._session})"

    async def take(self) -> range:
        while True:
            stored = await self._session.get(KEY)
            first = self._end_of(stored)
            value = str(first + BLOCK_IDS).encode()
            try:
                await self._session.commit(Create(KEY, value) if stored is None else Put(KEY, value, stored.version))
            except Conflict:
                continue  # another process took it: try the next one
            return range(first, first + BLOCK_IDS)

    async def end(self) -> int:
        return self._end_of(await self._session.get(KEY))

    def _end_of(self, stored: Versioned | None) -> int:
        end = 0 if stored is None else int(stored.value)
        if end >= self.floor:
            return end
        words = {
            "end": end,
            "used": self.floor - 1,
            "hint": "check whether the coordination store was restored from old data",
        }
        log.error(
            "producer ids are in use that the coordination store has not allocated; they are skipped", extra=words
        )
        return (self.floor // BLOCK_IDS + 1) * BLOCK_IDS + MARGIN_IDS


def floor_of(partitions: Iterable[Partition]) -> int:
    """Returns the id after the greatest producer id in these logs."""
    return 1 + max((max(partition.validator.producers.ids(), default=-1) for partition in partitions), default=-1)


class ProducerIds:
    """Allocates ids in one process."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._left = range(0)
        self._end = 0
        self._taking = asyncio.Lock()

    def __repr__(self) -> str:
        return f"ProducerIds(left={len(self._left)}, end={self._end})"

    async def take(self) -> int:
        """Allocate an id. Raises EngineError of the store."""
        async with self._taking:
            if not self._left:
                self._left = await self._blocks.take()
                self._end = max(self._end, self._left.stop)
            taken, self._left = self._left[0], self._left[1:]
            return taken

    def is_known(self, producer_id: int) -> bool:
        """True if the id is of a known block."""
        return 0 <= producer_id < self._end

    async def is_allocated(self, producer_id: int) -> bool:
        """True if the id may have been allocated. Asks the store only for ids above the known blocks."""
        if producer_id >= self._end:
            self._end = max(self._end, await self._blocks.end())
        return 0 <= producer_id < self._end
