"""Power losses while outputs of a source are stored: the remembered position is that of the outputs in the log."""

from unittest import mock

import pytest

from engine.format import batch
from engine.format.keyed_batch import SourceEntry, stored_entry
from engine.producers import snapshots
from engine.producers.appends import AppendConditions, Appended
from engine.producers.sources import Sources, source_hash
from engine.testing.recording_disk import RecordingDisk
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import inline_node
from tests.engine.crash.power_loss import check_story
from tests.engine.crash.teller import HOUR_MS

SOURCE = source_hash("etl/in/0")


class Sourced:
    """Stores outputs in two lives, with rolls and expiry between them; knows the positions that may be stored."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.acknowledged = self.sent = -1
        self.is_created = False

    async def story(self, disk: RecordingDisk) -> None:
        async with inline_node(disk, self.clock) as node:
            await node.shard.create_topic("t", 1, 1, {"retention_ms": HOUR_MS})
            await self.send(node)
            await self.roll(node)
            node.checkpoint()
            await self.send(node)
            await self.roll(node)
            self.clock.pass_ms(2 * HOUR_MS)
            await self.other(node)
            await node.expire(node.shard.partition("t", 0))  # the batches of the source go
            await self.other(node)
        async with inline_node(disk, self.clock) as node:
            await self.other(node)
            await self.send(node)
            await node.idle()

    async def send(self, node) -> None:
        """Send the next two positions, and them again with one more."""
        first = self.acknowledged + 1
        self.sent = first + 1
        assert not (await send(node, first, first + 1)).is_duplicate
        self.acknowledged = first + 1
        assert (await send(node, first, first + 2)).source_position == first + 1

    async def other(self, node) -> None:
        leader = node.leaders["t", 0]
        await leader.produce(batch.encode_values([b"x" * 300], self.clock.ms), Acks.ALL, 5000)

    async def roll(self, node) -> None:
        await node.shard.roll_topic("t")
        await node.idle()

    async def check(self, disk: RecordingDisk) -> None:
        async with inline_node(disk.snapshot(), HandClock()) as node:
            node.kill()
            if "t" not in node.shard.topics:
                assert self.acknowledged < 0
                return
            partition = node.shard.partition("t", 0)
            assert partition.offline is None
            found = partition.validator.sources.find(SOURCE)
            position = -1 if found is None else found.position
            assert self.acknowledged <= position <= self.sent, (position, self.acknowledged, self.sent)


async def send(node, first: int, last: int) -> Appended:
    entry = SourceEntry(SOURCE, first, last, 5)
    data = batch.encode_values([b"x" * 300], 5, entry=stored_entry(entry))
    return await node.leaders["t", 0].produce(data, Acks.ALL, 5000, AppendConditions(source=entry))


async def crashed() -> None:
    await check_story(Sourced, every=7, limit=3)


async def test_the_position_of_a_source_is_that_of_its_outputs_whatever_a_power_loss_leaves():
    await crashed()


def no_sources(items: object) -> bytes:
    """Planted: snapshots are written without sources."""
    return b""


def not_replayed(self: Sources, *args: object) -> None:
    """Planted: a start does not read the entries of the log."""


@pytest.mark.parametrize(
    ("where", "name", "mutant"), [(snapshots, "encode_sources", no_sources), (Sources, "replay", not_replayed)]
)
async def test_a_position_that_could_be_lost_is_caught(where, name, mutant):
    with mock.patch.object(where, name, mutant), pytest.raises(AssertionError, match="operation"):
        await crashed()
