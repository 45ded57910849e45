"""The epoch of a partition's leader never decreases, through retention, rolls and restarts."""

import pytest

from engine.format import batch as record_batch
from engine.format import paths
from engine.log.epochs import EpochStart
from engine.log.leader_epochs import can_only_be_0, load_epochs, save_epochs, start_epoch
from engine.runtime.disk import read_file
from engine.testing.recording_disk import RecordingDisk
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import inline_node


async def life(disk: RecordingDisk, *, epoch: int | None, kill: bool, appends: int = 0) -> int:
    async with inline_node(disk, HandClock()) as node:
        if "t" not in node.shard.topics:
            await node.shard.create_topic("t", 1, 1, {})
        partition = node.shard.partition("t", 0)
        found = partition.log.leader_epoch
        if epoch is not None:
            start_epoch(partition.log, epoch)
        for _ in range(appends):
            await node.leaders["t", 0].produce(record_batch.encode_values([b"1"], 5), Acks.ALL, 5000)
        await node.shard.roll_topic("t")
        await node.idle()
        node.checkpoint()
        if kill:
            node.kill()
        return found


async def test_an_epoch_is_kept_when_no_scanned_segment_has_a_batch():
    for kill in (True, False):
        disk = RecordingDisk()
        assert await life(disk, epoch=3, kill=kill, appends=2) == 0
        assert await life(disk.snapshot(), epoch=None, kill=True) == 3


async def test_epoch_0_begins_where_the_log_does_when_no_scanned_segment_has_a_batch():
    """A formerly standalone node leads in a cluster: its followers diverge from it where a later epoch begins."""
    for kill in (True, False):
        disk = RecordingDisk()
        await life(disk, epoch=None, kill=kill, appends=2)
        async with inline_node(disk.snapshot(), HandClock()) as node:
            assert node.shard.partition("t", 0).log.epochs == [EpochStart(0, 0)]


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped"])
@pytest.mark.parametrize("begin", [0, 10], ids=["cut back", "reset"])
async def test_epoch_0_begins_where_the_log_does_after_it_has_been_emptied(begin, kill):
    """The file exists and names no epoch. A leader that does not know epoch 0 would make its followers reset."""
    disk = RecordingDisk()
    await life(disk, epoch=None, kill=False, appends=2)
    disk = disk.snapshot()
    async with inline_node(disk, HandClock()) as node:
        partition = node.shard.partition("t", 0)
        node.hooks.follow(partition)  # it follows
        await (node.shard.reset_log(partition, begin, begin) if begin else node.shard.truncate(partition, 0))
        assert has_file_without_rows(disk, partition.log.directory)
        record_batch.stamp(copy := record_batch.encode_values([b"1"], 5), begin, 0)
        await node.shard.committer.append_as_follower(partition, bytes(copy), wants_sync=True)
        partition.watermark.advance(partition.log_end)
        await node.shard.roll_topic("t")
        await node.idle()
        node.checkpoint()
        assert has_file_without_rows(disk, partition.log.directory)
        if kill:
            node.kill()
    async with inline_node(disk.snapshot(), HandClock()) as node:
        log = node.shard.partition("t", 0).log
        assert (log.epochs, log.log_end) == ([EpochStart(0, begin)], begin + 1)


def has_file_without_rows(disk: RecordingDisk, directory: str) -> bool:
    return b"\n0\n" in (read_file(disk, f"{directory}/{paths.LEADER_EPOCHS}") or b"")


def test_a_file_in_doubt_does_not_say_that_the_epoch_can_only_be_0():
    disk = RecordingDisk()
    disk.mkdir("/p")
    assert can_only_be_0(disk, "/p")
    for epochs in ([], [EpochStart(1, 0)]):
        save_epochs(disk, "/p", epochs)
        assert can_only_be_0(disk, "/p") == (not epochs)
        disk.pwritev(disk.open(f"/p/{paths.LEADER_EPOCHS}", writable=True), [b"?"], 0)
        assert not can_only_be_0(disk, "/p")


async def test_without_the_file_epochs_come_from_the_batches():
    disk = RecordingDisk()
    async with inline_node(disk, HandClock()) as node:
        await node.shard.create_topic("t", 1, 1, {})
        node.shard.partition("t", 0).log.leader_epoch = 5
        await node.leaders["t", 0].produce(record_batch.encode_values([b"1"], 5), Acks.ALL, 5000)
        directory = node.shard.partition("t", 0).log.directory
        node.kill()
    disk = disk.snapshot()
    assert await life(disk, epoch=None, kill=True) == 5
    assert load_epochs(disk, directory) == [EpochStart(5, 0)], "epochs from the batches are kept"


def test_a_file_in_doubt_is_no_evidence():
    disk = RecordingDisk()
    disk.mkdir("/p")
    save_epochs(disk, "/p", [EpochStart(1, 0), EpochStart(4, 118)])
    path = f"/p/{paths.LEADER_EPOCHS}"
    data = read_file(disk, path)
    assert load_epochs(disk, "/p") == [(1, 0), (4, 118)]
    handle = disk.open(path, writable=True)
    for at in range(len(data)):
        disk.pwritev(handle, [bytes([data[at] ^ 1])], at)
        assert load_epochs(disk, "/p") == [], f"byte {at}"
        disk.pwritev(handle, [data[at : at + 1]], at)
