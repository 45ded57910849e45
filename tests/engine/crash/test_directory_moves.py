"""Power losses while a partition moves to another data directory: one replica is left, with every record."""

import pytest

from engine.format import batch as record_batch
from engine.testing.recording_disk import RecordingDisk
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import inline_node
from tests.engine.crash.power_loss import EVERY, check_story
from tests.engine.crash.twin import decoded

OTHER = "/mnt/other"
CONFIG = {"segment_bytes": 65536}


class Moved:
    """A partition with three segments, appended to while it moves there and back, with a deletion in between."""

    def __init__(self) -> None:
        self.acknowledged: list[bytes] = []
        self.asked = 0  # values that may be there
        self.log_start = self.log_start_asked = 0

    async def story(self, disk: RecordingDisk) -> None:
        clock = HandClock()
        async with inline_node(disk, clock, [OTHER]) as node:
            await node.shard.create_topic("t", 1, 1, CONFIG)
            home = self.directory(node)
            for _ in range(2):
                await self.append(node)
                await node.shard.roll_topic("t")
            await self.append(node)
            await node.idle()
            node.checkpoint()
            await self.move(node, OTHER if home != OTHER else "/srv/penstock")
            await self.append(node)
            self.log_start_asked = 1
            self.log_start = await node.shard.delete_before(node.shard.partition("t", 0), 1)
            await self.move(node, home)
            await self.append(node)

    async def append(self, node) -> None:
        partition, value = node.shard.partition("t", 0), b"value %d" % self.asked * 300
        self.asked += 1
        appended = node.append(partition, record_batch.encode_values([value], 5), Acks.ALL)
        await node.acknowledged(partition, appended, Acks.ALL)
        self.acknowledged.append(value)

    async def move(self, node, path: str) -> None:
        partition = node.shard.partition("t", 0)
        node.shard.moves.start(partition, node.shard.topics["t"].record.topic_id, path)
        await self.append(node)
        await node.shard.moves._background.wait_ended()
        if partition.offline is not None:
            raise partition.offline
        if failed := node.shard.moves.statuses():
            raise OSError(failed[0].error)
        assert self.directory(node) == path

    def directory(self, node) -> str:
        return node.shard.log_manager.directory_of(node.shard.partition("t", 0)).path

    async def check(self, disk: RecordingDisk) -> None:
        for _ in range(2):  # the second start finds nothing that is left to do
            disk = disk.snapshot()
            async with inline_node(disk, HandClock(), [OTHER]) as node:
                if "t" not in node.shard.topics:
                    assert not self.acknowledged
                    node.kill()
                    return
                partition = node.shard.partition("t", 0)
                assert partition.offline is None, partition.offline
                assert self.log_start <= partition.log.log_start <= self.log_start_asked
                offset, found = partition.log.log_start, []
                while chunk := await node.shard.reader.read(partition, offset + len(found), 1):
                    found += [record.value for record in decoded(bytes(chunk.data))]
                assert found[: len(self.acknowledged) - offset] == self.acknowledged[offset:]
                assert offset + len(found) <= self.asked
                names = [
                    name
                    for data_dir in ("/srv/penstock", OTHER)
                    for topic_id in disk.listdir(f"{data_dir}/topics/t")
                    for name in disk.listdir(f"{data_dir}/topics/t/{topic_id}")
                    if name != "topic.json"
                ]
                assert names == ["0"], "one replica, and no leftover"
                node.kill()


TWELFTHS = [pytest.param(first, marks=[pytest.mark.long] if first > 1 and EVERY > 1 else []) for first in range(1, 13)]


@pytest.mark.parametrize("first", TWELFTHS)
async def test_a_partition_that_moves_is_in_one_directory_whatever_the_disk_forgets(first):
    await check_story(Moved, first=first, every=12, limit=3)
