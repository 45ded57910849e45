"""A start removes only leftovers of the node's own interrupted work from the topics of a data directory."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from engine.directory.topic_scan import scan_topics
from engine.directory.topics import TopicRecord, save_topic
from engine.errors import Corrupt, EngineError, UnknownTopic
from engine.format import batch
from engine.runtime.disk import RealDisk
from replication.replica.acks import Acks
from tests.engine.conftest import running_node

RECORDS = 5


@pytest.fixture
async def home(tmp_path, clock) -> Path:
    """Return the directory of topic t in a cleanly stopped data directory, with records in partition 0."""
    async with running_node(tmp_path / "data", clock) as node:
        await node.shard.create_topic("t", 2, 1, {})
        for _ in range(RECORDS):
            await node.leaders["t", 0].produce(batch.encode_values([b"kept"], 5), Acks.ALL, 20_000)
    (directory,) = (tmp_path / "data" / "topics" / "t").iterdir()
    return directory


def tree(directory: Path) -> dict[str, bytes | None]:
    """Return every path below a directory, with its bytes."""
    return {str(one): one.read_bytes() if one.is_file() else None for one in sorted(directory.rglob("*"))}


async def log_end(home: Path, clock) -> int:
    async with running_node(home.parents[2], clock) as node:
        return node.shard.partition("t", 0).log_end


async def test_a_topic_without_its_topic_json_stays_and_is_reported(home, clock, caplog):
    kept = (home / "topic.json").read_bytes()
    (home / "topic.json").unlink()
    before = tree(home)
    for _ in range(2):
        async with running_node(home.parents[2], clock) as node:
            assert node.shard.catalog.without_metadata == {home.name: "t"}
            for read in (lambda: node.shard.topic("t"), lambda: node.shard.topic("other")):
                with pytest.raises(EngineError) as refused:
                    read()
            assert isinstance(refused.value, UnknownTopic)
            with pytest.raises(Corrupt, match=r"'t' is quarantined: its topic\.json is missing"):
                node.shard.topic("t")
            with pytest.raises(Corrupt, match=r"topic\.json is missing"):
                await node.shard.create_topic("t", 1, 1, {})
        assert tree(home) == before
        errors = [one for one in caplog.records if one.levelno == logging.ERROR]
        assert str(home) in {getattr(one, "directory", None) for one in errors}
    (home / "topic.json").write_bytes(kept)
    assert await log_end(home, clock) == RECORDS


async def test_a_topic_json_from_before_the_topic_grew_is_refused(home, clock):
    """Otherwise its records would be unknown, and would be reused when the topic grows again."""
    outdated = (home / "topic.json").read_bytes()
    async with running_node(home.parents[2], clock) as node:
        await node.shard.alter_topic("t", {}, 4)
        await node.leaders["t", 3].produce(batch.encode_values([b"kept"], 5), Acks.ALL, 20_000)
    newest = (home / "topic.json").read_bytes()
    (home / "topic.json").write_bytes(outdated)
    before = tree(home)
    with pytest.raises(Corrupt, match=r"topic\.json has 2 partitions, and .*/3 has records"):
        await log_end(home, clock)
    assert tree(home) == before
    for given_up, ends in ((False, {0: RECORDS, 3: 1}), (True, {0: RECORDS})):
        (home / "topic.json").write_bytes(outdated if given_up else newest)
        if given_up:
            (home / "3").rename(home.parents[2] / "given up")
        async with running_node(home.parents[2], clock) as node:
            assert {number: node.shard.partition("t", number).log_end for number in ends} == ends


async def test_a_topic_that_gets_its_topic_json_back_keeps_its_recovery_points(home, clock):
    """Otherwise damage to fsynced bytes would pass for a torn tail, and records below log_start would reappear."""
    async with running_node(home.parents[2], clock) as node:
        await node.shard.delete_before(node.shard.partition("t", 0), 3)
    kept = (home / "topic.json").read_bytes()
    (home / "topic.json").unlink()
    async with running_node(home.parents[2], clock):
        pass
    (home / "topic.json").write_bytes(kept)
    async with running_node(home.parents[2], clock) as node:
        assert node.shard.partition("t", 0).log.log_start == 3


async def test_the_rest_of_a_creation_goes(home, clock):
    cut_short = home.parents[1] / "half" / "0123"
    (cut_short / "0").mkdir(parents=True)
    (cut_short / "1").mkdir()
    (cut_short / "1" / f"{0:020d}.log").touch()
    (cut_short / "topic.json.tmp").write_text('{"form')
    assert await log_end(home, clock) == RECORDS
    assert not cut_short.parent.exists()


@pytest.mark.parametrize(
    "name",
    ["0/00000000000000000007.log", "0/notes.txt", "0/sub/file", "notes.txt", "topic.json.bak", "00/x", "7", "0/link"],
)
async def test_a_directory_without_topic_json_and_with_anything_in_it_stays(home, clock, name):
    strange = home.parents[1] / "half" / "0123" / name
    strange.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith("link"):
        strange.symlink_to(home)
    else:
        strange.write_text("mine")
    before = tree(home.parents[1] / "half")
    assert await log_end(home, clock) == RECORDS
    assert tree(home.parents[1] / "half") == before
    assert (home / "topic.json").exists()


@pytest.mark.parametrize("place", [".", "..", "0", "../..", "../../.."])
async def test_foreign_files_directories_and_links_stay_and_do_not_stop_a_start(home, clock, place):
    where = home / place
    (where / "notes.tmp").write_text("mine")
    (where / "notes.deleted").write_text("mine")
    (where / "notes.index").write_text("mine")
    (where / "lost+found").mkdir()
    (where / "dangling").symlink_to("/nowhere/at/all")
    if place != "../../..":  # one more ../ would be the node's own directory
        (where / "linked").symlink_to(home.parents[3])
    before = set(tree(where))
    for _ in range(2):
        assert await log_end(home, clock) == RECORDS
        assert {path for path in before if not path.endswith(".snapshot")} <= set(tree(where))


@pytest.mark.parametrize("content", [None, "a copy of the topic", "another topic.json", "damage"])
async def test_a_foreign_directory_that_ends_in_deleted_stays(home, clock, content):
    aside = home.with_name("backup.deleted")
    (aside / "0").mkdir(parents=True)
    (aside / "0" / f"{0:020d}.log").write_bytes(b"records")
    if content == "a copy of the topic":
        aside = aside.rename(home.with_name(home.name + ".deleted"))
    if content is not None:
        is_damage = content == "damage"
        (aside / "topic.json").write_bytes(b"{" if is_damage else (home / "topic.json").read_bytes())
    before = tree(aside)
    for _ in range(2):
        assert await log_end(home, clock) == RECORDS
        assert tree(aside) == before


async def test_a_deletion_that_was_cut_short_is_finished(home, clock):
    home.rename(home.with_name(home.name + ".deleted"))
    async with running_node(home.parents[2], clock) as node:
        with pytest.raises(UnknownTopic):
            node.shard.topic("t")
    assert not home.parent.exists()


async def test_a_deletion_leaves_what_the_engine_has_not_made_and_follows_no_link(home, clock, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"{0:020d}.log").write_text("of another topic")
    (home / "7").symlink_to(elsewhere)
    (home / "0" / "notes.txt").write_text("mine")
    async with running_node(home.parents[2], clock) as node:
        await node.shard.delete_topic("t")
    deleted = home.with_name(home.name + ".deleted")
    for _ in range(2):
        assert {str(one.relative_to(deleted)) for one in deleted.rglob("*")} == {"topic.json", "0", "0/notes.txt", "7"}
        assert (elsewhere / f"{0:020d}.log").read_text() == "of another topic"
        async with running_node(home.parents[2], clock) as node:
            assert "t" not in node.shard.topics
    (home.with_name(home.name + ".deleted") / "7").unlink()
    (deleted / "0" / "notes.txt").unlink()
    async with running_node(home.parents[2], clock) as node:
        await node.shard.create_topic("t", 1, 1, {})
    assert not deleted.exists()


async def test_a_topic_json_of_another_topic_refuses_the_start(home, clock):
    other = json.loads((home / "topic.json").read_bytes()) | {"topic": "other"}
    (home / "topic.json").write_text(json.dumps(other))
    before = tree(home)
    with pytest.raises(Corrupt, match=r"topic\.json is that of topic 'other'"):
        await log_end(home, clock)
    assert tree(home) == before


async def test_a_missing_directory_of_all_topics_refuses_the_start(home, clock, tmp_path):
    """A disk that is not mounted must not look like a node without topics."""
    (tmp_path / "data" / "topics").rename(tmp_path / "away")
    with pytest.raises(Corrupt, match="topics is missing"):
        await log_end(home, clock)
    (tmp_path / "away").rename(tmp_path / "data" / "topics")
    assert await log_end(home, clock) == RECORDS


def test_finding_topics_twice_finds_the_same(tmp_path):
    disk = RealDisk()
    save_topic(disk, str(tmp_path), TopicRecord("t", "0123", 2))
    first = scan_topics(disk, str(tmp_path))
    assert scan_topics(disk, str(tmp_path)) == first
    assert [one.name for one in first.records] == ["t"]
