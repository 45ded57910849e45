"""No clock makes a partition forget a key or a producer too early, and the promised window of a key holds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

from engine.errors import SequenceGap
from engine.format import batch
from engine.format.batch import Header, read_header
from engine.format.batch_header import checked_headers
from engine.format.keyed_batch import KeyEntry, stored_entry
from engine.producers.appends import AppendConditions, Appended
from engine.topic_settings import TopicSettings
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock, Node, running_node

WINDOW_MS = TopicSettings().idempotency_window_ms
EXPIRY_MS = TopicSettings().producer_expiry_ms
SKEWS_MS = [2 * WINDOW_MS, -2 * WINDOW_MS, 10 * 365 * 86_400_000, -10 * 365 * 86_400_000]


def keyed(node: Node, key: str, skew_ms: int = 0) -> asyncio.Future[Appended]:
    """Return a request that was received by a node whose clock differs from the leader's."""
    entry = KeyEntry(key.encode().ljust(16), b"r".ljust(16), 1, node.shard.clock.now_ms() + skew_ms)
    data = batch.encode_values([key.encode()], entry.time_ms, entry=stored_entry(entry))
    return node.leaders["t", 0].append(data, Acks.LEADER, AppendConditions(key=entry))


def sequenced(node: Node, sequence: int) -> asyncio.Future[Appended]:
    data = batch.encode_values([b"value"], 5)
    batch.stamp_sequence(data, 7, 0, sequence)
    return node.leaders["t", 0].append(data, Acks.LEADER)


def tick(node: Node) -> None:
    """Run the housekeeping of the partition, as every second."""
    node.shard.housekeeping._check(node.shard.partition("t", 0))


async def idle(node: Node) -> None:
    await node.shard._background.wait_ended()


@pytest.mark.parametrize("skew_ms", SKEWS_MS)
async def test_the_clock_of_the_node_that_takes_a_request_ages_nothing(tmp_path, skew_ms):
    async with running_node(tmp_path, HandClock()) as node:
        await node.shard.create_topic("t", 1, 1, {})
        first = await keyed(node, "k")
        for number in range(20):
            assert not (await keyed(node, f"foreign {number}", skew_ms)).is_duplicate
            tick(node)
        again = await keyed(node, "k", skew_ms)
        assert (again.is_duplicate, again.base_offset, again.key_kept_ms) == (True, first.base_offset, WINDOW_MS)


@pytest.mark.parametrize("skew_ms", SKEWS_MS)
async def test_a_key_taken_under_a_wrong_clock_is_kept_for_the_window(tmp_path, skew_ms):
    async with running_node(tmp_path, HandClock()) as node:
        clock = node.shard.clock
        await node.shard.create_topic("t", 1, 1, {})
        assert (await keyed(node, "k", skew_ms)).key_kept_ms == WINDOW_MS
        clock.pass_ms(WINDOW_MS - 1)
        tick(node)
        again = await keyed(node, "k")
        assert (again.is_duplicate, again.key_kept_ms) == (True, 1)
        clock.pass_ms(WINDOW_MS)
        tick(node)
        assert not (await keyed(node, "k")).is_duplicate


@pytest.mark.parametrize("step_ms", SKEWS_MS)
async def test_a_step_of_the_leaders_own_clock_ages_nothing(tmp_path, step_ms):
    async with running_node(tmp_path, HandClock()) as node:
        await node.shard.create_topic("t", 1, 1, {})
        await keyed(node, "k")
        await sequenced(node, 0)
        await sequenced(node, 1)
        node.shard.clock.ms += step_ms
        tick(node)
        assert (await keyed(node, "k")).is_duplicate
        assert (await sequenced(node, 1)).is_duplicate
        with pytest.raises(SequenceGap):
            await sequenced(node, 4)


@pytest.mark.parametrize("step_ms", [*SKEWS_MS, 2 * EXPIRY_MS])
@pytest.mark.parametrize("rolls", [0, 1, 3])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_clock_that_is_set_while_the_node_is_stopped_ages_nothing(tmp_path, step_ms, rolls, is_killed):
    clock, path = HandClock(), tmp_path / "0"
    async with running_node(path, clock) as node:
        await node.shard.create_topic("t", 1, 1, {})
        for number in range(rolls + 1):
            await keyed(node, f"k{number}")
            await sequenced(node, number)
            if number < rolls:
                await node.shard.roll_topic("t")
                await idle(node)
        if is_killed:
            copytree(path, tmp_path / "1", ignore=ignore_patterns("*.tmp"))
            path = tmp_path / "1"
    clock.ms += step_ms
    clock.restart()
    async with running_node(path, clock) as node:
        tick(node)
        for number in range(rolls + 1):
            assert (await keyed(node, f"k{number}")).is_duplicate
            assert (await sequenced(node, number)).is_duplicate


async def test_snapshots_and_the_log_give_the_same_keys(tmp_path: Path):
    clock = HandClock()
    known = []
    async with running_node(tmp_path / "0", clock) as node:
        await node.shard.create_topic("t", 1, 1, {})
        for number, skew_ms in enumerate([0, *SKEWS_MS, 0]):
            await keyed(node, f"k{number}", skew_ms)
            clock.ms += skew_ms
            await node.shard.roll_topic("t")
            await idle(node)
    copytree(tmp_path / "0", tmp_path / "1", ignore=ignore_patterns("*.snapshot"))
    for path in ("0", "1"):
        clock.restart()
        async with running_node(tmp_path / path, clock) as node:
            known.append(dict(node.shard.partition("t", 0).validator.keys.window.items()))
    assert len(known[0]) == 6
    assert known[0] == known[1]


@pytest.mark.parametrize("skew_ms", SKEWS_MS)
async def test_a_follower_keeps_for_the_window_what_it_copies_and_promises_nothing_of_it(tmp_path, skew_ms):
    clock = HandClock()
    async with running_node(tmp_path / "leader", clock) as leader:
        await leader.shard.create_topic("t", 1, 1, {})
        for key in ("a", "b", "c"):
            await keyed(leader, key, skew_ms)
        (segment,) = leader.shard.partition("t", 0).log.segments
        copied = leader.shard.disk.pread(segment.handle, segment.size_bytes, 0)
    clock.ms += 3 * skew_ms
    clock.restart()
    async with running_node(tmp_path / "follower", clock) as follower:
        await follower.shard.create_topic("t", 1, 1, {})
        partition = follower.shard.partition("t", 0)
        headers: list[Header] = checked_headers(memoryview(copied), 0, 10)[0]
        await follower.shard.committer.append_as_follower(partition, copied, wants_sync=False, starts_segment=False)
        assert read_header(copied).base_offset == headers[0].base_offset == 0
        clock.pass_ms(WINDOW_MS - 1)
        tick(follower)
        again = await keyed(follower, "a")
        assert (again.is_duplicate, again.key_kept_ms) == (True, 0)
