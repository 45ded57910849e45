"""Deletes a topic of a node of one process; after a disk failure the topic is served again.

engine/directory/catalog.py unlists the topic and removes its files. Invariant: its objects in the store are removed
only once the topic has vanished durably, or a topic that returns would lack them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from engine.directory.catalog import Catalog
from engine.directory.topics import TopicRecord
from engine.errors import EngineError
from engine.partition.partition import Partition


class Shard(Protocol):
    """The part of engine/shard/shard.py that a deletion needs."""

    catalog: Catalog
    when_closed: Callable[[Any], None]
    when_moved_away: Callable[[Any, list[Partition]], None]

    async def closed(self, record: TopicRecord) -> Any: ...
    async def open_topic(self, record: TopicRecord) -> Any: ...


async def delete_topic(shard: Shard, name: str) -> None:
    async with shard.catalog.changing:
        await _delete(shard, shard.catalog.record(name))


async def finish_deletion(shard: Shard, name: str) -> None:
    """Finish an interrupted deletion before a topic of the name is created: it may have vanished, not durably."""
    if name in shard.catalog.half_deleted:
        await _delete(shard, shard.catalog.half_deleted[name])


async def _delete(shard: Shard, record: TopicRecord) -> None:
    topic = await shard.closed(record)
    try:
        await shard.catalog.delete(record)
    except EngineError:
        shard.when_moved_away(topic, list(topic.partitions.values()))
        if record.name not in shard.catalog.half_deleted:
            await shard.open_topic(record)
        raise
    shard.when_closed(topic)
