"""The bounds of a fetch: offsets, sizes, counts, and positions outside the log."""

import asyncio

import pytest

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import RECORD_BATCH, in_process_only


async def read_through(topic, **query):
    """Fetch every record in as many fetches as needed, as a consumer does; each makes progress."""
    records, offset, fetches = [], 0, 0
    while True:
        document = (await topic.fetch(offset=offset, **query)).json
        if not document["records"]:
            return records, fetches
        assert document["next_offset"] == document["records"][-1]["offset"] + 1 > offset
        records += document["records"]
        offset, fetches = document["next_offset"], fetches + 1


@pytest.fixture
async def numbered(topic):
    """Create 100 records in 20 batches; a record's value is its offset."""
    for first in range(0, 95, 5):
        await topic.post_lines(*map(str, range(first, first + 5)), acks="1")
    await topic.post_lines(*map(str, range(95, 100)))
    return topic


@pytest.mark.parametrize("max_records", [1, 3, 5, 7, 100, 10_000_000])
async def test_max_records_bounds_an_answer_to_the_record(numbered, max_records):
    records, fetches = await read_through(numbered, max_records=max_records)
    assert [record["value"] for record in records] == list(range(100))
    assert fetches == -(-100 // max_records)


@pytest.mark.parametrize("max_bytes", [1, 100, 700, 10_000, 2_147_483_647])
async def test_whatever_max_bytes_is_reading_continues_and_misses_nothing(numbered, max_bytes):
    records, fetches = await read_through(numbered, max_bytes=max_bytes)
    assert [record["value"] for record in records] == list(range(100))
    assert fetches == 1 or max_bytes < 10_000


async def test_a_record_larger_than_max_bytes_is_given_all_the_same(topic):
    """A large record never blocks a consumer."""
    huge = b"x" * 900_000
    await topic.post_lines("1")
    await topic.post(huge, "text/plain")
    await topic.post_lines("3")
    records, _ = await read_through(topic, max_bytes=10)
    assert [len(str(record["value"])) for record in records] == [1, 900_000, 1]
    batches = await topic.fetch(offset=1, accept=RECORD_BATCH, max_bytes=10)
    assert len(batches.body) > 900_000


@in_process_only
async def test_a_reader_never_gets_more_than_the_node_allows(start_gateway):
    topic = await (await start_gateway(fetch_bytes_max=100_000, fetch_bytes_default=50_000)).create("bounded")
    for _ in range(39):
        await topic.post(b"x" * 10_000, "text/plain", acks="1")
    await topic.post(b"x" * 10_000, "text/plain")
    for query, limit in (({}, 50_000), ({"max_bytes": 2_000_000}, 100_000), ({"max_bytes": 20_000}, 20_000)):
        answer = await topic.fetch(offset=0, accept=RECORD_BATCH, **query)
        assert limit - 15_000 < len(answer.body) <= limit + 15_000


async def test_an_offset_below_the_log_start_is_410_with_the_bounds(new_topic):
    """Retention by size, with the smallest allowed segments."""
    topic = await new_topic(retention_bytes=2**20, segment_bytes=65_536)
    for _ in range(39):
        await topic.post(b"x" * 60_000, "text/plain", acks="1")
    await topic.post(b"x" * 60_000, "text/plain")
    async with asyncio.timeout(60):
        while (await topic.positions())["log_start"] == 0:
            await asyncio.sleep(0.1)
    positions = await topic.positions()
    problem = assert_problem(await topic.fetch(offset=0), "offset_below_log_start")
    assert problem["log_start"] >= positions["log_start"] > 0
    assert problem["high_watermark"] == 40
    assert (await topic.records(offset=problem["log_start"]))[0]["offset"] == problem["log_start"]
    assert (await topic.records(**{"from": "earliest"}))[0]["offset"] >= positions["log_start"]


async def test_reading_crosses_segments(new_topic):
    topic = await new_topic()
    for n in range(6):
        await topic.post_lines(str(n))
        if n % 2:
            await topic.roll()
    records, _ = await read_through(topic)
    assert [record["value"] for record in records] == list(range(6))
    assert (await topic.describe())["partitions"][0]["segments"] == 4


async def test_a_time_is_found_across_segments(new_topic):
    topic = await new_topic()
    for n in range(1, 6):
        await topic.post_records({"value": n, "timestamp": 1000 * n})
        await topic.roll()
    for n in range(1, 6):
        assert (await topic.positions(timestamp=1000 * n - 1))["offset"] == n - 1
