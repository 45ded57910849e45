"""Compaction: the table that a log describes stays the same, and every reader finds each record that remains."""

from random import Random

import pytest

from engine.format import batch as record_batch
from engine.format import keyed_batch
from engine.format.batch import Codec
from engine.testing.recording_disk import RecordingDisk
from replication.replica.acks import Acks
from tests.engine.compaction.table import SETTINGS, Table, fold, some_records
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import inline_node
from tests.engine.crash.power_loss import THIRDS, check_story
from tests.engine.format.first_entry import read_entry


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def disk(clock) -> RecordingDisk:
    return RecordingDisk(clock)


async def test_only_the_last_record_of_each_key_remains_at_its_offset(disk, clock):
    table = Table()
    async with inline_node(disk, clock) as node:
        await node.shard.create_topic("t", 1, 1, SETTINGS)
        for value in (b"1", b"2", b"3"):
            await table.send(node, [(b"a", value), (b"b", value)])
            await table.seal(node)
        await table.send(node, [(b"a", b"4")])
        swapper = await table.compact(node, disk)
        partition = node.shard.partition("t", 0)
        assert [(one.offset, one.key, one.value) for one in await table.check(node)] == [
            (4, b"a", b"3"),  # the active segment is not compacted
            (5, b"b", b"3"),
            (6, b"a", b"4"),
        ]
        assert (len(partition.log.segments), swapper.removed_records) == (2, 4)
    async with inline_node(disk, clock) as node:
        assert [one.offset for one in await table.check(node)] == [4, 5, 6]


@pytest.mark.parametrize("seed", range(30))
async def test_a_random_log_keeps_its_table_through_compactions_and_restarts(seed, disk, clock):
    await random_story(seed, disk, clock)


async def random_story(seed: int, disk: RecordingDisk, clock: HandClock) -> None:
    random, table = Random(seed), Table(memory_bytes=160 * (5 + seed))
    for _ in range(3):
        async with inline_node(disk, clock) as node:
            await node.shard.create_topic("t", 1, 1, SETTINGS)
            for _ in range(12):
                records = some_records(random, keys=20, count=random.randrange(1, 9))
                await table.send(node, records, random.choice(list(Codec)))
                if random.random() < 0.4:
                    await table.seal(node)
                if random.random() < 0.4:
                    clock.pass_ms(random.choice([1, 600, 2000]))
                    await table.compact(node, disk)
                    await table.check(node)
            for offset in range(node.shard.partition("t", 0).high_watermark):
                first = next(iter(await table.read(node, offset)), None)
                assert first is None or first.offset >= offset


async def test_tombstones_go_when_readers_have_had_the_time_to_see_them(disk, clock):
    table = Table()
    async with inline_node(disk, clock) as node:
        await node.shard.create_topic("t", 1, 1, SETTINGS)
        await table.send(node, [(b"a", b"1"), (b"b", b"1")])
        await table.send(node, [(b"a", None)])
        await table.seal(node)
        await table.compact(node, disk)
        assert [one.offset for one in await table.check(node)] == [1, 2]
        clock.pass_ms(999)
        await table.compact(node, disk)
        assert [one.offset for one in await table.check(node)] == [1, 2]
        clock.pass_ms(1)
        await table.compact(node, disk)
        assert [one.offset for one in await table.check(node)] == [1]
        clock.pass_ms(100_000)
        before = disk.operations
        await table.compact(node, disk)
        assert disk.operations - before < 10, "nothing is due"


class CompactedStory:
    """Two compactions, the second one with expired tombstones and neighbours to merge."""

    def __init__(self) -> None:
        self.clock, self.table = HandClock(), Table()

    async def story(self, disk: RecordingDisk) -> None:
        async with inline_node(disk, self.clock) as node:
            if "t" not in node.shard.topics:
                await node.shard.create_topic("t", 1, 1, SETTINGS)
            for n in range(2):
                await self.table.send(node, [(b"a", b"%d" % n), (b"b", b"%d" % n)])
                await self.table.send(node, [(b"c", None if n else b"1")])
                await self.table.seal(node)
            await self.table.compact(node, disk)
            node.checkpoint()
            await self.table.send(node, [(b"a", b"3")])
            await self.table.seal(node)
            self.clock.pass_ms(2000)
            await self.table.compact(node, disk)
            await self.table.send(node, [(b"b", b"4")])

    async def check(self, disk: RecordingDisk) -> None:
        async with inline_node(disk, self.clock) as node:
            node.kill()
            if "t" in node.shard.topics:
                assert node.shard.partition("t", 0).offline is None
                await self.table.check(node)
                await self.table.compact(node, disk)
                await self.table.check(node)
            else:
                assert self.table.acknowledged_end == 0


