"""Power losses at the first start, and while topics are created and deleted."""

import asyncio
from random import Random

import pytest

from engine.format import batch as record_batch
from engine.testing.recording_disk import RecordingDisk
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import inline_node
from tests.engine.crash.power_loss import EVERY, THIRDS, check_story, telling, until_power_is_lost
from tests.engine.crash.twin import decoded


async def first_start(disk: RecordingDisk) -> None:
    async with inline_node(disk, HandClock()) as node:
        node.kill()


async def test_a_first_start_that_was_cut_short_is_started_again():
    counted = RecordingDisk()
    await first_start(counted)
    for n in range(1, counted.operations + 1):
        disk = RecordingDisk()
        disk.lose_power_after(n)
        with until_power_is_lost(disk):
            await first_start(disk)
        for left in (disk.snapshot(), *disk.crash_states(50, Random(n))):
            with telling(f"operation {n}: {left!r}"):
                await first_start(left)


async def test_a_started_node_keeps_its_identity_whatever_the_disk_forgets():
    disk = RecordingDisk()
    async with inline_node(disk, HandClock()) as node:
        cluster_id = node.shard.directory.identity.cluster_id
        node.kill()
    for state in disk.crash_states(50, Random(1)):
        async with inline_node(state, HandClock()) as node:
            assert node.shard.directory.identity.cluster_id == cluster_id
            node.kill()


class Topics:
    """Creates and deletes topics; keeps the partition counts that may be found of each, None for absent."""

    def __init__(self) -> None:
        self.may_be: dict[str, set[int | None]] = {}

    async def story(self, disk: RecordingDisk) -> None:
        clock = HandClock()
        for partitions in (1, 2):
            async with inline_node(disk, clock) as node:
                await self.create(node, "a", partitions)
                await self.create(node, "b", 1)
                await self.grow(node, "a", 4)
                await self.delete(node, "a")
                await self.create(node, "a", 3)
                await self.delete(node, "a")
                await node.idle()
                if partitions == 1:
                    await self.delete(node, "b")

    async def create(self, node, topic: str, partitions: int) -> None:
        self.may_be.setdefault(topic, {None}).add(partitions)
        await node.shard.create_topic(topic, partitions, 1, {})
        self.may_be[topic] = {partitions}

    async def grow(self, node, topic: str, partitions: int) -> None:
        self.may_be[topic].add(partitions)
        await node.shard.alter_topic(topic, {}, partitions)
        self.may_be[topic] = {partitions}

    async def delete(self, node, topic: str) -> None:
        self.may_be[topic].add(None)
        await node.shard.delete_topic(topic)
        self.may_be[topic] = {None}

    async def check(self, disk: RecordingDisk) -> None:
        async with inline_node(disk, HandClock()) as node:
            found = {name: len(topic.partitions) for name, topic in node.shard.topics.items()}
            for name, may_be in self.may_be.items():
                assert found.pop(name, None) in may_be, name
            assert not found
            assert all(partition.offline is None for partition in node.shard.partitions())
            node.kill()


@pytest.mark.parametrize("first", range(1, 6, 1 if EVERY == 1 else 3))
async def test_topics_are_made_and_deleted_whole_and_for_good(first):
    await check_story(Topics, first=first, every=5, limit=6)


VALUES = {"old": [b"old %d" % n * 500 for n in range(4)], "new": [b"new %d" % n * 500 for n in range(3)]}


