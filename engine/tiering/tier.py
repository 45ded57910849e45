"""Tiering of one shard (interim)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from random import Random
from typing import NamedTuple

from engine.partition import Partition
from engine.reader import Chunk
from engine.shard import Shard
from engine.tiering.store import ObjectStore
from engine.topics import TopicRecord


class TierStatistics(NamedTuple):
    tiered_end: int = 0
    objects: int = 0
    tiered_bytes: int = 0
    pending_segments: int = 0
    pending_bytes: int = 0
    last_error: str | None = None


class Tier:
    def __init__(
        self,
        store: ObjectStore,
        shard: Shard,
        executor: Executor,
        check_ms: int,
        cache_bytes_max: int,
        random: Random,
        new_id: Callable[[], str],
    ) -> None:
        self.store_url = store.url

    def add(self, topic: TopicRecord, partition: Partition) -> None: ...
    def forget(self, partition: Partition) -> None: ...
    def start(self) -> None: ...
    async def stop(self) -> None: ...
    def statistics(self, partition: Partition) -> TierStatistics:
        return TierStatistics()

    async def read(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        return None

    async def first_at_or_after(self, partition: Partition, timestamp: int) -> tuple[int, int] | None:
        return None