@pytest.mark.parametrize("first", THIRDS)
async def test_a_power_loss_at_any_operation_leaves_the_old_log_or_the_compacted_one(first):
    await check_story(CompactedStory, first=first, every=3, limit=4)


async def test_the_position_of_a_source_is_kept_as_long_as_the_source(disk, clock):
    table = Table()
    day_ms = 86_400_000
    async with inline_node(disk, clock) as node:
        await node.shard.create_topic("t", 1, 1, SETTINGS)
        partition = node.shard.partition("t", 0)
        entry = keyed_batch.stored_entry(keyed_batch.SourceEntry(b"s" * 16, 3, 7, 5))
        batch = record_batch.encode([(5, b"a", b"1", []), (5, b"b", b"1", [])], entry=entry)
        await node.acknowledged(partition, node.append(partition, batch, Acks.ALL), Acks.ALL)
        found = []
        for days in (1, 5, 2):
            await table.send(node, [(b"a", b"2")])
            await table.seal(node)
            clock.pass_ms(days * day_ms)
            await table.compact(node, disk)
            found.append(read_entry((await node.shard.reader.read(partition, 0, 1000)).data))
        assert [one and one.last for one in found] == [7, 7, None]


async def test_the_entries_of_a_batch_of_several_requests_stay_as_long_as_each_recognises_a_retry(disk, clock):
    table, day_ms = Table(), 24 * 3600 * 1000
    async with inline_node(disk, clock) as node:
        await node.shard.create_topic("t", 1, 1, SETTINGS)
        partition = node.shard.partition("t", 0)
        requests = [
            keyed_batch.RequestEntry(keyed_batch.KeyEntry(b"k" * 16, b"r" * 16, 1, 5), 0, 1),
            keyed_batch.RequestEntry(keyed_batch.SequenceEntry(7, 0, 0, 5), 1, 1),
        ]
        rows = [(5, b"a", b"1", []), (5, b"b", b"1", [])]
        batch = record_batch.encode(rows, entry=keyed_batch.stored_rows(requests), sequenced=(-1, -1, 2))
        await node.acknowledged(partition, node.append(partition, batch, Acks.ALL), Acks.ALL)
        found = []
        for part_of_day in (0.0, 0.5, 1.0):
            await table.send(node, [(b"a", b"2")])
            await table.seal(node)
            clock.pass_ms(int(part_of_day * day_ms))
            await table.compact(node, disk)
            data = (await node.shard.reader.read(partition, 0, 1000)).data
            header = record_batch.read_header(data)
            found.append((len(keyed_batch.read_entries(data)), header.producer_id, header.base_sequence))
        assert found == [(2, -2, 2), (2, -2, 2), (0, -1, -1)], "a sequence is known for a day, a key for minutes"


@pytest.mark.parametrize("value", [b"1", b""])
async def test_a_deleted_key_does_not_return_with_the_record_that_holds_an_idempotency_key(value, disk, clock):
    table = Table()
    async with inline_node(disk, clock) as node:
        await node.shard.create_topic("t", 1, 1, {**SETTINGS, "delete_retention_ms": 1000})
        partition = node.shard.partition("t", 0)
        entry = keyed_batch.stored_entry(keyed_batch.KeyEntry(b"k" * 16, b"r" * 16, 1, 5))
        batch = record_batch.encode([(5, b"a", value, []), (5, b"b", b"1", [])], entry=entry)
        await node.acknowledged(partition, node.append(partition, batch, Acks.ALL), Acks.ALL)
        await table.send(node, [(b"a", None)])
        await table.seal(node)
        for _ in range(3):
            await table.compact(node, disk)
            clock.pass_ms(2000)
        assert read_entry((await node.shard.reader.read(partition, 0, 1000)).data) is not None
        assert fold((one.key, one.value) for one in await table.read(node)) == {b"b": b"1"}
        for key in (b"c", b"d"):  # a round of new records takes the tombstones of earlier rounds with it
            clock.pass_ms(86_400_000)
            await table.send(node, [(key, b"1")])
            await table.seal(node)
            await table.compact(node, disk)
            clock.pass_ms(2000)
        await table.compact(node, disk)
        assert [one.key for one in await table.read(node)] == [b"b", b"c", b"d"]
