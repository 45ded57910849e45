"""Filters: readers get the records that pass, and positions move past the others."""

import asyncio

import orjson
import pytest

from gateway.fetch import fetch_many, partition_reads
from tests.scenarios.event_source import event_source
from tests.scenarios.gateways import in_process_only

JSON = {"Content-Type": "application/json"}
ORDERS = [
    {"key": f"{'eu' if n % 3 else 'us'}-{n}", "value": {"n": n, "city": "Rome"}, "headers": {"type": f"t{n % 5}"}}
    for n in range(30)
]


@pytest.fixture
async def orders(topic):
    for start in range(0, 30, 10):
        await topic.post_records(*ORDERS[start : start + 10])
    return topic


@pytest.fixture
async def large(topic):
    """Create batches that no read takes two of."""
    for start in range(0, 30, 10):
        await topic.post_records(*[{"value": {"n": n, "text": 2000 * "x"}} for n in range(start, start + 10)])
    return topic


def numbers(records):
    return [record["value"]["n"] for record in records]


async def test_a_long_poll_waits_for_a_record_that_passes(orders):
    poll = asyncio.create_task(orders.fetch(filter="value/n=99", offset=3, wait_ms=60_000))
    await asyncio.sleep(0.05)
    await orders.post_records({"value": {"n": 98}})
    assert not poll.done()
    await orders.post_records({"value": {"n": 99}})
    answer = await asyncio.wait_for(poll, 45)
    assert (numbers(answer.json["records"]), answer.json["next_offset"]) == ([99], 32)


@in_process_only
async def test_a_fetch_looks_at_a_bounded_number_of_bytes(large, monkeypatch):
    monkeypatch.setattr(partition_reads, "SEARCHED_BYTES_MAX", 1)
    answer = await large.fetch(filter="value/n=25", max_bytes=1, wait_ms=30_000)
    assert (answer.json["records"], answer.json["next_offset"]) == ([], 10)
    monkeypatch.setattr(partition_reads, "SEARCHED_BYTES_MAX", 1 << 20)
    answer = await large.fetch(filter="value/n=25", max_bytes=1)
    assert (numbers(answer.json["records"]), answer.json["next_offset"]) == ([25], 30)


async def test_a_fetch_of_many_partitions_filters_each(new_topic):
    first, two = await new_topic(1), await new_topic(1)
    for topic in (first, two):
        await topic.post_records(*ORDERS[:10])

    async def fetch(**more):
        reads = [{"topic": topic.name, "partition": 0, "offset": 0} for topic in (first, two)]
        body = orjson.dumps({"partitions": reads, "filter": ["key=us-3"], **more})
        return await first.gateway.send("POST", "/v1/fetch", body, JSON)

    answer = await fetch()
    assert [numbers(entry["records"]) for entry in answer.json["partitions"]] == [[3], [3]]
    assert [entry["next_offset"] for entry in answer.json["partitions"]] == [10, 10]
    none = await fetch(filter=["key=none"], wait_ms=50)
    assert [entry["next_offset"] for entry in none.json["partitions"]] == [10, 10]
    poll = asyncio.create_task(fetch(filter=["key=new"], wait_ms=60_000))
    await asyncio.sleep(0.05)
    await two.post_records({"key": "old", "value": {"n": 1}}, {"key": "new", "value": {"n": 2}})
    polled = await asyncio.wait_for(poll, 45)
    assert [numbers(entry.get("records", [])) for entry in polled.json["partitions"]] == [[], [2]]


@in_process_only
async def test_a_fetch_of_many_partitions_looks_at_a_bounded_number_of_bytes(large, monkeypatch):
    monkeypatch.setattr(fetch_many, "SEARCHED_BYTES_MAX", 1)
    reads = [{"topic": large.name, "partition": 0, "offset": 0}]
    body = orjson.dumps({"partitions": reads, "filter": ["key=none"], "max_bytes": 1, "wait_ms": 30_000})
    answer = await large.gateway.send("POST", "/v1/fetch", body, JSON)
    assert answer.json["partitions"][0]["next_offset"] == 10


async def test_an_event_stream_has_the_events_that_pass(orders):
    path = f"{orders.path}/records?from=earliest&filter=header.type%3Dt4&filter=key%5E%3Dus-"
    async with event_source(orders.gateway.port, path, {}) as stream:
        assert [event.json["value"]["n"] for event in await stream.take(2)] == [9, 24]
        await orders.post_records(ORDERS[1], ORDERS[9], ORDERS[2])
        (event,) = await stream.take(1)
        assert (event.json["offset"], event.positions) == (31, "32")
        await orders.post_records(ORDERS[2])
        await orders.post_records(ORDERS[24])
        (event,) = await stream.take(1)
        assert event.json["offset"] == 34


async def test_an_answer_that_caches_keep_is_one_of_its_filter(orders):
    await orders.roll()
    tags = {
        (await orders.fetch(offset=0, filter=filter_text)).headers["ETag"] for filter_text in ("key=eu-1", "key=eu-2")
    }
    tags.add((await orders.fetch(offset=0)).headers["ETag"])
    assert len(tags) == 3
