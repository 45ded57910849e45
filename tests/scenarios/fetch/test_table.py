"""One key of a compacted topic: its last value, by any process, conditional, and after one's own write."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import Topic, in_process_only

COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_percent": 1, "segment_bytes": 65536}


@pytest.fixture
async def table(start_gateway) -> Topic:
    return await (await start_gateway(compaction_check_ms=50)).create("table", partitions=4, **COMPACTED)


async def get(table: Topic, path_key: str, headers=None, **query):
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    return await table.gateway.send("GET", f"/v1/topics/{table.name}/table/{path_key}?{asked}", b"", headers or {})


async def test_a_key_has_its_last_value_wherever_it_is_and_after_compaction(table):
    for number in range(20):
        await table.post_records(*({"key": f"k{at}", "value": number} for at in range(8)))
    places = {}
    for at in range(8):
        row = (await get(table, f"k{at}")).json
        assert (row["key"], row["value"]) == (f"k{at}", 19)
        places[at] = (row["partition"], row["offset"])
    assert len({partition for partition, _ in places.values()}) > 1
    await table.post_records({"key": "k0", "value": None}, {"key": "k1", "value": "new"})
    await table.roll()
    async with asyncio.timeout(60):
        while sum(partition["size_bytes"] for partition in (await table.describe())["partitions"]) > 1500:
            await asyncio.sleep(0.05)
    assert_problem(await get(table, "k0"), "unknown_key", partition=places[0][0])
    assert (await get(table, "k1")).json["value"] == "new"
    row = (await get(table, "k2")).json
    assert (row["partition"], row["offset"], row["value"]) == (*places[2], 19)


async def test_an_unchanged_row_is_304_and_a_changed_one_is_not(table):
    await table.post_records({"key": "a", "value": 1})
    first = await get(table, "a")
    tag = first.headers["ETag"]
    assert tag.startswith(f'W/"{first.json["partition"]}-{first.json["offset"]}-')
    again = await get(table, "a", {"If-None-Match": tag})
    assert (again.status, again.body, again.headers["ETag"]) == (304, b"", tag)
    await table.post_records({"key": "a", "value": 2})
    changed = await get(table, "a", {"If-None-Match": tag})
    assert (changed.status, changed.json["value"]) == (200, 2)


async def test_a_read_waits_for_a_write(table):
    await table.post_records({"key": "a", "value": 1})
    number = (await get(table, "a")).json["partition"]
    waiting = asyncio.create_task(get(table, "a", at_least=1, wait_ms=20_000))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await table.post_records({"key": "a", "value": 2})
    assert (await waiting).json["value"] == 2
    assert_problem(await get(table, "a", at_least=2), "offset_above_high_watermark")
    assert (await get(table, "a", partition=number)).json["value"] == 2
    assert_problem(await get(table, "a", partition=(number + 1) % 4), "unknown_key")


@in_process_only
async def test_keys_are_any_bytes(table):
    keys = ["a/b", "ä ö%2F?", "%", "..", "+"]
    await table.post_records(*({"key": key, "value": key} for key in keys), {"key_base64": "/wD+", "value": "bytes"})
    for key in keys:
        if key != "..":
            assert (await get(table, quote(key, safe=""))).json["value"] == key
    assert (await get(table, "Li4", key="base64url")).json["value"] == ".."
    for path, query in (("%FF%00%FE", {}), ("_wD-", {"key": "base64url"}), ("_wD-%3D%3D", {"key": "base64url"})):
        row = await get(table, path, **query)
        if "%3D" not in path:
            assert (row.json["key_base64"], row.json["value"]) == ("/wD+", "bytes")


@in_process_only
async def test_more_keys_than_the_memory_allows_are_refused(start_gateway):
    table = await (await start_gateway(table_memory_bytes=1 << 20)).create("table", cleanup_policy="compact")
    for first in range(0, 60_000, 10_000):
        rows = ({"key": f"k{at}", "value": 1} for at in range(first, first + 10_000))
        assert (await table.post_records(*rows)).status == 200
    assert_problem(await get(table, "k1"), "table_too_large")
