"""Torn bytes are truncated and damaged bytes are reported: after any edit of the files the node serves only what was
sent.

A power loss leaves torn bytes only above the recovery point. Bytes below it were fsynced, so damage there is never
truncated: the partition stays closed. Derived files may be edited in any way; the answers stay the same.
"""

from __future__ import annotations

from itertools import accumulate
from unittest import mock

import pytest

from engine.errors import Corrupt, Damaged
from engine.format import batch as record_batch
from engine.format.batch import read_header
from engine.log.recovery import LastShutdown
from engine.runtime.disk import read_file
from engine.testing.faulty_disk import FaultyDisk
from engine.testing.recording_disk import RecordingDisk
from tests.engine.crash.inline_node import DATA_DIR, inline_node
from tests.engine.crash.power_loss import telling, until_power_is_lost
from tests.engine.crash.teller import ALL, LEADER, Teller

POINTS = f"{DATA_DIR}/recovery-points"


class Scene:
    """Three segments, the recovery point at the end of the second, and one way of stopping."""

    def __init__(self) -> None:
        self.teller = Teller(seed=1)
        self.disk = RecordingDisk(self.teller.clock)

    async def play(self, *, cleanly: bool) -> Scene:
        async def steps(teller: Teller) -> None:
            await teller.create("t", 1)
            for _ in range(2):
                await teller.append("t", (0, 50, ALL), (0, 5000, LEADER), (0, 60, ALL), (0, 6000, LEADER))
                await teller.roll("t")
            teller.checkpoint()
            await teller.append("t", (0, 50, ALL), (0, 5000, ALL), (0, 60, ALL))
            if not cleanly:
                teller.node.kill()

        await self.teller.life(self.disk, steps)
        self.ledger.promised_end = self.ledger.sent_end
        return self

    @property
    def ledger(self):
        return self.teller.ledgers["t", 0]

    def files(self, suffix: str) -> list[str]:
        return [path for path, _ in self.disk._tree.files() if path.endswith(suffix)]

    def edited(self, path: str, at: int, data: bytes) -> RecordingDisk:
        disk = self.disk.snapshot()
        disk.pwritev(disk.open(path, writable=True), [data], at)
        return disk

    def cut(self, path: str, size_bytes: int) -> RecordingDisk:
        disk = self.disk.snapshot()
        disk.truncate(disk.open(path, writable=True), size_bytes)
        return disk

    def is_of_offset(self, at: int) -> bool:
        """True for a byte of a base offset in the last segment, which no batch checksum covers."""
        data = read_file(self.disk, self.files(".log")[-1])
        return any(position <= at < position + 8 for position, _ in record_batch.walk(data))

    def flipped(self, path: str, every: int = 1):
        """Yield disks that each have one flipped bit in a file."""
        data = read_file(self.disk, path)
        for at in range(0, len(data), every):
            yield at, self.edited(path, at, bytes([data[at] ^ (1 << at % 8)]))


async def reason_for_closing(teller: Teller, disk: RecordingDisk) -> str:
    """Return why the partition was not opened; empty if it was."""
    async with inline_node(disk, teller.clock) as node:
        node.kill()
        offline = node.shard.partition("t", 0).offline
        return str(offline) if offline else ""


async def log_end(teller: Teller, disk: RecordingDisk) -> int:
    teller.ledgers["t", 0].promised_end = 0
    await teller.check(disk)
    return teller.ledgers["t", 0].found_end


@pytest.fixture
async def killed() -> Scene:
    return await Scene().play(cleanly=False)


@pytest.fixture(params=["killed", "stopped"])
async def scene(request) -> Scene:
    return await Scene().play(cleanly=request.param == "stopped")


async def test_a_tail_torn_at_any_byte_loses_the_torn_batch_only(killed):
    path, (base, _, data) = killed.files(".log")[-1], killed.ledger.batches()[-1]
    size = len(read_file(killed.disk, path))
    for torn in range(1, len(data) + 1, 7):
        with telling(f"{torn} bytes less"):
            assert await log_end(killed.teller, killed.cut(path, size - torn)) == base


async def test_a_zero_tail_of_any_length_is_no_batch(killed):
    path, (base, end, data) = killed.files(".log")[-1], killed.ledger.batches()[-1]
    size = len(read_file(killed.disk, path))
    for zeros in (1, 12, 60, 61, 62, 5000):
        assert await log_end(killed.teller, killed.edited(path, size, bytes(zeros))) == end
    for zeros in range(8, len(data) + 1, 7):
        assert await log_end(killed.teller, killed.edited(path, size - zeros, bytes(zeros))) == base


