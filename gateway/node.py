"""What handlers share: one node's shard, leaders, settings and counters. No HTTP in it and no I/O of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from random import Random
from typing import TypeVar

from aiohttp import web

from engine.clock import Clock
from engine.errors import Draining, UnknownTopic
from engine.partition import Partition
from engine.shard import Shard, Topic
from engine.tiering.tier import Tier
from gateway.metrics import Metrics
from gateway.partitioner import Partitioner
from gateway.problems import Problem
from gateway.settings import NodeSettings
from replication.leader import Leader

T = TypeVar("T")

OFF_LOOP_BYTES = 512 * 1024  # coding this much takes about 2 ms; the bound for a loop callback is 20


class Node:
    """One running node as the gateway sees it."""

    def __init__(
        self, settings: NodeSettings, shard: Shard, tier: Tier, clock: Clock, executor: Executor, random: Random
    ) -> None:
        self.settings = settings
        self.shard = shard
        self.tier = tier
        self.clock = clock
        self.executor = executor
        self.metrics = Metrics(self._gauges)
        self.is_draining = False
        self.url = settings.advertised_url
        self._random = random
        self._leaders: dict[tuple[str, int], Leader] = {}
        self._partitioners: dict[str, Partitioner] = {}
        self._long_polls = 0
        shard.when_opened = self._opened

    def __repr__(self) -> str:
        return f"Node({self.url}, {self.shard})"

    def leader(self, topic: str, partition: int) -> Leader:
        """The leader of a partition that the topic is known to have."""
        try:
            return self._leaders[topic, partition]
        except KeyError:
            raise UnknownTopic(f"there is no topic {topic!r}") from None

    def partitioner(self, topic: Topic) -> Partitioner:
        return self._partitioners[topic.record.name]

    async def topic_to_produce_to(self, name: str) -> Topic:
        """The topic, made on the spot where `auto_create_topics` says so."""
        try:
            return self.shard.topic(name)
        except UnknownTopic:
            if not self.settings.auto_create_topics:
                raise
        topic, _ = await self.create_topic(name, self.settings.default_partitions, 1, {})
        return topic

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, overrides: dict[str, object]
    ) -> tuple[Topic, bool]:
        """Make a topic, or find the same one there; whether it is new comes with it."""
        return await self.shard.create_topic(name, partitions, replication_factor, overrides)

    async def delete_topic(self, name: str) -> None:
        topic = self.shard.topic(name)
        await self.shard.delete_topic(name)
        self._partitioners.pop(name, None)
        for partition in topic.partitions:
            self._leaders.pop((name, partition.number), None)
        self.tier.remove_topic(topic.record, topic.partitions)

    def check_accepting(self) -> None:
        if self.is_draining:
            raise Draining("the node is stopping")

    def check_capacity(self, incoming_bytes: int) -> None:
        """Bytes waiting for the disk are bounded; beyond that the client waits, not our memory."""
        if self.shard.committer.queued_bytes + incoming_bytes > self.settings.append_queue_bytes_max:
            raise Problem("overloaded", "too many bytes wait for the disk")

    async def off_loop(self, size_bytes: int, work: Callable[[], T]) -> T:
        """Do work that grows with a body here or, when it is large, in a thread: the loop must not stand still."""
        if size_bytes < OFF_LOOP_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)

    def begin_long_poll(self) -> None:
        if self._long_polls >= self.settings.long_polls_max:
            raise Problem("too_many_long_polls", f"{self._long_polls} long polls are open", limit=self._long_polls)
        self._long_polls += 1
        self.metrics.long_polls.inc()

    def end_long_poll(self) -> None:
        self._long_polls -= 1
        self.metrics.long_polls.dec()

    async def drain(self) -> None:
        """Refuse new work, and let everybody who waits answer with what there is."""
        self.is_draining = True
        for partition in self.shard.partitions():
            partition.wake_all()
        await asyncio.sleep(0)

    def _opened(self, topic: Topic, partition: Partition) -> None:
        name = topic.record.name
        self._leaders[name, partition.number] = Leader(partition, self.shard.committer, self.settings.node_id)
        if partition.number == 0:
            self._partitioners[name] = Partitioner(name, topic.record.partitions, self._random)
        self.tier.add(topic.record, partition)

    def _gauges(self) -> Iterator[tuple[str, str, float]]:
        partitions = list(self.shard.partitions())
        yield "penstock_topics", "Topics", len(self.shard.topics)
        yield "penstock_partitions", "Partitions", len(partitions)
        yield (
            "penstock_offline_partitions",
            "Partitions that the disk failed",
            sum(p.offline is not None for p in partitions),
        )
        yield "penstock_log_bytes", "Bytes of the log on this disk", sum(p.log.size_bytes for p in partitions)
        yield "penstock_segments", "Segments on this disk", sum(len(p.log.segments) for p in partitions)
        yield "penstock_append_queue_bytes", "Bytes waiting to be written", self.shard.committer.queued_bytes
        yield "penstock_write_groups_total", "Groups written", self.shard.committer.groups
        yield (
            "penstock_page_cache_misses_total",
            "Reads that had to wait for the disk",
            self.shard.reader.page_cache_misses,
        )
        yield "penstock_recovered_bytes", "Bytes scanned at the last start", self.shard.recovered.scanned_bytes
        yield "penstock_recovery_cut_bytes", "Bytes of torn tails cut at the last start", self.shard.recovered.cut_bytes


NODE = web.AppKey("node", Node)
