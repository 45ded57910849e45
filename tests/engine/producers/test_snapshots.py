"""Snapshots: written at rolls and clean stops, used only if complete and within the log, and never required."""

import errno
from pathlib import Path
from unittest import mock

import pytest

from engine.cleaning.retention import Bounds
from engine.errors import SequenceGap
from engine.format import batch, paths
from engine.producers.appends import Appended
from engine.producers.snapshots import State, decode_state, encode_state, remembers, snapshot_offsets
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.replica.acks import Acks
from tests.engine.conftest import running_node

T = 1_700_000_000_000


async def send(node, sequence: int, count: int = 1, producer: int = 7) -> Appended:
    data = batch.encode_values([b"%d" % n for n in range(count)], T)
    batch.stamp_sequence(data, producer, 0, sequence)
    return await node.leaders["t", 0].produce(data, Acks.ALL, 5000)


def directory_of(node) -> Path:
    return Path(node.shard.partition("t", 0).log.directory)


def offsets_in(directory: Path) -> list[int]:
    return snapshot_offsets(RealDisk(), str(directory))


async def idle(node) -> None:
    await node.shard._background.wait_ended()


async def filled(node, batches: int = 20) -> Path:
    """Create a topic with one producer's batches of two records, and a roll in their middle."""
    await node.shard.create_topic("t", 1, 1, {})
    for n in range(batches):
        if n == batches // 2:
            await node.shard.roll_topic("t")
            await idle(node)
        await send(node, 2 * n, 2)
    return directory_of(node)


async def check_all_known(node, batches: int = 20) -> None:
    for n in range(batches - 16, batches):
        assert await send(node, 2 * n, 2) == Appended(2 * n, 2, T, is_duplicate=True)
    with pytest.raises(SequenceGap):
        await send(node, 2 * batches + 1)
    assert await send(node, 2 * batches) == Appended(2 * batches, 1)


async def test_nothing_is_walked_after_a_clean_stop(new_node, monkeypatch):
    async with new_node() as node:
        await filled(node)
    replayed = []
    monkeypatch.setattr("engine.producers.append_validator.AppendValidator.replay", lambda *of: replayed.append(of))
    async with new_node() as node:
        await check_all_known(node)
    assert replayed == []


@pytest.mark.parametrize("harm", ["gone", "cut short", "a bit turned", "empty", "another format", "another's"])
@pytest.mark.parametrize("which", [[40], [20, 40]])
async def test_a_snapshot_that_is_not_what_it_was_is_as_if_it_were_not_there(new_node, harm, which):
    async with new_node() as node:
        directory = await filled(node)
    for offset in which:
        file = directory / paths.segment_file(offset, paths.SNAPSHOT)
        data = bytearray(file.read_bytes())
        if harm == "gone":
            file.unlink()
            continue
        if harm == "a bit turned":
            data[-3] ^= 1
        elif harm == "another format":
            data = bytearray(encode_state(State(offset, decode_state(bytes(data), offset).producers)))
            data[4:6] = b"\0\2"
        elif harm == "another's":
            data = bytearray(encode_state(State(offset - 1)))
        file.write_bytes({"cut short": data[:-5], "empty": b""}.get(harm, data))
    async with new_node() as node:
        await check_all_known(node)


