"""Replicas of a standalone node: each leads permanently, under a constant state in which it is the only replica.

The same Replica and core as in a cluster, on a host without peers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from engine.format.batch import Buffer
from engine.partition.committer import Committer
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from engine.shard.served_topics import Topic
from replication.cores.leader import Propose
from replication.cores.partition_state import Member, Registrations
from replication.replica.replica import Replica


class StandaloneHost:
    """Implements replica.Host for a standalone node. Methods for followers and proposals are never called."""

    def __init__(self, node_id: int) -> None:
        self.member: Member | None = Member(node_id, 0)
        self.registrations: Registrations = {}
        self.is_in_doubt, self.has_contact = False, True
        self.lag_s_max = 1.0

    def now(self) -> float:
        """Return a constant: the core needs time only to judge followers."""
        return 0.0

    def moved(self, replica: Replica) -> None:
        """No-op: a standalone node has no followers."""

    def role_taken(self, replica: Replica) -> None:
        raise AssertionError("a replica that is alone leads for ever")

    def propose(self, replica: Replica, change: Propose) -> None:
        raise AssertionError("nobody can leave or join a replica that is alone")

    async def confirms(self, replica: Replica, leader_epoch: int) -> bool:
        return True

    def went_offline(self, replica: Replica) -> None:
        """No-op: no other replica can lead."""

    async def start_epoch(self, partition: Partition, epoch: int) -> None:
        raise AssertionError("a replica that is alone stays in its epoch")

    async def truncate(self, partition: Partition, offset: int) -> None:
        raise AssertionError("a replica that is alone has nobody to part from")

    async def reset_log(self, partition: Partition, offset: int, log_start: int, handed_over: Buffer) -> None:
        raise AssertionError("a replica that is alone has nobody to begin anew from")

    async def hand_over(self, partition: Partition, offset: int) -> tuple[int, bytes]:
        raise AssertionError("a replica that is alone has nobody to hand over to")

    def raise_log_start(self, partition: Partition, offset: int) -> None:
        raise AssertionError("a replica that is alone has nobody to follow")

    def read_uncommitted_nowait(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        return None

    async def read_uncommitted(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        return None


class Replicas(Protocol):
    """The replicas of a shard: permanent leaders on a standalone node, or as the cluster's state demands."""

    def replica(self, partition: Partition) -> Replica: ...
    def opened(self, topic: Topic, partition: Partition) -> None: ...
    def closed(self, partitions: Iterable[Partition]) -> None: ...


class StandaloneReplicas:
    """The replicas of a standalone node. Implements Replicas."""

    def __init__(self, committer: Committer, node_id: int) -> None:
        self._committer = committer
        self._host = StandaloneHost(node_id)
        self._node_id = node_id
        self._replicas: dict[Partition, Replica] = {}

    def replica(self, partition: Partition) -> Replica:
        """Return the replica of an open partition. Raises KeyError if it is closed."""
        return self._replicas[partition]

    def opened(self, topic: Topic, partition: Partition) -> None:
        self._replicas[partition] = led_alone(partition, self._committer, self._node_id, self._host)

    def closed(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._replicas.pop(partition, None)


def led_alone(partition: Partition, committer: Committer, node_id: int, host: StandaloneHost | None = None) -> Replica:
    replica = Replica(partition, committer, partition.name, host or StandaloneHost(node_id))
    replica.lead_standalone(node_id)
    return replica
