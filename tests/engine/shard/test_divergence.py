"""A new epoch, a truncation or a reset of an open log: writers, readers and waiters all get correct results."""

import asyncio
import threading

import pytest

from engine.errors import AckTruncated, LogTruncated, OffsetAboveHighWatermark, SequenceGap, StorageFailed
from engine.format import batch as record_batch
from engine.format import paths
from engine.format.keyed_batch import KeyEntry, stored_entry
from engine.log.epochs import EpochStart
from engine.log.leader_epochs import load_epochs
from engine.producers.appends import Appended
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from engine.testing.recording_disk import RecordingDisk
from replication.replica.acks import Acks
from tests.engine.conftest import running_node
from tests.engine.crash.inline_node import inline_node
from tests.engine.crash.power_loss import check_story
from tests.engine.crash.teller import HandClock
from tests.waiting import LIMIT_S, until

LETTERS = "abcdefghij"  # one batch of two records for each letter


def batch(value: str, base_offset: int = 0, epoch: int = 1, count: int = 2) -> bytearray:
    made = record_batch.encode_values([value.encode()] * count, 5)
    record_batch.stamp(made, base_offset, epoch)
    return made


async def copy(shard, value: str, base_offset: int, epoch: int = 1, *, starts_segment: bool = False) -> int:
    data = bytes(batch(value, base_offset, epoch))
    return await shard.committer.append_as_follower(
        shard.partition("t", 0), data, wants_sync=True, starts_segment=starts_segment
    )


async def grown(node, settings: dict[str, object] | None = None):
    """Return a follower's log: ten batches of two epochs in three segments, durable, partly committed."""
    shard = node.shard
    await shard.create_topic("t", 1, 1, settings or {})
    partition = shard.partition("t", 0)
    node.hooks.follow(partition)
    for at, value in enumerate(LETTERS):
        await copy(shard, value, 2 * at, 1 if at < 6 else 3, starts_segment=at in (4, 8))
    partition.watermark.advance(8)
    return partition


def values(partition) -> str:
    found = ""
    for segment in partition.log.segments:
        data = segment.disk.pread(segment.handle, segment.size_bytes, 0)
        found += "".join(bytes(record.value or b"").decode() for record in record_batch.decode(data))
    return found


@pytest.fixture
async def node(new_node):
    async with new_node() as node:
        await grown(node)
        yield node


async def test_an_epoch_is_durable_and_stamped_into_what_follows(node):
    shard, partition = node.shard, node.shard.partition("t", 0)
    await shard.start_epoch(partition, 7)
    assert load_epochs(shard.disk, partition.log.directory)[-1] == EpochStart(7, 20)
    await node.leaders["t", 0].append(batch("k"), Acks.LEADER)
    assert record_batch.read_header((await shard.reader.read_uncommitted(partition, 20, 1)).data).leader_epoch == 7
    await shard.start_epoch(partition, 7)
    assert partition.log.epochs[-1] == EpochStart(7, 20), "it has begun already"


