"""The remote logs of a shard's partitions, with the cache that they share with those of the node's other shards."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor

from engine.directory.data_directory import DataDirectory
from engine.directory.topics import TopicRecord
from engine.format import paths
from engine.partition.reader import Chunk
from engine.runtime.disk import RealDisk
from engine.runtime.pooled_disk import PooledDisk
from engine.tiering.manifest.manifest import Manifest
from engine.tiering.reading.block_file import BlockFile
from engine.tiering.reading.cache import BlockCache
from engine.tiering.reading.cache_directory import allocated_bytes, remove_copies
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
        self._cache_path = os.path.join(directory.path, paths.TIER_CACHE)
        self._is_first = directory.part in (None, 0)
        disk = PooledDisk(RealDisk(), files_max=1)  # its handles stay safe when a read meets the end of the process
        self._path = os.path.join(self._cache_path, paths.TIER_CACHE_BLOCKS)
        self._cache = BlockCache(BlockFile(disk, self._path, cache_bytes_max), executor)
        self._logs: dict[tuple[str, int], RemoteLog] = {}

    def __repr__(self) -> str:
        return f"RemoteLogs({self._store.url}, partitions={len(self._logs)}, {self._cache})"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each number of the cache for /metrics."""
        statistics = self._cache.statistics()
        if self._is_first:  # all shards use one file
            yield (
                "penstock_tier_cache_bytes",
                "Disk space of the cached blocks of tiered segments",
                allocated_bytes(self._path),
            )
        yield (
            "penstock_tier_cache_hits_total",
            "Blocks of tiered segments that were read from the cache",
            statistics.hits,
        )
        text = "Blocks of tiered segments that a read had to fetch from the store"
        yield "penstock_tier_cache_misses_total", text, statistics.misses
        text = "Blocks of tiered segments that were fetched before a read requested them"
        yield "penstock_tier_cache_read_ahead_total", text, statistics.read_ahead
        text = "Blocks of tiered segments that were dropped for others"
        yield "penstock_tier_cache_evictions_total", text, statistics.evictions
        text = "Blocks of tiered segments that the disk did not take"
        yield "penstock_tier_cache_refused_total", text, statistics.refused

    async def start(self) -> None:
        if self._is_first:
            await remove_copies(self._cache_path)
        await asyncio.get_running_loop().run_in_executor(self._executor, self._cache.open)

    async def stop(self) -> None:
        self._cache.close()

    def add(self, topic: TopicRecord, partition: int) -> None:
        cluster_id = self._directory.identity.cluster_id
        prefix = paths.store_partition_prefix(cluster_id, topic.name, topic.topic_id, partition)
        self._logs[topic.topic_id, partition] = RemoteLog(self._store, prefix, self._cache, executor=self._executor)

    def remove(self, topic: TopicRecord, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._logs.pop((topic.topic_id, partition), None)

    def use_manifest(self, topic_id: str, partition: int, manifest: Manifest | None) -> None:
        """Applies a newer manifest of a shipper of this process."""
        if manifest is not None and (topic_id, partition) in self._logs:
            self._logs[topic_id, partition].use_manifest(manifest)

    async def read(self, topic_id: str, partition: int, offset: int, max_bytes: int) -> Chunk | None:
        """Reads as the local reader does, for offsets below the local log."""
        return await self._logs[topic_id, partition].read_chunk(offset, max_bytes)

    async def first_at_or_after(self, topic_id: str, partition: int, timestamp: int) -> tuple[int, int] | None:
        return await self._logs[topic_id, partition].first_at_or_after(timestamp)
