"""Replicas of a standalone node: each is the only replica of its partition, and leads it permanently.

Has no leader core: without followers there is nothing to count, and the partition commits by itself what it has stored
(engine/partition/partition.py). A node of a cluster has replica.py and replica_host.py instead, which answer the same
calls; both kinds take appends as appends.py does.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.partition.committer import Committer
from engine.partition.partition import Partition
from engine.partition.spool import Spool
from engine.shard.served_topics import Topic
from engine.shard.shard import Shard
from replication.cores.role import Lead
from replication.replica.append_errors import not_leading
from replication.replica.appends import AppendingReplica


class StandaloneReplica(AppendingReplica):
    """The only replica of one partition. The methods are those that clients call on a Replica."""

    judges_requests = True

    def __init__(self, partition: Partition, committer: Committer, spool: Spool, node_id: int) -> None:
        super().__init__(partition, committer, spool)
        self._node_id = node_id

    def __repr__(self) -> str:
        return f"StandaloneReplica({self.partition!r})"

    @property
    def in_sync(self) -> list[int]:
        return [self._node_id]

    @property
    def lag(self) -> dict[str, int]:
        """Returns an empty dict: there are no other replicas."""
        return {}

    async def confirm_leading(self) -> None:
        """Returns at once: no other node can lead."""

    def check_latest(self) -> None:
        """Accept every read of the end: the high watermark is never behind one that was reported before."""

    def check_serves_reads(self, least_epoch: int = 0, *, from_follower: bool = False) -> None:
        """Checks the caller's epoch. Raises NotLeader if it is newer than the log's."""
        epoch = self.partition.log.leader_epoch
        if epoch < least_epoch:
            raise not_leading(self.partition.name, Lead(epoch), is_known=True)


class StandaloneReplicas:
    """The replicas of a standalone node, with the methods of ReplicaHost."""

    def __init__(self, node_id: int, spool: Spool | None = None) -> None:
        self._node_id = node_id
        self._spool = spool or Spool()
        self.by_partition: dict[Partition, StandaloneReplica] = {}
        self.lasting = self.by_partition
        self.cached_bytes = 0  # no followers
        self.store_age_s: float | None = None
        self.has_contact = True

    def on_opened(self, shard: Shard, topic: Topic, partition: Partition) -> None:
        partition.begin_standalone()
        self.by_partition[partition] = StandaloneReplica(partition, shard.committer, self._spool, self._node_id)

    def on_closed(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.by_partition.pop(partition, None)

    def on_positions_moved(self, partition: Partition) -> None:
        """No-op: partitions of a standalone node commit by themselves."""

    def partition_went_offline(self, partition: Partition) -> None:
        """No-op: no other replica can lead."""

    def on_damaged(self, partition: Partition, offset: int) -> None:
        """No-op: no other replica has the records."""

    def on_read_failed(self, partition: Partition, offset: int) -> None:
        """No-op: no other replica has the records."""

    def leading_epoch(self, partition: Partition) -> int | None:
        return partition.log.leader_epoch

    def compacted_by_all(self, partition: Partition) -> int:
        return partition.compacted_end