async def test_epoch_0_begins_without_a_file(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        partition = node.shard.partition("t", 0)
        await node.shard.start_epoch(partition, 0)
        assert partition.log.epochs == [EpochStart(0, 0)]
        assert load_epochs(node.shard.disk, partition.log.directory) == []


@pytest.mark.parametrize("offset", [8, 9, 11, 12, 15, 20])
async def test_a_cut_leaves_whole_batches_and_the_log_continues_there(new_node, offset):
    end = offset - offset % 2
    async with new_node() as node:
        partition = await grown(node)
        await node.shard.truncate(partition, offset)
        positions = partition.statistics()
        assert (positions.log_end, positions.durable_end, positions.high_watermark) == (end, end, 8)
        assert partition.log.epochs == [epoch for epoch in (EpochStart(1, 0), EpochStart(3, 12)) if epoch[1] < end]
        await copy(node.shard, "z", end, 5)
        partition.watermark.advance(end + 2)
        expected = "".join(2 * letter for letter in LETTERS[: end // 2]) + "zz"
        assert values(partition) == expected
    async with new_node() as node:
        assert values(node.shard.partition("t", 0)) == expected
        assert partition.log.epochs == node.shard.partition("t", 0).log.epochs


async def test_waiters_for_truncated_records_fail(node):
    partition = node.shard.partition("t", 0)
    ack, poll = partition.watermark.acks.wait_for(14), partition.watermark.polls.wait_for(14)
    await node.shard.truncate(partition, 12)
    with pytest.raises(AckTruncated):
        await ack
    assert not poll.done(), "other records will come"
    await copy(node.shard, "z", 12, 5)
    partition.watermark.advance(14)
    assert await poll == 14


async def test_a_cut_below_the_high_watermark_sets_it_back(node):
    """Unclean elections only."""
    partition = node.shard.partition("t", 0)
    partition.watermark.advance(18)
    poll = partition.watermark.polls.wait_for(19)
    await node.shard.truncate(partition, 13)
    assert (partition.high_watermark, partition.log_end, await poll) == (12, 12, 12)
    with pytest.raises(OffsetAboveHighWatermark):
        partition.check_readable(13)
    await copy(node.shard, "z", 12, 5)
    assert await node.shard.reader.read(partition, 12, 100) is None
    partition.watermark.advance(14)
    assert (await node.shard.reader.read(partition, 12, 100)).next_offset == 14


async def test_sequences_and_keys_that_were_cut_off_are_not_known_any_more(node):
    shard, partition = node.shard, node.shard.partition("t", 0)
    entry = KeyEntry(b"k" * 16, b"r" * 16, 1, shard.clock.now_ms())
    made = [batch("s", 20), batch("s", 22), record_batch.encode_values([b"v"], 5, entry=stored_entry(entry))]
    for sequence, one in enumerate(made[:2]):
        record_batch.stamp_sequence(one, 7, 0, 2 * sequence)
    record_batch.stamp(made[2], 24, 1)
    await shard.committer.append_as_follower(partition, b"".join(made), wants_sync=True)
    assert partition.validator.keys.find(entry.key_hash, entry.time_ms) is not None
    await shard.truncate(partition, 22)
    assert partition.validator.keys.find(entry.key_hash, entry.time_ms) is None
    assert shard.key_budget.keys == 0
    later = batch("s")
    record_batch.stamp_sequence(later, 7, 0, 4)
    with pytest.raises(SequenceGap):
        await node.leaders["t", 0].produce(later, Acks.LEADER, 5000)
    assert await node.leaders["t", 0].produce(made[1], Acks.LEADER, 5000) == Appended(22, 2)


@pytest.mark.parametrize("at", [0, 6, 40])
async def test_a_log_reset_has_nothing_and_continues_from_there(new_node, at):
    async with new_node() as node:
        partition = await grown(node)
        records = partition.log_end - partition.opened_at
        await node.shard.reset_log(partition, at, at)
        positions = partition.statistics()
        assert (positions.log_start, positions.log_end, positions.durable_end, positions.high_watermark) == (at,) * 4
        assert partition.log_end - partition.opened_at == records, "a counter does not go back"
        await copy(node.shard, "z", at, 9)
        partition.watermark.advance(at + 2)
        assert bytes((await node.shard.reader.read(partition, at, 100)).data) == bytes(batch("z", at, 9))
    async with new_node() as node:
        assert values(node.shard.partition("t", 0)) == "zz"


async def test_it_may_begin_within_a_batch(node):
    partition = node.shard.partition("t", 0)
    await node.shard.reset_log(partition, 30, 31)
    assert (partition.log.log_start, partition.log_end) == (31, 30)
    assert await copy(node.shard, "z", 30, 9) == 32
    partition.watermark.advance(32)
    assert await node.shard.reader.read(partition, 31, 100) is not None


async def test_a_cut_waits_for_the_group_under_way_refuses_what_is_queued_and_holds_back_what_comes(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        partition = await grown(node)
        written, cut_off = threading.Event(), threading.Event()
        disk.rules = [
            Rule("pwritev", ".log", act=lambda _: written.wait(LIMIT_S)),
            Rule("truncate", ".log", act=lambda _: cut_off.wait(LIMIT_S)),
        ]
        under_way = asyncio.ensure_future(copy(node.shard, "k", 20))
        await until(lambda: disk.rules[0].matched)
        cut = asyncio.ensure_future(node.shard.truncate(partition, 20))
        refused = [
            asyncio.ensure_future(copy(node.shard, "l", 22)),
            node.leaders["t", 0].append(batch("l"), Acks.LEADER),
        ]
        await asyncio.sleep(0.01)
        written.set()
        assert await under_way == 22
        assert [type(error) for error in await asyncio.gather(*refused, return_exceptions=True)] == [
            LogTruncated,
            LogTruncated,
        ]
        await until(lambda: disk.rules[1].matched)
        later = asyncio.ensure_future(copy(node.shard, "z", 20, 5))
        await asyncio.sleep(0.01)
        cut_off.set()
        await cut
        assert await later == 22
        assert values(partition) == "".join(2 * letter for letter in LETTERS) + "zz"
    assert node.shard.committer.queued_bytes == 0


async def test_a_cancel_gives_up_the_wait_and_not_the_cut(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        partition = await grown(node)
        disk.rules = [Rule("truncate", ".log", delay_s=0.1)]
        cut = asyncio.ensure_future(node.shard.truncate(partition, 11))
        await until(lambda: disk.rules[0].matched)
        cut.cancel()
        assert await copy(node.shard, "z", 10, 5) == 12
    assert disk.rules[0].applied == 1


async def test_reads_of_what_is_committed_continue_while_the_log_is_cut(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        partition = await grown(node)
        await node.shard.reader.read_uncommitted(partition, 0, 1 << 20)
        read_twice = threading.Event()
        disk.rules = [
            Rule("truncate", ".log", act=lambda _: read_twice.wait(LIMIT_S)),
            Rule("unlink", ".log", delay_s=0.05),
        ]
        cut = asyncio.ensure_future(node.shard.truncate(partition, 10))
        reads = 0
        while not cut.done():
            for offset in range(8):
                chunk = await node.shard.reader.read(partition, offset, 1)
                assert record_batch.read_header(chunk.data).base_offset == offset - offset % 2
            reads += 1
            if reads > 1:
                read_twice.set()
            await asyncio.sleep(0)
        await cut
        assert reads > 1


async def test_nothing_made_of_what_was_cut_lies_beside_the_log(tmp_path, clock):
    """An index or a checksum may be in the middle of a save, for a segment that is not sealed any more."""
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        partition = await grown(node)
        disk.rules = [Rule("rename", paths.CHECKSUM, delay_s=0.1)]
        await copy(node.shard, "k", 20, 3, starts_segment=True)
        assert partition.log.sealed_end == 20
        await node.shard.truncate(partition, 18)
        await asyncio.gather(*node.shard.sealer._saving.get(partition, ()))
        names = [name for name in disk.listdir(partition.log.directory) if name.endswith(paths.SEGMENT_SUFFIXES)]
        assert disk.rules[0].applied == 1
        assert partition.log.active.base_offset == 16
        assert [name for name in names if name.startswith(paths.digits(16))] == [paths.segment_file(16, paths.LOG)]


async def test_a_disk_that_fails_half_way_takes_the_partition_offline(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        partition = await grown(node)
        disk.rules = [Rule("fdatasync", ".log", error=5)]
        with pytest.raises(StorageFailed):
            await node.shard.truncate(partition, 11)
        assert isinstance(partition.offline, StorageFailed)
        with pytest.raises(StorageFailed):
            await node.shard.truncate(partition, 11)


async def test_a_disk_that_does_not_take_the_recovery_point_leaves_all_as_it_was(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        partition = await grown(node)
        disk.rules = [Rule("rename", name, error=28) for name in (paths.RECOVERY_POINTS, paths.SPARE)]
        with pytest.raises(Exception, match="no space"):
            await node.shard.truncate(partition, 11)
        assert partition.offline is None
        assert values(partition) == "".join(2 * letter for letter in LETTERS)
        await node.shard.truncate(partition, 11)
        assert partition.log_end == 10


async def test_the_log_starts_where_the_leader_s_does_as_far_as_it_is_durable(node):
    partition = node.shard.partition("t", 0)
    await node.shard.follow_log_start(partition, 9)
    assert partition.log.log_start == 9
    assert partition.log.segments[0].base_offset == 8
    partition.durable_end = 12
    await node.shard.follow_log_start(partition, 19)
    assert partition.log.log_start == 12


class Cut:
    """The power fails during a truncation or a reset: the remaining log opens, as a prefix of the old log."""

    def __init__(self, to: int, *, is_anew: bool) -> None:
        self.to = to
        self.is_anew = is_anew
        self.clock = HandClock()
        self.is_done = False

    async def story(self, disk: RecordingDisk) -> None:
        async with inline_node(disk, self.clock) as node:
            partition = await grown(node)
            await node.shard.sealer.wait_saved(partition)
            node.checkpoint()
            if self.is_anew:
                await node.shard.reset_log(partition, self.to, self.to)
            else:
                await node.shard.truncate(partition, self.to)
            self.is_done = True
            await copy(node.shard, "z", partition.log_end, 5)
            node.kill()

    async def check(self, disk: RecordingDisk) -> None:
        before = "".join(2 * letter for letter in LETTERS)
        async with inline_node(disk, self.clock) as node:
            if "t" not in node.shard.topics:
                return
            partition = node.shard.partition("t", 0)
            assert partition.offline is None, partition.offline
            found = values(partition)
            kept = "" if self.is_anew else before[: self.to]
            if self.is_done:
                assert found in (kept, kept + "zz")
                assert partition.log_end >= self.to
            elif self.is_anew:  # deleted files may then disappear in any order
                assert found in before
            else:
                assert before.startswith(found)
            node.kill()


@pytest.mark.parametrize(("to", "is_anew"), [(10, False), (18, False), (40, True), (6, True)])
async def test_a_power_loss_in_a_cut_leaves_a_log_that_opens(to, is_anew):
    await check_story(lambda: Cut(to, is_anew=is_anew), first=40, every=3, limit=4)
