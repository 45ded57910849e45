"""Several data directories: the placement and discovery of partitions; a failing directory affects only its own."""

import asyncio
import errno
import fcntl
import json
import logging
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from engine.directory.data_directory import require_format
from engine.directory.log_directories import open_data_directories
from engine.directory.placement import Placed, PlannedMove, Room, assign_directories, plan_moves
from engine.errors import EngineError, StartRefused, Unreachable
from engine.format import batch
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import Rule
from replication.replica.acks import Acks
from tests.engine.conftest import running_node
from tests.engine.data_directory_lives import PARTITIONS, Lives, append, ends, make


@pytest.fixture
def lives(tmp_path, clock) -> Lives:
    return Lives(tmp_path, clock)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_new_partition_goes_where_the_most_bytes_are_free_for_each_partition():
    assert assign_directories(4, {"": 0, "x": 0}, {"": 8, "x": 8}) == ["", "x", "", "x"]
    assert assign_directories(4, {"": 0, "x": 0}, {"": 4, "x": 9}) == ["x", "x", "", "x"]
    assert assign_directories(2, {"": 0, "x": 9}, {"": 0, "x": 9}) == ["x", "x"], "a full disk gets none"
    assert assign_directories(2, {"": 1, "x": 1}, {}) == ["", "x"]


def test_moves_are_planned_by_free_bytes_and_end_before_they_overshoot():
    rooms = {"/a": Room(10, 100), "/b": Room(90, 100), "/c": Room(50, 100)}
    placed = [Placed("t", number, "/a", size) for number, size in enumerate((41, 30, 8, 5))]
    assert plan_moves(rooms, placed, 10) == [PlannedMove("t", 1, "/a", "/b", 30), PlannedMove("t", 2, "/a", "/b", 8)]
    assert plan_moves(rooms, placed, 25) == [PlannedMove("t", 1, "/a", "/b", 30)]
    assert plan_moves(rooms, [], 10) == plan_moves({"/a": Room(1, 9)}, placed, 1) == []
    same = {"/a": Room(10, 100), "/b": Room(10, 100), "/c": Room(20, 100)}
    assert [move.target for move in plan_moves(same, [Placed("t", 0, "/a", 5)], 1)] == ["/c"], "/b is on the disk of /a"


async def test_partitions_are_spread_and_found_again(lives):
    async with lives.life() as node:
        await make(node)
        first = lives.of(node, "a")
        assert (len(first), len(lives.of(node, "b"))) == (2, 2)
        await make(node, "single", 1)
        await make(node, "other", 1)
        assert len(lives.of(node, "a", "single") + lives.of(node, "a", "other")) == 1
    assert not (lives.path / "a" / "running").exists()
    assert not (lives.path / "b" / "running").exists()
    async with lives.life() as node:
        assert all(directory.was_clean for directory in node.shard.directories)
        assert lives.of(node, "a") == first
        assert ends(node) == dict.fromkeys(range(PARTITIONS), 1)
        await append(node)
        assert ends(node) == dict.fromkeys(range(PARTITIONS), 2)


async def test_a_second_directory_may_come_later_and_only_new_topics_use_it(lives):
    async with lives.life("a") as node:
        await make(node)
    meta, topic = (lives.path / "a" / "meta"), lives.home("a") / "topic.json"
    before = topic.read_bytes()
    assert json.loads(meta.read_text())["format"] == 1
    async with lives.life("a", "b") as node:
        assert ends(node) == dict.fromkeys(range(PARTITIONS), 1)
        await make(node, "new", 3)
        assert lives.of(node, "b", "new") == [0, 1, 2], "it has the fewest"
    assert topic.read_bytes() == before
    assert json.loads(meta.read_text())["format"] == 2, "an older version must not empty directory b"


async def test_a_directory_of_a_standalone_node_is_refused_by_versions_without_shared_keys(lives):
    async with lives.life("a", "b") as node:
        for number, expected in ((3, 3), (1, 3)):
            require_format(node.shard.directories.first, number)
            meta = json.loads((lives.path / "a" / "meta").read_text())
            assert (meta["format"], len(meta["further"])) == (expected, 1)
    async with lives.life("a", "b", "c"):  # as a node of a cluster does, which requires no format
        meta = json.loads((lives.path / "a" / "meta").read_text())
        assert (meta["format"], len(meta["further"])) == (3, 2), "a further directory does not lower it"


async def test_one_directory_is_written_as_ever(lives):
    async with lives.life("a") as node:
        await make(node)
    assert json.loads((lives.path / "a" / "meta").read_text()).keys() == {"format", "cluster_id", "node_id"}
    described = json.loads((lives.home("a") / "topic.json").read_text())
    assert (described["format"], "elsewhere" in described) == (1, False)