async def test_after_a_power_loss_a_gap_above_the_recovery_point_ends_the_log_there_and_is_logged(killed):
    path = killed.files(".log")[-1]
    batches = [b for b in killed.ledger.batches() if b[0] >= 17]
    last_at = len(read_file(killed.disk, path)) - len(batches[-1][2])
    for at, disk in killed.flipped(path, every=97):
        if killed.is_of_offset(at):
            continue
        disk.boots += 1
        with telling(f"byte {at}"):
            async with inline_node(disk, killed.teller.clock) as node:
                node.kill()
                assert node.shard.directory.last_shutdown is LastShutdown.POWER_LOSS
                assert node.shard.partition("t", 0).log_end in [base for base, _, _ in batches]
                assert node.shard.recovered.mid_log_truncations == (at < last_at)


async def test_after_a_kill_a_hole_above_the_recovery_point_is_corruption_and_a_bad_last_batch_is_a_torn_tail(killed):
    """The page cache keeps the order of writes, so only the last write can be torn."""
    path, size_bytes = killed.files(".log")[-1], len(read_file(killed.disk, killed.files(".log")[-1]))
    base, _, last = killed.ledger.batches()[-1]
    for at, disk in killed.flipped(path, every=97):
        with telling(f"byte {at}"):
            if killed.is_of_offset(at):
                assert "a whole batch of offset" in await reason_for_closing(killed.teller, disk)
            elif at >= size_bytes - len(last):
                assert await log_end(killed.teller, disk) == base
            else:
                assert "the power was not lost" in await reason_for_closing(killed.teller, disk)
                assert len(read_file(disk, path)) == size_bytes


async def test_an_offset_in_a_sector_that_the_power_loss_took_is_a_hole(killed):
    path, sent_end = killed.files(".log")[-1], killed.ledger.sent_end
    size_bytes = len(read_file(killed.disk, path))
    aligned = (record_batch.encode_values([bytes(size)], 5) for size in range(1000, 2000))
    first = next(one for one in aligned if (size_bytes + len(one)) % 512 == 504)
    record_batch.stamp(first, sent_end, 0)
    second = record_batch.encode_values([b"second"], 5)  # everything but its offset is present
    disk = killed.edited(path, size_bytes, bytes(first + second))
    assert "a whole batch of offset 0" in await reason_for_closing(killed.teller, disk.snapshot())
    disk.boots += 1
    assert not await reason_for_closing(killed.teller, disk)
    assert len(read_file(disk, path)) == size_bytes + len(first)


@pytest.mark.parametrize("boots", [0, 1], ids=["killed", "power lost"])
@pytest.mark.parametrize("whose", ["an earlier segment", "the next batch"])
async def test_a_whole_batch_of_another_offset_is_no_torn_tail_and_nothing_is_cut(killed, boots, whose):
    path = killed.files(".log")[-1]
    foreign = read_file(killed.disk, killed.files(".log")[0])
    if whose == "the next batch":
        foreign = killed.ledger.batches()[-1][2]
    for at in (0, len(killed.ledger.batches()[-3][2])):  # before the segment's first batch, and before its second
        disk = killed.cut(path, at)
        disk.pwritev(disk.open(path, writable=True), [foreign], at)
        before = read_file(disk, path)
        disk.boots += boots
        reason = await reason_for_closing(killed.teller, disk)
        assert "a whole batch of offset" in reason
        assert "nothing was cut" in reason
        assert read_file(disk, path) == before


@pytest.mark.parametrize("boots", [0, 1], ids=["killed", "power lost"])
async def test_a_sealed_segment_that_runs_past_the_next_one_drops_nothing(killed, boots):
    first, second, third = killed.files(".log")
    disk = killed.disk.snapshot()
    disk.unlink(POINTS)
    disk.pwritev(disk.open(first, writable=True), [read_file(disk, second)], disk.stat(first).size_bytes)
    before = [read_file(disk, path) for path in (first, second, third)]
    disk.boots += boots
    assert "and the next segment begins at" in await reason_for_closing(killed.teller, disk)
    assert [read_file(disk, path) for path in (first, second, third)] == before


async def test_a_kill_before_a_power_loss_was_recovered_from_leaves_it_a_power_loss(killed):
    path = killed.files(".log")[-1]
    disk = killed.edited(path, 30, b"\xff\xff")
    disk.boots += 1
    for n in range(1, 12):  # during the opening of the directory, before any partition is truncated
        again = disk.snapshot()
        again.lose_power_after(n)
        with until_power_is_lost(again):
            await killed.teller.open(again)
        again = again.snapshot()
        with telling(f"operation {n}"):
            assert not await reason_for_closing(killed.teller, again)


async def test_a_batch_inside_a_record_does_not_pass_for_one_behind_a_torn_batch(killed):
    """A record's value may contain a record batch. The last batch is torn; its value holds a whole batch."""
    inner = record_batch.encode_values([b"inner"], 5)
    record_batch.stamp(inner, 1_000, 0)
    outer = record_batch.encode_values([b"before" + bytes(inner) + bytes(5000)], 5)
    record_batch.stamp(outer, killed.ledger.sent_end, 0)
    path = killed.files(".log")[-1]
    size_bytes = len(read_file(killed.disk, path))
    for torn in (1, 4000, 5000):
        disk = killed.edited(path, size_bytes, bytes(outer[:-torn]))
        assert await log_end(killed.teller, disk) == killed.ledger.sent_end


