"""A deletion that the disk fails once: the topic is still served, or a repeated request continues the deletion."""

import errno
from types import SimpleNamespace

import pytest

from engine.errors import StorageFull, TooManyOpenFiles, UnknownTopic
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from node.cluster.standalone_topics import Standalone
from node.process_calls import CreateTopic
from tests.engine.conftest import running_node
from tests.engine.shard.test_shard import produce, read_all


def refuse_rename(disk: FaultyDisk) -> None:
    """Fail the next rename, which is that of a deletion."""
    disk.rules = [Rule("rename", error=errno.ENOSPC)]


def refuse_directory_sync(disk: FaultyDisk) -> None:
    disk.rules = [Rule("fsync_dir", error=errno.EMFILE)]


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(RealDisk())


async def test_a_topic_that_the_disk_does_not_let_go_is_served_on(tmp_path, clock, disk):
    async with running_node(tmp_path, clock, disk) as node:
        await node.shard.create_topic("t", 2, 1, {})
        await produce(node, "t", 0, "a")
        removed = []
        refuse_rename(disk)
        closed, node.hooks.closed = node.hooks.closed, removed.append
        with pytest.raises(StorageFull):
            await node.shard.delete_topic("t")
        assert removed == [], "what the store has of it stays"
        node.hooks.closed = closed
        assert await produce(node, "t", 0, "b") == 1
        assert await read_all(node, "t", 0) == [(0, "a"), (1, "b")]
        await node.shard.delete_topic("t")
        with pytest.raises(UnknownTopic):
            node.shard.topic("t")
    assert list((tmp_path / "topics" / "t").glob("*")) == []


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_a_deletion_whose_sync_was_refused_is_finished_when_asked_for_again(tmp_path, clock, disk, is_made_again):
    async with running_node(tmp_path, clock, disk) as node:
        await node.shard.create_topic("t", 1, 1, {})
        await produce(node, "t", 0, "old")
        removed = []
        refuse_directory_sync(disk)
        closed = node.hooks.closed
        node.hooks.closed = lambda topic: (removed.append(topic.record.name), closed(topic))
        with pytest.raises(TooManyOpenFiles):
            await node.shard.delete_topic("t")
        with pytest.raises(UnknownTopic):
            await node.shard.alter_topic("t", {}, 2)
        assert removed == []
        if not is_made_again:
            await node.shard.delete_topic("t")
        _, is_new = await node.shard.create_topic("t", 3, 1, {})
        assert (is_new, removed) == (True, ["t"])
        assert await produce(node, "t", 0, "new") == 0
    async with running_node(tmp_path, clock, disk) as node:
        assert await read_all(node, "t", 0) == [(0, "new")]


async def test_processes_of_a_node_serve_a_topic_on_that_the_disk_does_not_let_go(tmp_path, clock, disk):
    calls = []

    async def record(change, _):
        calls.append(change)

    async with running_node(tmp_path, clock, disk) as node:
        alone = Standalone(None)
        alone._catalog, alone._processes = node.shard.catalog, SimpleNamespace(call_shards=record, call_worker=record)
        await alone.create_topic(CreateTopic("t", 1, 1, {}))
        calls.clear()
        refuse_rename(disk)
        with pytest.raises(StorageFull):
            await alone.delete_topic("t")
        refuse_directory_sync(disk)
        with pytest.raises(TooManyOpenFiles):
            await alone.delete_topic("t")
        assert calls == ["close_topic", "open_topic", "close_topic"]
        calls.clear()
        assert await alone.create_topic(CreateTopic("t", 2, 1, {}))
        assert calls == ["close_topic", "removed", "open_topic", "open_topic"]
