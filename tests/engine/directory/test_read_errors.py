"""A disk that cannot read one file (EIO) sets aside one topic, and makes derived files again: the node starts."""

import errno

import pytest

from engine.errors import Corrupt
from engine.format import batch
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.replica.acks import Acks
from tests.engine.conftest import running_node

T = 1_700_000_000_000


async def filled(node) -> None:
    for topic in ("good", "bad"):
        await node.shard.create_topic(topic, 1, 1, {})
        for segment in range(3):
            await node.leaders[topic, 0].produce(batch.encode_values([b"%d" % segment], T), Acks.ALL, 5000)
            await node.shard.roll_topic(topic)


def failing(path: str) -> FaultyDisk:
    return FaultyDisk(RealDisk(), [Rule("pread", path, times=None, error=errno.EIO)])


async def test_a_topic_file_that_cannot_be_read_sets_its_topic_aside_and_no_other(tmp_path, clock):
    """Before, the node refused to start."""
    async with running_node(tmp_path, clock) as node:
        await filled(node)
        (directory,) = (tmp_path / "topics" / "bad").iterdir()
    before = sorted(path.name for path in directory.rglob("*"))
    async with running_node(tmp_path, clock, failing(f"{directory}/topic.json")) as node:
        assert [*node.shard.topics] == ["good"]
        assert await node.shard.reader.read(node.shard.partition("good", 0), 0, 1000)
        with pytest.raises(Corrupt, match=r"'bad' is quarantined: its topic\.json is missing or cannot be read"):
            await node.shard.create_topic("bad", 1, 1, {})
    assert sorted(path.name for path in directory.rglob("*")) == before
    async with running_node(tmp_path, clock) as node:
        assert await node.shard.reader.read(node.shard.partition("bad", 0), 2, 1000)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
async def test_a_derived_file_that_cannot_be_read_is_made_again(tmp_path, clock, suffix):
    """Before, its partition was offline, or each read of its segment failed."""
    async with running_node(tmp_path, clock) as node:
        await filled(node)
    async with running_node(tmp_path, clock, failing(suffix)) as node:
        partition = node.shard.partition("bad", 0)
        assert partition.offline is None
        for offset in range(3):
            assert await node.shard.reader.read(partition, offset, 1000)