async def test_a_directory_that_is_missing_takes_only_its_partitions(lives, caplog):
    async with lives.life() as node:
        await make(node)
    (lives.path / "b").rename(lives.path / "unplugged")
    async with lives.life() as node:
        lost = lives.of(node, "b")
        assert ends(node) == {n: None if n in lost else 1 for n in range(PARTITIONS)}
        assert lines(caplog) == ["a data directory is offline"]
        with pytest.raises(Unreachable, match=r"b is offline: .* is empty or missing"):
            await node.leaders["t", lost[0]].produce(batch.encode_values([b"x"], 5), Acks.ALL, 5000)
        await append(node)
        await make(node, "new", 2)
        assert lives.of(node, "a", "new") == [0, 1]
    assert not (lives.path / "b").exists(), "a mount point is left as it is"
    assert not (lives.path / "a" / "running").exists(), "the others stop cleanly"
    (lives.path / "unplugged").rename(lives.path / "b")
    async with lives.life() as node:
        assert ends(node) == {n: 1 if n in lost else 2 for n in range(PARTITIONS)}


async def test_an_empty_mount_point_is_no_new_directory(lives):
    async with lives.life() as node:
        await make(node)
    (lives.path / "b").rename(lives.path / "unplugged")
    (lives.path / "b").mkdir()
    async with lives.life() as node:
        assert None in ends(node).values()
    assert list((lives.path / "b").iterdir()) == []


async def test_a_directory_that_is_not_given_any_more_is_missed(lives, caplog):
    async with lives.life() as node:
        await make(node)
    async with lives.life("a") as node:
        assert sorted(map(str, ends(node).values())) == ["1", "1", "None", "None"]
    assert lines(caplog) == ["a data directory is offline"]
    async with lives.life("a", "c") as node:
        assert sorted(map(str, ends(node).values())) == ["1", "1", "None", "None"], "never made empty in the new one"
        assert not (lives.path / "c" / "topics").exists()
        await make(node, "new", 2)
        assert lives.of(node, "c", "new") == [0, 1]


@pytest.mark.parametrize(
    "damage", ["locked", "another cluster", "another node", "a file", "strangers", "newer", "first"]
)
async def test_a_directory_that_cannot_be_had_takes_only_its_partitions(lives, caplog, damage):
    async with lives.life() as node:
        await make(node)
    b = lives.path / "b"
    meta = json.loads((b / "meta").read_text())
    handle = None
    if damage == "locked":
        handle = os.open(b / "lock", os.O_RDWR)
        fcntl.flock(handle, fcntl.LOCK_EX)
    elif damage == "a file":
        shutil.rmtree(b)
        b.write_text("")
    elif damage == "strangers":
        (b / "meta").unlink()
    else:
        changed = {"another cluster": {"cluster_id": "x"}, "another node": {"node_id": 9}, "newer": {"format": 4}}
        meta |= changed.get(damage, {})
        if damage == "first":
            del meta["directory_id"]
        (b / "meta").write_text(json.dumps(meta))
    try:
        async with lives.life() as node:
            assert sorted(map(str, ends(node).values())) == ["1", "1", "None", "None"]
            assert lines(caplog) == ["a data directory is offline"]
            await make(node, "new", 2)
            assert lives.of(node, "a", "new") == [0, 1]
    finally:
        if handle is not None:
            os.close(handle)


async def test_a_further_directory_is_refused_as_the_first(lives):
    async with lives.life() as node:
        await make(node)
    before = sorted(map(str, (lives.path / "b").rglob("*")))
    with pytest.raises(StartRefused, match="further data directory"):
        open_data_directories(
            RealDisk(), [str(lives.path / "b")], node_id=1, cluster_id=None, boot_id="boot", new_id=iter("xyz").__next__
        )
    assert sorted(map(str, (lives.path / "b").rglob("*"))) == before
    async with lives.life() as node:  # no lock was left behind
        assert None not in ends(node).values()


async def test_a_partition_that_was_moved_is_found_and_scanned(lives):
    async with lives.life() as node:
        await make(node)
        (number, *_) = lives.of(node, "b")
    shutil.move(lives.home("b") / str(number), lives.home("a") / str(number))
    async with lives.life() as node:
        assert number in lives.of(node, "a")
        assert ends(node) == dict.fromkeys(range(PARTITIONS), 1)
        assert node.shard.recovered.scanned_bytes > 0, "the copy may not have been synced"
        await append(node)
    (lives.path / "b").rename(lives.path / "unplugged")
    async with lives.life() as node:
        assert ends(node)[number] == 2, "the move was written down"


