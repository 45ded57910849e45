"""A producer that never wrote to a log begins at 0; one that may have been forgotten begins anywhere (KAFKA-15591)."""

from array import array

import pytest

from engine.errors import SequenceGap
from engine.producers.fencing import NO_FENCE
from engine.producers.sequences import Producer
from engine.producers.snapshots import State, decode_state, encode_state, snapshot_offsets
from engine.producers.state_transfer import StateSnapshot, state_of
from engine.runtime.disk import RealDisk
from tests.engine.producers.test_snapshots import directory_of, idle, send

T = 1_700_000_000_000


async def check_must_begin_at_0(node, producer: int) -> None:
    end = node.shard.partition("t", 0).log_end
    with pytest.raises(SequenceGap) as refused:
        await send(node, 17, producer=producer)
    assert refused.value.members == {"expected_seq": 0, "received_seq": 17}
    assert refused.value.retryable
    assert refused.value.no_side_effects
    assert node.shard.partition("t", 0).log_end == end
    assert (await send(node, 0, 17, producer=producer)).base_offset == end
    assert (await send(node, 17, producer=producer)).base_offset == end + 17


async def check_may_begin_anywhere(node, producer: int) -> None:
    end = node.shard.partition("t", 0).log_end
    assert (await send(node, 17, producer=producer)).base_offset == end


async def test_the_first_request_on_an_empty_log_has_sequence_0(node):
    """Before, 17 was stored, and 0, which "not leader yet" had delayed, was a gap permanently."""
    await check_must_begin_at_0(node, 7)


@pytest.mark.parametrize("rolls", [False, True])
async def test_a_restart_keeps_the_proof(new_node, rolls):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        await send(node, 0, 5)
        if rolls:
            await node.shard.roll_topic("t")
            await idle(node)
    async with new_node() as node:
        assert bool(snapshot_offsets(RealDisk(), node.shard.partition("t", 0).log.directory))
        await check_must_begin_at_0(node, 8)


async def test_a_forgotten_producer_may_go_on_and_a_later_one_must_begin_at_0(new_node, clock):
    """Ids are given out in rising order: one above all forgotten ones never wrote here."""
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        await send(node, 0, producer=5)
        partition = node.shard.partition("t", 0)
        clock.pass_ms(partition.settings.producer_expiry_ms + 1)
        partition.validator.expire(clock.steady_ms(), partition.settings)
        await check_may_begin_anywhere(node, 3)
        await check_may_begin_anywhere(node, 5)
        await check_must_begin_at_0(node, 6)
        await node.shard.roll_topic("t")
        await idle(node)
    async with new_node() as node:
        await check_may_begin_anywhere(node, 4)
        await check_must_begin_at_0(node, 7)


async def test_producers_above_the_maximum_are_forgotten(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {"producers_max": 10})
        for producer in range(1, 12):
            await send(node, 0, producer=producer)
        await check_may_begin_anywhere(node, 1)
        await check_must_begin_at_0(node, 12)


async def test_deleted_records_do_not_make_producers_unknown(node):
    await send(node, 0, 3)
    await node.shard.delete_before(node.shard.partition("t", 0), 2)
    await check_must_begin_at_0(node, 8)


async def test_a_log_without_its_beginning_or_a_snapshot_proves_nothing(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        await send(node, 0, 3)
        await node.shard.roll_topic("t")
        await idle(node)
        partition = node.shard.partition("t", 0)
        await node.shard.delete_before(partition, 3)
        directory = directory_of(node)
    for snapshot in directory.glob("*.snapshot"):
        snapshot.unlink()
    async with new_node() as node:
        await check_may_begin_anywhere(node, 8)


def test_a_snapshot_says_it_in_a_form_that_older_versions_read():
    state = State(0, [], forgotten_id_max=12)
    assert decode_state(encode_state(state), 0) == state
    assert decode_state(encode_state(State(0)), 0) == State(0)


def test_a_transferred_state_does_not_claim_producers_that_come_later():
    known = [(7, Producer(0, 1, 0, array("q", (0, 0, 3, T)))), (9, Producer(0, 1, 0, array("q", (0, 0, 30, T))))]
    state = state_of(StateSnapshot(20, known, NO_FENCE, [], (), 2))
    assert [producer_id for producer_id, _ in state.producers] == [7]
    assert state.forgotten_id_max == 9
