"""Compaction of a log that is truncated, and of a replica beside one that is away: deleted keys do not return."""

import pytest

from engine.compaction.compactor import Compactor
from engine.compaction.progress import Progress, Round, load_progress
from engine.compaction.swapping import OwnPartition, SegmentSwapper
from engine.runtime.throttled_thread import ThrottledThread
from engine.testing.recording_disk import RecordingDisk
from tests.engine.compaction.table import SETTINGS, Table
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import InlineExecutor, inline_node


async def rounds(node, table: Table, disk: RecordingDisk, keys: bytes) -> None:
    for key in keys:
        await table.send(node, [(bytes([key]), b"1")])
    await table.seal(node)
    await table.compact(node, disk)


@pytest.mark.parametrize("is_reset", [False, True])
async def test_what_is_written_after_a_truncation_is_compacted_before_its_tombstones_expire(is_reset):
    clock, table = HandClock(), Table()
    disk = RecordingDisk(clock)
    async with inline_node(disk, clock) as node:
        await node.shard.create_topic("t", 1, 1, SETTINGS)
        partition = node.shard.partition("t", 0)
        await rounds(node, table, disk, b"abcdef")
        assert load_progress(disk, partition.log.directory).cleaned_end == 6
        if is_reset:
            await node.shard.reset_log(partition, 2, 2)
        else:
            await node.shard.truncate(partition, 2)
        assert load_progress(disk, partition.log.directory) == Progress(0 if is_reset else 2)
        table.sent = {offset: sent for offset, sent in table.sent.items() if offset < (0 if is_reset else 2)}
        clock.pass_ms(100_000)  # the old rounds' tombstones may go; those that follow are of no round yet
        for value in (b"1", b"2", b"3", b"4", b"5", None):
            await table.send(node, [(b"k", value)])
        await table.seal(node)
        await table.compact(node, disk)
        found = await (table.read(node, 2) if is_reset else table.check(node))
        assert (found[-1].key, found[-1].value) == (b"k", None)
        assert [one.key for one in found].count(b"k") == 1


async def test_a_round_that_began_before_a_truncation_does_not_count():
    """The log has grown to the same end with other records since."""
    clock, table = HandClock(), Table()
    disk = RecordingDisk(clock)
    async with inline_node(disk, clock) as node:
        await node.shard.create_topic("t", 1, 1, SETTINGS)
        partition = node.shard.partition("t", 0)
        await table.send(node, [(b"a", b"1"), (b"b", b"1")])
        await table.seal(node)
        swapper = SegmentSwapper(disk, InlineExecutor(), clock)
        files = await swapper.files(partition)
        await node.shard.truncate(partition, 0)
        await table.send(node, [(b"a", b"1"), (b"b", b"1")])
        await swapper.end_round(partition, 2, 0, files.generation)
        assert load_progress(disk, partition.log.directory) == Progress()


async def test_the_time_of_tombstones_begins_when_their_round_ends():
    """Until the last swap of the round, readers have met the records that they delete."""
    clock, table = HandClock(), Table()
    disk = RecordingDisk(clock)
    async with inline_node(disk, clock) as node:
        await node.shard.create_topic("t", 1, 1, SETTINGS)
        partition = node.shard.partition("t", 0)
        await table.send(node, [(b"a", b"1"), (b"a", None)])
        await table.seal(node)
        swapper = SegmentSwapper(disk, InlineExecutor(), clock)
        files = await swapper.files(partition)
        clock.pass_ms(60_000)
        await swapper.end_round(partition, 2, 0, files.generation)
        assert load_progress(disk, partition.log.directory).rounds == (Round(2, files.now_ms + 60_000),)


def test_a_round_whose_tombstones_are_gone_does_not_come_again():
    compacted = Progress().after_round(8, expired_below=0)
    assert compacted.with_all(0, 10, 100) == compacted == Progress(8)
    waiting = compacted.with_all(6, 10, 100)
    assert waiting == waiting.with_all(6, 50, 100) == Progress(8, (Round(6, 10),))
    assert (waiting.tombstones_expired_below(109, 100), waiting.tombstones_expired_below(110, 100)) == (0, 6)
    done = waiting.after_round(8, expired_below=6)
    assert done.with_all(6, 120, 100) == done
    assert done.tombstones_expired_below(10**15, 100) == 0
    assert done.with_all(9, 120, 100).tombstones_expired_below(220, 100) == 8


async def test_a_look_removes_the_new_file_of_a_compactor_that_was_killed():
    clock, table = HandClock(), Table()
    disk = RecordingDisk(clock)
    async with inline_node(disk, clock) as node:
        await node.shard.create_topic("t", 1, 1, SETTINGS)
        partition = node.shard.partition("t", 0)
        left = f"{partition.log.directory}/{7:020d}.compacted.tmp"
        disk.close(disk.open(left, create=True, writable=True))
        await table.compact(node, disk)
        assert disk.stat(left) is None


async def test_tombstones_stay_until_every_replica_has_compacted_for_a_time():
    clock, table = HandClock(), Table()
    disk = RecordingDisk(clock)
    async with inline_node(disk, clock) as node:
        await node.shard.create_topic("t", 1, 1, SETTINGS)
        partition = node.shard.partition("t", 0)
        await table.send(node, [(b"a", None), (b"b", b"1")])
        await table.seal(node)
        by_all = 0
        swapper = SegmentSwapper(disk, InlineExecutor(), clock, lambda _: by_all)
        own = OwnPartition(partition, swapper)
        compactor = Compactor(
            disk, list, ThrottledThread("compact", 1 << 60), memory_bytes=1 << 20, check_ms=1000, random_bytes=bytes
        )
        for known, expected in ((0, [0, 1]), (1, [1])):
            by_all = known
            for _ in range(2):
                await compactor.compact(own)
                clock.pass_ms(2000)
            assert [one.offset for one in await table.read(node)] == expected
        await compactor.stop()
