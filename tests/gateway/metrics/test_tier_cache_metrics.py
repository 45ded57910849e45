"""Reads of records that are only in the store are counted by whether this disk had a copy."""

from __future__ import annotations

import asyncio

from tests.scenarios.gateways import in_process


async def test_the_first_read_of_a_tiered_segment_is_a_miss_and_the_next_a_hit(tmp_path):
    async with in_process(tmp_path, tier_check_ms=10) as gateway:
        topic = await gateway.create("t", local_retention_bytes=0)
        await topic.post_lines("1", "2")
        await topic.roll()
        node = gateway.node
        (partition,) = node.shard.partitions()
        while not node.shard.tiered_end(partition):
            await asyncio.sleep(0.02)
        for _ in range(2):
            assert await node.tier.read(partition, 0, 1000)
        assert await gateway.metric("penstock_tier_cache_misses_total") == 1
        assert await gateway.metric("penstock_tier_cache_hits_total") == 1
        assert await gateway.metric("penstock_tier_cache_bytes") > 61
