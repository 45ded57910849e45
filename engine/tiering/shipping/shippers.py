"""The shippers of many partitions: one task each, one store and one set of threads for all.

Decides nothing. Does not know which process owns a partition: a `SegmentSource` returns the sealed segments and takes
the tiered end, in this process or in another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from engine.directory.topics import TopicRecord
from engine.errors import EngineError
from engine.format import paths
from engine.runtime.slices import in_slices
from engine.runtime.tasks import BackgroundTasks, keep_running
from engine.tiering.manifest.manifest import Manifest
from engine.tiering.manifest.stored_topic import TopicDescription
from engine.tiering.shipping.garbage_collection import remove_topic
from engine.tiering.shipping.job_holds import JobHolds
from engine.tiering.shipping.local_log import SegmentSource
from engine.tiering.shipping.shipper import PartitionShipper, ShipperComponents, ShipperOptions

log = logging.getLogger("penstock.tiering")


class TierStatistics(NamedTuple):
    """How far the store has a partition. Sizes in bytes; `last_error` is why shipping has stopped, or None."""

    tiered_end: int = 0
    objects: int = 0
    tiered_bytes: int = 0
    pending_segments: int = 0
    pending_bytes: int = 0
    last_error: str | None = None


class _Shipped(NamedTuple):
    shipper: PartitionShipper
    task: asyncio.Task[None]


class Shipping:
    """Ships partitions, by topic id and number, from when they are added until their topic is removed."""

    def __init__(self, components: ShipperComponents, options: ShipperOptions, cluster_id: str, writer: str) -> None:
        self._with = components
        self._options = options
        self._cluster_id = cluster_id
        self._writer = writer
        self._shipped: dict[tuple[str, int], _Shipped] = {}
        self._records: dict[str, TopicRecord] = {}  # of the topics with shippers, as they are now
        self._descriptions: dict[str, TopicDescription] = {}
        self._removing = BackgroundTasks()
        self._stopping = asyncio.Event()
        self._jobs = JobHolds(components.store, cluster_id, components.clock)

    def __repr__(self) -> str:
        return f"Shipping({self._with.store.url}, partitions={len(self._shipped)})"

    def add(self, topic: TopicRecord, partition: int, source: SegmentSource) -> None:
        """Ships a partition of a topic."""
        self.change(topic)
        prefix = paths.store_partition_prefix(self._cluster_id, topic.name, topic.topic_id, partition)
        shipper = PartitionShipper(
            prefix,
            source,
            writer=self._writer,
            components=self._with,
            options=self._options,
            holds=partial(self._jobs.of, topic.name, topic.topic_id, partition),
            description=self._descriptions[topic.topic_id],
        )
        task = keep_running(shipper.run, "shipping", of=f"{topic.name}/{partition}")
        self._shipped[topic.topic_id, partition] = _Shipped(shipper, task)

    def change(self, topic: TopicRecord) -> None:
        """Notes a topic's new settings or partitions, for its description in the store."""
        topic_id = topic.topic_id
        self._records[topic_id] = topic
        if topic_id not in self._descriptions:
            record = partial(self._records.get, topic_id)
            self._descriptions[topic_id] = TopicDescription(self._with.store, self._cluster_id, record)

    def wake(self, topic_id: str, partition: int) -> None:
        """Wakes a shipper: a segment was sealed, or the leadership has moved."""
        if (shipped := self._shipped.get((topic_id, partition))) is not None:
            shipped.shipper.wake()

    def manifest(self, topic_id: str, partition: int) -> Manifest | None:
        """Returns the newest manifest seen, to save readers in this process from loading it."""
        shipped = self._shipped.get((topic_id, partition))
        return None if shipped is None else shipped.shipper.manifest

    def statistics(self, topic_id: str, partition: int) -> TierStatistics:
        shipped = self._shipped.get((topic_id, partition))
        if shipped is None:
            return TierStatistics()
        statistics = shipped.shipper.statistics()
        return TierStatistics(
            tiered_end=statistics.tiered_end or 0,
            objects=statistics.objects,
            tiered_bytes=statistics.tiered_bytes,
            pending_segments=statistics.pending_segments,
            pending_bytes=statistics.pending_bytes,
            last_error=statistics.last_error,
        )

    def remove_partitions(self, topic: TopicRecord, partitions: Iterable[int]) -> list[asyncio.Task[None]]:
        """Stops shipping these; returns the ending tasks. Their objects stay: other nodes continue with them."""
        tasks = self._remove(topic, partitions)
        for task in tasks:
            task.cancel()
        return tasks

    def _remove(self, topic: TopicRecord, partitions: Iterable[int]) -> list[asyncio.Task[None]]:
        having = (self._shipped.pop((topic.topic_id, partition), None) for partition in partitions)
        return [shipped.task for shipped in having if shipped is not None]

    def remove_topic(self, topic: TopicRecord) -> None:
        """Remove a deleted topic: stop shipping it, and delete its objects in the background."""
        seen = {number: self._shipped.get((topic.topic_id, number)) for number in range(topic.partitions)}
        logs = {
            number: shipping.shipper.log_range
            for number, shipping in seen.items()
            if shipping and shipping.shipper.log_range
        }
        tasks = self._remove(topic, range(topic.partitions))
        self._records.pop(topic.topic_id, None)
        self._descriptions.pop(topic.topic_id, None)
        work = partial(self._remove_objects, topic, tasks, logs)
        self._removing.keep(work, "removing objects of a deleted topic", of=f"{topic.name}/{topic.topic_id}")

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each number of merges for /metrics."""
        if self._with.merging is not None:
            yield from self._with.merging.gauges()

    async def stop(self) -> None:
        """Stops; the next start resumes interrupted work."""
        tasks = [shipped.task for shipped in self._shipped.values()]
        self._stopping.set()
        for task in tasks:
            task.cancel()
        if self._with.merging is not None:
            await self._with.merging.thread.stop(None)
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._removing.wait_ended()

    async def _remove_objects(
        self, topic: TopicRecord, shippers: list[asyncio.Task[None]], logs: Mapping[int, tuple[int, int]]
    ) -> None:
        async for shipper in in_slices(shippers):
            shipper.cancel()
        await asyncio.gather(*shippers, return_exceptions=True)
        loop, pause_s = asyncio.get_running_loop(), self._options.backoff_first_seconds
        remove = partial(
            remove_topic, self._with.store, self._cluster_id, topic.name, topic.topic_id, topic.partitions, logs
        )
        while not self._stopping.is_set():
            try:
                await loop.run_in_executor(self._with.executor, remove)
                return
            except (EngineError, OSError) as error:
                log.warning(
                    "objects of a deleted topic could not be removed", extra={"topic": topic.name, "reason": str(error)}
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
            pause_s = min(2 * pause_s, self._options.backoff_max_seconds)
