"""A full disk: appends are definitely rejected, reads and deletes continue, and freed space suffices to recover.

Once with a simulated disk, once with a small real file system on a loop device (needs root and loop mounts).
"""

import errno

import pytest

from engine.errors import StorageFull
from engine.format import batch
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.replica.acks import Acks
from tests.engine.conftest import running_node

CONFIG = {"segment_bytes": 1 << 20, "batch_bytes_max": 1 << 20, "flush_ms": 5}


def values(size_bytes: int = 100_000) -> bytearray:
    return batch.encode_values([b"v" * size_bytes], 5)


async def produce(node, topic: str, acks: Acks = Acks.ALL) -> int:
    return (await node.leaders[topic, 0].produce(values(), acks, 20_000)).base_offset


async def fill(node, topic: str) -> int:
    """Append until the disk is full; return how many batches were accepted."""
    for taken in range(1000):
        try:
            assert await produce(node, topic) == taken
        except StorageFull as full:
            error = full
            break
    else:
        raise AssertionError("the disk is never full")
    assert (error.no_side_effects, error.retryable) == (True, True)
    return taken


async def check_full_disk(node, free_space) -> None:
    await node.shard.create_topic("other", 1, 1, CONFIG)
    await node.shard.create_topic("t", 1, 1, CONFIG)
    await produce(node, "other")
    taken = await fill(node, "t")
    partition = node.shard.partition("t", 0)
    for acks in (Acks.ALL, Acks.LEADER):
        with pytest.raises(StorageFull):
            await produce(node, "t", acks)
    assert partition.offline is None
    assert (partition.log_end, partition.high_watermark) == (taken, taken)
    assert await read_all(node, "t") == taken
    await free_space()
    assert await produce(node, "t") == taken
    assert await read_all(node, "t") == taken + 1


async def read_all(node, topic: str) -> int:
    offset, partition = 0, node.shard.partition(topic, 0)
    while chunk := await node.shard.reader.read(partition, offset, 1 << 20):
        assert all(batch.has_valid_crc(chunk.data, at, header) for at, header in batch.walk(chunk.data))
        offset = chunk.next_offset
    return offset


async def test_a_disk_that_says_it_is_full(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    disk.room_bytes = 5_000_000

    async def free_space() -> None:
        disk.room_bytes = None

    async with running_node(tmp_path / "data", clock, disk) as node:
        await check_full_disk(node, free_space)
    async with running_node(tmp_path / "data", clock) as node:
        assert node.shard.directory.was_clean
        assert await read_all(node, "t") == node.shard.partition("t", 0).log_end > 10


async def test_a_real_file_system_that_is_full(small_file_system, clock):
    """Space is freed by deleting another topic, which has to work on a full disk."""
    filler = small_file_system / "filler"
    filler.write_bytes(bytes(12 * 1024 * 1024))
    async with running_node(small_file_system / "data", clock) as node:

        async def free_space() -> None:
            await node.shard.delete_topic("other")
            filler.unlink()

        await check_full_disk(node, free_space)
        log_end = node.shard.partition("t", 0).log_end
    async with running_node(small_file_system / "data", clock) as node:
        assert await read_all(node, "t") == log_end


async def test_a_topic_that_does_not_fit_is_refused_and_can_be_made_later(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        disk.room_bytes = 10
        with pytest.raises(StorageFull):
            await node.shard.create_topic("t", 1, 1, {})
        assert "t" not in node.shard.topics
        disk.room_bytes = None
        await node.shard.create_topic("t", 1, 1, {})
        assert await produce(node, "t") == 0


async def test_retention_continues_when_the_disk_is_full(tmp_path, clock):
    """Its checkpoint is written into a spare file. Without one nothing is deleted, and a later attempt succeeds."""
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", 1, 1, {**CONFIG, "retention_ms": 60_000})
        disk.room_bytes = 5_000_000
        taken = await fill(node, "t")
        partition = node.shard.partition("t", 0)
        clock.pass_ms(120_000)
        disk.room_bytes = 0
        disk.rules = [Rule("rename", "spare", times=None, error=errno.ENOSPC)]
        with pytest.raises(OSError, match="No space"):
            await node.shard.deletion.expire(partition)
        assert partition.log.segments[0].base_offset == partition.log.log_start == 0
        disk.rules = []
        await node.shard.deletion.expire(partition)
        assert partition.log.local_log_start == partition.log.log_start > 0
        disk.room_bytes = None
        assert await produce(node, "t") == taken
