"""The remote logs of a shard's partitions, with the one cache that they share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor

from engine.directory.data_directory import DataDirectory
from engine.directory.topics import TopicRecord
from engine.format import paths
from engine.partition.reader import Chunk
from engine.tiering.manifest.manifest import Manifest
from engine.tiering.reading.cache import TierCache
from engine.tiering.reading.remote_log import RemoteLog
from engine.tiering.store.store import ObjectStore


class RemoteLogs:
    """Reads records that are no longer on this disk, by topic id and partition."""

    def __init__(
        self, store: ObjectStore, directory: DataDirectory, executor: Executor, *, cache_bytes_max: int
    ) -> None:
        self._store = store
        self._directory = directory
        self._executor = executor
        part = "" if directory.part is None else str(directory.part)
        self._cache = TierCache(os.path.join(directory.path, paths.TIER_CACHE, part), cache_bytes_max)
        self._logs: dict[tuple[str, int], RemoteLog] = {}

    def __repr__(self) -> str:
        return f"RemoteLogs({self._store.url}, partitions={len(self._logs)}, {self._cache})"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yield name, text and value of each number of the cache for /metrics."""
        found = self._cache.statistics()
        yield "penstock_tier_cache_bytes", "Bytes of copies of tiered segments on this disk", found.bytes_used
        yield "penstock_tier_cache_hits_total", "Reads of tiered records from a copy on this disk", found.hits
        yield "penstock_tier_cache_misses_total", "Reads of tiered records without a copy on this disk", found.misses
        text = "Copies of tiered segments removed to make room"
        yield "penstock_tier_cache_evictions_total", text, found.evictions

    async def start(self) -> None:
        await self._cache.open()

    async def stop(self) -> None:
        await self._cache.close()

    def add(self, topic: TopicRecord, partition: int) -> None:
        cluster_id = self._directory.identity.cluster_id
        prefix = paths.store_partition_prefix(cluster_id, topic.name, topic.topic_id, partition)
        self._logs[topic.topic_id, partition] = RemoteLog(
            self._store, prefix, self._cache, disk=self._directory.disk, executor=self._executor
        )

    def remove(self, topic: TopicRecord, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._logs.pop((topic.topic_id, partition), None)

    def use_manifest(self, topic_id: str, partition: int, manifest: Manifest | None) -> None:
        """Apply a newer manifest of a shipper of this process."""
        if manifest is not None and (topic_id, partition) in self._logs:
            self._logs[topic_id, partition].use_manifest(manifest)

    async def read(self, topic_id: str, partition: int, offset: int, max_bytes: int) -> Chunk | None:
        """Read as the local reader does, for offsets below the local log."""
        return await self._logs[topic_id, partition].read_chunk(offset, max_bytes)

    async def first_at_or_after(self, topic_id: str, partition: int, timestamp: int) -> tuple[int, int] | None:
        return await self._logs[topic_id, partition].first_at_or_after(timestamp)
