"""Deletion of records below a position: permanent and visible at once to every reader, and never more than
requested.
"""

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from engine.errors import OffsetAboveHighWatermark, OffsetBelowLogStart, StorageFailed, StorageFull
from engine.format import batch
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.replica.acks import Acks
from tests.engine.conftest import running_node


async def filled(node, batches: int = 6, roll_every: int = 2):
    """Batches of two records each; each segment has two batches."""
    await node.shard.create_topic("t", 1, 1, {})
    for n in range(batches):
        data = batch.encode_values([b"a", b"b"], 5)
        await node.leaders["t", 0].produce(data, Acks.ALL, 5000)
        if n % roll_every == roll_every - 1:
            await node.shard.roll_topic("t")
    return node.shard.partition("t", 0)


async def offsets(node, partition) -> list[int]:
    found, offset = [], partition.log.log_start
    while chunk := await node.shard.reader.read(partition, offset, 1000):
        found += [record.offset for record in batch.decode(chunk.data) if record.offset >= offset]
        offset = chunk.next_offset
    return found


@pytest.mark.parametrize(("before", "first_file"), [(1, 0), (4, 4), (5, 4), (11, 8), (12, 12)])
async def test_what_lies_below_is_gone_and_stays_gone_after_a_restart(new_node, before, first_file):
    async with new_node() as node:
        partition = await filled(node)
        assert await node.shard.delete_before(partition, before) == before
        assert await offsets(node, partition) == list(range(before, 12))
        assert partition.log.segments[0].base_offset == first_file
        with pytest.raises(OffsetBelowLogStart):
            partition.check_readable(before - 1)
    async with new_node() as node:
        partition = node.shard.partition("t", 0)
        assert (partition.log.log_start, partition.log_end) == (before, 12)
        assert await offsets(node, partition) == list(range(before, 12))


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_segment_file_of_another_log_is_kept_when_its_segment_expires(new_node, is_restarted, caplog):
    """An operator put the file of one segment in the place of another: it may be the only copy."""
    async with new_node() as node:
        partition = await filled(node)
        first, last = (partition.log.segments[at].path for at in (0, 2))
        foreign = Path(last).read_bytes()
        if not is_restarted:
            Path(first).write_bytes(foreign)
            await node.shard.delete_before(partition, 5)
    if is_restarted:
        Path(first).write_bytes(foreign)
        async with new_node() as node:
            await node.shard.delete_before(node.shard.partition("t", 0), 5)
    (kept,) = Path(first).parent.glob("*.foreign-*")
    assert kept.name.startswith(f"{0:020d}.foreign-")
    assert kept.read_bytes() == foreign
    assert not Path(first).exists()
    assert [str(kept)] == [entry.kept for entry in caplog.records if hasattr(entry, "kept")]


async def test_a_damaged_segment_of_its_own_batches_expires(new_node):
    async with new_node() as node:
        partition = await filled(node)
        first = Path(partition.log.segments[0].path)
        first.write_bytes(first.read_bytes()[:-7] + b"garbage" * 100)
        await node.shard.delete_before(partition, 5)
        assert [path.name for path in first.parent.glob("0*0.*") if "snapshot" not in path.name] == []


async def test_deleting_what_is_gone_is_no_error_and_beyond_the_high_watermark_is_one(new_node):
    async with new_node() as node:
        partition = await filled(node)
        await node.shard.delete_before(partition, 5)
        assert await node.shard.delete_before(partition, 3) == 5
        with pytest.raises(OffsetAboveHighWatermark):
            await node.shard.delete_before(partition, 13)
        assert partition.log.log_start == 5


async def test_what_is_deleted_up_to_is_durable_or_a_log_could_end_before_it_starts(new_node):
    """durability=os, and segments that are sealed by size: nothing else has requested a sync."""
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {"durability": "os", "flush_ms": 3_600_000, "segment_bytes": 65_536})
        partition = node.shard.partition("t", 0)
        for _ in range(6):
            await node.leaders["t", 0].produce(batch.encode_values([bytes(20_000)], 5), Acks.ALL, 5000)
        assert partition.durable_end == 0 < 1 < partition.log.sealed_end
        await node.shard.delete_before(partition, 1)
        assert partition.durable_end >= 1


async def test_a_read_that_is_under_way_ends_with_the_bytes_it_began_with(new_node):
    async with new_node() as node:
        partition = await filled(node)
        segment = partition.log.segments[0]
        release, may_go_on = segment.begin_read(), threading.Event()
        handle = segment.handle

        def read() -> bytes:
            may_go_on.wait()
            return node.shard.disk.pread(handle, segment.size_bytes, 0)

        reading = asyncio.get_running_loop().run_in_executor(None, read)
        try:
            await node.shard.delete_before(partition, 12)
            assert node.shard.disk.stat(segment.path) is None
        finally:
            may_go_on.set()
        assert [record.offset for record in batch.decode(await reading)] == [0, 1, 2, 3]
        release()
        assert segment._handle is None, "closed with the last reader"


async def test_a_read_of_a_deleted_segment_gets_the_log_start(tmp_path, clock):
    is_opening, may_open = threading.Event(), threading.Event()

    def stay(_: str) -> None:
        is_opening.set()
        assert may_open.wait(60)

    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        partition = await filled(node)
        await node.shard.sealer.wait_saved(partition)
        disk.rules = [Rule("open", "/00000000000000000000.log", act=stay)]  # blocks the reader, not the removal
        reading = asyncio.ensure_future(node.shard.reader.read(partition, 0, 1000))
        assert await asyncio.to_thread(is_opening.wait, 30)
        await node.shard.delete_before(partition, 4)
        may_open.set()
        with pytest.raises(OffsetBelowLogStart):
            await reading


async def test_two_deletions_at_once_end_at_the_higher_one(new_node):
    async with new_node() as node:
        partition = await filled(node)
        await asyncio.gather(*(node.shard.delete_before(partition, before) for before in (9, 4, 7)))
        assert partition.log.log_start == 9
        assert await offsets(node, partition) == [9, 10, 11]


@pytest.mark.parametrize(("error", "kind"), [(errno.EIO, StorageFailed), (errno.ENOSPC, StorageFull)])
async def test_a_deletion_that_cannot_be_made_durable_says_so_removes_nothing_and_can_be_repeated(
    tmp_path, clock, error, kind
):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        partition = await filled(node)
        disk.rules = [Rule("pwritev", name, error=error, times=None) for name in ("recovery-points", "spare")]
        with pytest.raises(kind):
            await node.shard.delete_before(partition, 8)
        assert partition.log.segments[0].base_offset == 0
        assert partition.log.log_start == 0, "what was refused has no effect: the records are still read"
        disk.rules = []
        await node.shard.delete_before(partition, 9)
        assert partition.log.segments[0].base_offset == 8