class MadeAgain:
    """A topic with records and sealed segments, deleted, and created again with the same name."""

    def __init__(self, durability: str) -> None:
        self.config = {"durability": durability, "segment_bytes": 65536}
        self.may_be = {"nothing"}  # the allowed states

    async def story(self, disk: RecordingDisk) -> None:
        async with inline_node(disk, HandClock()) as node:
            await self.make(node, "old")
            await node.shard.roll_topic("t")
            await node.idle()
            node.checkpoint()
            self.may_be = {"old", "nothing"}
            await node.shard.delete_topic("t")
            self.may_be = {"nothing"}
            await self.make(node, "new")

    async def make(self, node, what: str) -> None:
        self.may_be = {*self.may_be, what}
        await node.shard.create_topic("t", 1, 1, self.config)
        partition = node.shard.partition("t", 0)
        for value in VALUES[what]:
            appended = node.append(partition, record_batch.encode_values([value], 5), Acks.ALL)
            await node.acknowledged(partition, appended, Acks.ALL)

    async def check(self, disk: RecordingDisk) -> None:
        async with inline_node(disk, HandClock()) as node:
            node.kill()
            if "t" not in node.shard.topics:
                assert "nothing" in self.may_be
                return
            partition = node.shard.partition("t", 0)
            assert partition.offline is None
            found = []
            while chunk := await node.shard.reader.read(partition, len(found), 1):
                found += [record.value for record in decoded(bytes(chunk.data))]
            assert any(found == VALUES[what][: len(found)] for what in self.may_be - {"nothing"})


@pytest.mark.parametrize("durability", ["group", "os"])
@pytest.mark.parametrize("first", range(1, 5, 1 if EVERY == 1 else 3))
async def test_a_topic_made_again_never_has_records_of_the_old_one(first, durability):
    await MadeAgain(durability).story(counted := RecordingDisk())
    for n in range(first, counted.operations + 1, 4):
        disk, topic = RecordingDisk(), MadeAgain(durability)
        disk.lose_power_after(n)
        with until_power_is_lost(disk):
            await topic.story(disk)
        await asyncio.sleep(0)
        for number, state in enumerate([disk.snapshot(), *disk.crash_states(6, Random(n))]):
            with telling(f"operation {n}, state {number}: {state!r}"):
                await topic.check(state)


FURTHER = "/mnt/further"


class SpreadTopics(Topics):
    """Topics whose partitions are in two directories."""

    async def story(self, disk: RecordingDisk) -> None:
        clock = HandClock()
        async with inline_node(disk, clock, [FURTHER]) as node:
            await self.create(node, "a", 3)
            await self.delete(node, "a")
            await self.create(node, "a", 2)
            await node.idle()
        async with inline_node(disk, clock, [FURTHER]) as node:
            await self.create(node, "b", 2)
            partition = node.shard.partition("a", 1)
            appended = node.append(partition, record_batch.encode_values([b"1"], 5), Acks.ALL)
            await node.acknowledged(partition, appended, Acks.ALL)
            await self.delete(node, "a")

    async def check(self, disk: RecordingDisk) -> None:
        """Check that everything promised exists, nothing is offline or duplicated, and interrupted work is removed."""
        for _ in range(2):
            async with inline_node(disk, HandClock(), [FURTHER]) as node:
                assert [directory.fault for directory in node.shard.directories] == [None, None]
                topics = node.shard.topics
                for name, may_be in self.may_be.items():
                    found = len(topics[name].partitions) if name in topics else None
                    assert found in may_be, name
                assert all(partition.offline is None for partition in node.shard.partitions())
                kept = {topic.record.topic_id for topic in topics.values()}
                for home in ("/srv/penstock", FURTHER):
                    for name in disk.listdir(f"{home}/topics"):
                        assert set(disk.listdir(f"{home}/topics/{name}")) <= kept
                await self.can_make_more(node)
                node.kill()
            disk = disk.snapshot()

    async def can_make_more(self, node) -> None:
        if "c" not in node.shard.topics:
            await node.shard.create_topic("c", 2, 1, {})
        assert all(partition.offline is None for partition in node.shard.topics["c"].partitions.values())


@pytest.mark.parametrize("first", THIRDS)
async def test_topics_in_two_directories_are_made_and_deleted_whole_and_for_good(first):
    await check_story(SpreadTopics, first=first, every=3, limit=5)
