"""A cluster node has some partitions of a topic, which come and go; a restart finds what was reported before."""

import asyncio
import errno
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from engine.directory.catalog import Catalog
from engine.directory.topic_directories import mark_moved_away
from engine.directory.topics import TopicRecord
from engine.errors import Corrupt
from engine.format import batch, paths
from engine.log.recovery import Checkpoint
from engine.shard.shard import Shard
from replication.replica.acks import Acks
from tests.engine.data_directory_lives import Lives, append, ends

RECORD = TopicRecord("t", "id-of-t", 6, 3, {"flush_ms": 7}, 5, hosted=(1, 3))


@pytest.fixture
def lives(tmp_path, clock) -> Lives:
    return Lives(tmp_path, clock)


@pytest.fixture(params=[("a",), ("a", "b")], ids=["one directory", "two directories"])
def names(request) -> tuple[str, ...]:
    return request.param


def directories(lives: Lives) -> list[str]:
    """Return the directories of partitions, in all data directories."""
    return sorted(path.name for path in lives.path.glob("*/topics/t/*/*") if path.is_dir())


async def apply(node, record: TopicRecord) -> TopicRecord:
    applied = await node.shard.catalog.apply(record)
    if record.name not in node.shard.topics:
        await node.shard.open_topic(applied)
    else:
        await node.shard.open_added(applied)
        node.shard.apply_record(applied)
    return applied


async def test_only_what_lies_here_is_made_and_opened_also_after_a_restart(lives, names):
    async with lives.life(*names) as node:
        await apply(node, RECORD)
        await append(node)
        assert ends(node) == {1: 1, 3: 1}
    assert directories(lives) == ["1", "3"]
    async with lives.life(*names) as node:
        assert ends(node) == {1: 1, 3: 1}
        assert (node.shard.topic("t").record.partitions, node.shard.topic("t").settings.flush_ms) == (6, 7)


async def test_partitions_that_are_moved_here_are_made_those_that_are_there_stay_and_settings_are_kept(lives, names):
    async with lives.life(*names) as node:
        await apply(node, RECORD)
        await append(node)
        await apply(node, replace(RECORD, hosted=(1, 3, 5)))
        assert ends(node) == {1: 1, 3: 1, 5: 0}
        await apply(node, replace(RECORD, partitions=8, hosted=(1, 3, 5, 7), overrides={}))
        assert ends(node) == {1: 1, 3: 1, 5: 0, 7: 0}
    async with lives.life(*names) as node:
        assert ends(node) == {1: 1, 3: 1, 5: 0, 7: 0}
        assert node.shard.topic("t").record.overrides == {}


async def test_partitions_that_were_moved_away_are_closed_and_their_files_go(lives, names):
    async with lives.life(*names) as node:
        await apply(node, RECORD)
        await append(node)
        left = []
        node.hooks.moved_away = lambda topic, partitions: left.extend(one.number for one in partitions)
        without = await apply(node, replace(RECORD, hosted=(3,)))
        await node.shard.close_partitions("t", [1])
        await node.shard.catalog.remove_partitions(without, [1])
        assert (left, ends(node), directories(lives)) == ([1], {3: 1}, ["3"])
        await apply(node, replace(RECORD, hosted=(1, 3)))
        assert ends(node) == {1: 0, 3: 1}, "one that comes back begins with nothing"
    async with lives.life(*names) as node:
        assert ends(node) == {1: 0, 3: 1}


async def test_a_partition_that_comes_back_is_not_made_in_an_offline_directory_that_it_had_before(lives):
    async with lives.life("a", "b") as node:
        before = await apply(node, RECORD)
        [number] = map(int, before.directory_ids)  # the one that is not in the first directory
        (other,) = {1, 3} - {number}
        without = await apply(node, replace(RECORD, hosted=(other,)))
        await node.shard.close_partitions("t", [number])
        await node.shard.catalog.remove_partitions(without, [number])
        (second,) = node.shard.directories.additional
        node.shard.directories.record_failure(second, OSError(errno.EIO, "EIO"), "a test")
        assert (await apply(node, RECORD)).directory_ids == {}
        await append(node)
        assert ends(node) == {1: 1, 3: 1}


async def test_what_an_interrupted_removal_has_left_goes_at_the_next_start(lives, names):
    async with lives.life(*names) as node:
        await apply(node, RECORD)
        await append(node)
        await apply(node, replace(RECORD, hosted=(3,)))
        await node.shard.close_partitions("t", [1])
    assert directories(lives) == ["1", "3"]
    async with lives.life(*names) as node:
        assert ends(node) == {3: 1}
        assert directories(lives) == ["3"]


