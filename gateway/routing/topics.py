"""The topics that requests name: known here, looked for in the cluster, or created on demand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from engine.shard.served_topics import Topic
from engine.shard.shard import Shard
from gateway.http.problems import Problem
from gateway.routing.topic_finder import TopicFinder
from gateway.settings import NodeSettings


class TopicChanges(Protocol):
    """Creates, alters and deletes topics: the shard of a single process, else the supervisor."""

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, overrides: Mapping[str, object]
    ) -> tuple[Topic, bool]: ...
    async def alter_topic(self, name: str, overrides: Mapping[str, object], partitions: int | None) -> Topic: ...
    async def delete_topic(self, name: str) -> None: ...


class Topics:
    """`finder` is None on a standalone node, which knows every topic there is."""

    def __init__(
        self, shard: Shard, settings: NodeSettings, changes: TopicChanges, finder: TopicFinder | None = None
    ) -> None:
        self._shard = shard
        self._settings = settings
        self._changes = changes
        self._finder = finder

    @property
    def is_standalone(self) -> bool:
        return self._finder is None

    @property
    def partition_count(self) -> int:
        return self._shard.topics.partition_count

    def all(self) -> Iterable[Topic]:
        return self._shard.topics.values()

    def get(self, name: str) -> Topic | None:
        return self._shard.topics.get(name)

    def topic(self, name: str) -> Topic:
        """Raises UnknownTopic."""
        return self._shard.topic(name)

    async def look_for(self, name: str, partitions: int = 1) -> None:
        """Waits for a topic of so many partitions that another node may just have created or grown. Raises Problem."""
        topic = self._shard.topics.get(name)
        if self._finder is not None and (topic is None or topic.record.partitions < partitions):
            await self._finder.find(name)

    async def has_grown(self, name: str, partitions: int) -> bool:
        """Whether the topic has more partitions by now, perhaps only in the cluster, than a request was judged by."""
        await self.look_for(name, partitions + 1)
        topic = self._shard.topics.get(name)
        return topic is not None and topic.record.partitions > partitions

    async def to_produce_to(self, name: str) -> Topic:
        """The topic, created with the defaults if it is missing and `auto_create_topics` is set.

        Raises UnknownTopic, Problem too_many_topics.
        """
        settings = self._settings
        if name in self._shard.topics or not settings.auto_create_topics:
            return self._shard.topic(name)
        topic, _ = await self.create(name, settings.default_partitions, settings.default_replication_factor, {})
        return topic

    async def create(
        self, name: str, partitions: int, replication_factor: int, overrides: Mapping[str, object]
    ) -> tuple[Topic, bool]:
        """Creates a topic, or returns the same one. The second value is True for a new one.

        Raises Problem too_many_topics, TopicExists, Invalid.
        """
        if name not in self._shard.topics:
            topics, topics_max = self._shard.topics, self._settings.topics_max
            self._check_room_for_partitions(partitions, partitions)
            if len(topics) >= topics_max:
                raise Problem("too_many_topics", f"the node has {len(topics)} topics", limit=topics_max)
        return await self._changes.create_topic(name, partitions, replication_factor, dict(overrides))

    async def alter(self, name: str, overrides: Mapping[str, object], partitions: int | None) -> Topic:
        """Changes settings and adds partitions. Raises UnknownTopic, Invalid, Problem too_many_topics."""
        existing = self._shard.topic(name).record.partitions
        if partitions is not None and partitions > existing:
            self._check_room_for_partitions(partitions, partitions - existing)
        return await self._changes.alter_topic(name, dict(overrides), partitions)

    async def delete(self, name: str) -> None:
        """Raises UnknownTopic."""
        await self._changes.delete_topic(name)

    def _check_room_for_partitions(self, of_topic: int, added: int) -> None:
        if of_topic > (limit := self._settings.topic_partitions_max):
            raise Problem("invalid_config", f"a topic may have {limit} partitions, not {of_topic}", limit=limit)
        total = self._shard.topics.partition_count + added
        if total > (limit := self._settings.partitions_max):
            text = f"the node would have {total} partitions, {limit} are allowed"
            raise Problem("too_many_topics", text, limit=limit)
