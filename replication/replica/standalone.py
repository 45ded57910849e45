"""Replicas of a standalone node: each leads permanently, under a constant state in which it is the only replica.

The same Replica and core as in a cluster, on a host without peers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from engine.partition.partition import Partition
from engine.shard.served_topics import Topic
from engine.shard.shard import Shard
from replication.cores.leader import Propose
from replication.cores.partition_state import Member, Registrations
from replication.replica.replica import Replica

NO_TIME = 0.0


class StandaloneHost:
    """Implements replica.Host for a standalone node. Methods for followers and proposals are never called."""

    def __init__(self, node_id: int) -> None:
        self.member: Member | None = Member(node_id, 0)
        self.registrations: Registrations = {}
        self.is_in_doubt, self.has_contact = False, True
        self.lag_s_max = 1.0

    def now(self) -> float:
        """Return a constant: the core needs time only to judge followers."""
        return NO_TIME

    def moved(self, replica: Replica) -> None:
        """No-op: a standalone node has no followers."""

    def on_role_changed(self, replica: Replica) -> None:
        raise AssertionError("a standalone replica always leads")

    def propose(self, replica: Replica, change: Propose) -> None:
        raise AssertionError("a standalone replica has no in-sync set to change")

    async def confirms(self, replica: Replica, leader_epoch: int) -> bool:
        return True

    def went_offline(self, replica: Replica) -> None:
        """No-op: no other replica can lead."""


class Replicas(Protocol):
    """The replicas of a shard: permanent leaders on a standalone node, or as the cluster's state demands."""

    @property
    def by_partition(self) -> Mapping[Partition, Replica]:
        """The replicas of the open partitions."""

    def opened(self, shard: Shard, topic: Topic, partition: Partition) -> None: ...
    def closed(self, partitions: Iterable[Partition]) -> None: ...
    def positions_moved(self, partition: Partition) -> None: ...
    def partition_went_offline(self, partition: Partition) -> None: ...
    def leading_epoch(self, partition: Partition) -> int | None: ...


class StandaloneReplicas:
    """The replicas of a standalone node. Implements Replicas."""

    def __init__(self, node_id: int) -> None:
        self._host = StandaloneHost(node_id)
        self._node_id = node_id
        self.by_partition: dict[Partition, Replica] = {}

    def opened(self, shard: Shard, topic: Topic, partition: Partition) -> None:
        replica = self.by_partition[partition] = Replica(partition, shard, partition.name, self._host)
        replica.lead_standalone(self._node_id)

    def closed(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.by_partition.pop(partition, None)

    def positions_moved(self, partition: Partition) -> None:
        replica = self.by_partition.get(partition)
        if replica is not None:
            replica.positions_moved(NO_TIME)

    def partition_went_offline(self, partition: Partition) -> None:
        """No-op: no other replica can lead."""

    def leading_epoch(self, partition: Partition) -> int | None:
        return partition.log.leader_epoch
