"""Tests of the tests: the stories must detect an engine that breaks one promise of durability.

Each mutant omits one thing that the engine does to survive a power loss.
"""

from random import Random
from unittest import mock

import pytest

from engine.cleaning import log_start as trimming
from engine.directory import topics
from engine.directory.log_directory_manager import LogDirectoryManager
from engine.log import recovery
from engine.log.recovery import Checkpoint
from engine.partition import writer
from engine.runtime.disk import write_fully
from engine.testing.recorded_file import PAGE_BYTES
from tests.engine.crash import stories
from tests.engine.crash.power_loss import check_states, crash_points, play


def sync_nothing(disk, work):
    """fdatasync is not called, and acks are sent regardless."""


def sync_no_directory(disk, work, sync=writer._sync):
    work.sync_directory = False
    return sync(disk, work)


def points_ahead_of_the_sync(self, _):
    return {self._key_of(one): Checkpoint(one.log_end, one.log.log_start) for one in self._partitions()}


def unlink_in_no_order(disk, segment):
    disk.unlink(segment.path)


def replace_without_sync(disk, path, data):
    handle = disk.open(path + ".tmp", create=True, writable=True)
    write_fully(disk, handle, data, 0)
    disk.close(handle)
    disk.rename(path + ".tmp", path)


def cut_without_sync(disk, segment, scan, rewrite_from):
    segment.close()
    handle = disk.open(segment.path, writable=True)
    disk.truncate(handle, scan.valid_bytes)
    disk.close(handle)
    segment.size_bytes, segment.next_offset = scan.valid_bytes, scan.next_offset
    segment.set_index(scan.index)


async def rolls_without_snapshots(teller):
    """A snapshot's own sync of the directory would usually hide the bug."""
    with mock.patch("engine.cleaning.sealing.save_state"):
        await stories.rolls(teller)


MUTANTS = {
    "acks before the sync": (writer, "_sync", sync_nothing, stories.appends),
    "a new segment's directory is not synced": (writer, "_sync", sync_no_directory, rolls_without_snapshots),
    "recovery points ahead of the sync": (
        LogDirectoryManager,
        "_checkpoints_in",
        points_ahead_of_the_sync,
        stories.appends,
    ),
    "deletion in no order": (trimming, "remove_segment", unlink_in_no_order, stories.expiry),
    "topic.json replaced without sync": (topics, "write_without_room", replace_without_sync, stories.appends),
    "checksums not looked at": (recovery.record_batch, "has_valid_crc", lambda *_: True, stories.rolls),
}

SLOW_MUTANTS = {"a new segment's directory is not synced", "deletion in no order"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in SLOW_MUTANTS else ()) for name in MUTANTS]
)
async def test_a_broken_engine_is_caught(name):
    owner, attribute, mutant, steps = MUTANTS[name]
    with mock.patch.object(owner, attribute, mutant), pytest.raises(AssertionError):
        await tried(steps)


async def tried(steps) -> None:
    async for n, disk, teller in crash_points((steps,)):
        await check_states(disk, teller, f"operation {n}", limit=8)


@pytest.mark.slow
async def test_bytes_behind_a_cut_do_not_come_back():
    await tried_with_stale_bytes()


@pytest.mark.slow
async def test_a_cut_that_is_not_synced_is_caught():
    with mock.patch.object(recovery, "_cut", cut_without_sync), pytest.raises(AssertionError):
        await tried_with_stale_bytes()


async def tried_with_stale_bytes() -> None:
    """One life leaves a torn second batch and a whole third one; the next life overwrites the second one."""
    disk, teller = await play((stories.whole_pages,))
    for state in disk.crash_states(400, Random(1)):
        survivor, log = teller.fork(), log_bytes(state)
        await survivor.check(state, go_on=True)
        if len(survivor.ledgers["t", 0].sent) == 1 and all(map(any, pages(log)[4:])):
            await survivor.life(next_life := state.snapshot(), stories.whole_pages)
            await check_states(next_life, survivor, "the next life", limit=1000)
            return
    raise LookupError("no state has a torn batch before a whole one")


def pages(log: bytes) -> list[bytes]:
    return [log[at : at + PAGE_BYTES].ljust(PAGE_BYTES, b"\0") for at in range(0, 6 * PAGE_BYTES, PAGE_BYTES)]


def log_bytes(disk) -> bytes:
    return b"".join(bytes(file.visible) for path, file in disk._tree.files() if path.endswith(".log"))
