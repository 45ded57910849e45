"""Partitions move between the data directories of a running node: what they meet on the way, and what is left."""

import asyncio
import errno
import shutil

import pytest

from engine.errors import EngineError, Invalid, StorageFull, UnknownTopic
from engine.format import batch
from engine.partition.fence_checkpoint import save_fence_below
from engine.producers.fence_file import load_fence
from engine.producers.fencing import Fence
from engine.shard.directory_moves import RESERVE_BYTES, MoveState
from engine.shard.partition_copy import PartitionCopy
from engine.testing.faulty_disk import Rule
from replication.replica.acks import Acks
from tests.engine.data_directory_lives import Lives, append, ends, make


@pytest.fixture
def lives(tmp_path, clock) -> Lives:
    return Lives(tmp_path, clock)


def other(lives: Lives, node, number: int = 0) -> str:
    """Return the directory that does not have the partition."""
    return str(lives.path / ("b" if number in lives.of(node, "a") else "a"))


def start(node, number: int, path: str) -> None:
    node.shard.moves.start(node.shard.partition("t", number), node.shard.topics["t"].record.topic_id, path)


async def ended(node) -> None:
    await node.shard.moves._background.wait_ended()


async def begun(node) -> None:
    """Return once the first move copies."""
    while node.shard.moves.statuses()[0].state is MoveState.WAITING:
        await asyncio.sleep(0.001)


async def values(node, number: int = 0) -> list[int]:
    """Return the offsets of all readable records, read again from the disk."""
    partition, offset = node.shard.partition("t", number), 0
    partition.log.forget_recent()
    while chunk := await node.shard.reader.read(partition, offset, 1):
        offset = chunk.next_offset
    return list(range(offset))


async def fill(node, number: int, records: int) -> None:
    for _ in range(records):
        await node.leaders["t", number].produce(batch.encode_values([b"x" * 900_000], 5), Acks.ALL, 5000)


def move_directories(lives: Lives) -> list[str]:
    return [path.name for path in lives.path.glob("*/topics/t/*/*.*.*")]


async def test_every_partition_moves_while_it_is_written_and_is_found_there_again(lives):
    async with lives.life() as node:
        await make(node)
        places = {number: other(lives, node, number) for number in range(4)}
        for number, path in places.items():
            start(node, number, path)
            start(node, number, path)  # again: no-op
        assert [status.state for status in node.shard.moves.statuses()] == [MoveState.WAITING] * 4
        writing = asyncio.ensure_future(append(node))
        await ended(node)
        await writing
        await append(node)
        assert node.shard.moves.statuses() == []
        assert {
            number: node.shard.log_manager.directory_of(p).path
            for number, p in node.shard.topics["t"].partitions.items()
        } == places
        assert ends(node) == dict.fromkeys(range(4), 3)
    assert move_directories(lives) == []
    async with lives.life() as node:
        assert all(directory.was_clean for directory in node.shard.directories)
        assert {
            n: node.shard.log_manager.directory_of(p).path for n, p in node.shard.topics["t"].partitions.items()
        } == places
        assert await values(node) == [0, 1, 2]
    shutil.move(lives.path / "b", lives.path / "gone")
    async with lives.life() as node:
        away = {number for number, path in places.items() if path.endswith("/b")}
        assert {number for number, end in ends(node).items() if end is None} == away, "their new place was recorded"


async def test_reads_in_progress_and_waits_survive_a_move(lives):
    async with lives.life() as node:
        await make(node, partitions=1)
        await fill(node, 0, 3)
        partition = node.shard.partition("t", 0)
        await node.shard.roll_topic("t")
        release = partition.log.segments[0].begin_read()
        handle = partition.log.segments[0].handle
        waiting = partition.watermark.polls.wait_for(partition.log_end + 1)
        start(node, 0, other(lives, node))
        await ended(node)
        assert node.shard.disk.pread(handle, 61, 0)
        release()
        assert not waiting.done()
        await append(node)
        await waiting
        assert await values(node) == [0, 1, 2, 3, 4]


