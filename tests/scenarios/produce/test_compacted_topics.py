"""Compacted topics: each record needs a key, and readers of any form find the last record of each key."""

from __future__ import annotations

import asyncio

import pytest

from engine.format import batch as record_batch
from tests.scenarios.gateways import JSON, NDJSON, RECORD_BATCH, Topic

COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_percent": 1, "segment_bytes": 65536}


@pytest.fixture
async def table(start_gateway) -> Topic:
    return await (await start_gateway(compaction_check_ms=50)).create("table", **COMPACTED)


async def test_the_last_record_of_each_key_is_left_for_every_reader(table):
    for number in range(30):
        await table.post_records(*({"key": f"k{at}", "value": number} for at in range(4)))
    await table.roll()
    await table.post_records({"key": "k0", "value": None})
    async with asyncio.timeout(60):
        while (await table.describe())["partitions"][0]["size_bytes"] > 1000:
            await asyncio.sleep(0.05)
    expected = [("k0", 29, 116), ("k1", 29, 117), ("k2", 29, 118), ("k3", 29, 119)]
    for offset in (0, 1, 57, 115, 116):  # of removed records, and of the first one that is left
        for query in ({}, {"max_bytes": 1}):
            answer = await table.fetch(offset, **query)
            assert answer.headers["Cache-Control"] == "no-store"  # a later answer may have less
            answer = answer.json
            assert [(record["key"], record["value"], record["offset"]) for record in answer["records"]] == expected
            assert answer["next_offset"] == 120
    assert [(record["key"], record["value"]) for record in (await table.fetch(120)).json["records"]] == [("k0", None)]
    stored = record_batch.decode((await table.fetch(0, accept=RECORD_BATCH)).body)
    assert [record.offset for record in stored] == [116, 117, 118, 119]
    assert [line["offset"] for line in (await table.fetch(0, accept=NDJSON)).lines] == [116, 117, 118, 119]
    body = b'{"partitions":[{"topic":"%s","partition":0,"offset":3}]}' % table.name.encode()
    answer = await table.gateway.send("POST", "/v1/fetch", body, {"Content-Type": JSON})
    assert [record["offset"] for record in answer.json["partitions"][0]["records"]] == [116, 117, 118, 119]
