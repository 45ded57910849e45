"""Connects a shard to the parts of its process: replicas, the tier, and the partitioners of its topics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

from engine.directory.data_directory import DataDirectory
from engine.directory.log_directories import log_offline
from engine.directory.topics import TopicRecord
from engine.partition.partition import Partition
from engine.partition.spool import Spool
from engine.shard.served_topics import Topic
from engine.shard.shard import MovedPartition, Shard, ShardEvents, record_in_catalog
from gateway.admin.context import TierStatus
from gateway.fetch.context import TierReader
from gateway.produce.partitioner import Partitioners
from replication.replica.replicas import Replicas


class NodeTier(TierReader, TierStatus, Protocol):
    """The tiered store as a process uses it. The worker process ships segments, or the only process of the node."""

    store_url: str
    spool: Spool

    def gauges(self) -> Iterator[tuple[str, str, float]]: ...
    def add(self, shard: Shard, topic: TopicRecord, partition: Partition) -> None: ...
    def remove_topic(self, topic: TopicRecord, partitions: list[Partition]) -> None: ...
    def remove_partitions(self, topic: TopicRecord, partitions: list[Partition]) -> None:
        """Stops serving partitions that were reassigned to other nodes."""

    def wake_shipper(self, partition: Partition) -> None: ...


def shard_events(
    replicas: Replicas,
    tier: NodeTier,
    partitioners: Partitioners,
    directory_failed: Callable[[DataDirectory], None] = log_offline,
    moved: Callable[[Shard, MovedPartition], Awaitable[None]] = record_in_catalog,
) -> ShardEvents:
    """Return the events of a shard whose partitions these lead, ship and choose."""

    def opened(shard: Shard, topic: Topic, partition: Partition) -> None:
        replicas.on_opened(shard, topic, partition)
        tier.add(shard, topic.record, partition)

    def closed(topic: Topic) -> None:
        partitioners.remove(topic.record.topic_id)
        replicas.on_closed(topic.partitions.values())
        tier.remove_topic(topic.record, list(topic.partitions.values()))

    def moved_away(topic: Topic, partitions: list[Partition]) -> None:
        partitioners.remove(topic.record.topic_id)
        replicas.on_closed(partitions)
        tier.remove_partitions(topic.record, partitions)

    return ShardEvents(
        opened=opened,
        closed=closed,
        moved_away=moved_away,
        positions_moved=replicas.on_positions_moved,
        went_offline=replicas.partition_went_offline,
        read_failed=replicas.on_read_failed,
        damaged=replicas.on_damaged,
        sealed=tier.wake_shipper,
        directory_failed=directory_failed,
        moved=moved,
        tiered_end=tier.tiered_end,
        leading_epoch=replicas.leading_epoch,
        compacted_by_all=replicas.compacted_by_all,
    )
