"""Tiering of a node in one process: ships the shard's partitions and reads them back.

Composes this folder for one shard; decides nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter

from engine.directory.topics import TopicRecord
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from engine.partition.spool import Spool
from engine.shard.shard import Shard
from engine.tiering.reading.remote_logs import RemoteLogs
from engine.tiering.shipping.local_log import LocalLog, SealedSegment
from engine.tiering.shipping.shippers import Shipping, TierStatistics


def local_log(partition: Partition, leader_epoch: int | None, above: int = 0) -> LocalLog:
    """Returns a partition as its shipper sees it; `leader_epoch` is None while another node leads it.

    Has only the sealed segments that end above the offset `above`: the shipper knows the others.
    """
    segments, settings = partition.log.segments, partition.settings
    first = bisect_right(segments, above, hi=len(segments) - 1, key=attrgetter("next_offset"))
    return LocalLog(
        log_start=partition.log.log_start,
        local_log_start=partition.log.local_log_start,
        log_end=partition.log_end,
        high_watermark=partition.high_watermark,
        durable_end=partition.durable_end,
        sealed=tuple(
            SealedSegment(
                segment.base_offset, segment.next_offset, segment.path, segment.size_bytes, segment.last_append_ms
            )
            for segment in segments[first:-1]
            if not settings.is_compacted  # the store's segments never change
        ),
        active_bytes=partition.log.active.size_bytes,
        retention_ms=settings.retention_ms if settings.is_expiring else None,
        retention_bytes=settings.retention_bytes if settings.is_expiring else None,
        wait_max_ms=settings.retention_wait_max_ms if settings.retention_waits_for_jobs else None,
        leader_epoch=leader_epoch,
        epochs=tuple(partition.log.epochs),
    )


class Tier:
    """Ships and reads back every partition of a shard. `sealed` and `tiered_end` answer its `ShardEvents`."""

    def __init__(self, shipping: Shipping, remote_logs: RemoteLogs, store_url: str, spool: Spool | None = None) -> None:
        self.store_url = store_url
        self.spool = spool or Spool()
        self._shipping = shipping
        self._remote_logs = remote_logs
        self._topic_ids: dict[Partition, str] = {}
        self._shards: dict[Partition, Shard] = {}
        self._waiting: list[tuple[Shard, TopicRecord, Partition]] | None = []  # until the start; then None

    def __repr__(self) -> str:
        return f"Tier({self._shipping}, {self._remote_logs})"

    async def start(self) -> None:
        """Starts to ship. Partitions added later start at once."""
        await self._remote_logs.start()
        waiting, self._waiting = self._waiting or [], None
        for added in waiting:
            self._ship(*added)

    async def stop(self) -> None:
        await self._shipping.stop()
        if self._waiting is None:
            await self._remote_logs.stop()

    def add(self, shard: Shard, topic: TopicRecord, partition: Partition) -> None:
        """Ships an opened partition."""
        self._topic_ids[partition], self._shards[partition] = topic.topic_id, shard
        self._remote_logs.add(topic, partition.number)
        if self._waiting is None:
            self._ship(shard, topic, partition)
        else:
            self._waiting.append((shard, topic, partition))

    def remove_topic(self, topic: TopicRecord, partitions: list[Partition]) -> None:
        """Removes the objects of a deleted topic."""
        self._forget(topic, partitions)
        self._shipping.remove_topic(topic)

    def remove_partitions(self, topic: TopicRecord, partitions: list[Partition]) -> None:
        """Stops shipping partitions that moved to other nodes; their objects stay."""
        self._forget(topic, partitions)
        self._shipping.remove_partitions(topic, [partition.number for partition in partitions])

    def _forget(self, topic: TopicRecord, partitions: list[Partition]) -> None:
        for partition in partitions:
            self._topic_ids.pop(partition, None)
            self._shards.pop(partition, None)
            self.spool.drop(partition)
        self._remote_logs.remove(topic, [partition.number for partition in partitions])

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each number for /metrics."""
        yield from self.spool.gauges()
        yield from self._remote_logs.gauges()
        yield from self._shipping.gauges()

    def tiered_end(self, partition: Partition) -> int:
        """Returns the end up to which this disk may delete segments: a committed manifest names everything below."""
        return self.spool.tiered_end(partition)

    async def statistics(self, partition: Partition) -> TierStatistics:
        return self._shipping.statistics(self._topic_ids[partition], partition.number)

    async def read(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        """Reads as the local reader does, for offsets below the local log."""
        return await self._remote_logs.read(self._topic_ids[partition], partition.number, offset, max_bytes)

    async def first_at_or_after(self, partition: Partition, timestamp: int) -> tuple[int, int] | None:
        return await self._remote_logs.first_at_or_after(self._topic_ids[partition], partition.number, timestamp)

    def wake_shipper(self, partition: Partition) -> None:
        """Wakes the shipper of a partition that has more to ship."""
        if (topic_id := self._topic_ids.get(partition)) is not None:
            self.spool.count(partition, is_led=self._is_led(partition))
            self._shipping.wake(topic_id, partition.number)

    def _is_led(self, partition: Partition) -> bool:
        return self._shards[partition].leading_epoch(partition) is not None

    def _ship(self, shard: Shard, topic: TopicRecord, partition: Partition) -> None:
        if partition.offline is None:
            source = _Source(
                shard,
                topic,
                partition,
                lambda end: self._on_tiered(topic.topic_id, partition, end),
                self._shipping.change,
                self.spool,
            )
            self._shipping.add(topic, partition.number, source)

    def _on_tiered(self, topic_id: str, partition: Partition, end_offset: int) -> None:
        if partition in self._shards:
            self.spool.note_tiered(partition, end_offset, is_led=self._is_led(partition))
        self._remote_logs.use_manifest(topic_id, partition.number, self._shipping.manifest(topic_id, partition.number))


class _Source:
    """A partition of this process, for its shipper."""

    def __init__(
        self,
        shard: Shard,
        topic: TopicRecord,
        partition: Partition,
        on_tiered: Callable[[int], None],
        on_topic: Callable[[TopicRecord], None],
        spool: Spool,
    ) -> None:
        self._shard = shard
        self._topic = topic
        self._partition = partition
        self._on_tiered = on_tiered
        self._on_topic = on_topic
        self._spool = spool

    async def local_log(self, above: int) -> LocalLog:
        served = self._shard.topics.get(self._topic.name)
        if served is not None and served.record.topic_id == self._topic.topic_id:
            self._on_topic(served.record)  # its settings may have changed
        leader_epoch = self._shard.leading_epoch(self._partition)
        self._spool.count(self._partition, is_led=leader_epoch is not None)
        return local_log(self._partition, leader_epoch, above)

    async def on_tiered(self, end_offset: int) -> None:
        self._on_tiered(end_offset)

    async def raise_log_start(self, end_offset: int) -> int:
        return await self._shard.raise_log_start(self._partition, end_offset)
