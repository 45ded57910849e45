"""What handlers share: one node's shard, leaders, settings and counters. No HTTP in it and no I/O of its own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from random import Random
from typing import Any, Protocol, TypeVar

from aiohttp import web

from engine.directory.topics import TopicRecord
from engine.errors import Draining, UnknownTopic
from engine.partition.partition import Partition
from engine.partition.position_waiters import PositionWaiters
from engine.partition.reader import Chunk
from engine.runtime.clock import Clock
from engine.runtime.histogram import Histogram
from engine.shard.served_topics import Topic
from engine.shard.shard import Shard
from engine.tiering.shipping.shippers import TierStatistics
from gateway.access.access import Access
from gateway.connections.kernel_sockets import KernelSockets
from gateway.connections.read_budget import ReadRoom
from gateway.connections.request_order import Turns
from gateway.connections.response_buffers import AnswerLimits, UnreadAnswers
from gateway.connections.stream_budget import HeldPieces
from gateway.http.in_flight import InFlight
from gateway.http.json_limits import JsonLimits
from gateway.http.problems import Problem
from gateway.metrics.cluster_metrics import cluster_families
from gateway.metrics.loop_watch import LoopWatch
from gateway.metrics.metrics import Families, Metrics, Numbers
from gateway.metrics.node_gauges import gauges_of
from gateway.metrics.node_metrics import admission_families, time_families, topic_families
from gateway.metrics.process_metrics import Siblings, background_numbers
from gateway.metrics.stages import Stages
from gateway.produce.keys_in_flight import KeyHolds
from gateway.produce.partitioner import Partitioner
from gateway.routing.leader_failover import AnyLeader, Handover
from gateway.routing.peers import Peers, RemoteLeader
from gateway.routing.topic_finder import TopicFinder
from gateway.settings import NodeSettings
from replication.cluster.producer_ids import ProducerIds
from replication.errors import NotLeader
from replication.replica.replica import Replica
from replication.replica.standalone import AloneReplicas, Replicas

T = TypeVar("T")
Operate = Callable[..., Awaitable[Any]]

READ_BYTES_MAX = 128 * 1024 * 1024  # of all copies of what is read and rendered at once: 32 fetches of the usual size
OFF_LOOP_BYTES = 512 * 1024  # coding this much takes about 2 ms; the bound for a loop callback is 20
DRAINING = 1  # the position of `Node.draining` once the node drains
OFF_LOOP_RECORDS = 10_000  # so many take as long, however small they are


class TopicChanges(Protocol):
    """Who makes, changes and deletes topics: the shard itself in a node of one process, else its supervisor."""

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, overrides: Mapping[str, object]
    ) -> tuple[Topic, bool]: ...
    async def alter_topic(self, name: str, overrides: Mapping[str, object], partitions: int | None) -> Topic: ...
    async def delete_topic(self, name: str) -> None: ...


class TierOfNode(Protocol):
    """What is in the store, as handlers need it; ships here or in the node's worker process."""

    store_url: str

    def add(self, topic: TopicRecord, partition: Partition) -> None: ...
    def remove_topic(self, topic: TopicRecord, partitions: list[Partition]) -> None: ...
    def leave(self, topic: TopicRecord, partitions: list[Partition]) -> None:
        """They lie on other nodes from now on."""

    async def statistics(self, partition: Partition) -> TierStatistics: ...
    async def read(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None: ...
    async def first_at_or_after(self, partition: Partition, timestamp: int) -> tuple[int, int] | None: ...


class Node:
    """One running node as the gateway sees it."""

    def __init__(
        self,
        settings: NodeSettings,
        shard: Shard,
        tier: TierOfNode,
        changes: TopicChanges,
        peers: Peers,
        producer_ids: ProducerIds,
        clock: Clock,
        executor: Executor,
        random: Random,
        replicas: Replicas | None = None,
    ) -> None:
        self.settings = settings
        self.shard = shard
        self.tier = tier
        self.peers = peers
        self.topic_finder: TopicFinder | None = None  # of a node in a cluster
        self.replicas = replicas or AloneReplicas(shard.committer, settings.node_id)
        self.siblings: Siblings = {}  # processes of this node that are no shards
        self.operate: Operate | None = None  # of a node in a cluster: its supervisor does it
        self.handover = Handover(peers, random)
        self.producer_ids = producer_ids
        self.clock = clock
        self.executor = executor
        self.json_limits = JsonLimits(settings.json_depth_max, settings.json_number_digits_max)
        self.in_flight = InFlight(settings.request_bytes_in_flight_max, settings.connection_bytes_in_flight_max)
        self.key_holds = KeyHolds()
        self.held_pieces = HeldPieces(settings.stream_unread_bytes_max)
        self.unread_answers = UnreadAnswers(KernelSockets(), _answer_limits(settings), clock.monotonic)
        self.local_room, self.store_room = ReadRoom(READ_BYTES_MAX), ReadRoom(READ_BYTES_MAX)
        self.access = Access()
        self.produce_turns = Turns()
        self.metrics = Metrics(self._families)
        self.stages = Stages()
        self.loop_watch = LoopWatch(clock, self._histograms)
        self.waiting_produces = 0
        self.requests_under_way = 0
        self.idle_ended = 0  # connections
        self.is_ready = True
        self.draining = PositionWaiters(0)  # waits for DRAINING end when the node begins to drain
        self.is_refusing = False
        self.turns = itertools.count()  # a read over many partitions begins at another one each time
        self.url = settings.advertised_url
        self.direct_url = ""
        self._changes = changes
        self._random = random
        self._partitioners: dict[str, Partitioner] = {}
        self._long_polls = 0
        self.waiting_partitions = 0
        shard.when_opened = self._opened
        shard.when_closed = self._closed
        shard.when_moved_away = self._moved_away

    def __repr__(self) -> str:
        return f"Node({self.url}, {self.peers}, {self.shard})"

    @property
    def is_draining(self) -> bool:
        return self.draining.position >= DRAINING

    def local_leader(self, partition: Partition) -> Replica:
        return self.replicas.replica(partition)

    def answered_partition(
        self, topic_name: str, topic_id: str, number: int, least_epoch: int = 0, *, from_follower: bool = False
    ) -> Partition:
        """A partition that this process answers for. Raises NotLeader when it does not (any more, or yet), or has not
        heard of the epoch that the asker knows; alone, where nobody else could, UnknownTopic: what was on its way to a
        topic that is deleted meanwhile is not for another of its name.
        """
        if self.peers.nodes is None:
            if self.shard.topic(topic_name).record.topic_id != topic_id:
                raise UnknownTopic(f"there is no topic {topic_name!r} of that id any more")
            return self.shard.partition(topic_name, number)
        topic = self.shard.topics.get(topic_name)
        if topic is None or topic.record.topic_id != topic_id:
            raise NotLeader(f"this node does not know the topic {topic_name!r} of that id (any more, or yet)")
        return self.led_partition(topic, number, least_epoch, from_follower=from_follower)

    def led_partition(
        self, topic: Topic, number: int, least_epoch: int = 0, *, from_follower: bool = False
    ) -> Partition:
        """A partition that this process leads, in a cluster, in that epoch or a later one; with `from_follower` also
        one that it follows in sync. Raises NotLeader.
        """
        partition = topic.partitions.get(number)
        if partition is None:
            raise NotLeader(f"this node has not opened {topic.record.name}/{number} (any more, or yet)")
        self.replicas.replica(partition).check_serves_reads(least_epoch, from_follower=from_follower)
        return partition

    def jittered(self, seconds: float) -> float:
        """So that those who wait for the same do not all come at once."""
        return self._random.uniform(seconds / 2, seconds)

    def leader(self, topic: Topic, number: int) -> AnyLeader:
        """The leader of a partition that the topic is known to have, in this process or another. Raises NoLeader."""
        topic_id = topic.record.topic_id
        if self.peers.nodes is not None:
            if self.peers.answers_for(topic_id, number):
                return self.replicas.replica(self.led_partition(topic, number))
            return RemoteLeader(self.peers, topic.record.name, topic_id, number)
        partition = topic.partitions.get(number)
        if partition is not None:
            try:
                return self.replicas.replica(partition)
            except KeyError:
                raise UnknownTopic(f"topic {topic.record.name!r} has been deleted") from None
        return RemoteLeader(self.peers, topic.record.name, topic_id, number)

    def partitioner_among(self, topic: Topic, partitions: int) -> Partitioner:
        """For records that are placed as they were when the topic had so many."""
        if partitions == topic.record.partitions:
            return self.partitioner(topic)
        return Partitioner(topic.record.name, partitions, self._random)

    def partitioner(self, topic: Topic) -> Partitioner:
        """Kept by id, so that a topic made again starts afresh, and until the topic has more partitions."""
        topic_id, count = topic.record.topic_id, topic.record.partitions
        partitioner = self._partitioners.get(topic_id)
        if partitioner is None or partitioner.partitions != count:
            preferred = sorted(number for number in topic.partitions if number < count)
            partitioner = Partitioner(topic.record.name, count, self._random, preferred)
            self._partitioners[topic_id] = partitioner
        return partitioner

    async def topic_to_produce_to(self, name: str) -> Topic:
        """The topic, which was looked for; made on the spot where `auto_create_topics` says so."""
        settings = self.settings
        if name in self.shard.topics or not settings.auto_create_topics:
            return self.shard.topic(name)
        topic, _ = await self.create_topic(name, settings.default_partitions, settings.default_replication_factor, {})
        return topic

    async def look_for(self, name: str, partitions: int = 1) -> None:
        """Have a topic, of so many partitions, that another node of the cluster may just have made, or let grow."""
        topic = self.shard.topics.get(name)
        if self.topic_finder is not None and (topic is None or topic.record.partitions < partitions):
            await self.topic_finder.find(name)

    async def has_grown(self, name: str, partitions: int) -> bool:
        """Whether a topic has more partitions by now, perhaps only in the cluster, than a request was judged by."""
        await self.look_for(name, partitions + 1)
        topic = self.shard.topics.get(name)
        return topic is not None and topic.record.partitions > partitions

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, overrides: dict[str, object]
    ) -> tuple[Topic, bool]:
        """Make a topic, or find the same one there; whether it is new comes with it. Raises Problem too_many_topics."""
        if name not in self.shard.topics:
            topics, topics_max = self.shard.topics, self.settings.topics_max
            self._check_room_for_partitions(partitions, partitions)
            if len(topics) >= topics_max:
                raise Problem("too_many_topics", f"the node has {len(topics)} topics", limit=topics_max)
        return await self._changes.create_topic(name, partitions, replication_factor, overrides)

    def _check_room_for_partitions(self, of_topic: int, added: int) -> None:
        settings = self.settings
        if of_topic > (limit := settings.topic_partitions_max):
            raise Problem("invalid_config", f"a topic may have {limit} partitions, not {of_topic}", limit=limit)
        total = self.shard.topics.partition_count + added
        if total > (limit := settings.partitions_max):
            raise Problem(
                "too_many_topics", f"the node would have {total} partitions, {limit} are allowed", limit=limit
            )

    async def alter_topic(self, name: str, overrides: dict[str, object], partitions: int | None) -> Topic:
        """Change settings, and let the topic grow to so many partitions. Raises Problem too_many_topics."""
        existing = self.shard.topic(name).record.partitions
        if partitions is not None and partitions > existing:
            self._check_room_for_partitions(partitions, partitions - existing)
        return await self._changes.alter_topic(name, overrides, partitions)

    async def delete_topic(self, name: str) -> None:
        await self._changes.delete_topic(name)

    def check_accepting(self) -> None:
        if self.is_refusing:
            raise Draining("the node is stopping")

    def check_capacity(self, incoming_bytes: int) -> None:
        """Bytes waiting for the disk are bounded; beyond that the client waits, not our memory.

        What would not fit into an empty queue either is told so: to try it again would be in vain for ever.
        """
        limit = self.settings.append_queue_bytes_max
        if incoming_bytes > limit:
            text = f"the batches of the request have {incoming_bytes} bytes, {limit} may wait for the disk"
            raise Problem("body_too_large", text, limit=limit)
        if self.shard.committer.queued_bytes + incoming_bytes > limit:
            raise Problem("overloaded", "too many bytes wait for the disk")

    async def off_loop(self, size_bytes: int, work: Callable[[], T]) -> T:
        """Do work that grows with a body here or, when it is large, in a thread: the loop must not stand still."""
        return work() if size_bytes < OFF_LOOP_BYTES else await self.in_thread(work)

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)

    @contextmanager
    def long_poll(self, partitions: int = 1) -> Iterator[None]:
        """Somebody waits, on so many partitions. Raises Problem too_many_long_polls."""
        polls_max, partitions_max = self.settings.long_polls_max, self.settings.waiting_partitions_max
        if self._long_polls >= polls_max:
            raise Problem("too_many_long_polls", f"{self._long_polls} long polls are open", limit=polls_max)
        if partitions > 1 and self.waiting_partitions + partitions > partitions_max:
            text = f"open long polls wait on {self.waiting_partitions} partitions together, and {partitions} more came"
            raise Problem("too_many_long_polls", text, limit=partitions_max)
        self._long_polls += 1
        self.waiting_partitions += partitions
        self.metrics.long_polls.inc()
        try:
            yield
        finally:
            self._long_polls -= 1
            self.waiting_partitions -= partitions
            self.metrics.long_polls.dec()

    async def drain(self) -> None:
        """Refuse new work, and let everybody who waits answer with what there is."""
        self.is_refusing = True
        self.let_go()
        await asyncio.sleep(0)

    def let_go(self) -> None:
        """Nobody is kept waiting for records any more. Work is still taken: in a cluster others do it."""
        self.draining.advance(DRAINING)
        for partition in self.shard.partitions():
            partition.wake_all()

    def _opened(self, topic: Topic, partition: Partition) -> None:
        self.replicas.opened(topic, partition)
        self.tier.add(topic.record, partition)

    def _closed(self, topic: Topic) -> None:
        self._partitioners.pop(topic.record.topic_id, None)
        self.replicas.closed(topic.partitions.values())
        self.tier.remove_topic(topic.record, list(topic.partitions.values()))

    def _moved_away(self, topic: Topic, partitions: list[Partition]) -> None:
        self._partitioners.pop(topic.record.topic_id, None)
        self.replicas.closed(partitions)
        self.tier.leave(topic.record, partitions)

    def _histograms(self) -> Iterator[Histogram]:
        yield from self.stages.histograms()
        yield from self.shard.committer.times.histograms()
        yield from self.metrics.histograms()

    def _families(self) -> Families:
        for name, text, value in gauges_of(self):
            yield Numbers(name, text, None, {"": value})
        yield from time_families(self.shard, self.stages, self.loop_watch)
        yield from topic_families(self.shard, self.settings.metrics_topics_max, self.clock.steady_ms())
        yield from admission_families(self.shard)
        yield from cluster_families(self)
        yield background_numbers()


def _answer_limits(settings: NodeSettings) -> AnswerLimits:
    return AnswerLimits(
        settings.unread_answer_bytes_max,
        settings.connection_unread_bytes_max,
        settings.stream_stall_ms / 1000,
        settings.body_bytes_per_second_min,
    )


NODE = web.AppKey("node", Node)
