"""Too many open files: requests get retryable errors, nothing is lost, and no partition goes offline.

tests/engine/crash/test_faults.py fails each single open of a story.
"""

import asyncio
import errno
from contextlib import asynccontextmanager

import pytest

from engine.errors import TooManyOpenFiles
from engine.format import batch
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.replica.acks import Acks
from tests.engine.conftest import running_node
from tests.waiting import until

NONE_FREE = [Rule(operation, times=None, error=errno.EMFILE) for operation in ("open", "fsync_dir", "listdir")]
WAIT_MS = 20_000


@asynccontextmanager
async def node_on(tmp_path, clock, disk):
    async with running_node(tmp_path / "data", clock, disk) as node:
        if "t" not in node.shard.topics:
            await node.shard.create_topic("t", 1, 1, {})
        yield node, node.leaders["t", 0], node.shard.partition("t", 0)


def one(text: bytes) -> bytearray:
    return batch.encode_values([text], 5)


async def values_from(node, partition, offset=0) -> list[bytes]:
    found = []
    while chunk := await node.shard.reader.read(partition, offset, 1000):
        found += [record.value for record in batch.decode(chunk.data)]
        offset = chunk.next_offset
    return found


async def test_a_sealed_segment_is_closed_once_it_is_durable(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with node_on(tmp_path, clock, disk) as (node, leader, partition):
        for number in range(20):
            await leader.produce(one(b"%d" % number), Acks.ALL, WAIT_MS)
            await node.shard.committer.roll(partition)
            await node.shard.sealer.wait_saved(partition)
        logs = {call.path for call in disk.calls if call.operation == "open" and call.path.endswith(".log")}
        open_logs = [path for path in logs if disk.count("open", path) > disk.count("close", path)]
        assert (len(logs), open_logs) == (21, [partition.log.active.path])
        assert await values_from(node, partition) == [b"%d" % number for number in range(20)]


async def test_a_roll_without_a_free_file_is_refused_and_the_partition_continues(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with node_on(tmp_path, clock, disk) as (node, leader, partition):
        await leader.produce(one(b"a"), Acks.ALL, WAIT_MS)
        disk.rules = NONE_FREE
        with pytest.raises(TooManyOpenFiles) as refused:
            await node.shard.committer.roll(partition)
        assert (refused.value.retryable, refused.value.no_side_effects) == (True, True)
        await leader.produce(one(b"b"), Acks.ALL, WAIT_MS)
        disk.rules = []
        await node.shard.committer.roll(partition)
        await leader.produce(one(b"c"), Acks.ALL, WAIT_MS)
        assert partition.offline is None
        assert await values_from(node, partition) == [b"a", b"b", b"c"]


async def test_a_directory_that_cannot_be_opened_puts_its_sync_off(tmp_path, clock):
    """The records are written; they count as durable only once the directory has been synced."""
    disk = FaultyDisk(RealDisk())
    async with node_on(tmp_path, clock, disk) as (node, leader, partition):
        await leader.produce(one(b"a"), Acks.ALL, WAIT_MS)
        disk.rules = [Rule("fsync_dir", partition.log.directory, times=None, error=errno.EMFILE)]
        rolling = node.shard.committer.roll(partition)
        again = node.shard.committer.roll(partition)
        await until(lambda: disk.faults >= 1)
        producing = asyncio.ensure_future(leader.produce(one(b"b"), Acks.ALL, WAIT_MS))
        faults = disk.faults
        await until(lambda: partition.log_end == 2 and disk.faults > faults)
        assert (partition.durable_end, partition.offline) == (1, None)
        assert not any(one.done() for one in (producing, rolling, again))
        disk.rules = []
        await asyncio.gather(producing, rolling, again)
        assert (partition.durable_end, partition.offline) == (2, None)


async def test_a_stop_waits_until_everything_could_be_synced(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with node_on(tmp_path, clock, disk) as (node, leader, partition):
        await leader.produce(one(b"a"), Acks.ALL, WAIT_MS)
        disk.rules = [Rule("fsync_dir", partition.log.directory, times=3, error=errno.ENFILE)]
        node.shard.committer.roll(partition)
        await leader.produce(one(b"b"), Acks.LEADER, WAIT_MS)
    assert disk.faults == 3
    assert partition.durable_end == 2
    async with node_on(tmp_path, clock, RealDisk()) as (node, _, partition):
        assert node.shard.directory.was_clean
        assert await values_from(node, partition) == [b"a", b"b"]


async def test_reads_without_a_free_file_are_refused_and_may_be_tried_again(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with node_on(tmp_path, clock, disk) as (node, leader, partition):
        await leader.produce(one(b"a"), Acks.ALL, WAIT_MS)
        await node.shard.committer.roll(partition)
        await node.shard.sealer.wait_saved(partition)
        disk.rules = NONE_FREE
        with pytest.raises(TooManyOpenFiles):
            await node.shard.reader.read(partition, 0, 100)
        with pytest.raises(TooManyOpenFiles):
            await node.shard.reader.read_uncommitted(partition, 0, 100)
        with pytest.raises(TooManyOpenFiles):
            await node.shard.create_topic("other", 1, 1, {})
        with pytest.raises(TooManyOpenFiles):
            await node.shard.delete_before(partition, 1)
        disk.rules = []
        assert await values_from(node, partition) == [b"a"]
        assert await node.shard.delete_before(partition, 1) == 1
        await node.shard.create_topic("other", 1, 1, {})


async def test_no_read_opens_a_file_on_the_event_loop(tmp_path, clock):
    loop_calls: list[str] = []

    def note(path: str) -> None:
        if is_looping():
            loop_calls.append(path)

    def watched() -> FaultyDisk:
        return FaultyDisk(RealDisk(), [Rule("open", times=None, act=note)])

    async with node_on(tmp_path, clock, watched()) as (node, leader, partition):
        for text in (b"a", b"b", b"c"):
            await leader.produce(one(text), Acks.ALL, WAIT_MS)
            await node.shard.committer.roll(partition)
    async with node_on(tmp_path, clock, watched()) as (node, leader, partition):
        partition.begin_replicated(0, partition.log.end_position)
        await leader.produce(one(b"d"), Acks.LEADER, WAIT_MS)
        loop_calls.clear()
        partition.watermark.advance(2)
        await until(lambda: partition.high_watermark == 2)
        assert await node.shard.reader.read_uncommitted(partition, 1, 100)
        assert await values_from(node, partition) == [b"a", b"b"]
        assert await node.shard.reader.first_at_or_after(partition, 5) == (0, 5)
        await node.shard.truncate(partition, 2)
        assert await values_from(node, partition) == [b"a", b"b"]
        assert loop_calls == []


def is_looping() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def test_a_start_waits_for_free_files(tmp_path, clock):
    async with node_on(tmp_path, clock, RealDisk()) as (_, leader, _):
        await leader.produce(one(b"a"), Acks.ALL, WAIT_MS)
    disk = FaultyDisk(RealDisk(), [Rule("open", ".log", times=3, error=errno.EMFILE)])
    async with node_on(tmp_path, clock, disk) as (node, _, partition):
        assert disk.faults == 3
        assert partition.offline is None
        assert await values_from(node, partition) == [b"a"]


async def test_partitions_of_a_batch_wait_for_free_files(tmp_path, clock):
    disk = FaultyDisk(RealDisk(), [Rule("listdir", "/topics/t/", first=7, times=4, error=errno.EMFILE)])
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", 20, 1, {})
        assert disk.faults == 4
        assert [(one.number, one.offline) for one in node.shard.partitions()] == [
            (number, None) for number in range(20)
        ]
        assert node.shard.opener.progress.opened == 20


async def test_a_cut_that_has_begun_waits_for_free_files(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with node_on(tmp_path, clock, disk) as (node, leader, partition):
        for text in (b"a", b"b", b"c"):
            await leader.produce(one(text), Acks.ALL, WAIT_MS)
            await node.shard.committer.roll(partition)
        await node.shard.sealer.wait_saved(partition)  # or its files would meet the faults
        directory = partition.log.directory
        disk.rules = [
            Rule("fsync_dir", directory, times=2, error=errno.EMFILE),
            Rule("open", f"{directory}/0", first=2, times=2, error=errno.EMFILE),
        ]
        await node.shard.truncate(partition, 1)
        assert [rule.applied for rule in disk.rules] == [2, 2]
        assert (partition.offline, partition.log_end) == (None, 1)
        await node.shard.committer.append(partition, one(b"d"), wants_sync=True)
        await node.shard.committer.wait_drained()
        assert await values_from(node, partition) == [b"a", b"d"]