async def outdated_record(lives, names) -> None:
    """Leave a data directory whose `topic.json` is from before partition 1 was added."""
    async with lives.life(*names) as node:
        await apply(node, replace(RECORD, hosted=(3,)))
        (file,) = lives.path.glob("a/topics/t/*/topic.json")
        outdated = file.read_bytes()
        await apply(node, RECORD)
        await append(node)
        places = node.shard.catalog.records["t"].directory_ids
    if len(names) == 1:
        file.write_bytes(outdated)
    else:
        fields = json.loads(outdated)
        file.write_text(json.dumps({**fields, "elsewhere": places}))


async def test_an_outdated_topic_file_removes_no_partition_with_records(lives, names, caplog):
    await outdated_record(lives, names)
    async with lives.life(*names) as node:
        assert ends(node) == {3: 1}
        assert directories(lives) == ["1", "3"]
        assert "does not name it: its files stay" in caplog.text
        with pytest.raises(Corrupt, match="the file is outdated"):
            await apply(node, RECORD)
        assert [path.stat().st_size > 0 for path in lives.path.glob("*/topics/t/*/1/*.log")] == [True]


async def test_a_move_that_was_marked_and_not_recorded_continues_later(lives, names):
    async with lives.life(*names) as node:
        record = await apply(node, RECORD)
        await append(node)
        mark_moved_away(node.shard.directories.first.disk, node.shard.directories, record, [1])
    async with lives.life(*names) as node:
        assert ends(node) == {1: 1, 3: 1}
        assert not list(lives.path.glob(f"*/topics/t/*/1/{paths.MOVED_AWAY}"))


async def test_one_that_comes_back_finds_nothing_of_its_earlier_life(lives, names):
    """Neither its files nor its recovery point, which would make new data look damaged."""
    async with lives.life(*names) as node:
        await apply(node, RECORD)
        await append(node)
        await node.shard.log_manager.save_checkpoints()
        saved = node.shard.directories.load_checkpoints()
        assert saved["id-of-t/1"].recovery_point == 1
        await apply(node, replace(RECORD, hosted=(3,)))
        await node.shard.close_partitions("t", [1])
        for directory in node.shard.directories:
            directory.save_checkpoints(saved)  # as a killed process might leave it
        again = await node.shard.catalog.apply(RECORD)
        assert "id-of-t/1" not in node.shard.directories.load_checkpoints()
        assert saved["id-of-t/3"] == node.shard.directories.load_checkpoints()["id-of-t/3"]
        await node.shard.open_added(again)
        assert ends(node) == {1: 0, 3: 1}


async def test_partitions_leave_a_shard_that_never_rests(lives):
    async with lives.life("a") as node:
        await apply(node, RECORD)
        leader, partition = node.leaders["t", 3], node.shard.partition("t", 3)

        async def busy() -> None:
            while True:
                leader.produce(batch.encode_values([b"v"], 5), Acks.NONE, 0)
                await asyncio.sleep(0)

        working = asyncio.ensure_future(busy())
        async with asyncio.timeout(60):
            while partition.log_end == 0:
                await asyncio.sleep(0)
            await node.shard.close_partitions("t", [1])
        working.cancel()


async def test_a_topic_that_comes_back_is_recovered_as_nobody_knows_how_it_was_left(lives, names):
    """It was set aside, and the power may have failed meanwhile."""
    async with lives.life(*names) as node:
        record = await apply(node, RECORD)
        await append(node)
        log = node.shard.partition("t", 3).log
        path, whole_bytes = Path(log.active.path), log.size_bytes
        await node.shard.close_topic("t")
        with path.open("ab") as file:
            file.write(path.read_bytes()[:-1])  # an incomplete batch
        await node.shard.open_topic(record)
        assert ends(node) == {1: 1, 3: 1}
        assert node.shard.partition("t", 3).log.size_bytes == whole_bytes == path.stat().st_size
        await append(node)
        assert ends(node) == {1: 2, 3: 2}


async def sealed_segments(node) -> list[Path]:
    """Four sealed segments of partition 3, each with a record, and the active one."""
    for _ in range(4):
        await append(node)
        await node.shard.roll_topic("t")
    await append(node)
    return [Path(one.path) for one in node.shard.partition("t", 3).log.segments[:-1]]


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


async def test_damage_in_what_was_fsynced_is_no_torn_tail_of_a_topic_that_comes_back(lives, names):
    async with lives.life(*names) as node:
        record = await apply(node, RECORD)
        first, *later = await sealed_segments(node)
        await node.shard.close_topic("t")
        damage(first)
        await node.shard.open_topic(record)
        assert node.shard.recovered.dropped_segments == 0
        assert all(path.exists() for path in (first, *later)), "nothing that was fsynced is cut off"
        assert ends(node)[1] == 5


