"""The high watermark may move to any position between two batches, and readers get exactly what is below it."""

import asyncio
import logging
import threading
from contextlib import asynccontextmanager

import pytest

from engine.errors import AckTimeout, OffsetBelowLogStart, StorageFailed
from engine.format import batch as record_batch
from engine.log.batch_boundaries import boundary_below
from engine.log.log import BytePosition, Write
from engine.log.segment import Segment
from engine.partition import high_watermark
from engine.runtime.disk import WouldBlock
from replication.replica.acks import Acks

SIZES = (3, 1, 2, 5, 1, 1, 4, 2)  # records of each batch


@pytest.fixture
async def node(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {"segment_bytes": 65536})
        yield node


def batches(pad: int = 10) -> list[bytes]:
    """Return successive batches, stamped as by a leader."""
    made, offset = [], 0
    for size in SIZES:
        one = record_batch.encode_values([b"v" * pad] * size, 5)
        record_batch.stamp(one, offset, 1)
        made.append(bytes(one))
        offset += size
    return made


def ends() -> list[int]:
    return [sum(SIZES[:n]) for n in range(1, len(SIZES) + 1)]


def followed(node):
    """Return the partition of a follower; the test moves its high watermark."""
    partition = node.shard.partition("t", 0)
    node.hooks.follow(partition)
    return partition


async def copied(node, *groups: list[bytes]) -> None:
    for group in groups:
        await node.shard.committer.append_as_follower(node.shard.partition("t", 0), b"".join(group), wants_sync=True)


async def committed(node) -> bytes:
    partition, offset, found = node.shard.partition("t", 0), 0, b""
    while (chunk := await node.shard.reader.read(partition, offset, 100)) is not None:
        found += bytes(chunk.data)
        offset = chunk.next_offset
    assert offset == partition.high_watermark
    return found


@asynccontextmanager
async def begun_again(new_node, made: list[bytes]):
    """Restart a node that has copied these batches and does not know the high watermark."""
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {"segment_bytes": 65536})
        followed(node)
        await copied(node, made)
    async with new_node() as node:
        node.shard.partition("t", 0).watermark.set_back(0, BytePosition(0, 0))
        yield node


@pytest.mark.parametrize("pad", [10, 12_000], ids=["one segment", "several"])
@pytest.mark.parametrize("split", [0, 3])
async def test_each_place_between_two_batches_of_a_group_is_exact(node, pad, split):
    partition, made = followed(node), batches(pad)
    await copied(node, *filter(None, (made[:split], made[split:])))
    assert partition.high_watermark == 0
    assert await committed(node) == b""
    for count, end in enumerate(ends(), 1):
        partition.watermark.advance(end)
        assert await committed(node) == b"".join(made[:count])
    assert len(partition.watermark.boundaries) == 0


@pytest.mark.parametrize("is_cold", [False, True], ids=["in memory", "on the disk"])
async def test_places_of_an_earlier_life_are_found(new_node, monkeypatch, is_cold):
    made = batches(12_000)
    async with begun_again(new_node, made) as node:
        partition = followed(node)
        assert len(partition.log.segments) > 1
        if is_cold:
            monkeypatch.setattr(node.shard.disk, "pread_nowait", would_block)
        for count, end in enumerate(ends(), 1):
            waiting = partition.watermark.acks.wait_for(end)
            partition.watermark.advance(end)
            await asyncio.wait_for(waiting, 60)
            assert await committed(node) == b"".join(made[:count])


def would_block(*_):
    raise WouldBlock


@pytest.mark.parametrize("failing", ["reading", "opening", "looking"])
async def test_a_batch_position_that_the_disk_returns_late_is_found_without_another_event(
    new_node, monkeypatch, failing, caplog
):
    """Before the fix one failure left the high watermark unchanged: the leader sends each position only once."""
    caplog.set_level(logging.WARNING, "penstock.engine")
    async with begun_again(new_node, batches()) as node:
        partition = followed(node)
        failures = 3

        def fail_at_first(real):
            def call(*args, **kwargs):
                nonlocal failures
                if failures:
                    failures -= 1
                    raise KeyError("a bug") if failing == "looking" else OSError(5, "broken")
                return real(*args, **kwargs)

            return call

        monkeypatch.setattr(node.shard.disk, "pread_nowait", would_block)
        if failing == "reading":
            monkeypatch.setattr(node.shard.disk, "pread", fail_at_first(node.shard.disk.pread))
        elif failing == "opening":
            monkeypatch.setattr(Segment, "begin_read", fail_at_first(Segment.begin_read))
        else:
            monkeypatch.setattr("engine.partition.reader.boundary_below", fail_at_first(boundary_below))
        waiting = partition.watermark.acks.wait_for(4)
        partition.watermark.advance(4)
        await asyncio.wait_for(waiting, 60)
        assert (partition.high_watermark, failures) == (4, 0)
        assert node.shard.reader.failed_reads == (0 if failing == "looking" else 3)
        assert len([line for line in caplog.records if line.message == "high watermark not found yet"]) <= 1


