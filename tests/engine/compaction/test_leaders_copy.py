"""A leader's copy takes the place of a damaged segment: a crash at any operation leaves one of the two, and no lie."""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random

import pytest

from engine.cleaning.segment_check import examine, sealed_file
from engine.compaction.leaders_copy import LeadersCopy
from engine.format import paths
from engine.format.checksum import at_once, checksum_of
from engine.log.segment_swap import new_file_path
from engine.runtime.disk import read_file
from engine.testing.faulty_disk import FaultyDisk, Rule
from engine.testing.recording_disk import RecordingDisk
from tests.engine.compaction.table import SETTINGS, Table
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import InlineNode, inline_node
from tests.engine.crash.power_loss import THIRDS, telling, until_power_is_lost

SUPERSEDED = b"old " * 100


class Repair:
    """A cleanly stopped node whose compacted segment is damaged, and what a leader has that has not compacted yet."""

    async def begin(self) -> Repair:
        self.clock, self.table = HandClock(), Table()
        disk = RecordingDisk(self.clock)
        async with inline_node(disk, self.clock) as node:
            await node.shard.create_topic("t", 1, 1, SETTINGS)
            for a, b in ((SUPERSEDED, b"1"), (b"2", None)):
                await self.table.send(node, [(b"a", a), (b"b", b)])
            await self.table.seal(node)
            (segment,) = node.shard.partition("t", 0).log.segments[:-1]
            self.path, self.leaders = segment.path, read_file(disk, segment.path)
            await self.table.compact(node, disk)
            await self.table.send(node, [(b"c", b"3")])
        self.disk = disk.snapshot()
        good = read_file(self.disk, self.path)
        assert len(good) < len(self.leaders)
        self.bad = bytes([*good[:-1], good[-1] ^ 1])
        handle = self.disk.open(self.path, writable=True)
        self.disk.pwritev(handle, [self.bad], 0)
        self.disk.fdatasync(handle)
        self.disk.close(handle)
        return self

    async def find_damage(self, node: InlineNode, disk) -> None:
        partition = node.shard.partition("t", 0)
        file = sealed_file(partition.log.segments[0])
        assert await node.shard.quarantine.record(partition, file, examine(disk, file, at_once))

    async def repair(self, node: InlineNode, disk, superseded_below: int = 0) -> bool:
        partition, swapper = node.shard.partition("t", 0), node.shard.segment_swapper
        segment = partition.log.segments[0]
        cuts = await swapper.begin_copy(partition, segment)
        path = new_file_path(partition.log.directory, 0, paths.REPAIRED)
        handle = disk.open(path, create=True, writable=True)
        disk.pwritev(handle, [self.leaders], 0)
        disk.fdatasync(handle)
        disk.close(handle)
        copy = LeadersCopy(segment, checksum_of(disk, path), cuts, superseded_below)
        return await swapper.replace_damaged(partition, copy)

    async def live(self, disk) -> None:
        """Find the damage and repair it; ends without a stop."""
        self.is_found = self.is_repaired = False
        async with inline_node(disk, self.clock) as node:
            node.kill()
            await self.find_damage(node, disk)
            self.is_found = True
            self.is_repaired = await self.repair(node, disk)
            await self.table.check(node)

    async def check(self, disk) -> None:
        """Judge a state after a crash: what is read is right, and so is the log once it is compacted again."""
        assert read_file(disk, self.path) in (self.bad, self.leaders)
        async with inline_node(disk, self.clock) as node:
            data = read_file(disk, self.path)  # the start has completed a swap
            segment = node.shard.partition("t", 0).log.segments[0]
            assert bool(segment.damage) == (data == self.bad) or not self.is_found
            assert data == self.leaders or not self.is_repaired
            if data == self.bad:
                await self.find_damage(node, disk)
                assert await self.repair(node, disk)
            await self.table.check(node)
            await self.find_damage(node, disk)  # finds none
            await self.compacts(node, disk)

    async def compacts(self, node: InlineNode, disk) -> None:
        """The superseded record, which is back, goes before the tombstone of the other key does."""
        await self.table.seal(node)
        for _ in range(4):
            await self.table.compact(node, disk)
            self.clock.pass_ms(2000)
        assert [one.key for one in await self.table.check(node)] == [b"a", b"c"]
        left = disk.listdir(node.shard.partition("t", 0).log.directory)
        assert not [one for one in left if one.endswith((paths.SWAP, paths.TEMPORARY, paths.QUARANTINE))]


@pytest.fixture
async def damaged() -> Repair:
    return await Repair().begin()


@pytest.mark.parametrize("first", THIRDS)
async def test_a_power_loss_at_any_operation_leaves_the_damaged_segment_or_the_copy(damaged, first):
    await damaged.live(counted := damaged.disk.snapshot())
    assert damaged.is_repaired
    for n in range(first, counted.operations + 1, 3):
        disk = damaged.disk.snapshot()
        disk.lose_power_after(n)
        with until_power_is_lost(disk):
            await damaged.live(disk)
        for number, state in enumerate([disk.snapshot(), *disk.crash_states(3, Random(n))]):
            with telling(f"operation {n}, state {number}: {state!r}"):
                await damaged.check(state)


FAULTS = [
    Rule("rename", ".repaired.tmp", error=errno.EIO),
    Rule("set_modified", ".repaired.tmp", error=errno.EIO),
    Rule("pwritev", ".swap", error=errno.ENOSPC),
    *(Rule("unlink", suffix, error=errno.EIO) for suffix in (".checksum", ".index", ".quarantine", ".swap")),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: f"{one.operation}-{one.path}")
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_failing_disk_leaves_a_segment_that_is_known_to_be_damaged_or_good(damaged, fault, is_restarted):
    recording = damaged.disk.snapshot()
    disk = FaultyDisk(recording)
    async with inline_node(disk, damaged.clock) as node:
        await damaged.find_damage(node, disk)
        disk.rules.append(Rule(fault.operation, fault.path, error=fault.error))
        with suppress(OSError):
            await damaged.repair(node, disk)
        assert disk.faults == 1
        disk.rules.clear()
        damaged.is_found, damaged.is_repaired = True, False
        if not is_restarted:
            if node.shard.partition("t", 0).log.segments[0].damage:
                assert await damaged.repair(node, disk)
            await damaged.table.check(node)
            await damaged.compacts(node, disk)
    if is_restarted:
        await damaged.check(recording.snapshot())


@pytest.mark.parametrize("change", ["a later record is missing", "truncated", "repaired otherwise"])
async def test_a_copy_that_does_not_fit_the_log_any_more_is_dropped(damaged, change):
    disk = damaged.disk.snapshot()
    async with inline_node(disk, damaged.clock) as node:
        await damaged.find_damage(node, disk)
        partition = node.shard.partition("t", 0)
        begin_copy = node.shard.segment_swapper.begin_copy

        async def then_changed(*args) -> int:
            cuts = await begin_copy(*args)
            if change == "truncated":
                await node.shard.truncate(partition, 4)
            elif change == "repaired otherwise":
                partition.log.segments[0].damage = ()
            return cuts

        node.shard.segment_swapper.begin_copy = then_changed
        missing = 1 if change == "a later record is missing" else 0
        assert not await damaged.repair(node, disk, partition.high_watermark + missing)
        assert read_file(disk, damaged.path) == damaged.bad
        assert not [one for one in disk.listdir(partition.log.directory) if one.endswith(paths.TEMPORARY)]
