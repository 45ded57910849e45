"""The replicas of a shard's partitions, standalone or in a cluster, as their callers see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from engine.partition.partition import Partition
from engine.shard.served_topics import Topic
from engine.shard.shard import Shard
from replication.replica.replica import Replica
from replication.replica.standalone import StandaloneReplica

AnyReplica = Replica | StandaloneReplica


class Replicas(Protocol):
    """The replicas of a shard: permanent leaders on a standalone node, or as the cluster's state demands."""

    @property
    def by_partition(self) -> Mapping[Partition, AnyReplica]:
        """The replicas of the open partitions."""

    @property
    def lasting(self) -> Mapping[Partition, StandaloneReplica]:
        """The open partitions that this process leads as long as they exist; empty where leaders are elected."""

    @property
    def cached_bytes(self) -> int:
        """The memory of batches that followers in sync still lack."""

    @property
    def store_age_s(self) -> float | None:
        """The time since the coordination store answered. None if no other machine has the store."""

    @property
    def has_contact(self) -> bool:
        """True if the store answered less than the session timeout ago."""

    def on_opened(self, shard: Shard, topic: Topic, partition: Partition) -> None: ...
    def on_closed(self, partitions: Iterable[Partition]) -> None: ...
    def on_positions_moved(self, partition: Partition) -> None: ...
    def partition_went_offline(self, partition: Partition) -> None: ...
    def on_damaged(self, partition: Partition, offset: int) -> None:
        """Handles damaged records, from an offset on, that were found and quarantined."""

    def on_read_failed(self, partition: Partition, offset: int) -> None:
        """Handles a record that the disk did not return, or whose bytes are damaged."""

    def leading_epoch(self, partition: Partition) -> int | None: ...
    def compacted_by_all(self, partition: Partition) -> int:
        """Returns the offset below which every replica is compacted, as far as this node knows."""