async def test_the_disk_is_asked_once_for_many_positions(new_node, monkeypatch):
    async with begun_again(new_node, batches()) as node:
        partition, looked_up, may_answer = followed(node), [], threading.Event()

        def place_found_slowly(log, position, read):
            looked_up.append(position)
            assert may_answer.wait(60)
            return boundary_below(log, position, read)

        monkeypatch.setattr(node.shard.disk, "pread_nowait", would_block)
        monkeypatch.setattr("engine.partition.reader.boundary_below", place_found_slowly)
        for end in ends()[:-1]:
            partition.watermark.advance(end)
        waiting = partition.watermark.acks.wait_for(ends()[-2])
        may_answer.set()
        await asyncio.wait_for(waiting, 60)
        assert looked_up == [ends()[-2]]


async def test_a_stop_does_not_wait_for_a_disk_that_never_returns(new_node, monkeypatch):
    async with asyncio.timeout(60), begun_again(new_node, batches()) as node:
        partition = followed(node)
        monkeypatch.setattr(node.shard.disk, "pread_nowait", would_block)
        monkeypatch.setattr("engine.partition.reader.boundary_below", broken)
        partition.watermark.advance(4)
        while not node.shard.reader.failed_reads:
            await asyncio.sleep(0)
        assert partition.high_watermark == 0


async def test_a_place_that_was_looked_for_before_a_cut_is_void(new_node, monkeypatch):
    """After an unclean election the announced high watermark may be above the log end."""
    async with begun_again(new_node, batches()) as node:
        partition, (*_, before_last, last) = followed(node), ends()
        found, may_answer = threading.Event(), threading.Event()

        def place_found_slowly(*args):
            place = boundary_below(*args)
            found.set()
            assert may_answer.wait(60)
            return place

        monkeypatch.setattr(node.shard.disk, "pread_nowait", would_block)
        with monkeypatch.context() as patch:
            patch.setattr("engine.partition.reader.boundary_below", place_found_slowly)
            life = partition.watermark.generation
            partition.watermark.advance(before_last)
            assert await asyncio.to_thread(found.wait, 30)
            await node.shard.truncate(partition, ends()[2])
            may_answer.set()
            await node.shard._finding.wait_ended()
            partition.watermark.sought = last
            await node.shard.reader.find_watermark(partition, life)
            partition.watermark.sought = None
        assert partition.log_end == ends()[2]
        assert partition.high_watermark == 0
        waiting = partition.watermark.acks.wait_for(ends()[1])
        partition.watermark.advance(ends()[1])
        await asyncio.wait_for(waiting, 60)


def broken(*_):
    raise OSError(5, "broken")


async def test_a_node_that_is_alone_keeps_no_boundaries(node):
    partition = node.shard.partition("t", 0)
    for _ in range(3):
        await node.leaders["t", 0].append(record_batch.encode_values([b"v"], 5), Acks.LEADER)
    assert len(partition.watermark.boundaries) == 0
    await node.shard.committer.sync_all(node.shard.partitions)
    assert (partition.high_watermark, partition.watermark.byte_position) == (3, partition.log.end_position)


def held_bytes(partition) -> int:
    """Return the bytes of records that are held while they wait to be committed."""
    steps = [step for group in partition.watermark.boundaries._groups for step in group.steps]
    return sum(sum(map(len, step.buffers)) for step in steps if isinstance(step, Write))


async def test_no_record_stays_in_memory_until_it_is_committed(node):
    """With acks=1 and too few in-sync replicas they may never be committed."""
    partition, made = followed(node), batches(12_000)
    for _ in range(3):
        await node.leaders["t", 0].append(record_batch.encode_values([b"v" * 50_000], 5), Acks.LEADER)
    assert len(partition.watermark.boundaries) == 3
    assert held_bytes(partition) == 0
    await copied(node, *([bytes(one)] for one in stamped_behind(made, partition.log_end)))
    assert len(partition.watermark.boundaries) == 3 + len(made)
    assert held_bytes(partition) == 0