async def test_an_old_copy_does_not_pass_for_a_partition_whose_directory_is_away(lives):
    async with lives.life() as node:
        await make(node)
        (number, *_) = lives.of(node, "b")
        shutil.copytree(lives.home("b") / str(number), lives.path / "copy")
        await append(node)
    (lives.path / "b").rename(lives.path / "unplugged")
    shutil.move(lives.path / "copy", lives.home("a") / str(number))
    async with lives.life() as node:
        assert ends(node)[number] is None
    (lives.path / "unplugged").rename(lives.path / "b")
    async with lives.life() as node:
        offline = node.shard.partition("t", number).offline
        assert isinstance(offline, Unreachable)
        assert " is in " in str(offline)
        assert str(lives.path / "a") in str(offline)
        assert str(lives.path / "b") in str(offline)
    shutil.rmtree(lives.home("a") / str(number))
    async with lives.life() as node:
        assert ends(node) == dict.fromkeys(range(PARTITIONS), 2)


@pytest.mark.parametrize("name", ["a", "b"])
async def test_a_partition_that_is_nowhere_is_never_made_empty(lives, name, caplog):
    async with lives.life() as node:
        await make(node)
        (number, *_) = lives.of(node, name)
    shutil.rmtree(lives.home(name) / str(number))
    for _ in range(2):
        async with lives.life() as node:
            assert ends(node) == {n: None if n == number else 1 for n in range(PARTITIONS)}
            assert f"it was in {lives.path / name}" in str(node.shard.partition("t", number).offline)
        assert not (lives.home(name) / str(number)).exists()
        assert not (lives.path / name / "running").exists(), "no reason to scan the others"
    async with lives.life() as node:
        await node.shard.delete_topic("t")
        await make(node)
        assert None not in ends(node).values()


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS], ids=errno.errorcode.get)
@pytest.mark.parametrize("operation", ["pwritev", "fdatasync"])
@pytest.mark.parametrize("name", ["a", "b"])
async def test_a_disk_that_fails_takes_its_directory_offline_once_and_no_other(lives, caplog, name, operation, error):
    async with lives.life() as node:
        await make(node)
        lost, kept = lives.of(node, name), lives.of(node, "ab".replace(name, ""))
        lives.disk.rules.append(Rule(operation, str(lives.path / name / "topics"), error=error, times=None))
        with pytest.raises(EngineError):
            await node.leaders["t", lost[0]].produce(batch.encode_values([b"x"], 5), Acks.ALL, 5000)
        assert all(isinstance(node.shard.partition("t", n).offline, Unreachable) for n in lost)
        assert [node.shard.partition("t", n).offline for n in kept] == [None, None]
        assert lines(caplog) == ["a data directory is offline"]
        await append(node)
        assert [ends(node)[n] for n in kept] == [2, 2]
        with pytest.raises(Unreachable):
            await node.leaders["t", lost[1]].produce(batch.encode_values([b"x"], 5), Acks.ALL, 5000)
        if name == "b":
            await make(node, "new", 2)
            assert lives.of(node, "a", "new") == [0, 1]
    assert (lives.path / name / "running").exists(), "to be scanned"
    assert not (lives.path / "ab".replace(name, "") / "running").exists()
    async with lives.life() as node:
        found = ends(node)
        assert [found[n] for n in kept] == [2, 2]
        assert found[lost[1]] == 1
        assert found[lost[0]] in (1, 2)


async def test_recovery_points_that_cannot_be_saved_stop_only_their_directory(lives, caplog):
    async with lives.life() as node:
        await make(node)
        lives.disk.rules.append(Rule("fdatasync", str(lives.path / "b" / "recovery-points"), error=errno.EIO))
        await node.shard.log_manager.save_checkpoints()
        assert all(node.shard.partition("t", n).offline for n in lives.of(node, "b"))
        assert all(node.shard.partition("t", n).offline is None for n in lives.of(node, "a"))
        assert lines(caplog) == ["a data directory is offline"]
        await node.shard.log_manager.save_checkpoints()
    assert (lives.path / "a" / "recovery-points").exists()