async def test_what_an_fsync_may_have_failed_for_is_written_again_before_it_is_trusted(killed):
    disk = FaultyDisk(killed.disk.snapshot())
    await killed.teller.open(disk)
    path = killed.files(".log")[-1]
    done = [call.operation for call in disk.calls if call.path == path and call.operation in ("pwritev", "fdatasync")]
    assert done == ["pwritev", "fdatasync"]
    assert disk.count("pwritev", killed.files(".log")[0]) == 0, "it is below the recovery point"


async def test_a_wrong_bit_below_the_recovery_point_cuts_nothing_and_leads_no_reader_astray(killed):
    """A start does not scan such segments. The reader detects a broken header; the client detects a broken
    record.
    """
    path, sent = killed.files(".log")[0], [data for _, _, data in killed.ledger.batches()]
    size_bytes = len(read_file(killed.disk, path))
    for at, disk in killed.flipped(path, every=97):
        with telling(f"byte {at}"):
            async with inline_node(disk, killed.teller.clock) as node:
                node.kill()
                partition = node.shard.partition("t", 0)
                assert partition.log_end == killed.ledger.sent_end
                try:
                    chunk = await node.shard.reader.read(partition, 0, 1 << 20)
                except Corrupt:
                    continue
                assert chunk.next_offset in [end for _, end, _ in killed.ledger.batches()]
                assert len(chunk.data) in list(accumulate(map(len, sent)))
            assert len(read_file(disk, path)) == size_bytes


async def test_bytes_missing_below_the_recovery_point_close_the_partition(killed):
    disk = killed.disk.snapshot()
    logs = killed.files(".log")
    disk.unlink(logs[-1])
    disk.truncate(disk.open(logs[1], writable=True), read_header(read_file(disk, logs[1])).size_bytes)
    assert "recovery point" in await reason_for_closing(killed.teller, disk)


@pytest.mark.parametrize("missing", [[1, 2], [0, 1, 2]])
async def test_segments_missing_below_the_recovery_point_close_the_partition(killed, missing):
    disk = killed.disk.snapshot()
    for number in missing:
        disk.unlink(killed.files(".log")[number])
    assert await reason_for_closing(killed.teller, disk)


async def test_a_hole_below_the_recovery_point_is_not_read_across(killed):
    """A start does not scan there; the read detects the missing bytes before it skips records."""
    disk = killed.disk.snapshot()
    disk.unlink(killed.files(".log")[1])
    with pytest.raises(Damaged, match=r"offsets 8 to 16 .*go on at 17"):
        await killed.teller.check(disk)


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
async def test_a_wrong_bit_in_an_index_changes_no_answer(scene, kind):
    for path in scene.files(kind):
        for at, disk in scene.flipped(path):
            with telling(f"byte {at} of {path}"):
                await scene.teller.check(disk)


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
async def test_an_index_that_is_short_or_absent_changes_no_answer(scene, kind):
    for path in scene.files(kind):
        for size_bytes in range(len(read_file(scene.disk, path))):
            with telling(f"{size_bytes} bytes of {path}"):
                await scene.teller.check(scene.cut(path, size_bytes))
        disk = scene.disk.snapshot()
        disk.unlink(path)
        await scene.teller.check(disk)


async def test_an_index_of_another_life_is_not_taken(scene):
    """An interrupted deletion leaves an index file without its segment; the next segment there must not use it."""
    end = scene.ledger.sent_end
    disk = scene.disk.snapshot()
    for suffix in (".index", ".timeindex"):
        donor = scene.files(suffix)[0]
        handle = disk.open(f"{donor.rpartition('/')[0]}/{end:020d}{suffix}", create=True, writable=True)
        disk.pwritev(handle, [read_file(disk, donor)], 0)
    async with inline_node(disk, scene.teller.clock) as scene.teller.node:
        await scene.teller.roll("t")
        await scene.teller.append("t", (0, 300, ALL), (0, 5000, ALL), (0, 9000, ALL), (0, 9000, ALL))
        with mock.patch("engine.cleaning.sealing.save_index", side_effect=OSError("not now")):
            await scene.teller.roll("t")
        await scene.teller.append("t", (0, 300, ALL))
        scene.teller.checkpoint()
        scene.teller.node.kill()
    await scene.teller.check(disk.snapshot())


async def test_a_wrong_bit_in_the_recovery_points_loses_nothing_silently(scene):
    for at, disk in scene.flipped(POINTS):
        with telling(f"byte {at}"):
            if not await reason_for_closing(scene.teller, disk.snapshot()):
                await scene.teller.check(disk)