async def given_up(node) -> None:
    """Three records in one segment; two are deleted."""
    await node.leaders["t", 3].produce(batch.encode_values([b"a", b"b", b"c"], 5), Acks.ALL, 5000)
    await node.shard.delete_before(node.shard.partition("t", 3), 2)


async def test_what_was_deleted_of_a_topic_stays_so_when_it_comes_back(lives, names):
    async with lives.life(*names) as node:
        record = await apply(node, RECORD)
        await given_up(node)
        for _ in range(2):
            await node.shard.close_topic("t")
            await node.shard.log_manager.save_checkpoints()
            assert node.shard.directories.load_checkpoints()["id-of-t/3"] == Checkpoint(3, 2)
            await node.shard.open_topic(record)
            partition = node.shard.partition("t", 3)
            assert (partition.log.log_start, partition.log_end) == (2, 3)
        await append(node)
        await node.shard.log_manager.save_checkpoints()
        assert node.shard.directories.load_checkpoints()["id-of-t/3"] == Checkpoint(4, 2)


async def test_a_process_that_starts_while_a_topic_is_set_aside_keeps_what_is_known_of_it(lives, names):
    """It gets the other topics only, and overwrites the saved points with its own."""
    async with lives.life(*names) as node:
        record = await apply(node, RECORD)
        await given_up(node)
        await node.shard.close_topic("t")
    for is_last in (False, True):
        directories = lives.opened(*names)
        with ThreadPoolExecutor(2) as executor:
            shard = Shard(
                directories.first.disk, directories.first, lives.clock, executor, str, additional=directories.additional
            )
            await shard.start([])
            await shard.log_manager.save_checkpoints()
            if is_last:
                await shard.open_topic(record)
                assert shard.partition("t", 3).log.log_start == 2
                assert shard.partition("t", 3).log_end == 3
            await shard.stop()


async def test_points_go_with_the_topic(lives, names):
    async with lives.life(*names) as node:
        for is_served in (True, False):
            record = await apply(node, RECORD)
            await append(node)
            await node.shard.log_manager.save_checkpoints()
            if is_served:
                await node.shard.delete_topic("t")
            else:
                await node.shard.close_topic("t")
                node.shard.catalog.move_aside(record)
                await node.shard.log_manager.save_checkpoints()
                assert set(node.shard.directories.load_checkpoints()) == {"id-of-t/1", "id-of-t/3"}
                await node.shard.catalog.delete(record)
            await node.shard.log_manager.save_checkpoints()
            assert node.shard.directories.load_checkpoints() == {}


async def test_points_of_topics_that_are_gone_go_at_the_next_start_of_the_node(lives, names):
    """A process that was killed had written them."""
    async with lives.life(*names) as node:
        await apply(node, RECORD)
        await append(node)
    directories = lives.opened(*names)
    for directory in directories:
        directory.save_checkpoints({**directory.load_checkpoints(), "gone/0": Checkpoint(7, 7)})
    with ThreadPoolExecutor(2) as executor:
        await Catalog(directories.first.disk, directories, lives.clock, executor, str).load()
    assert set(directories.load_checkpoints()) == {"id-of-t/1", "id-of-t/3"}
    directories.release()


async def test_a_topic_that_was_set_aside_comes_back_to_the_directories_in_which_it_lay(lives):
    """A newly chosen directory would be a second one beside the old one, and neither could be trusted."""
    made = [replace(RECORD, name=name, topic_id=f"id-of-{name}", hosted=(1,)) for name in ("t", "u", "v")]
    async with lives.life("a", "b") as node:
        catalog = node.shard.catalog
        applied = [await apply(node, record) for record in made]
        assert {tuple(record.directory_ids) for record in applied} == {(), ("1",)}, "they are in both directories"
        for record in applied:
            await append(node, record.name)
            await node.shard.close_topic(record.name)
            catalog.move_aside(record)
        for record in (applied[1], applied[0], applied[2]):
            known = catalog.find_record(record.name, record.topic_id)
            assert await apply(node, replace(record, directory_ids=known.directory_ids)) == record
            assert ends(node, record.name) == {1: 1}


async def test_a_topic_that_was_set_aside_and_a_new_one_of_its_name_are_both_there_at_the_next_start(lives, names):
    newer = replace(RECORD, topic_id="another", created_ms=6)
    async with lives.life(*names) as node:
        old = await apply(node, RECORD)
        await append(node)
        await node.shard.close_topic("t")
        node.shard.catalog.move_aside(old)
        await apply(node, newer)
    async with lives.life(*names) as node:
        catalog = node.shard.catalog
        assert (catalog.records["t"].topic_id, list(catalog.set_aside)) == ("another", ["id-of-t"])
        assert ends(node) == {1: 0, 3: 0}
        await node.shard.close_topic("t")
        catalog.move_aside(catalog.records["t"])
        await apply(node, old)
        assert ends(node) == {1: 1, 3: 1}
