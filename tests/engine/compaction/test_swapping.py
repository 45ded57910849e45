"""Swaps that fail, are given up by their caller, or meet a changed topic: the log in memory and the files agree."""

import asyncio
import errno
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random
from threading import Event
from unittest import mock

import pytest

from engine.cleaning.quarantine import sealed_files
from engine.cleaning.segment_check import Finding
from engine.compaction import swapping
from engine.compaction.compactor import Compactor
from engine.compaction.swapping import OwnPartition, SegmentSwapper
from engine.format import paths
from engine.log.damaged_ranges import Damage
from engine.runtime.throttled_thread import ThrottledThread
from engine.testing.faulty_disk import FaultyDisk, Rule
from engine.testing.recording_disk import RecordingDisk
from engine.tiering.tier import local_log
from tests.engine.compaction.table import SETTINGS, Table
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import inline_node


async def three_segments(node, table: Table) -> None:
    await node.shard.create_topic("t", 1, 1, SETTINGS)
    for value in (b"1", b"2", b"3"):
        await table.send(node, [(b"a", value), (b"b", value)])
        await table.seal(node)


FAULTS = [
    Rule("pwritev", ".compacted.tmp", error=errno.ENOSPC),
    Rule("fdatasync", ".compacted.tmp", error=errno.EIO),
    Rule("pwritev", ".swap", error=errno.ENOSPC),
    Rule("fdatasync", ".swap", error=errno.EIO),
    Rule("rename", ".swap", error=errno.ENOSPC),
    Rule("set_modified", ".compacted.tmp", error=errno.EIO),
    *(Rule("rename", ".compacted.tmp", error=error) for error in (errno.ENOSPC, errno.EIO)),
    *(Rule("unlink", suffix, error=errno.EIO) for suffix in (".checksum", ".index", ".timeindex", ".swap")),
    *(Rule("unlink", name, error=errno.EIO) for name in ("2.log", "4.log")),
    *(Rule("fsync_dir", first=one, error=errno.EIO) for one in range(1, 6)),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: f"{one.operation}-{one.path}-{one.first}-{one.error}")
async def test_a_failing_disk_leaves_a_log_that_is_read_and_compacted_later(fault):
    clock, table = HandClock(), Table()
    recording = RecordingDisk(clock)
    disk = FaultyDisk(recording)
    async with inline_node(disk, clock) as node:
        await three_segments(node, table)
        disk.rules.append(Rule(fault.operation, fault.path, fault.first, fault.times, fault.error))
        with suppress(OSError):
            await table.compact(node, disk)
        assert disk.faults == 1
        disk.rules.clear()
        for segment in node.shard.partition("t", 0).log.segments[:-1]:
            segment.seal()  # as after a while without reads: the next one opens the file by its name
        await table.check(node)
        assert all(not one.damage for one in node.shard.partition("t", 0).log.segments)
        await table.send(node, [(b"a", b"4")])
        await table.seal(node)
        await table.compact(node, disk)
        await table.check(node)
    async with inline_node(recording, clock) as node:
        assert node.shard.partition("t", 0).offline is None
        await table.check(node)
        left = recording.listdir(node.shard.partition("t", 0).log.directory)
        assert not [one for one in left if one.endswith((".swap", ".tmp"))]


@pytest.mark.parametrize(("operation", "path"), [("rename", ".compacted.tmp"), ("unlink", ".log")])
async def test_a_swap_ends_although_its_caller_gives_up(operation, path):
    clock, table, begun, goes_on = HandClock(), Table(), Event(), Event()

    def hold(_: str) -> None:
        begun.set()
        assert goes_on.wait(60)

    disk = FaultyDisk(RecordingDisk(clock))
    async with inline_node(disk, clock) as node:
        await three_segments(node, table)
        with ThreadPoolExecutor(2) as executor:
            swapper = SegmentSwapper(disk, executor, clock)
            own = OwnPartition(node.shard.partition("t", 0), swapper)
            compactor = Compactor(
                disk,
                lambda: [own],
                ThrottledThread("compact", 1 << 60),
                memory_bytes=1 << 20,
                check_ms=1000,
                random_bytes=Random(1).randbytes,
            )
            disk.rules.append(Rule(operation, path, act=hold))
            round_ = asyncio.create_task(compactor.compact(own))
            await asyncio.to_thread(begun.wait, 10)
            round_.cancel()
            with pytest.raises(asyncio.CancelledError):
                await round_
            goes_on.set()
            await swapper.wait_ended()
        assert len(node.shard.partition("t", 0).log.segments) == 2
        await table.check(node)


