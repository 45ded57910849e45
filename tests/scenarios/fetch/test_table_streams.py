"""A compacted topic as a table: pages of rows, an event stream of rows and changes, and reads that are resumed."""

from __future__ import annotations

import asyncio

import pytest

from tests.scenarios.conformity import assert_problem
from tests.scenarios.event_source import event_source
from tests.scenarios.gateways import Topic


@pytest.fixture
async def table(start_gateway) -> Topic:
    return await (await start_gateway()).create("table", partitions=2, cleanup_policy="compact")


async def page(table: Topic, **query):
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    return await table.gateway.send("GET", f"/v1/topics/{table.name}/table?{asked}", b"", {})


async def pages(table: Topic, positions=None, **query) -> tuple[dict[str, object], str]:
    """Returns the values of all pages by key, and the positions that the last one has."""
    rows: dict[str, object] = {}
    while True:
        document = (await page(table, **query | ({"positions": positions} if positions else {}))).json
        rows |= {row["key"]: row["value"] for row in document["rows"]}
        positions = document["positions"]
        assert document["complete"] is not positions.startswith("s")
        if document["complete"]:
            return rows, positions


async def test_pages_are_the_table_and_then_its_changes(table):
    for number in range(3):
        await table.post_records(*({"key": f"k{at}", "value": number} for at in range(50)))
    await table.post_records({"key": "k0", "value": None})
    rows, positions = await pages(table, max_bytes=1)
    assert {key: value for key, value in rows.items() if value is not None} == {f"k{at}": 2 for at in range(1, 50)}
    assert await pages(table, positions) == ({}, positions)
    await table.post_records({"key": "k1", "value": None}, {"key": "k2", "value": 9}, {"key": "k2", "value": 10})
    changes, _ = await pages(table, positions)
    assert changes == {"k1": None, "k2": 10}


async def test_a_read_that_is_resumed_has_the_deletions_that_came_meanwhile(table):
    await table.post_records(*({"key": f"k{at}", "value": 1} for at in range(20)))
    first = (await page(table, max_bytes=1)).json
    assert not first["complete"]
    await table.post_records(*({"key": f"k{at}", "value": None} for at in range(10)))
    rows = {row["key"]: row["value"] for row in first["rows"]}
    later, _ = await pages(table, first["positions"])
    assert {key: value for key, value in (rows | later).items() if value is not None} == {
        f"k{at}": 1 for at in range(10, 20)
    }


async def test_an_event_stream_has_the_table_a_marker_and_the_changes(table):
    await table.post_records({"key": "a", "value": 1}, {"key": "b", "value": 1}, {"key": "a", "value": 2})
    path = f"/v1/topics/{table.name}/table"
    async with event_source(table.gateway.port, path) as stream:
        rows = await stream.take(2)
        assert {event.json["key"]: event.json["value"] for event in rows} == {"a": 2, "b": 1}
        marker = await stream.next()
        assert (marker.kind, marker.json["positions"]) == ("table", marker.id)
        await table.post_records({"key": "a", "value": None})
        [change] = await stream.take(1)
        assert (change.json["key"], change.json["value"]) == ("a", None)
    async with event_source(table.gateway.port, f"{path}?follow=false", {"Last-Event-ID": marker.id}) as stream:
        [row, end] = await stream.take(2)
        assert (row.json["key"], row.json["value"], end.kind) == ("a", None, "table")
        assert await stream.next() is None


async def test_a_table_can_be_read_as_of_a_position_that_is_not_there_yet(table):
    _, positions = await pages(table)
    assert positions == f"{(await table.describe())['topic_id'][:8]}.0-0"
    waiting = asyncio.create_task(page(table, as_of="1-1", wait_ms=20_000))
    await table.post_records({"value": 1, "key": "a", "partition": 0}, {"value": 1, "key": "b", "partition": 1})
    assert len((await waiting).json["rows"]) == 2
    assert_problem(await page(table, as_of="2-1"), "offset_above_high_watermark")