async def test_a_full_target_is_refused_and_a_target_that_fills_up_ends_the_move(lives, monkeypatch):
    async with lives.life() as node:
        await make(node, partitions=1)
        await fill(node, 0, 3)
        path, free = other(lives, node), RESERVE_BYTES
        real = node.shard.disk.free_bytes
        monkeypatch.setattr(node.shard.disk, "free_bytes", lambda at: free if at == path else real(at))
        with pytest.raises(StorageFull, match="bytes free"):
            start(node, 0, path)
        free = RESERVE_BYTES + 4_000_000
        start(node, 0, path)
        free = RESERVE_BYTES
        await ended(node)
        (status,) = node.shard.moves.statuses()
        assert (status.state, status.target) == (MoveState.FAILED, path)
        assert "bytes free" in status.error
        await append(node)
        assert await values(node) == [0, 1, 2, 3, 4]
        assert move_directories(lives) == []
        free = 1 << 40
        start(node, 0, path)
        await ended(node)
        assert node.shard.moves.statuses() == []
        assert node.shard.log_manager.directory_of(node.shard.partition("t", 0)).path == path


@pytest.mark.parametrize("operation", ["mkdir", "pwritev", "fdatasync", "fsync_dir", "rename"])
async def test_a_target_that_fails_goes_offline_and_the_partition_stays(lives, operation):
    async with lives.life() as node:
        await make(node, partitions=1)
        path = other(lives, node)
        lives.disk.rules.append(Rule(operation, ".future", times=None, error=errno.EIO))
        start(node, 0, path)
        await ended(node)
        assert "Input/output error" in node.shard.moves.statuses()[0].error
        assert [directory.path for directory in node.shard.directories if directory.fault] == [path]
        await append(node)
        assert await values(node) == [0, 1]
    async with lives.life() as node:
        assert await values(node) == [0, 1]
    assert move_directories(lives) == [], "the next start has removed the copy"


@pytest.mark.parametrize("operation", ["listdir", "rename"])
async def test_a_source_that_fails_takes_no_target_offline(lives, operation):
    async with lives.life() as node:
        await make(node, partitions=1)
        lives.disk.rules.append(Rule(operation, node.shard.partition("t", 0).log.directory, error=errno.EIO))
        start(node, 0, other(lives, node))
        await ended(node)
        assert "cannot be moved: " in node.shard.moves.statuses()[0].error
        assert not any(directory.fault for directory in node.shard.directories)
        await append(node)
        assert await values(node) == [0, 1]
    assert move_directories(lives) == []


async def test_a_target_without_room_for_the_positions_leaves_no_file_open(lives, monkeypatch):
    async with lives.life() as node:
        await make(node, partitions=1)
        path, opened, closed = other(lives, node), [], []
        target = next(directory for directory in node.shard.directories if directory.path == path)
        monkeypatch.setattr(target, "save_checkpoints", raise_full)
        real = node.shard.disk.close
        monkeypatch.setattr(node.shard.disk, "close", lambda handle: (closed.append(handle), real(handle)))
        finish = PartitionCopy.finish

        def finished(*args) -> int | None:
            opened.append(finish(*args))
            closed.clear()  # the number of a handle is used again
            return opened[-1]

        monkeypatch.setattr(PartitionCopy, "finish", finished)
        start(node, 0, path)
        await ended(node)
        assert "no space" in node.shard.moves.statuses()[0].error
        assert opened[0] in closed
        monkeypatch.undo()
        await append(node)
        assert await values(node) == [0, 1]


