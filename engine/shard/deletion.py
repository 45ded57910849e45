"""Deletes a topic of a node of one process; after a disk failure the topic is served again.

engine/directory/catalog.py unlists the topic and removes its files. Invariant: its objects in the store are removed
only once the topic has vanished durably, or a topic that returns would lack them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from engine.directory.catalog import Catalog
from engine.directory.topics import TopicRecord
from engine.errors import EngineError
from engine.partition.partition import Partition
from engine.shard.served_topics import Topic


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """Deletes topics. `close` ends the service of one, `reopen` begins it again; the others report the outcome."""

    catalog: Catalog
    close: Callable[[TopicRecord], Awaitable[Topic]]
    reopen: Callable[[TopicRecord], Awaitable[Topic]]
    deleted: Callable[[Topic], None]
    kept: Callable[[Topic, list[Partition]], None]

    async def delete(self, name: str) -> None:
        """Deletes a topic. Raises UnknownTopic, TopicProtected, StorageFull, StorageFailed."""
        async with self.catalog.changing:
            await self._delete(self.catalog.deletable(name))

    async def finish(self, name: str) -> None:
        """Finishes an interrupted deletion before a topic of the name is created: it may have vanished, not durably."""
        if name in self.catalog.partially_deleted:
            await self._delete(self.catalog.partially_deleted[name])

    async def _delete(self, record: TopicRecord) -> None:
        topic = await self.close(record)
        try:
            await self.catalog.delete(record)
        except EngineError:
            self.kept(topic, list(topic.partitions.values()))
            if record.name not in self.catalog.partially_deleted:
                await self.reopen(record)
            raise
        self.deleted(topic)
