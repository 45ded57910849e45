"""The topics of a node: who makes, changes and deletes them, durably, one change at a time.

Knows records, not logs: shards open and close what stands here. In a node of several processes the supervisor alone has
the catalog. Invariant: a topic is in `records` if and only if its `topic.json` is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

from engine.clock import Clock
from engine.disk import Disk
from engine.errors import TopicExists, UnknownTopic, storage_error
from engine.settings import topic_settings
from engine.topics import (
    TopicRecord,
    changed_topic,
    check_topic_wish,
    load_topics,
    remove_tree,
    save_topic,
    unlist_topic,
)

log = logging.getLogger("penstock.engine")

P = ParamSpec("P")
T = TypeVar("T")


class Catalog:
    """All topics of one data directory."""

    def __init__(self, disk: Disk, data_dir: str, clock: Clock, executor: Executor, new_id: Callable[[], str]) -> None:
        self.records: dict[str, TopicRecord] = {}
        self.changing = asyncio.Lock()  # held by whoever changes a topic, until every shard has followed
        self._disk = disk
        self._data_dir = data_dir
        self._clock = clock
        self._executor = executor
        self._new_id = new_id

    def __repr__(self) -> str:
        return f"Catalog({self._data_dir}, topics={len(self.records)})"

    async def load(self) -> None:
        """Read all topics; removes what interrupted creations and deletions left. Raises Corrupt."""
        found = await self._in_thread(load_topics, self._disk, self._data_dir)
        self.records = {record.name: record for record in found}

    async def create(
        self, name: str, partitions: int, replication_factor: int, overrides: Mapping[str, object]
    ) -> tuple[TopicRecord, bool]:
        """Make a topic, or find the same one there. Returns it and whether it is new. Raises TopicExists, Invalid."""
        check_topic_wish(name, partitions, replication_factor, overrides)
        existing = self.records.get(name)
        if existing is not None:
            _check_same(existing, partitions, replication_factor, overrides)
            return existing, False
        now_ms = self._clock.now_ms()
        record = TopicRecord(name, self._new_id(), partitions, replication_factor, dict(overrides), now_ms)
        await self._stored("creating", save_topic, record)
        self.records[name] = record
        return record, True

    async def alter(self, name: str, overrides: Mapping[str, object], partitions: int | None) -> TopicRecord:
        """Change settings that are named, grow to so many partitions. Raises UnknownTopic, InvalidConfig."""
        record = changed_topic(self.record(name), overrides, partitions)
        await self._stored("changing", save_topic, record)
        self.records[name] = record
        return record

    async def delete(self, record: TopicRecord) -> None:
        """Make a topic vanish durably and remove its files. Nobody has it open any more."""
        left = await self._stored("deleting", unlist_topic, record)
        self.records.pop(record.name, None)
        try:
            await self._in_thread(remove_tree, self._disk, left)
        except OSError as error:  # the topic is gone all the same; the next start removes what is left
            log.warning("removal failed", extra={"directory": left, "reason": str(error)})

    def record(self, name: str) -> TopicRecord:
        try:
            return self.records[name]
        except KeyError:
            raise UnknownTopic(f"there is no topic {name!r}", hint=f"create it with PUT /v1/topics/{name}") from None

    async def _stored(self, doing: str, change: Callable[[Disk, str, TopicRecord], T], record: TopicRecord) -> T:
        """Change files. Raises StorageFull, StorageFailed."""
        try:
            return await self._in_thread(change, self._disk, self._data_dir, record)
        except OSError as error:
            raise storage_error(f"{doing} topic {record.name!r}", error) from error

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **_: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)


def _check_same(record: TopicRecord, partitions: int, replication_factor: int, overrides: Mapping[str, object]) -> None:
    wanted = (partitions, replication_factor, topic_settings(overrides))
    if wanted != (record.partitions, record.replication_factor, record.settings):
        raise TopicExists(
            f"topic {record.name!r} exists with other partitions or settings",
            hint="describe it, alter it with PATCH, or choose another name",
        )
