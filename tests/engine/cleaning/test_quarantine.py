"""Damage in a running shard: damaged records are never served, all others are, and a good copy ends the damage.

Real files, a real store and the real scrubber; a flipped bit in a file simulates disk decay.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from engine.cleaning.quarantine import LocalPartition
from engine.cleaning.scrubber import Scrubber
from engine.cleaning.segment_check import examine, sealed_file
from engine.errors import Damaged, StorageFailed
from engine.format import batch as record_batch
from engine.format import paths
from engine.format.checksum import at_once
from engine.log.log import ReadSpan
from engine.partition.spool import Spool
from engine.runtime.disk import RealDisk
from engine.tiering.reading.repair import restore_segment
from engine.tiering.shipping.shipper import PartitionShipper, ShipperComponents
from engine.tiering.store.store import ObjectStore, open_store
from engine.tiering.tier import _Source
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock, running_node

SEGMENTS, BATCHES, COUNT = 3, 6, 4
PER_SEGMENT = BATCHES * COUNT
PREFIX = "cluster/t/id1/0/"


class Scene:
    """A partition of three sealed segments, with and without a copy in the store."""

    def __init__(self, node, store: ObjectStore) -> None:
        self.node = node
        self.store = store
        self.partition = node.shard.partition("t", 0)
        self.restore = lambda _, file: restore_segment(store, RealDisk(), PREFIX, file)

    def log_file(self, number: int) -> Path:
        return Path(self.partition.log.segments[number].path)

    def flip(self, number: int, batch: int, at: int = 100) -> None:
        """Change a byte of a batch of a segment."""
        data = bytearray(self.log_file(number).read_bytes())
        position = 0
        for _ in range(batch):
            position += record_batch.read_header(data, position).size_bytes
        data[position + at] ^= 1
        self.log_file(number).write_bytes(data)

    async def scrub(self) -> None:
        own = LocalPartition("id1", self.partition, self.node.shard.quarantine)
        scrubber = Scrubber(RealDisk(), lambda: [own], self.restore, bytes_per_second=1 << 40, interval_ms=1000)
        await scrubber.scrub_all()
        await scrubber.stop()

    async def ship(self) -> None:
        with ThreadPoolExecutor(1) as executor:
            ids = iter(f"{n:032x}" for n in range(100))
            parts = ShipperComponents(self.store, RealDisk(), self.node.shard.clock, Random(1), ids.__next__, executor)
            shard, record = self.node.shard, self.node.shard.topics["t"].record
            source = _Source(shard, record, self.partition, lambda end: None, lambda _: None, Spool())
            shipper = PartitionShipper(PREFIX, source, writer="w", components=parts)
            await shipper.ship_once()

    async def readable(self) -> list[int]:
        """Return every offset that a reader receives; it continues after damage as the problem says. -1 marks a wrong
        problem.
        """
        found, offset = [], 0
        while offset < self.partition.high_watermark:
            try:
                chunk = await self.node.shard.reader.read(self.partition, offset, 1)
            except Damaged as error:
                first, end = error.members["damaged_from"], error.members["damaged_end"]
                found += [-1] if not first <= offset < end else []
                offset = end
                continue
            for position, header in record_batch.walk(chunk.data):
                assert record_batch.has_valid_crc(chunk.data, position, header)
                found += range(max(offset, header.base_offset), header.next_offset)
            offset = chunk.next_offset
        return found


@pytest.fixture
async def opened(tmp_path, clock):
    """Open the node of the test's directory, again after a close."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Scene]:
        async with running_node(tmp_path / "data", clock) as node:
            if "t" not in node.shard.topics:
                await node.shard.create_topic("t", 1, 1, {})
                await _fill(node)
            yield Scene(node, open_store((tmp_path / "store").as_uri()))

    return opened


async def _fill(node) -> None:
    leader = node.leaders["t", 0]
    for _ in range(SEGMENTS):
        for _ in range(BATCHES):
            data = record_batch.encode_values([b"x" * 1500] * COUNT, 5)
            await leader.acknowledge(leader.append(data, Acks.ALL), Acks.ALL, 5000)
        await node.shard.roll_topic("t")
        await node.shard._background.wait_ended()


EVERYTHING = list(range(SEGMENTS * PER_SEGMENT))


def without(first: int, end: int) -> list[int]:
    return [offset for offset in EVERYTHING if not first <= offset < end]


async def test_no_read_touches_a_damaged_byte(opened):
    async with opened() as scene:
        scene.flip(1, batch=2)
        await scene.scrub()
        segment = scene.partition.log.segments[1]
        (damage,) = segment.damage
        for offset in without(damage.start_offset, damage.end_offset):
            for max_bytes in (1, 5000, 1 << 20):
                watermark = scene.partition.watermark
                span = scene.partition.log.locate(offset, max_bytes, watermark.position, watermark.byte_position)
                assert isinstance(span, ReadSpan)
                is_apart = span.end <= damage.start_position or span.start >= damage.end_position
                assert span.segment is not segment or is_apart


