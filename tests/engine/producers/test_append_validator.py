"""The conditions of an append are checked when its offset is assigned, and reported when the plan is written or
fails.
"""

import asyncio

import pytest

from engine.errors import LogEndMismatch, SequenceGap, StorageFull
from engine.format import batch
from engine.producers.appends import AppendConditions, Appended
from replication.replica.acks import Acks


def append(node, *values: str, end: int | None = None, sequence: int | None = None) -> asyncio.Future[Appended]:
    data = batch.encode_values([value.encode() for value in values], 5)
    if sequence is not None:
        batch.stamp_sequence(data, 7, 0, sequence)
    return node.leaders["t", 0].append(data, Acks.LEADER, None if end is None else AppendConditions(expected_end=end))


async def test_the_expected_end_counts_what_goes_before_in_the_same_group(node):
    group = [append(node, "a", "b"), append(node, "c", end=2), append(node, "d", end=2), append(node, "e", end=3)]
    first, second, late, third = await asyncio.gather(*group, return_exceptions=True)
    assert (first, second, third) == (Appended(0, 2), Appended(2, 1), Appended(3, 1))
    assert isinstance(late, LogEndMismatch)
    assert late.members == {"log_end": 3}
    assert node.shard.partition("t", 0).log_end == 4


async def test_a_group_of_rejected_appends_is_answered_and_leaves_no_trace(node):
    partition = node.shard.partition("t", 0)
    await append(node, "a")
    before = partition.statistics(), len(partition.watermark.boundaries)
    for _ in range(3):
        with pytest.raises(LogEndMismatch):
            await append(node, "b", end=0)
    await node.shard.committer.wait_drained()
    assert (partition.statistics(), len(partition.watermark.boundaries)) == before
    assert (partition.batches_in, node.shard.committer.queued_bytes) == (1, 0)


async def test_what_was_judged_by_a_plan_that_failed_shares_its_failure(node, monkeypatch):
    """The error would name a log end that never existed."""
    disk = node.shard.disk
    with monkeypatch.context() as patch:
        patch.setattr(disk, "pwritev", lambda *_: 0)
        results = await asyncio.gather(append(node, "a"), append(node, "b", end=0), return_exceptions=True)
    assert [type(result) for result in results] == [StorageFull, StorageFull]
    assert await append(node, "c", end=0) == Appended(0, 1)


async def test_a_repeat_of_what_a_failed_plan_would_have_written_fails_with_it(node, monkeypatch):
    await append(node, "a", sequence=0)
    with monkeypatch.context() as patch:
        patch.setattr(node.shard.disk, "pwritev", lambda *_: 0)
        group = [append(node, "a", sequence=0), append(node, "b", sequence=1), append(node, "b", sequence=1)]
        stored, first, repeat = await asyncio.gather(*group, return_exceptions=True)
    assert stored == Appended(0, 1, 5, is_duplicate=True), "this has long been stored"
    assert isinstance(first, StorageFull)
    assert isinstance(repeat, StorageFull)
    assert await append(node, "b", sequence=1) == Appended(1, 1)


async def test_a_sequence_continues_across_groups_and_a_gap_in_one_holds_back_later_ones(node):
    assert await append(node, "a", sequence=0) == Appended(0, 1)
    group = [append(node, "c", sequence=2), append(node, "d", sequence=3), append(node, "b", sequence=1)]
    gap, behind, second = await asyncio.gather(*group, return_exceptions=True)
    assert [type(gap), type(behind), second] == [SequenceGap, SequenceGap, Appended(1, 1)]
    assert node.shard.partition("t", 0).validator.counts.gaps == 2


async def test_a_producer_is_forgotten_though_a_plan_ended_behind_a_roll_without_it(new_node):
    """The plan's changes are dropped with it, even if all of them came before the roll."""
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {"segment_bytes": 65536})
        validator = node.shard.partition("t", 0).validator
        await asyncio.gather(append(node, "x" * 60_000, sequence=0), append(node, "x" * 60_000))
        assert len(node.shard.partition("t", 0).log.segments) == 2
        validator.producers.expire(before_ms=2**62)
        assert await append(node, "y", sequence=9) == Appended(2, 1)
