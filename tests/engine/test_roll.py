"""Sealing on demand: the answer to a roll promises that what it sealed is there, closed and durable."""

from __future__ import annotations

import asyncio

import pytest

from engine import batch
from engine.errors import StorageFailed
from engine.recording_disk import RecordingDisk
from replication.acks import Acks
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import InlineNode, inline_node


async def node_with_unsynced_record(node: InlineNode) -> None:
    await node.shard.create_topic("t", 1, 1, {"flush_ms": 3_600_000})
    await node.append(node.shard.partition("t", 0), batch.encode_values([b"1"], 5), Acks.LEADER)


async def test_a_roll_is_not_answered_before_what_it_sealed_is_durable():
    disk = RecordingDisk()
    async with inline_node(disk, HandClock()) as node:
        await node_with_unsynced_record(node)
        disk.lose_power_after(disk.operations + 3)  # the new file, its truncation, the sync
        with pytest.raises(StorageFailed):
            await node.shard.roll_topic("t")
        node.kill()


async def test_a_roll_asked_for_during_a_flush_is_carried_out():
    async with inline_node(RecordingDisk(), HandClock()) as node:
        await node_with_unsynced_record(node)
        partition = node.shard.partition("t", 0)
        node.shard.committer.look_at(partition, sync=True)
        await asyncio.sleep(0)
        assert node.shard.committer._under_way
        assert await node.shard.roll_topic("t") == [1]
        assert len(partition.log.segments) == 2


async def test_rolling_nothing_is_answered_at_once():
    async with inline_node(RecordingDisk(), HandClock()) as node:
        await node_with_unsynced_record(node)
        assert await node.shard.roll_topic("t") == [1]
        assert await node.shard.roll_topic("t") == [1]
