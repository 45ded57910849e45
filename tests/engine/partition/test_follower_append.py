"""A follower stores the leader's batches byte for byte or rejects them; epochs, tokens and sequences are included."""

import asyncio
import threading

import pytest

from engine.errors import CorruptBatch, FencingTokenMismatch, InvalidBatch, StorageFailed, StorageFull, UnexpectedOffset
from engine.format import batch as record_batch
from engine.format import paths
from engine.format.control_batch import encode_fence
from engine.log.epochs import EpochStart
from engine.log.leader_epochs import load_epochs
from engine.partition.follower_append import BATCHES_PER_GROUP
from engine.producers.fence_file import load_fence
from engine.producers.snapshots import decode_state
from engine.runtime.disk import read_file
from replication.replica.acks import Acks


@pytest.fixture
async def node(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {"segment_bytes": 65536})
        yield node


def batch(values: str, base_offset: int, epoch: int = 1) -> bytearray:
    """A batch with one record for each letter."""
    return stamped(record_batch.encode_values([value.encode() for value in values], 5), base_offset, epoch)


def stamped(made: bytearray, base_offset: int, epoch: int = 1) -> bytearray:
    record_batch.stamp(made, base_offset, epoch)
    return made


def copy(node, data, *, wants_sync: bool = False, starts_segment: bool = False) -> asyncio.Future[int]:
    partition = node.shard.partition("t", 0)
    return node.shard.committer.append_as_follower(
        partition, bytes(data), wants_sync=wants_sync, starts_segment=starts_segment
    )


def stored(node) -> bytes:
    log = node.shard.partition("t", 0).log
    return b"".join(log.disk.pread(segment.handle, segment.size_bytes, 0) for segment in log.segments)


def bases(node) -> list[int]:
    return [segment.base_offset for segment in node.shard.partition("t", 0).log.segments]


async def test_copies_are_stored_as_they_are_in_the_order_queued(node):
    first, second = batch("ab", 0) + batch("c", 2), batch("d", 3)
    assert await asyncio.gather(copy(node, first), copy(node, second)) == [4, 4]
    assert stored(node) == first + second
    assert node.shard.committer.queued_bytes == 0
    partition = node.shard.partition("t", 0)
    assert (partition.copies.batches, partition.copies.bytes) == (3, len(first + second))
    assert partition.bytes_in == 0, "these are a leader's"


async def test_a_waiter_for_a_sync_is_notified_of_durable_records(node):
    assert await copy(node, batch("ab", 0), wants_sync=True) == 2
    assert node.shard.partition("t", 0).durable_end == 2
    assert await copy(node, batch("ab", 0), wants_sync=True) == 2, "there is nothing left to sync"


async def test_records_that_are_there_are_passed_over(node):
    data = batch("ab", 0) + batch("c", 2) + batch("d", 3)
    await copy(node, data[: len(batch("ab", 0))])
    assert await copy(node, data) == 4
    assert stored(node) == data


@pytest.mark.parametrize("wrong", [batch("x", 3), batch("xyz", 1)], ids=["a gap", "across the end"])
async def test_what_does_not_join_is_refused_with_all_that_is_behind_it(node, wrong):
    await copy(node, batch("ab", 0))
    refused = await asyncio.gather(copy(node, wrong), copy(node, batch("c", 2)), return_exceptions=True)
    assert [type(error) for error in refused] == [UnexpectedOffset, UnexpectedOffset]
    assert await copy(node, batch("c", 2)) == 3


async def test_bytes_that_fail_their_checksum_or_end_too_early_are_refused(node):
    flipped = batch("c", 2)
    flipped[-1] ^= 1
    with pytest.raises(CorruptBatch):
        await copy(node, batch("ab", 0) + flipped)
    with pytest.raises(InvalidBatch):
        await copy(node, batch("ab", 0) + batch("c", 2)[:-1])
    assert stored(node) == b""
    assert node.shard.committer.queued_bytes == 0


async def test_an_epoch_is_durable_before_the_first_of_its_records_is_written(node, monkeypatch):
    await copy(node, batch("ab", 0, epoch=1))
    disk, log = node.shard.disk, node.shard.partition("t", 0).log
    known: list[list[EpochStart]] = []

    pwritev = disk.pwritev

    def refuses_the_log(handle, buffers, position):
        if handle != log.active.handle:
            return pwritev(handle, buffers, position)
        known.append(load_epochs(disk, log.directory))
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(disk, "pwritev", refuses_the_log)
        with pytest.raises(StorageFull):
            await copy(node, batch("c", 2, epoch=4))
    assert known == [[EpochStart(1, 0), EpochStart(4, 2)]]
    assert log.epochs == known[0], "and what is on the disk is known, whatever became of the records"
    await copy(node, batch("c", 2, epoch=3))
    assert log.epochs == [EpochStart(1, 0), EpochStart(3, 2)], "epoch 4 has left no record"


