"""Any exception during a group commit, also from a bug, is reported to its callers: no wait hangs, other partitions
continue.
"""

import asyncio
from unittest import mock

import pytest

from engine.errors import StorageFailed
from engine.format import batch
from engine.log.log import Log
from engine.partition.partition import Partition
from replication.replica.acks import Acks
from tests.waiting import until


class Bug(Exception):
    """Not an OSError, so no disk error."""


def record() -> bytearray:
    return batch.encode_values([b"1"], 5)


def broken(owner: type, name: str, *, only: str):
    """Replace a method by one that fails for one partition, named directly or by its directory or work."""
    original = getattr(owner, name)

    def method(self, *args, **kwargs):
        names = (getattr(self, "name", ""), getattr(self, "directory", ""))
        if any(found.endswith(only) for found in names):
            raise Bug(name)
        return original(self, *args, **kwargs)

    return mock.patch.object(owner, name, method)


async def produce(node, partition: int, acks: Acks = Acks.ALL) -> int:
    leader = node.leaders["t", partition]
    return (await asyncio.wait_for(leader.produce(record(), acks, 60_000), 45)).base_offset


PLANTED = {
    "planning": lambda: broken(Log, "plan", only="/0"),
    "after the write": lambda: broken(Partition, "apply_writes", only="/0"),
    "half way after the write": lambda: broken(Log, "apply", only="/0"),
    "after the sync": lambda: broken(Partition, "apply_syncs", only="/0"),
}


@pytest.mark.parametrize("where", PLANTED)
async def test_a_bug_in_one_partition_is_answered_and_the_others_continue(new_node, where, caplog):
    async with new_node() as node:
        await node.shard.create_topic("t", 2, 1, {})
        committer = node.shard.committer
        with PLANTED[where]():
            waits = [produce(node, 0), produce(node, 0, Acks.LEADER), produce(node, 1)]
            failed, _, served = await asyncio.gather(*waits, return_exceptions=True)
        assert isinstance(failed, StorageFailed)
        assert served == 0
        assert isinstance(node.shard.partition("t", 0).offline, StorageFailed)
        assert "partition is offline" in caplog.messages
        assert (committer._in_progress, committer.queued_bytes) == ([], 0)
        with pytest.raises(StorageFailed):
            await produce(node, 0)
        assert await produce(node, 1) == 1


@pytest.mark.parametrize("operation", ["pwritev", "fdatasync"])
async def test_a_disk_that_raises_what_no_disk_should_takes_the_partition_offline(new_node, operation):
    async with new_node() as node:
        await node.shard.create_topic("t", 2, 1, {})
        with mock.patch.object(node.shard.disk, operation, side_effect=Bug(operation)), pytest.raises(StorageFailed):
            await produce(node, 0)
        assert node.shard.partition("t", 0).offline
        assert await produce(node, 1) == 0


async def test_a_writer_that_fails_itself_answers_its_group(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 2, 1, {})
        with mock.patch("engine.partition.writer.carry_out", side_effect=Bug("writer")), pytest.raises(StorageFailed):
            await produce(node, 0)
        assert not node.shard.committer._in_progress
        assert await produce(node, 1) == 0


async def test_what_was_queued_when_a_partition_went_offline_is_no_longer_counted(node):
    committer, partition = node.shard.committer, node.shard.partition("t", 0)
    appended = committer.append(partition, record(), wants_sync=True)
    partition.go_offline(StorageFailed("planted"))
    with pytest.raises(StorageFailed):
        await appended
    await committer.wait_drained()
    assert committer.queued_bytes == 0


async def test_housekeeping_that_fails_for_one_partition_continues(new_node, caplog):
    async with new_node() as node:
        await node.shard.create_topic("t", 2, 1, {})
        calls = []

        async def expire(partition):
            calls.append(partition)
            raise Bug("expire")

        def look(partition):
            raise Bug("look")

        for planted in (expire, look):
            calls.clear()
            caplog.clear()
            with (
                mock.patch("engine.shard.housekeeping.TICK_S", 0.01),
                mock.patch.object(node.shard.housekeeping, "_expiry", planted),
            ):
                await until(lambda: caplog.messages.count("retention failed") >= 2)
                await until(lambda planted=planted: planted is look or len(set(calls)) == 2)