async def test_a_snapshot_beyond_the_end_of_the_log_goes_before_the_log_gets_there(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        await send(node, 0)
        directory = directory_of(node)
    (directory / paths.segment_file(1, paths.SNAPSHOT)).rename(directory / "kept")
    async with new_node() as node:
        await send(node, 1)
        await send(node, 2)
    log = directory / paths.segment_file(0, paths.LOG)
    log.write_bytes(log.read_bytes()[: len(log.read_bytes()) // 3])
    (directory.parents[3] / "running").write_text("another boot")
    (directory.parents[3] / paths.RECOVERY_POINTS).unlink()
    async with new_node() as node:
        assert node.shard.partition("t", 0).log_end == 1
        assert offsets_in(directory) == []
        assert await send(node, 1) == Appended(1, 1)


async def test_a_roll_within_a_group_has_the_state_of_the_offset_that_it_begins_at(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {"segment_bytes": 65536})
        leader, bodies = node.leaders["t", 0], []
        for n in range(6):
            data = batch.encode_values([bytes(20_000)], T)
            batch.stamp_sequence(data, 7, 0, n)
            bodies.append(leader.append(data, Acks.ALL))
        assert [(await one).base_offset for one in bodies] == list(range(6))
        await idle(node)
        directory = directory_of(node)
        (offset,) = offsets_in(directory)
        state = decode_state((directory / paths.segment_file(offset, paths.SNAPSHOT)).read_bytes(), offset)
    assert state is not None
    assert offset == 3
    assert state.producers[0][1].next_sequence == offset


async def test_a_snapshot_that_cannot_be_saved_costs_a_walk_and_nothing_else(new_node, monkeypatch, caplog):
    async with new_node() as node:

        def full(*_):
            raise OSError(28, "no space")

        with monkeypatch.context() as patch:
            patch.setattr("engine.cleaning.sealing.save_state", full)
            await filled(node)
        assert "state not saved" in caplog.messages
    async with new_node() as node:
        await check_all_known(node)


async def test_records_go_only_once_a_snapshot_remembers_their_producers(new_node, monkeypatch):
    async with new_node() as node:
        with monkeypatch.context() as patch:
            patch.setattr("engine.cleaning.sealing.save_state", lambda *_: None)
            await filled(node)
        partition = node.shard.partition("t", 0)
        assert not offsets_in(directory_of(node))
        end = partition.log.segments[-1].base_offset
        with monkeypatch.context() as patch:
            patch.setattr(
                "engine.cleaning.log_start.save_state", mock.Mock(side_effect=OSError(errno.EIO, "the disk fails"))
            )
            with pytest.raises(OSError, match="the disk fails"):
                await node.shard.advancer.advance(partition, Bounds(end, end))
        assert len(partition.log.segments) == 2
        await node.shard.advancer.advance(partition, Bounds(end, end))
        assert partition.log.local_log_start == end
        assert offsets_in(directory_of(node)) == [end]


async def test_a_snapshot_that_cannot_be_read_remembers_nothing(new_node):
    async with new_node() as node:
        directory = await filled(node)
        partition = node.shard.partition("t", 0)
        (directory / paths.segment_file(20, paths.SNAPSHOT)).write_bytes(b"")
        await node.shard.advancer.advance(partition, Bounds(20, 20))
        assert remembers(RealDisk(), str(directory), 20, 20)


async def test_what_remembers_what_is_committed_outlives_snapshots_of_what_is_cut_off(node):
    """An isolated leader rolls twice, deletes committed records, and then follows another leader."""
    await send(node, 0, 2)
    partition = node.shard.partition("t", 0)
    node.hooks.follow(partition)
    for n in range(3):
        if n:
            await node.shard.committer.append(partition, batch.encode_values([b"x"], T), wants_sync=True)
        await node.shard.roll_topic("t")
        await node.shard.sealer.wait_saved(partition)
    await node.shard.advancer.advance(partition, Bounds(2, 2))
    await node.shard.truncate(partition, 2)
    assert partition.log_end == partition.high_watermark == 2
    repeat = batch.encode_values([b"0", b"1"], T)
    batch.stamp_sequence(repeat, 7, 0, 0)
    found = await node.shard.committer.append(partition, repeat, wants_sync=False)
    assert (found.base_offset, found.is_duplicate) == (0, True)


async def test_a_snapshot_on_its_way_is_not_written_by_two(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", 1, 1, {})
        await send(node, 0, 2)
        disk.rules = [Rule("fdatasync", ".snapshot", delay_s=0.3)]
        await node.shard.delete_before(node.shard.partition("t", 0), 2)
        assert offsets_in(directory_of(node)) == [2]
    assert disk.count("fdatasync", ".snapshot") == 1


async def test_a_disk_too_full_for_a_snapshot_is_emptied_all_the_same(new_node, monkeypatch, caplog):
    async with new_node() as node:
        monkeypatch.setattr("engine.cleaning.sealing.save_state", lambda *_: None)
        monkeypatch.setattr(
            "engine.cleaning.log_start.save_state", mock.Mock(side_effect=OSError(errno.ENOSPC, "no space"))
        )
        await filled(node)
        partition = node.shard.partition("t", 0)
        end = partition.log.segments[-1].base_offset
        await node.shard.advancer.advance(partition, Bounds(end, end))
        assert partition.log.local_log_start == end
    assert "records are deleted before a snapshot contains their producers" in caplog.messages


async def test_without_a_snapshot_segments_that_are_too_old_to_matter_are_not_walked(new_node, clock):
    async with new_node() as node:
        directory = await filled(node)
    for offset in offsets_in(directory):
        (directory / paths.segment_file(offset, paths.SNAPSHOT)).unlink()
    RealDisk().set_modified(str(directory / paths.segment_file(0, paths.LOG)), clock.ms - 2 * 86_400_000)
    RealDisk().set_modified(str(directory / paths.segment_file(20, paths.LOG)), clock.ms)
    async with new_node() as node:
        assert await send(node, 20, 2) == Appended(20, 2, T, is_duplicate=True)
        with pytest.raises(SequenceGap):
            await send(node, 18, 2)
