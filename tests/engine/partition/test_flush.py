"""The flush timer syncs bytes once they are `flush_ms` old, even if no request waits for them."""

import asyncio

import pytest

from engine.format import batch
from replication.replica.acks import Acks
from tests.waiting import until

FLUSH_MS = 5
LONG_S = 0.05  # enough for the timer to fire; if it has not, the test checks less and does not fail
TIMEOUT_S = 60


async def test_a_timer_that_rings_before_the_bytes_are_old_enough_is_set_again(new_node, clock):
    """An event loop may fire a fraction of a millisecond early; nothing else would check the partition again."""
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {"flush_ms": FLUSH_MS})
        partition = node.shard.partition("t", 0)
        await node.leaders["t", 0].append(batch.encode_values([b"1"], 5), Acks.LEADER)
        await asyncio.sleep(LONG_S)
        assert (partition.log_end, partition.durable_end) == (1, 0)
        clock.pass_ms(2 * FLUSH_MS)
        await until(lambda: partition.durable_end >= 1)


async def test_a_look_that_finds_nothing_to_do_leaves_the_timer(new_node, clock):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {"flush_ms": FLUSH_MS})
        partition, committer = node.shard.partition("t", 0), node.shard.committer
        appended = node.leaders["t", 0].append(batch.encode_values([b"1"], 5), Acks.LEADER)
        while not committer._in_progress:
            await asyncio.sleep(0)
        committer.include(partition)  # for example a reader that has disconnected
        await appended
        await committer.wait_drained()
        clock.pass_ms(2 * FLUSH_MS)
        await until(lambda: partition.durable_end >= 1)


@pytest.mark.parametrize("is_old_by_then", [True, False], ids=["already old", "not old yet"])
async def test_a_lowered_time_counts_for_what_is_written(new_node, clock, is_old_by_then):
    """It may be lowered because an hour is too long; by then the timer for the hour is set."""
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {"flush_ms": 3_600_000})
        partition, committer = node.shard.partition("t", 0), node.shard.committer
        await node.leaders["t", 0].append(batch.encode_values([b"1"], 5), Acks.LEADER)
        await committer.wait_drained()
        if is_old_by_then:
            clock.pass_ms(2 * FLUSH_MS)
        await node.shard.alter_topic("t", {"flush_ms": FLUSH_MS})
        await committer.wait_drained()
        if not is_old_by_then:
            assert (partition.log_end, partition.durable_end) == (1, 0)
            clock.pass_ms(2 * FLUSH_MS)
        await until(lambda: partition.durable_end >= 1)