async def test_a_round_ends_when_the_topic_is_no_longer_compacted():
    clock, table = HandClock(), Table()
    disk = FaultyDisk(RecordingDisk(clock))
    async with inline_node(disk, clock) as node:
        await three_segments(node, table)
        own = OwnPartition(node.shard.partition("t", 0), node.shard.segment_swapper)
        replace = own.replace

        async def changed_first(new):
            await node.shard.alter_topic("t", {"cleanup_policy": "delete"})
            return await replace(new)

        own.replace = changed_first
        compactor = Compactor(
            disk,
            lambda: [own],
            ThrottledThread("compact", 1 << 60),
            memory_bytes=1 << 20,
            check_ms=1000,
            random_bytes=Random(1).randbytes,
        )
        assert not await compactor.compact(own)
        assert len(node.shard.partition("t", 0).log.segments) == 4
        assert not [one for one in disk.listdir(own._partition.log.directory) if one.endswith(".tmp")]


@pytest.mark.parametrize(("policy", "count"), [("compact", 0), ("compact,delete", 0), ("delete", 3)])
async def test_a_compacted_topic_is_not_tiered_and_one_that_is_no_longer_compacted_is(policy, count):
    clock, table = HandClock(), Table()
    async with inline_node(RecordingDisk(clock), clock) as node:
        await three_segments(node, table)
        await node.shard.alter_topic("t", {"cleanup_policy": policy})
        assert len(local_log(node.shard.partition("t", 0), 0).sealed) == count


@pytest.mark.parametrize(("policy", "expected"), [("compact", None), ("compact,delete", 60_000), ("delete", 60_000)])
async def test_the_store_keeps_what_only_it_has_of_a_topic_without_a_limit_of_age(policy, expected):
    clock = HandClock()
    async with inline_node(RecordingDisk(clock), clock) as node:
        await node.shard.create_topic("t", 1, 1, {"cleanup_policy": policy, "retention_ms": 60_000})
        assert local_log(node.shard.partition("t", 0), 0).retention_ms == expected


async def test_a_log_whose_checksum_was_lost_is_compacted_again():
    """A kill between the swap and the new checksum leaves a segment without one."""
    clock, table = HandClock(), Table()
    disk = RecordingDisk(clock)
    async with inline_node(disk, clock) as node:
        await node.shard.create_topic("t", 1, 1, SETTINGS)
        for value in (b"1", b"2"):
            await table.send(node, [(b"a", value)])
            await table.seal(node)
        partition = node.shard.partition("t", 0)
        for segment in partition.log.segments[:-1]:
            disk.unlink(segment.file(paths.CHECKSUM))
        for _ in range(3):  # one checksum a look
            await table.compact(node, disk)
        assert [one.offset for one in await table.check(node)] == [1]


async def test_a_scrub_of_the_new_file_does_not_damage_the_old_segment():
    """The scrubber has listed the old segment and reads its name while the files are swapped."""
    clock, table = HandClock(), Table()
    disk = RecordingDisk(clock)
    async with inline_node(disk, clock) as node:
        await node.shard.create_topic("t", 1, 1, SETTINGS)
        for value in (b"1", b"2"):
            await table.send(node, [(b"a", value)])
        await table.seal(node)
        partition = node.shard.partition("t", 0)
        (file,) = sealed_files(partition)
        reports = []

        def swapped(*args):
            swap(*args)
            finding = Finding(file.size_bytes, (Damage(file.base_offset, file.end_offset, 0, file.size_bytes),))
            reports.append(asyncio.ensure_future(node.shard.quarantine.record(partition, file, finding)))

        swap = swapping._swap
        with mock.patch.object(swapping, "_swap", swapped):
            await table.compact(node, disk)
        assert [await one for one in reports] == [False]
        assert not any(segment.damage for segment in partition.log.segments)
        assert [one.offset for one in await table.check(node)] == [1]
