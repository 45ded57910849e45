"""Tiering of a shard's partitions: a shipper and a remote log for each, one store and one cache for all.

The composition of this folder; decides nothing. It tells each partition's log how far the store has it, and answers
reads for what is no longer on this disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from engine import paths
from engine.errors import EngineError
from engine.partition import Partition
from engine.reader import Chunk
from engine.shard import Shard
from engine.tiering.cache import TierCache
from engine.tiering.remote_log import RemoteLog
from engine.tiering.shipper import PartitionShipper, ShipperComponents, ShipperOptions
from engine.tiering.store import ObjectStore
from engine.tiering.values import LocalLog, SealedSegment
from engine.topics import TopicRecord

log = logging.getLogger("penstock.tiering")


class TierStatistics(NamedTuple):
    """How far the store has a partition. Sizes in bytes; `last_error` tells why nothing moves, if nothing does."""

    tiered_end: int
    objects: int
    tiered_bytes: int
    pending_segments: int
    pending_bytes: int
    last_error: str | None


@dataclass(slots=True)
class _Tiered:
    """What belongs to one partition."""

    shipper: PartitionShipper
    remote: RemoteLog
    source: _Source
    task: asyncio.Task[None] | None = None


class _Source:
    """A partition as its shipper sees it."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.tiered_end = 0
        self.when_tiered: Callable[[], None] = lambda: None

    async def local_log(self) -> LocalLog:
        partition = self._partition
        return LocalLog(
            log_start=partition.log.log_start,
            local_log_start=partition.log.local_log_start,
            log_end=partition.log_end,
            high_watermark=partition.high_watermark,
            durable_end=partition.durable_end,
            sealed=tuple(
                SealedSegment(segment.base_offset, segment.next_offset, segment.path, segment.size_bytes)
                for segment in partition.log.segments[:-1]
            ),
        )

    async def tiered(self, end_offset: int) -> None:
        self.tiered_end = end_offset
        self.when_tiered()


class Tier:
    """Ships and reads back every partition of a shard."""

    def __init__(
        self,
        store: ObjectStore,
        shard: Shard,
        executor: Executor,
        *,
        check_ms: int,
        cache_bytes_max: int,
        random: Random,
        new_id: Callable[[], str],
    ) -> None:
        self.store_url = store.url
        self._store = store
        self._shard = shard
        self._executor = executor
        self._writer = new_id()
        self._options = ShipperOptions(idle_seconds=check_ms / 1000)
        self._with = ShipperComponents(store, shard.disk, shard.clock, random, new_id, executor)
        self._cache = TierCache(os.path.join(shard.directory.path, paths.TIER_CACHE), cache_bytes_max)
        self._partitions: dict[Partition, _Tiered] = {}
        self._removing: set[asyncio.Task[None]] = set()
        self._is_started = False
        shard.when_sealed = self._sealed
        shard.tiered_end = self.tiered_end

    def __repr__(self) -> str:
        return f"Tier({self.store_url}, partitions={len(self._partitions)}, {self._cache})"

    def add(self, topic: TopicRecord, partition: Partition) -> None:
        """Look after a partition that was opened."""
        prefix = paths.store_partition_prefix(
            self._shard.directory.identity.cluster_id, topic.name, topic.topic_id, partition.number
        )
        source = _Source(partition)
        remote = RemoteLog(self._store, prefix, self._cache, disk=self._shard.disk, executor=self._executor)
        shipper = PartitionShipper(
            prefix,
            source,
            leader_epoch=partition.log.leader_epoch,
            writer=self._writer,
            components=self._with,
            options=self._options,
        )

        def adopt() -> None:
            if shipper.manifest is not None:
                remote.adopt(shipper.manifest)

        source.when_tiered = adopt
        self._partitions[partition] = tiered = _Tiered(shipper, remote, source)
        if self._is_started:
            self._begin(partition, tiered)

    async def start(self) -> None:
        """Begin to ship. Partitions added later begin at once."""
        await self._cache.open()
        self._is_started = True
        for partition, tiered in self._partitions.items():
            self._begin(partition, tiered)

    async def stop(self) -> None:
        """Leave off where it is: what is half done is found again by the next start."""
        tasks = [tiered.task for tiered in self._partitions.values() if tiered.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._removing, return_exceptions=True)
        if self._is_started:
            await self._cache.close()

    def remove_topic(self, topic: TopicRecord, partitions: list[Partition]) -> None:
        """A topic is deleted: stop shipping it, and take its objects away in the background."""
        for partition in partitions:
            tiered = self._partitions.pop(partition, None)
            if tiered is not None and tiered.task is not None:
                tiered.task.cancel()
        prefix = paths.store_topic_prefix(self._shard.directory.identity.cluster_id, topic.name, topic.topic_id)
        task = asyncio.create_task(self._remove_objects(prefix))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    def tiered_end(self, partition: Partition) -> int:
        """Everything below is named by a committed manifest, so this disk may let go of it."""
        tiered = self._partitions.get(partition)
        return 0 if tiered is None else tiered.source.tiered_end

    def statistics(self, partition: Partition) -> TierStatistics:
        statistics = self._partitions[partition].shipper.statistics()
        return TierStatistics(
            tiered_end=statistics.tiered_end or 0,
            objects=statistics.objects,
            tiered_bytes=statistics.tiered_bytes,
            pending_segments=statistics.pending_segments,
            pending_bytes=statistics.pending_bytes,
            last_error=statistics.last_error,
        )

    async def read(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        """As the local reader does, for what lies below the local log."""
        return await self._partitions[partition].remote.read_chunk(offset, max_bytes)

    async def first_at_or_after(self, partition: Partition, timestamp: int) -> tuple[int, int] | None:
        return await self._partitions[partition].remote.first_at_or_after(timestamp)

    def _begin(self, partition: Partition, tiered: _Tiered) -> None:
        if partition.offline is None:
            tiered.task = asyncio.create_task(tiered.shipper.run())

    def _sealed(self, partition: Partition) -> None:
        tiered = self._partitions.get(partition)
        if tiered is not None:
            tiered.shipper.wake()

    async def _remove_objects(self, prefix: str) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, _remove_all, self._store, prefix)
        except (EngineError, OSError) as error:
            log.warning("objects of a deleted topic are left", extra={"prefix": prefix, "reason": str(error)})


def _remove_all(store: ObjectStore, prefix: str) -> None:
    """In any order: nobody reads a deleted topic."""
    for found in list(store.list(prefix)):
        store.delete(found.key)
