"""The only replica of a partition: it always leads, and the partition commits what the topic's durability asks for."""

import asyncio
import threading

import pytest

from engine.errors import AckTimeout
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.errors import NotLeader
from replication.replica.acks import Acks
from replication.replica.standalone import StandaloneReplicas
from tests.engine.conftest import HandClock, running_node
from tests.replication.hosts import batch_of
from tests.waiting import LIMIT_S

WAIT_MS = 20_000


async def test_with_durability_group_the_sync_commits(tmp_path):
    """A record with acks=1 in the same group is answered before the sync, and commits nothing."""
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", HandClock(), disk) as node:
        await node.shard.create_topic("t", 1, 1, {})
        partition, leader = node.shard.partition("t", 0), node.leaders["t", 0]
        goes_on = threading.Event()
        disk.rules = [Rule("fdatasync", ".log", act=lambda _: goes_on.wait(LIMIT_S))]
        synced = asyncio.ensure_future(leader.produce(batch_of(b"a"), Acks.ALL, WAIT_MS))
        assert (await leader.produce(batch_of(b"b"), Acks.LEADER, WAIT_MS)).base_offset in (0, 1)
        assert (partition.log_end, partition.durable_end, partition.high_watermark) == (2, 0, 0)
        assert not synced.done()
        goes_on.set()
        await synced
        assert (partition.durable_end, partition.high_watermark) == (2, 2)


async def test_with_durability_os_the_write_commits(tmp_path):
    async with running_node(tmp_path / "data", HandClock()) as node:
        await node.shard.create_topic("t", 1, 1, {"durability": "os", "flush_ms": 3_600_000})
        partition, leader = node.shard.partition("t", 0), node.leaders["t", 0]
        assert (await leader.produce(batch_of(b"a"), Acks.ALL, WAIT_MS)).base_offset == 0
        assert (partition.log_end, partition.durable_end, partition.high_watermark) == (1, 0, 1)


async def test_an_acknowledgement_that_takes_too_long_ends_with_an_error_and_the_append_continues(tmp_path):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", HandClock(), disk) as node:
        await node.shard.create_topic("t", 1, 1, {})
        partition, leader = node.shard.partition("t", 0), node.leaders["t", 0]
        goes_on = threading.Event()
        disk.rules = [Rule("fdatasync", ".log", act=lambda _: goes_on.wait(LIMIT_S))]
        others = leader.append(batch_of(b"a"), Acks.LEADER)  # the group is answered early
        with pytest.raises(AckTimeout):
            await leader.produce(batch_of(b"b"), Acks.ALL, 50)
        assert (await others).base_offset == 0
        goes_on.set()
        await node.shard.committer.wait_drained()
        assert partition.high_watermark == 2


async def test_a_standalone_start_commits_the_log_of_a_former_cluster(tmp_path):
    async with running_node(tmp_path / "data", HandClock()) as node:
        topic, _ = await node.shard.create_topic("t", 1, 1, {})
        partition, leader = node.shard.partition("t", 0), node.leaders["t", 0]
        start = partition.log.end_position
        await leader.produce(batch_of(b"a"), Acks.ALL, WAIT_MS)
        partition.begin_replicated(0, start)
        assert partition.high_watermark == 0
        StandaloneReplicas(1).on_opened(node.shard, topic, partition)
        assert (partition.is_replicated, partition.high_watermark) == (False, 1)


async def test_a_caller_that_knows_a_newer_leader_is_rejected(tmp_path):
    async with running_node(tmp_path / "data", HandClock()) as node:
        await node.shard.create_topic("t", 1, 1, {})
        leader = node.leaders["t", 0]
        leader.check_serves_reads(0, from_follower=True)
        with pytest.raises(NotLeader):
            leader.check_serves_reads(1)
