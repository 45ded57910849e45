"""Power losses at the first start, and while topics come and go."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from engine.recording_disk import RecordingDisk
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import inline_node
from tests.engine.crash.power_loss import telling, until_power_is_lost


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
    """Does things to topics and keeps what may be found of each: the partition counts, None for absent."""

    def __init__(self) -> None:
        self.may_be: dict[str, set[int | None]] = {}

    async def story(self, disk: RecordingDisk) -> None:
        clock = HandClock()
        for partitions in (1, 2):
            async with inline_node(disk, clock) as node:
                await self.create(node, "a", partitions)
                await self.create(node, "b", 1)
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


@pytest.mark.parametrize("first", range(1, 6))
async def test_topics_are_made_and_deleted_whole_and_for_good(first):
    await Topics().story(counted := RecordingDisk())
    for n in range(first, counted.operations + 1, 5):
        disk, topics = RecordingDisk(), Topics()
        disk.lose_power_after(n)
        with until_power_is_lost(disk):
            await topics.story(disk)
        await asyncio.sleep(0)
        for number, state in enumerate(disk.crash_states(6, Random(n))):
            with telling(f"operation {n}, state {number}: {state!r}"):
                await topics.check(state)
