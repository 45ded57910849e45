"""Finds the topics and partitions that requests name: those of this process, and the leaders of all others.

A topic is known here, looked for in the cluster, or created on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Protocol

from engine.directory.ceilings import Ceiling
from engine.errors import InvalidTopicName, OtherTopic, UnknownPartition, UnknownTopic
from engine.format.paths import INTERNAL_TOPICS
from engine.partition.partition import Partition
from engine.shard.served_topics import Topic
from engine.shard.shard import Shard
from gateway.access.access import forbidden
from gateway.http.problems import Problem
from gateway.http.rights import Caller, Operation
from gateway.routing.leader_failover import AnyLeader, FailoverLeader, Leader, LeaderFailover
from gateway.routing.peers import Peers
from gateway.routing.remote_leader import RemoteLeader
from gateway.routing.topic_finder import Finder
from gateway.settings import NodeSettings
from replication.errors import NotLeader
from replication.replica.replicas import AnyReplica, Replicas
from replication.replica.standalone import StandaloneReplica


def check_not_internal(name: str) -> None:
    """Checks that clients may change a topic. Raises InvalidTopicName for one that only nodes write."""
    if name in INTERNAL_TOPICS:
        raise InvalidTopicName(f"{name!r} is an internal topic: it can be read, not changed")


def other_topic(name: str, present_id: str) -> OtherTopic:
    """Returns the error of a position that is of a deleted topic of this name."""
    return OtherTopic(
        f"the position is of a deleted topic: topic {name!r} was created again, with the id {present_id}",
        hint="begin at the first records of the new topic",
        topic=name,
        topic_id=present_id,
    )


class TopicChanges(Protocol):
    """Creates, alters and deletes topics: the shard of a single process, else the supervisor."""

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        overrides: Mapping[str, object],
        ceiling: Ceiling | None = None,
    ) -> tuple[Topic, bool]: ...
    async def alter_topic(
        self, name: str, overrides: Mapping[str, object], partitions: int | None, ceiling: Ceiling | None = None
    ) -> Topic: ...
    async def delete_topic(self, name: str) -> None: ...


def _unrecorded(_: Caller, __: str) -> AbstractAsyncContextManager[None]:
    return nullcontext()


AutoCreation = Callable[[Caller, str], AbstractAsyncContextManager[None]]


class Topics:
    """`finder` looks for topics of other nodes. `live_nodes` counts the nodes of the cluster.

    `ceiling_of` returns the ceiling of the tenant that a topic with this name is of. `auto_creation` is around the
    creation of a topic by a produce, which the audit trail records.
    """

    def __init__(
        self,
        shard: Shard,
        settings: NodeSettings,
        changes: TopicChanges,
        finder: Finder,
        live_nodes: Callable[[], int],
        ceiling_of: Callable[[str], Ceiling | None],
        auto_creation: AutoCreation = _unrecorded,
    ) -> None:
        self._shard = shard
        self._auto_creation = auto_creation
        self.get: Callable[[str], Topic | None] = shard.topics.get  # without a frame
        self._settings = settings
        self._changes = changes
        self._finder = finder
        self._live_nodes = live_nodes
        self._ceiling_of = ceiling_of

    @property
    def partition_count(self) -> int:
        return self._shard.topics.partition_count

    def all(self) -> Iterable[Topic]:
        return self._shard.topics.values()

    def by_id(self, topic_id: str) -> Topic | None:
        return self._shard.topics.by_id.get(topic_id)

    def topic(self, name: str) -> Topic:
        """Returns the topic. Raises UnknownTopic."""
        return self._shard.topic(name)

    def lacks(self, name: str, partitions: int = 1) -> bool:
        """Returns whether the topic, or the last of `partitions` partitions, is unknown to this process."""
        topic = self._shard.topics.get(name)
        return topic is None or topic.record.partitions < partitions

    async def refresh(self, name: str, partitions: int = 1) -> None:
        """Waits for a topic of `partitions` partitions that another node may have made or grown. Raises Problem."""
        if self.lacks(name, partitions):
            await self._finder.find(name)

    async def confirm(self, name: str) -> None:
        """Waits until this process has the topic as the cluster has it, which may be another of that name.

        Raises Problem.
        """
        await self._finder.find(name)

    async def confirm_id(self, name: str, is_meant: Callable[[str], bool]) -> bool:
        """Returns whether the topic has the id that a reader means, also if this process learns of it late.

        Raises UnknownTopic, Problem.
        """
        if not is_meant(self.topic(name).record.topic_id):
            await self.confirm(name)
        return is_meant(self.topic(name).record.topic_id)

    async def has_grown(self, name: str, partitions: int) -> bool:
        """Returns whether the topic now has more than `partitions` partitions, here or in the cluster."""
        await self.refresh(name, partitions + 1)
        topic = self._shard.topics.get(name)
        return topic is not None and topic.record.partitions > partitions

    async def get_or_create(self, name: str, caller: Caller) -> Topic:
        """Returns the topic; creates it with the defaults if it is missing and `auto_create_topics` is set.

        Raises UnknownTopic, Problem too_many_topics, forbidden.
        """
        settings, topic = self._settings, self._shard.topics.get(name)
        check_not_internal(name)
        if topic is not None:
            return topic
        if not settings.auto_create_topics:
            return self._shard.topic(name)
        if not caller.allows(Operation.AUTO_CREATE, name):
            raise forbidden(caller, Operation.CREATE, name)
        async with self._auto_creation(caller, name):
            topic, _ = await self.create(name, settings.default_partitions, settings.default_replication_factor, {})
        return topic

    async def get_or_create_internal(
        self, name: str, partitions: int, replicas: int, overrides: Mapping[str, object]
    ) -> Topic:
        """Returns an internal topic; creates it if it is missing, with as many of the replicas as there are nodes.

        Raises EngineError.
        """
        if (topic := self._shard.topics.get(name)) is None:
            replicas = max(min(replicas, self._live_nodes()), self._settings.default_replication_factor)
            topic, _ = await self._changes.create_topic(name, partitions, replicas, overrides)
        return topic

    async def create(
        self, name: str, partitions: int, replication_factor: int, overrides: Mapping[str, object]
    ) -> tuple[Topic, bool]:
        """Creates a topic, or returns the existing one with equal settings. The second value is True for a new one.

        Raises Problem too_many_topics, InvalidTopicName, TopicExists, Invalid.
        """
        check_not_internal(name)
        if name not in self._shard.topics:
            topics, topics_max = self._shard.topics, self._settings.topics_max
            self._check_room_for_partitions(partitions, partitions)
            if len(topics) >= topics_max:
                raise Problem("too_many_topics", f"the node has {len(topics)} topics", limit=topics_max)
        ceiling = self._ceiling_of(name)
        return await self._changes.create_topic(name, partitions, replication_factor, dict(overrides), ceiling)

    async def alter(self, name: str, overrides: Mapping[str, object], partitions: int | None) -> Topic:
        """Changes settings and adds partitions. Raises UnknownTopic, Invalid, Problem too_many_topics."""
        check_not_internal(name)
        existing = self._shard.topic(name).record.partitions
        if partitions is not None and partitions > existing:
            self._check_room_for_partitions(partitions, partitions - existing)
        return await self._changes.alter_topic(name, dict(overrides), partitions, self._ceiling_of(name))

    async def delete(self, name: str) -> None:
        """Deletes a topic. Raises UnknownTopic, InvalidTopicName."""
        check_not_internal(name)
        await self._changes.delete_topic(name)

    def _check_room_for_partitions(self, of_topic: int, added: int) -> None:
        if of_topic > (limit := self._settings.topic_partitions_max):
            raise Problem("invalid_config", f"a topic may have {limit} partitions, not {of_topic}", limit=limit)
        total = self._shard.topics.partition_count + added
        if total > (limit := self._settings.partitions_max):
            text = f"the node would have {total} partitions, {limit} are allowed"
            raise Problem("too_many_topics", text, limit=limit)


class Partitions:
    """Finds a partition here, its replica, or the way to its leader elsewhere."""

    def __init__(self, shard: Shard, peers: Peers, replicas: Replicas, failover: LeaderFailover) -> None:
        self._shard = shard
        self._peers = peers
        self._replicas = replicas
        self._failover = failover

    def replica(self, partition: Partition) -> AnyReplica:
        """Returns the replica of an open partition of this process. Raises KeyError if it is closed."""
        return self._replicas.by_partition[partition]

    def racks(self, topic_id: str, number: int) -> tuple[str, frozenset[str]]:
        """Returns the rack of a partition's leader, and those of its replicas; empty where unknown."""
        return self._peers.racks(topic_id, number)

    def topic_id(self, topic_name: str, number: int) -> str:
        """Returns the topic's id if it has this partition, in any process. Raises UnknownTopic, UnknownPartition."""
        topic = self._shard.topic(topic_name)
        if number >= topic.record.partitions:
            last = topic.record.partitions - 1
            raise UnknownPartition(f"topic {topic_name!r} has no partition {number}", hint=f"it has 0 to {last}")
        return topic.record.topic_id

    def check_topic_id(self, topic_name: str, topic_id: str) -> None:
        """Checks that the topic is the one that a reader means. Raises UnknownTopic, OtherTopic."""
        present_id = self._shard.topic(topic_name).record.topic_id
        if present_id != topic_id:
            raise other_topic(topic_name, present_id)

    def local_partition(self, topic_name: str, number: int) -> Partition | None:
        """Returns a partition that this process leads as long as it exists; None if its leader has to be looked up.

        Raises UnknownTopic, UnknownPartition.
        """
        topic = self._shard.topics.get(topic_name)
        if topic is None or number >= topic.record.partitions:
            self.topic_id(topic_name, number)
        partition = None if topic is None else topic.partitions.get(number)
        return partition if partition in self._replicas.lasting else None

    def lasting_replica(self, topic: Topic, number: int) -> StandaloneReplica | None:
        """Returns the replica of a partition that this process leads as long as it exists; None if another may lead."""
        partition = topic.partitions.get(number)
        return None if partition is None else self._replicas.lasting.get(partition)

    def owned_partition(
        self, topic_name: str, topic_id: str, number: int, least_epoch: int = 0, *, from_follower: bool = False
    ) -> Partition:
        """Returns a partition that this process answers for.

        Raises NotLeader if another process answers for it, or if this process does not know `least_epoch` yet. Where
        every topic is known, raises UnknownTopic: a call for a deleted topic must not reach a new topic of its name.
        """
        topic = self._shard.topics.get(topic_name)
        if topic is None or topic.record.topic_id != topic_id:
            raise self._peers.cluster.missing_topic(topic_name)
        partition = topic.partitions.get(number)
        if partition is not None and partition in self._replicas.lasting:
            return partition
        return self.led_partition(topic, number, least_epoch, from_follower=from_follower)

    def led_partition(
        self, topic: Topic, number: int, least_epoch: int = 0, *, from_follower: bool = False
    ) -> Partition:
        """Returns a partition that this process leads in `least_epoch` or later.

        With `from_follower`, an in-sync follower is accepted too. Raises NotLeader, UnknownTopic.
        """
        partition = topic.partitions.get(number)
        if partition is None:
            raise NotLeader(f"this node has not opened {topic.record.name}/{number} (any more, or yet)")
        try:
            replica = self._replicas.by_partition[partition]
        except KeyError:
            raise UnknownTopic(f"topic {topic.record.name!r} has been deleted") from None
        replica.check_serves_reads(least_epoch, from_follower=from_follower)
        return partition

    def leader(self, topic: Topic, number: int) -> Leader:
        """Returns the leader of a partition as a producer sees it. Raises NoLeader, UnknownTopic."""
        if not self._peers.cluster.has_elections:
            return self.present_leader(topic, number)
        find_leader = partial(self.present_leader, topic, number)
        return FailoverLeader(self._failover, topic.record.topic_id, number, find_leader)

    def present_leader(self, topic: Topic, number: int) -> AnyLeader:
        """Returns the leader of a partition, in this process or another. Raises NoLeader, NotLeader, UnknownTopic."""
        topic_id = topic.record.topic_id
        if (replica := self.lasting_replica(topic, number)) is not None:
            return replica
        if self._peers.is_owned_here(topic_id, number):
            return self._replicas.by_partition[self.led_partition(topic, number)]
        return RemoteLeader(self._peers, topic.record.name, topic_id, number)
