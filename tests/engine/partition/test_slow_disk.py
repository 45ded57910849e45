"""A slow disk: acks=all waits for it, and the event loop never does."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

from engine.format import batch
from engine.producers.append_validator import Appended
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.replica.acks import Acks
from tests.engine.conftest import running_node

STALL_S = 0.6
LAG_S_MAX = 0.3  # half a stall: a busy machine delays less than the disk does


@asynccontextmanager
async def loop_lag():
    """Return the longest delay of a task that sleeps for 5 ms at a time."""
    lags: list[float] = [0.0]

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            lags.append(time.perf_counter() - before - 0.005)

    watching = asyncio.create_task(watch())
    try:
        yield lags
    finally:
        watching.cancel()


async def test_a_stalled_fsync_or_write_does_not_stop_the_loop(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", 2, 1, {})
        for operation in ("fdatasync", "pwritev"):
            disk.rules = [Rule(operation, ".log", delay_s=STALL_S)]
            async with loop_lag() as lags:
                started = time.perf_counter()
                leader = node.leaders["t", 0]
                await leader.produce(batch.encode_values([b"1"], 5), Acks.ALL, 20_000)
                assert time.perf_counter() - started >= STALL_S, "the disk was waited for"
            assert len(lags) > 20
            assert max(lags) < LAG_S_MAX


async def test_reads_from_memory_continue_while_the_disk_stalls(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", 1, 1, {})
        leader, partition = node.leaders["t", 0], node.shard.partition("t", 0)
        await leader.produce(batch.encode_values([b"1"], 5), Acks.ALL, 20_000)
        disk.rules = [Rule("fdatasync", ".log", delay_s=STALL_S)]
        stalled = asyncio.ensure_future(leader.produce(batch.encode_values([b"2"], 5), Acks.ALL, 20_000))
        await asyncio.sleep(0.05)
        chunk = await node.shard.reader.read(partition, 0, 1000)
        assert [record.value for record in batch.decode(chunk.data)] == [b"1"]
        assert not stalled.done()
        assert await stalled == Appended(1, 1)


async def test_other_replicas_copy_what_is_written_while_it_is_synced(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", 2, 1, {})
        disk.rules = [Rule("fdatasync", ".log", delay_s=STALL_S)]
        for number, is_replicated in enumerate((True, False)):
            partition = node.shard.partition("t", number)
            partition.is_replicated = is_replicated
            await node.shard.committer.append(partition, batch.encode_values([b"1"], 5), wants_sync=True)
            assert (partition.log_end, partition.durable_end) == (1, 0 if is_replicated else 1)
            await node.shard.committer.drained()
            assert partition.durable_end == 1