async def test_quarantine_outlives_a_restart(opened):
    async with opened() as scene:
        scene.flip(0, batch=5)
        await scene.scrub()
    async with opened() as scene:
        first = 5 * COUNT
        assert await scene.readable() == without(first, first + COUNT)
    async with opened() as scene:
        mark = Path(scene.partition.log.segments[0].file(paths.QUARANTINE))
        mark.write_text("nonsense")
    async with opened() as scene:
        assert await scene.readable() == without(0, PER_SEGMENT)


async def test_damage_that_several_find_at_once_is_written_down_by_one_after_the_other(opened):
    async with opened() as scene:
        for number in range(SEGMENTS):
            scene.flip(number, batch=BATCHES - 1)
        quarantine, findings = scene.node.shard.quarantine, []
        for segment in scene.partition.log.segments[:SEGMENTS]:
            file = sealed_file(segment)
            findings.append((file, examine(RealDisk(), file, at_once)))
        await asyncio.gather(*(quarantine.record(scene.partition, *found) for found in findings for _ in range(8)))
        assert quarantine.damaged_found == SEGMENTS
    async with opened() as scene:
        assert [segment.damage for segment in scene.partition.log.segments[:SEGMENTS]] == [
            finding.damage for _, finding in findings
        ]


async def test_a_damaged_segment_is_repaired_from_the_store_byte_for_byte(opened):
    async with opened() as scene:
        await scene.ship()
        before, dated = scene.log_file(1).read_bytes(), scene.log_file(1).stat().st_mtime_ns // 1_000_000
        await scene.readable()  # the old file is open
        scene.flip(1, batch=0, at=15)
        await scene.scrub()
        assert scene.log_file(1).read_bytes() == before
        assert scene.log_file(1).stat().st_mtime_ns // 1_000_000 >= dated
        assert await scene.readable() == EVERYTHING
        assert scene.node.shard.quarantine.repaired == 1
        assert not any(path.suffix in (".tmp", paths.QUARANTINE) for path in scene.log_file(1).parent.iterdir())
    async with opened() as scene:
        assert await scene.readable() == EVERYTHING


def kept(scene: Scene) -> list[Path]:
    return sorted(scene.log_file(0).parent.glob("*.foreign*"))


async def test_a_replaced_file_with_batches_of_another_log_is_kept(opened, caplog):
    async with opened() as scene:
        await scene.ship()
        good = scene.log_file(1).read_bytes()
        other = record_batch.encode_values([b"of another partition"], 5)
        record_batch.stamp(other, PER_SEGMENT + 1, 0)
        foreign = b"garbage" + bytes(other) + good[1000:]
        scene.log_file(1).write_bytes(foreign)
        await scene.scrub()
        assert scene.log_file(1).read_bytes() == good
        (copy,) = kept(scene)
        assert copy.name.startswith(f"{PER_SEGMENT:020d}.foreign-")
        assert copy.read_bytes() == foreign
        (logged,) = (one for one in caplog.records if getattr(one, "kept", None) == str(copy))
        assert logged.levelno == logging.ERROR
        scene.log_file(1).write_bytes(foreign)
        await scene.scrub()
        assert kept(scene) == [copy]
        copy.with_name(f"{PER_SEGMENT:020d}.foreign.tmp").write_bytes(b"cut short")
    async with opened() as scene:
        await scene.scrub()
        assert await scene.readable() == EVERYTHING
        assert kept(scene) == [copy]
        await scene.node.shard.delete_topic("t")
        await scene.node.shard._background.wait_ended()
    async with opened():
        (left,) = copy.parents[4].rglob("*.foreign*")
        assert left.read_bytes() == foreign


@pytest.mark.parametrize("number", [0, 2])
async def test_a_replaced_file_of_another_segment_is_kept(opened, number):
    async with opened() as scene:
        await scene.ship()
        good, foreign = scene.log_file(1).read_bytes(), scene.log_file(number).read_bytes()
        scene.log_file(1).write_bytes(foreign)
        await scene.scrub()
        assert scene.log_file(1).read_bytes() == good
        (copy,) = kept(scene)
        assert copy.read_bytes() == foreign


async def test_a_replaced_file_with_its_own_batches_only_is_not_kept(opened):
    async with opened() as scene:
        await scene.ship()
        good = scene.log_file(1).read_bytes()
        size_bytes = record_batch.read_header(good).size_bytes
        flips = [bytes([*good[:at], good[at] ^ 1, *good[at + 1 :]]) for at in (10, 15, 20, 40, 3000)]
        for bad in (*flips, good[size_bytes + 9 :], good[:700] + good[900:], good + good[:3000], b"", bytes(9000)):
            scene.log_file(1).write_bytes(bad)
            await scene.scrub()
            assert scene.log_file(1).read_bytes() == good
            assert not kept(scene)


