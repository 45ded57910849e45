"""Rolls on demand: after the answer the sealed segment exists, closed and durable."""

import asyncio
import errno

import pytest

from engine.errors import StorageFailed
from engine.format import batch
from engine.testing.faulty_disk import FaultyDisk, Rule
from engine.testing.recording_disk import RecordingDisk
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import InlineNode, inline_node


async def node_with_unsynced_record(node: InlineNode) -> None:
    await node.shard.create_topic("t", 1, 1, {"flush_ms": 3_600_000})
    await node.append(node.shard.partition("t", 0), batch.encode_values([b"1"], 5), Acks.LEADER)


async def test_a_roll_is_not_answered_before_what_it_sealed_is_durable():
    disk = RecordingDisk()
    async with inline_node(disk, HandClock()) as node:
        await node_with_unsynced_record(node)
        disk.lose_power_after(disk.operations + 4)  # the directory's sync, the new file, its truncation, the sync
        with pytest.raises(StorageFailed):
            await node.shard.roll_topic("t")
        node.kill()


async def test_a_directory_that_cannot_be_synced_before_a_roll_takes_the_partition_offline():
    disk = FaultyDisk(RecordingDisk())
    async with inline_node(disk, HandClock()) as node:
        await node_with_unsynced_record(node)
        disk.rules.append(Rule("fsync_dir", path="/0", error=errno.ENOSPC))  # the disk is full, and the result is final
        with pytest.raises(StorageFailed):
            await node.shard.roll_topic("t")
        assert node.shard.partition("t", 0).offline is not None
        node.kill()


async def test_a_roll_asked_for_during_a_flush_is_carried_out():
    async with inline_node(RecordingDisk(), HandClock()) as node:
        await node_with_unsynced_record(node)
        partition = node.shard.partition("t", 0)
        node.shard.committer.include(partition, sync=True)
        await asyncio.sleep(0)
        assert node.shard.committer._in_progress
        assert await node.shard.roll_topic("t") == [1]
        assert len(partition.log.segments) == 2


async def test_what_lies_above_an_offset_is_counted_over_segments_and_guessed_where_no_index_is_at_hand():
    async with inline_node(RecordingDisk(), HandClock()) as node:
        await node.shard.create_topic("t", 1, 1, {})
        partition = node.shard.partition("t", 0)
        for _ in range(2):
            for size in (100, 5000, 100):
                await node.append(partition, batch.encode_values([b"x" * size], 5), Acks.LEADER)
            await node.shard.roll_topic("t")
        log, (first, second, _) = partition.log, partition.log.segments
        first.loaded_index = None
        guessed = [log.bytes_from(offset) for offset in range(4)]
        assert guessed[0] == log.size_bytes == first.size_bytes + second.size_bytes
        assert guessed[1] == log.size_bytes - first.size_bytes // 3
        assert guessed[3] == second.size_bytes
        assert first.loaded_index is None, "nothing was read for it"
        first.set_index(second.index)  # the same batches
        counted = [log.bytes_from(offset) for offset in range(8)]
        assert counted == sorted(counted, reverse=True)
        assert (counted[3], counted[6], counted[7]) == (second.size_bytes, 0, 0)
        assert counted[0] - counted[2] in (0, *range(5000, 5300)), "to where the index has an entry"
