"""Repeated kill -9 under load: every acknowledged record is at its offset, once, and in order.

A kill ends the process and keeps the page cache, so acks=1 is as safe as acks=all here; tests/engine/crash simulates
power losses. More rounds: `make crash-long`.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from tests.e2e.load import Ledger, Load, create, metric, read_log
from tests.e2e.node_process import running_process

pytestmark = pytest.mark.e2e

KILLS = int(os.environ.get("PENSTOCK_TEST_KILLS", "2"))
PARTITIONS = 3
CLIENTS = 12


async def test_nothing_acknowledged_is_lost_however_often_the_node_is_killed(tmp_path):
    """Small segments, so that kills also hit rolls, index files and uploads."""
    everything = Ledger()
    for kill in range(KILLS):
        with running_process(tmp_path, tier_check_ms=50) as node:
            if kill == 0:
                await create(node.url, "t", PARTITIONS, segment_bytes=65_536, flush_ms=5)
            load = Load(node.url, "t", PARTITIONS, CLIENTS, first_client=kill * CLIENTS)
            async with load.under_way() as ledger:
                await load.acknowledgements(150)
                await asyncio.sleep(random.uniform(0, 0.5))
                node.kill()
            assert ledger.acks_of.keys() == {"1", "all"}
            everything.acknowledged |= ledger.acknowledged
        with running_process(tmp_path) as node:
            (await read_log(node.url, "t", PARTITIONS)).assert_holds(everything)
            node.kill()
    with running_process(tmp_path) as node:
        (await read_log(node.url, "t", PARTITIONS)).assert_holds(everything)
        assert node.stop() == 0
    with running_process(tmp_path) as node:
        assert await metric(node.url, "penstock_recovered_bytes") == 0
        (await read_log(node.url, "t", PARTITIONS)).assert_holds(everything)


async def test_a_torn_tail_is_truncated_and_logged(tmp_path):
    """A power loss may leave the start of another batch behind the last whole one."""
    with running_process(tmp_path) as node:
        await create(node.url, "t", 1)
        load = Load(node.url, "t", partitions=1, clients=2)
        async with load.under_way() as ledger:
            await load.acknowledgements(20)
        node.kill()
    (segment,) = (tmp_path / "data" / "topics" / "t").rglob("*.log")
    intact = segment.read_bytes()
    segment.write_bytes(intact + intact[:100])
    with running_process(tmp_path) as node:
        (await read_log(node.url, "t", 1)).assert_holds(ledger)
        assert await metric(node.url, "penstock_recovery_truncated_bytes") == 100
        assert "incomplete tail truncated" in node.errors
    assert segment.read_bytes() == intact