async def test_a_segment_shipped_in_part_is_repaired_as_far_as_the_store_has_it(opened):
    async with opened() as scene:
        await scene.node.shard.delete_before(scene.partition, 2 * COUNT)
        await scene.ship()
        before = scene.log_file(0).read_bytes()
        scene.flip(0, batch=3)
        await scene.scrub()
        assert scene.log_file(0).read_bytes() == before
        scene.flip(0, batch=1)  # only this disk had it, though readers no longer can request it
        await scene.scrub()
        assert scene.log_file(0).read_bytes() != before
        assert scene.partition.log.segments[0].damage


async def test_a_file_that_is_gone_comes_back_from_the_store(opened):
    async with opened() as scene:
        await scene.ship()
        before = scene.log_file(2).read_bytes()
        scene.log_file(2).unlink()
        await scene.scrub()
        assert scene.log_file(2).read_bytes() == before
        assert await scene.readable() == EVERYTHING


async def test_an_object_that_is_damaged_too_repairs_nothing(opened, tmp_path):
    async with opened() as scene:
        await scene.ship()
        (key,) = (tmp_path / "store").glob(f"{PREFIX}{PER_SEGMENT:020d}-*.log")
        data = bytearray(key.read_bytes())
        data[300] ^= 1
        key.chmod(0o600)
        key.write_bytes(data)
        scene.flip(1, batch=2)
        damaged = scene.log_file(1).read_bytes()
        await scene.scrub()
        assert scene.log_file(1).read_bytes() == damaged
        first = PER_SEGMENT + 2 * COUNT
        assert await scene.readable() == without(first, first + COUNT)


async def test_a_good_file_put_back_by_hand_ends_the_quarantine(opened):
    async with opened() as scene:
        before = scene.log_file(1).read_bytes()
        scene.flip(1, batch=2)
        await scene.scrub()
        copy = scene.log_file(1).with_suffix(".copy")
        copy.write_bytes(before)
        copy.rename(scene.log_file(1))
        await scene.scrub()
        assert await scene.readable() == EVERYTHING


async def test_a_repair_never_brings_an_expired_segment_back(opened):
    async with opened() as scene:
        await scene.ship()
        path, segment = scene.log_file(0), scene.partition.log.segments[0]
        copy = path.with_suffix(".log.tmp")
        copy.write_bytes(path.read_bytes())
        await scene.node.shard.delete_before(scene.partition, PER_SEGMENT)
        assert not await scene.node.shard.quarantine.repair(scene.partition, segment.base_offset, str(copy))
        assert not path.exists()
        assert not copy.exists()


async def test_a_reader_of_the_old_file_ends_in_peace(opened):
    async with opened() as scene:
        await scene.ship()
        scene.flip(1, batch=2)
        segment = scene.partition.log.segments[1]
        release, old = segment.begin_read(), segment.handle
        await scene.scrub()
        assert segment.handle != old
        assert segment.disk.pread(old, 10, 0)
        release()
        with pytest.raises(OSError):
            segment.disk.pread(old, 10, 0)


async def test_a_partition_that_cannot_be_scrubbed_for_any_reason_keeps_nobody_from_being_scrubbed(caplog):
    caplog.set_level(logging.INFO, "penstock")
    scrubbed = []

    class One:
        topic, topic_id = "t", "id"

        def __init__(self, number: int, error: Exception | None) -> None:
            self.number = number
            self.error = error

        async def list_sealed_files(self) -> list:
            scrubbed.append(self.number)
            if self.error is not None:
                raise self.error
            return []

    ones = [One(0, KeyError("a bug")), One(1, OSError(5, "broken")), One(2, StorageFailed("broken")), One(3, None)]
    scrubber = Scrubber(RealDisk(), lambda: ones, lambda *_: None, bytes_per_second=1 << 40, interval_ms=0)
    scrubber.start()
    while scrubbed.count(3) < 2:
        await asyncio.sleep(0)
    await scrubber.stop()
    assert scrubbed[:8] == [0, 1, 2, 3] * 2
    logged = [(record.levelname, record.message) for record in caplog.records][:3]
    not_scrubbed = "partition not scrubbed"
    assert logged == [("ERROR", "background task failed"), ("WARNING", not_scrubbed), ("INFO", not_scrubbed)]


async def test_a_batch_that_is_taken_out_of_the_active_segment_costs_itself_only(tmp_path):
    """Only the file has the positions of the batches after it: there is no saved index and no checksum."""
    async with running_node(tmp_path, HandClock()) as node:
        await node.shard.create_topic("t", 1, 1, {})
        for _ in range(COUNT * BATCHES):
            await node.leaders["t", 0].produce(record_batch.encode_values([b"x" * 500], 5), Acks.ALL, 1000)
        partition = node.shard.partition("t", 0)
        file = Path(partition.log.active.path)
        data = file.read_bytes()
        starts = [position for position, _ in record_batch.walk(data)]
        file.write_bytes(data[: starts[3]] + data[starts[4] :])
        refused = set()
        for offset in range(COUNT * BATCHES):
            try:
                chunk = await node.shard.reader.read(partition, offset, 1)
                assert record_batch.read_header(chunk.data).base_offset == offset
            except Damaged:
                refused.add(offset)
        assert refused == {3}
