"""The partitions of this process, and the leaders of all others."""

from __future__ import annotations

from engine.errors import UnknownPartition, UnknownTopic
from engine.partition.partition import Partition
from engine.shard.served_topics import Topic
from engine.shard.shard import Shard
from gateway.routing.leader_failover import AnyLeader
from gateway.routing.peers import Peers, RemoteLeader
from replication.errors import NotLeader
from replication.replica.replica import Replica
from replication.replica.standalone import Replicas


class Partitions:
    """Finds a partition here, its replica, or the way to its leader elsewhere."""

    def __init__(self, shard: Shard, peers: Peers, replicas: Replicas) -> None:
        self._shard = shard
        self._peers = peers
        self._replicas = replicas

    def replica(self, partition: Partition) -> Replica:
        """The replica of a partition of this process."""
        return self._replicas.replica(partition)

    def topic_id(self, topic_name: str, number: int) -> str:
        """The topic's id, if it has such a partition, in whichever process. Raises UnknownTopic, UnknownPartition."""
        topic = self._shard.topic(topic_name)
        if number >= topic.record.partitions:
            last = topic.record.partitions - 1
            raise UnknownPartition(f"topic {topic_name!r} has no partition {number}", hint=f"it has 0 to {last}")
        return topic.record.topic_id

    def answered(
        self, topic_name: str, topic_id: str, number: int, least_epoch: int = 0, *, from_follower: bool = False
    ) -> Partition:
        """A partition that this process answers for.

        Raises NotLeader if another process answers for it, or if this process has not heard of `least_epoch` yet. A
        standalone node raises UnknownTopic instead: a call for a topic that is deleted meanwhile is not for another
        topic of its name.
        """
        if self._peers.nodes is None:
            if self._shard.topic(topic_name).record.topic_id != topic_id:
                raise UnknownTopic(f"there is no topic {topic_name!r} of that id any more")
            return self._shard.partition(topic_name, number)
        topic = self._shard.topics.get(topic_name)
        if topic is None or topic.record.topic_id != topic_id:
            raise NotLeader(f"this node does not know the topic {topic_name!r} of that id (any more, or yet)")
        return self.led(topic, number, least_epoch, from_follower=from_follower)

    def led(self, topic: Topic, number: int, least_epoch: int = 0, *, from_follower: bool = False) -> Partition:
        """A partition that this process leads in `least_epoch` or later; with `from_follower` also an in-sync follower.

        Raises NotLeader.
        """
        partition = topic.partitions.get(number)
        if partition is None:
            raise NotLeader(f"this node has not opened {topic.record.name}/{number} (any more, or yet)")
        self._replicas.replica(partition).check_serves_reads(least_epoch, from_follower=from_follower)
        return partition

    def leader(self, topic: Topic, number: int) -> AnyLeader:
        """The leader of a partition, in this process or another. Raises NoLeader, NotLeader, UnknownTopic."""
        topic_id = topic.record.topic_id
        if self._peers.nodes is not None:
            if self._peers.answers_for(topic_id, number):
                return self._replicas.replica(self.led(topic, number))
            return RemoteLeader(self._peers, topic.record.name, topic_id, number)
        partition = topic.partitions.get(number)
        if partition is not None:
            try:
                return self._replicas.replica(partition)
            except KeyError:
                raise UnknownTopic(f"topic {topic.record.name!r} has been deleted") from None
        return RemoteLeader(self._peers, topic.record.name, topic_id, number)