async def test_a_segment_begins_where_the_leader_has_one(node):
    await copy(node, batch("ab", 0), starts_segment=True)
    await asyncio.gather(
        copy(node, batch("c", 2)), copy(node, batch("d", 3), starts_segment=True), copy(node, batch("e", 4))
    )
    assert bases(node) == [0, 3]
    assert stored(node) == batch("ab", 0) + batch("c", 2) + batch("d", 3) + batch("e", 4)


async def test_a_full_segment_is_followed_by_another_in_the_middle_of_a_copy(node):
    data = b"".join(stamped(record_batch.encode_values([b"x" * 30_000], 5), n, 1) for n in range(5))
    assert await copy(node, data) == 5
    assert bases(node) == [0, 2, 4]
    assert stored(node) == data


async def test_very_many_batches_are_taken_in_slices(node):
    count = 2 * BATCHES_PER_GROUP + 5
    data = b"".join(bytes(batch("x", n)) for n in range(count))
    groups = node.shard.committer.groups
    assert await copy(node, data, wants_sync=True) == count
    assert node.shard.committer.groups >= groups + 3
    assert stored(node) == data


async def test_a_failed_write_fails_what_is_behind_it_too_and_it_can_be_sent_again(node, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(node.shard.disk, "pwritev", lambda *_: 0)
        results = await asyncio.gather(
            copy(node, batch("a", 0, 0)), copy(node, batch("b", 1, 0)), return_exceptions=True
        )
    assert [type(result) for result in results] == [StorageFull, StorageFull]
    assert await copy(node, batch("ab", 0)) == 2
    assert node.shard.committer.queued_bytes == 0


async def test_a_copy_counts_as_queued_until_it_is_written_though_its_wait_is_cancelled(node, monkeypatch):
    is_in, may_go_on = threading.Event(), threading.Event()
    pwritev = node.shard.disk.pwritev

    def slow(*args):
        is_in.set()
        assert may_go_on.wait(60)
        return pwritev(*args)

    monkeypatch.setattr(node.shard.disk, "pwritev", slow)
    committer, first, second = node.shard.committer, batch("a", 0), batch("b", 1)
    waits = [copy(node, first)]
    assert await asyncio.to_thread(is_in.wait, 30)
    waits.append(copy(node, second))
    for wait in waits:
        wait.cancel()
    await asyncio.wait(waits)
    await asyncio.sleep(0)
    assert committer.queued_bytes == len(first) + len(second)
    may_go_on.set()
    await committer.wait_drained()
    await asyncio.sleep(0)
    assert (committer.queued_bytes, stored(node)) == (0, bytes(first + second))


async def test_copies_fail_with_their_partition(node, monkeypatch):
    def refuses(*_):
        raise OSError(5, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(node.shard.disk, "fdatasync", refuses)
        waits = [copy(node, batch("a", 0, 0), wants_sync=True), copy(node, batch("b", 1, 0), wants_sync=True)]
        results = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(result) for result in results] == [StorageFailed, StorageFailed]
    with pytest.raises(StorageFailed):
        copy(node, batch("c", 2))


def sequenced(values: str, base_offset: int, sequence: int) -> bytearray:
    made = batch(values, base_offset)
    record_batch.stamp_sequence(made, 7, 0, sequence)
    return made


async def test_a_token_is_in_force_and_a_start_will_look_for_it(node):
    partition = node.shard.partition("t", 0)
    assert load_fence(node.shard.disk, partition.log.directory) is None
    await copy(node, batch("a", 0) + stamped(encode_fence("me", 5), 1))
    assert partition.validator.fencing.present.token == "me"
    assert partition.validator.fencing.is_noted
    assert load_fence(node.shard.disk, partition.log.directory) is not None
    with pytest.raises(FencingTokenMismatch):
        await node.leaders["t", 0].produce(record_batch.encode_values([b"x"], 5), Acks.LEADER, 5000)


async def test_the_state_at_a_roll_is_that_below_it(node):
    """The next start loads it, and scans only the batches after it."""
    await copy(node, sequenced("a", 0, 0))
    await copy(node, sequenced("b", 1, 1) + sequenced("c", 2, 2), starts_segment=True)
    await copy(node, sequenced("d", 3, 3), starts_segment=True)
    await node.shard._background.wait_ended()
    partition, disk = node.shard.partition("t", 0), node.shard.disk
    kept = {offset: decode_state(read_file(disk, snapshot(partition, offset)), offset) for offset in (1, 3)}
    assert {offset: dict(state.producers)[7].next_sequence for offset, state in kept.items()} == {1: 1, 3: 3}


def snapshot(partition, offset: int) -> str:
    return f"{partition.log.directory}/{paths.segment_file(offset, paths.SNAPSHOT)}"