async def test_where_batches_end_is_forgotten_when_too_many_are_not_committed(node, monkeypatch):
    monkeypatch.setattr(high_watermark, "BATCHES_MAX", 3)
    partition, made = followed(node), batches(12_000)
    for one in made:
        await copied(node, [one])
    assert len(partition.watermark.boundaries) == 3
    for count, end in enumerate(ends(), 1):
        waiting = partition.watermark.acks.wait_for(end)
        partition.watermark.advance(end)
        await asyncio.wait_for(waiting, 60)
        assert await committed(node) == b"".join(made[:count])
    await copied(node, *([bytes(one)] for one in stamped_behind(made, partition.log_end)))
    assert len(partition.watermark.boundaries) == 3, "those that were committed do not count"


def stamped_behind(made: list[bytes], offset: int) -> list[bytearray]:
    """Return the same batches with the next offsets."""
    again = [bytearray(one) for one in made]
    for one, size in zip(again, SIZES, strict=True):
        record_batch.stamp(one, offset, 1)
        offset += size
    return again


async def test_an_acknowledgement_is_waited_for_apart_from_long_polls(node):
    partition = followed(node)
    await copied(node, batches())
    poll, ack = partition.watermark.polls.wait_for(3), partition.watermark.acks.wait_for(3)
    assert partition.watermark.waiting
    assert partition.statistics().waiting == 2
    partition.wake_all()
    assert (poll.done(), poll.result(), ack.done()) == (True, 0, False)
    assert partition.watermark.waiting
    partition.watermark.acks.fail_present(StorageFailed("another leads"))
    with pytest.raises(StorageFailed):
        await ack
    assert not partition.watermark.waiting
    later = partition.watermark.acks.wait_for(4)
    partition.watermark.advance(4)
    assert await later == 4, "only those that waited then have failed"


async def test_a_drain_acknowledges_nothing_that_is_not_committed(node):
    partition = followed(node)
    produced = asyncio.ensure_future(node.leaders["t", 0].produce(record_batch.encode_values([b"v"], 5), Acks.ALL, 300))
    await asyncio.sleep(0.05)
    partition.wake_all()
    with pytest.raises(AckTimeout):
        await produced


async def uncommitted(node, offset: int, max_bytes: int = 100) -> bytes:
    partition, found = node.shard.partition("t", 0), b""
    while (chunk := await node.shard.reader.read_uncommitted(partition, offset, max_bytes)) is not None:
        found += bytes(chunk.data)
        offset = chunk.next_offset
    assert offset == partition.log_end
    return found


async def test_followers_are_given_what_is_not_committed(node):
    partition, made = followed(node), batches()
    await copied(node, made[:3], made[3:])
    assert partition.high_watermark == 0
    assert node.shard.reader.read_uncommitted_nowait(partition, 0, 1 << 20).data == b"".join(made)
    for at, end in enumerate(ends()):
        assert await uncommitted(node, end) == b"".join(made[at + 1 :])
    assert node.shard.reader.read_uncommitted_nowait(partition, sum(SIZES), 100) is None


@pytest.mark.parametrize("is_cold", [False, True], ids=["in memory", "on the disk"])
async def test_followers_are_given_segments_that_nobody_has_read_yet(new_node, monkeypatch, is_cold):
    made = batches(12_000)
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {"segment_bytes": 65536})
        followed(node)
        await copied(node, made)
    async with new_node() as node:
        partition, reader = followed(node), node.shard.reader
        assert partition.log.segments[0].loaded_index is None
        with pytest.raises(WouldBlock):
            reader.read_uncommitted_nowait(partition, 0, 100)
        if is_cold:
            monkeypatch.setattr(node.shard.disk, "pread_nowait", would_block)
        assert await uncommitted(node, 0) == b"".join(made)
        bases = {segment.base_offset for segment in partition.log.segments}
        assert {offset for offset in range(sum(SIZES)) if partition.log.has_segment_at(offset)} == bases
        partition.log.drop_oldest(partition.log.sealed_end)
        with pytest.raises(OffsetBelowLogStart):
            await reader.read_uncommitted(partition, 0, 100)
