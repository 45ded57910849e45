"""A deletion that the disk refuses once: the topic is served on, or its deletion goes on when asked for again."""

import errno
from types import SimpleNamespace

import pytest

from engine.errors import StorageFull, TooManyOpenFiles, UnknownTopic
from engine.runtime.disk import RealDisk
from node.cluster.standalone_topics import Standalone
from tests.engine.conftest import running_node
from tests.engine.shard.test_shard import produce, read_all


class RefusingDisk(RealDisk):
    """Refuses the rename of a deletion, or the next sync of a directory."""

    refused = ""

    def rename(self, source: str, target: str) -> None:
        if self.refused == "rename":
            self.refused = ""
            raise OSError(errno.ENOSPC, "no space", source)
        super().rename(source, target)

    def fsync_dir(self, path: str) -> None:
        if self.refused == "fsync_dir":
            self.refused = ""
            raise OSError(errno.EMFILE, "too many open files", path)
        super().fsync_dir(path)


@pytest.fixture
def disk():
    return RefusingDisk()


async def test_a_topic_that_the_disk_does_not_let_go_is_served_on(tmp_path, clock, disk):
    async with running_node(tmp_path, clock, disk) as node:
        await node.shard.create_topic("t", 2, 1, {})
        await produce(node, "t", 0, "a")
        disk.refused, removed = "rename", []
        closed, node.heard.closed = node.heard.closed, removed.append
        with pytest.raises(StorageFull):
            await node.shard.delete_topic("t")
        assert removed == [], "what the store has of it stays"
        node.heard.closed = closed
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
        disk.refused, removed = "fsync_dir", []
        closed = node.heard.closed
        node.heard.closed = lambda topic: (removed.append(topic.record.name), closed(topic))
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
    told = []

    async def tell(change, _):
        told.append(change)

    async with running_node(tmp_path, clock, disk) as node:
        alone = Standalone(None)
        alone._catalog, alone._processes = node.shard.catalog, SimpleNamespace(call_shards=tell, call_worker=tell)
        await alone.create_topic("t", 1, 1, {})
        told.clear()
        disk.refused = "rename"
        with pytest.raises(StorageFull):
            await alone.delete_topic("t")
        disk.refused = "fsync_dir"
        with pytest.raises(TooManyOpenFiles):
            await alone.delete_topic("t")
        assert told == ["close_topic", "open_topic", "close_topic"]
        told.clear()
        assert await alone.create_topic("t", 2, 1, {})
        assert told == ["close_topic", "removed", "open_topic", "open_topic"]
