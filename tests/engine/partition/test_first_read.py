"""The first read of a segment opens it outside the event loop, and works if the segment expires meanwhile."""

import threading

import pytest

from engine.errors import OffsetBelowLogStart
from engine.format import batch as record_batch
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.replica.acks import Acks
from tests.engine.conftest import running_node


async def fill(node) -> None:
    await node.shard.create_topic("t", 1, 1, {})
    for _ in range(3):
        data = record_batch.encode_values([b"x"] * 10, 5)
        await node.leaders["t", 0].acknowledge(node.leaders["t", 0].append(data, Acks.ALL), Acks.ALL, 5000)
        await node.shard.roll_topic("t")


@pytest.mark.parametrize("how", ["read", "first_at_or_after"])
async def test_no_index_is_read_on_the_loop(tmp_path, clock, how):
    async with running_node(tmp_path / "data", clock) as node:
        await fill(node)
    readers: set[str] = set()
    disk = FaultyDisk(
        RealDisk(), [Rule("open", "index", times=None, act=lambda _: readers.add(threading.current_thread().name))]
    )
    async with running_node(tmp_path / "data", clock, disk) as node:
        readers.clear()
        partition = node.shard.partition("t", 0)
        if how == "read":
            chunk = await node.shard.reader.read(partition, 12, 1 << 20)
            assert chunk.next_offset == 20
        else:
            assert await node.shard.reader.first_at_or_after(partition, 5) == (0, 5)
        assert readers, "an index was read"
        assert threading.main_thread().name not in readers


async def test_a_segment_that_expires_while_it_is_opened_is_reported_as_deleted(tmp_path, clock):
    async with running_node(tmp_path / "data", clock) as node:
        await fill(node)
    async with running_node(tmp_path / "data", clock) as node:
        partition, reader = node.shard.partition("t", 0), node.shard.reader

        async def load_and_expire(segment, load=reader._load):
            await load(segment)
            await node.shard.delete_before(partition, 20)

        reader._load = load_and_expire
        with pytest.raises(OffsetBelowLogStart):
            await reader.read(partition, 5, 1 << 20)