async def test_a_full_disk_for_recovery_points_is_logged_once(lives, caplog):
    async with lives.life() as node:
        await make(node)
        for name in ("recovery-points", "spare"):
            lives.disk.rules.append(Rule("fdatasync", str(lives.path / "b" / name), error=errno.ENOSPC, times=None))
        for _ in range(3):
            await node.shard.log_manager.save_checkpoints()
        assert [line.message for line in caplog.records].count("checkpoint failed") == 1
        lives.disk.rules.clear()
        await node.shard.log_manager.save_checkpoints()
        await append(node)  # or there is nothing new to save
        for name in ("recovery-points", "spare"):
            lives.disk.rules.append(Rule("fdatasync", str(lives.path / "b" / name), error=errno.ENOSPC))
        await node.shard.log_manager.save_checkpoints()
        assert [line.message for line in caplog.records].count("checkpoint failed") == 2


@pytest.mark.parametrize("operation", ["mkdir", "fsync_dir"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
async def test_a_topic_is_made_in_the_directories_that_take_it(lives, operation, error):
    async with lives.life() as node:
        lives.disk.rules.append(Rule(operation, str(lives.path / "b" / "topics"), first=2, error=error))
        await make(node)
        assert ends(node) == dict.fromkeys(range(PARTITIONS), 1)
        assert lives.of(node, "a") == list(range(PARTITIONS))
        assert bool(node.shard.directories.additional[0].fault) == (error == errno.EIO), (
            "a full disk is not a broken one"
        )
        await make(node, "next", 1)
    async with lives.life() as node:
        assert ends(node) == dict.fromkeys(range(PARTITIONS), 1)
        assert set(os.listdir(lives.path / "b" / "topics")) <= {"next"}, "nothing is left of the first try"


async def test_deleting_a_topic_is_finished_when_its_other_directory_is_back(lives):
    async with lives.life() as node:
        await make(node)
    (lives.path / "b").rename(lives.path / "unplugged")
    async with lives.life() as node:
        await node.shard.delete_topic("t")
        (deleted,) = (lives.path / "a" / "topics" / "t").glob("*.deleted")
        assert list(deleted.iterdir()) == [], "its bytes are freed, only its name is needed"
        await make(node)
    async with lives.life() as node:
        assert deleted.exists()
    (lives.path / "unplugged").rename(lives.path / "b")
    assert list((lives.path / "b" / "topics" / "t").iterdir())
    async with lives.life() as node:
        assert ends(node) == dict.fromkeys(range(PARTITIONS), 1)
        assert lives.of(node, "a") == list(range(PARTITIONS))
    assert not (lives.path / "b" / "topics" / "t").exists()
    assert [one.name.endswith(".deleted") for one in (lives.path / "a" / "topics" / "t").iterdir()] == [False]


async def test_records_of_a_topic_that_the_first_directory_does_not_know_are_kept_and_logged(lives, caplog):
    async with lives.life() as node:
        await make(node)
    home = lives.home("b")
    shutil.rmtree(lives.path / "a" / "topics" / "t")  # as if an older copy of the first directory had been restored
    before = sorted(map(str, home.rglob("*.log")))
    assert before
    async with lives.life() as node:
        assert not node.shard.topics
    assert sorted(map(str, home.rglob("*.log"))) == before
    assert "a topic that is missing in the first data directory" in caplog.text


async def test_a_real_file_system_that_is_shut_down_while_the_node_runs(tmp_path, clock, caplog, small_file_system):
    """ext4 stops accepting writes, as when its device fails; the next start finds it read-only."""
    first, further = tmp_path / "a", small_file_system / "penstock"
    async with running_node(first, clock, RealDisk(), [further]) as node:
        await make(node)
        assert not [n for n, p in node.shard.topics["t"].partitions.items() if str(further) in p.log.directory]
        lost = [1, 3]
        for number in lost:  # by themselves they go where most bytes are free
            topic_id = node.shard.topics["t"].record.topic_id
            node.shard.moves.start(node.shard.partition("t", number), topic_id, str(further))
        while node.shard.moves.statuses():
            await asyncio.sleep(0.01)
        remount(small_file_system, "abort")
        with pytest.raises(EngineError):
            await node.leaders["t", lost[0]].produce(batch.encode_values([b"x"], 5), Acks.ALL, 5000)
        expected = {n: None if n in lost else 1 for n in range(PARTITIONS)}
        assert ends(node) == expected
        await make(node, "new", 2)
        assert ends(node, "new") == {0: 1, 1: 1}
        assert lines(caplog) == ["a data directory is offline"]
    assert not (first / "running").exists()
    async with running_node(first, clock, RealDisk(), [further], iter("xyz")) as node:
        assert ends(node) == expected
        assert "Read-only file system" in str(node.shard.partition("t", lost[0]).offline)


def remount(path: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", path], check=True, capture_output=True, timeout=60)
