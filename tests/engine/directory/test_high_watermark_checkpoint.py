"""Records of a cluster's partition that were readable before a restart are readable after it, if the log still has
them.
"""

import pytest

from engine.directory import log_directory_manager
from engine.directory.high_watermark_checkpoint import save_high_watermarks
from engine.directory.log_directories import open_data_directories
from engine.directory.topics import TopicRecord
from engine.format import batch as record_batch
from engine.format import paths
from engine.runtime.disk import RealDisk
from tests.engine.data_directory_lives import Lives

RECORD = TopicRecord("t", "id-of-t", 2, 3, hosted=(0, 1))


@pytest.fixture(autouse=True)
def nobody_leads(monkeypatch):
    """A standalone leader would commit everything at once."""
    monkeypatch.setattr("tests.engine.conftest.EventHooks._lead", lambda *_: None)


@pytest.fixture
def lives(tmp_path, clock) -> Lives:
    return Lives(tmp_path, clock)


async def begun(node, watermark: int = 6) -> None:
    """Write five batches of two records in each partition, and a high watermark in the middle."""
    await node.shard.open_topic(await node.shard.catalog.apply(RECORD))
    for partition in node.shard.partitions():
        assert partition.is_replicated
        for base in range(0, 10, 2):
            made = record_batch.encode_values([b"v"] * 2, 5)
            record_batch.stamp(made, base, 1)
            await node.shard.committer.append_as_follower(partition, bytes(made), wants_sync=True)
        partition.watermark.advance(watermark)


def watermarks(node) -> list[int]:
    return [partition.high_watermark for partition in node.shard.partitions()]


async def read_to(node, offset: int) -> int:
    partition = node.shard.partition("t", 1)
    while (chunk := await node.shard.reader.read(partition, offset, 1)) is not None:
        offset = chunk.next_offset
    return offset


@pytest.mark.parametrize("names", [("a",), ("a", "b")], ids=["one directory", "two directories"])
async def test_a_replica_begins_with_what_was_committed_before(lives, names):
    async with lives.life(*names) as node:
        await begun(node)
    async with lives.life(*names) as node:
        assert watermarks(node) == [6, 6]
        assert await read_to(node, 0) == 6


async def test_a_position_that_goes_back_is_durable_at_once(lives, monkeypatch):
    """A follower keeps what is below it: after a power loss it must not be greater than it was."""
    saved: list[bool] = []
    save = log_directory_manager.save_high_watermarks

    def noted(*args, is_durable: bool) -> None:
        saved.append(is_durable)
        save(*args, is_durable=is_durable)

    monkeypatch.setattr(log_directory_manager, "save_high_watermarks", noted)
    async with lives.life("a") as node:
        await begun(node)
        await node.shard.log_manager.save_checkpoints()
        partition = node.shard.partition("t", 0)
        partition.watermark.advance(8)
        await node.shard.log_manager.save_checkpoints()
        partition.watermark.set_back(4, 0)
        await node.shard.log_manager.save_checkpoints()
        assert saved[-3:] == [True, False, True], "the first file of a process replaces one that it does not know"


@pytest.mark.parametrize(("stored", "found"), [(None, 0), (0, 0), (5, 4), (7, 6), (10, 10), (99, 10)], ids=str)
async def test_it_is_believed_as_far_as_the_log_goes_and_at_whole_batches(lives, stored, found):
    async with lives.life("a") as node:
        await begun(node)
    data_dir = lives.path / "a"
    (data_dir / paths.HIGH_WATERMARKS).unlink()
    if stored is not None:
        save_high_watermarks(RealDisk(), str(data_dir), None, {"id-of-t/0": stored, "id-of-t/1": stored})
    async with lives.life("a") as node:
        assert watermarks(node) == [found, found]
        assert await read_to(node, 0) == found


async def test_what_was_given_up_had_been_committed(lives):
    """And the batch that contains log_start was committed with it."""
    async with lives.life("a") as node:
        await begun(node)
        await node.shard.delete_before(node.shard.partition("t", 1), 5)
    (lives.path / "a" / paths.HIGH_WATERMARKS).write_text("damaged")
    async with lives.life("a") as node:
        assert watermarks(node) == [0, 6]
        assert await read_to(node, 5) == 6


async def test_a_node_that_is_alone_has_no_such_file(lives):
    async with lives.life("a") as node:
        await node.shard.create_topic("t", 1, 1, {})
        await node.shard.log_manager.save_checkpoints()
    assert not (lives.path / "a" / paths.HIGH_WATERMARKS).exists()


def test_what_several_processes_wrote_is_made_one_file_at_the_next_start(tmp_path):
    def opened():
        return open_data_directories(
            RealDisk(), [str(tmp_path)], node_id=1, cluster_id=None, boot_id="b", new_id=lambda: "id"
        )

    opened().release()
    for part, hints in enumerate(({"t/0": 5, "t/1": 7}, {"t/2": 9})):
        save_high_watermarks(RealDisk(), str(tmp_path), part, hints)
    save_high_watermarks(RealDisk(), str(tmp_path), None, {"t/0": 3, "t/3": 1})
    directories = opened()
    assert directories.load_high_watermarks() == {"t/0": 5, "t/1": 7, "t/2": 9, "t/3": 1}
    assert [path.name for path in tmp_path.glob("high-watermarks*")] == [paths.HIGH_WATERMARKS]
    directories.release()