def raise_full(_) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_move_with_an_unknown_outcome_of_the_disk_is_completed_by_the_next_start(lives):
    async with lives.life() as node:
        await make(node, partitions=1)
        path, partition = other(lives, node), node.shard.partition("t", 0)
        renamed = []
        lives.disk.rules += [
            Rule("rename", partition.log.directory, act=renamed.append),
            Rule("fsync_dir", path + "/topics/t/", first=3, error=errno.EIO),  # that of the last rename
        ]
        start(node, 0, path)
        await ended(node)
        assert renamed
        assert "interrupted" in str(partition.offline) or "offline" in str(partition.offline)
        with pytest.raises(EngineError):
            await node.leaders["t", 0].produce(batch.encode_values([b"x"], 5), Acks.ALL, 5000)
    async with lives.life() as node:
        assert node.shard.log_manager.directory_of(node.shard.partition("t", 0)).path == path
        assert await values(node) == [0]
    assert move_directories(lives) == []


async def test_a_move_that_ends_by_a_bug_has_failed_and_the_next_one_goes_on(lives, monkeypatch):
    async with lives.life() as node:
        await make(node, partitions=2)
        monkeypatch.setattr(PartitionCopy, "prepare", lambda _: {}["bug"])
        start(node, 0, other(lives, node, 0))
        await ended(node)
        monkeypatch.undo()
        (status,) = node.shard.moves.statuses()
        assert (status.state, "KeyError" in status.error) == (MoveState.FAILED, True)
        start(node, 1, other(lives, node, 1))
        start(node, 0, other(lives, node, 0))
        await ended(node)
        assert (node.shard.moves.statuses(), await values(node)) == ([], [0])
    assert move_directories(lives) == []


async def test_a_topic_is_deleted_while_it_moves_and_made_again(lives):
    async with lives.life() as node:
        await make(node, partitions=1)
        await fill(node, 0, 2)
        node.shard.moves._thread._bytes_per_second = 1000  # far too slow to end
        start(node, 0, other(lives, node))
        deleted = node.shard.partition("t", 0)
        await begun(node)
        node.shard.moves._thread._bytes_per_second = 1 << 40
        await node.shard.delete_topic("t")
        assert isinstance(deleted.offline, UnknownTopic)
        assert node.shard.moves.statuses() == []
        await make(node, partitions=1)
        assert await values(node) == [0]
    assert move_directories(lives) == []


async def test_a_topic_whose_move_waits_is_deleted_while_an_earlier_move_goes_on(lives):
    async with lives.life() as node:
        await make(node, partitions=2)
        await fill(node, 0, 2)
        node.shard.moves._thread._bytes_per_second = 1000  # far too slow to end
        start(node, 0, other(lives, node, 0))
        start(node, 1, other(lives, node, 1))
        await begun(node)
        async with asyncio.timeout(30):
            await node.shard.moves.wait_ended(node.shard.partition("t", 1))
        assert [(status.partition, status.state) for status in node.shard.moves.statuses()] == [(0, MoveState.COPYING)]
        node.shard.moves._thread.end_pauses()
        await ended(node)


async def test_a_fencing_token_that_is_saved_during_a_move_is_in_the_new_directory(lives):
    async with lives.life() as node:
        await make(node, partitions=1)
        shard, partition = node.shard, node.shard.partition("t", 0)
        partition.validator.fencing.present = Fence("7", 0)
        async with partition.segments_lock:  # as the end of a move has it
            saving = asyncio.ensure_future(save_fence_below(shard.disk, shard.reader._executor, partition, 1))
            await asyncio.sleep(0.05)
            home, partition.log.directory = partition.log.directory, other(lives, node)
        await saving
        assert load_fence(shard.disk, partition.log.directory) == Fence("7", 0)
        partition.log.directory = home


async def test_a_move_is_cancelled_by_naming_the_present_directory(lives):
    async with lives.life() as node:
        await make(node, partitions=1)
        home, path = node.shard.log_manager.directory_of(node.shard.partition("t", 0)).path, other(lives, node)
        start(node, 0, path)
        start(node, 0, home)
        await ended(node)
        assert node.shard.log_manager.directory_of(node.shard.partition("t", 0)).path == home
        with pytest.raises(Invalid, match="not a data directory"):
            start(node, 0, "/nowhere")
        node.shard.partition("t", 0).go_offline(EngineError("broken"))
        with pytest.raises(EngineError, match="broken"):
            start(node, 0, path)
