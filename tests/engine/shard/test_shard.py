"""A shard's public behaviour: appended records are read back, positions move as documented, restarts keep
everything.
"""

import pytest

from engine.errors import OffsetAboveHighWatermark, TopicExists, UnknownPartition, UnknownTopic
from engine.format import batch
from replication.replica.acks import Acks


def values(*texts: str) -> bytearray:
    return batch.encode_values([text.encode() for text in texts], 1_700_000_000_000)


async def produce(node, topic, partition, *texts, acks=Acks.ALL):
    leader = node.leaders[topic, partition]
    return (await leader.acknowledge(leader.append(values(*texts), acks), acks, 5000)).base_offset


async def read_all(node, topic, partition, offset=0):
    found, part = [], node.shard.partition(topic, partition)
    while chunk := await node.shard.reader.read(part, offset, 1 << 20):
        found += [(r.offset, r.value.decode()) for r in batch.decode(chunk.data) if r.offset >= offset]
        offset = chunk.next_offset
    return found


async def test_a_clean_restart_keeps_everything_and_scans_nothing(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 2, 1, {})
        await produce(node, "t", 1, "a", "b", "c")
    async with new_node() as node:
        assert node.shard.directory.was_clean
        assert node.shard.recovered.scanned_bytes == 0
        assert await read_all(node, "t", 1) == [(0, "a"), (1, "b"), (2, "c")]
        assert await produce(node, "t", 1, "d") == 3


async def test_rolling_seals_and_reading_crosses_segments(node):
    await produce(node, "t", 0, "a")
    assert await node.shard.roll_topic("t") == [1]
    assert await node.shard.roll_topic("t") == [1]
    await produce(node, "t", 0, "b")
    assert node.shard.partition("t", 0).statistics().segments == 2
    assert await read_all(node, "t", 0) == [(0, "a"), (1, "b")]


async def test_unknown_names_are_reported(new_node):
    async with new_node() as node:
        with pytest.raises(UnknownTopic):
            node.shard.topic("none")
        await node.shard.create_topic("t", 1, 1, {})
        with pytest.raises(UnknownPartition):
            node.shard.partition("t", 1)
        with pytest.raises(OffsetAboveHighWatermark):
            node.shard.partition("t", 0).check_readable(1)


async def test_creating_the_same_topic_twice_is_no_error_and_another_is(new_node):
    async with new_node() as node:
        _, is_new = await node.shard.create_topic("t", 2, 1, {"flush_ms": 5})
        _, again = await node.shard.create_topic("t", 2, 1, {"flush_ms": 5})
        assert (is_new, again) == (True, False)
        with pytest.raises(TopicExists):
            await node.shard.create_topic("t", 3, 1, {"flush_ms": 5})


async def test_first_record_at_or_after_a_time(node):
    leader = node.leaders["t", 0]
    for time in (100, 300, 200, 400):
        data = batch.encode_values([b"x"], time)
        await leader.acknowledge(leader.append(data, Acks.ALL), Acks.ALL, 5000)
    part, reader = node.shard.partition("t", 0), node.shard.reader
    assert await reader.first_at_or_after(part, 0) == (0, 100)
    assert await reader.first_at_or_after(part, 150) == (1, 300)
    assert await reader.first_at_or_after(part, 301) == (3, 400)
    assert await reader.first_at_or_after(part, 401) is None


async def test_a_time_is_not_looked_for_in_segments_whose_deletion_was_cut_short(new_node):
    """log_start is durable before the files are deleted, so a start may find both."""
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        leader, part = node.leaders["t", 0], node.shard.partition("t", 0)
        for time in (100, 300, 200, 400):
            await leader.acknowledge(leader.append(batch.encode_values([b"x"], time), Acks.ALL), Acks.ALL, 5000)
            await node.shard.committer.roll(part)
    async with new_node() as node:
        part = node.shard.partition("t", 0)
        part.log.log_start = 2
        assert await node.shard.reader.first_at_or_after(part, 0) == (2, 200)
        assert await node.shard.reader.first_at_or_after(part, 250) == (3, 400)
