"""One request for many partitions: it waits on all at once, and returns each one's records or problem."""

import asyncio
import time

import orjson
import pytest

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import in_process_only
from tests.scenarios.long_polls import long_poll, until_long_polls

JSON = {"Content-Type": "application/json"}
LONG_MS = 60_000  # far longer than any wait here: a missed wakeup fails by seconds, not by milliseconds
PROMPT_S = 45.0


async def fetch_many(gateway, *reads, **more):
    """`reads` are (topic, partition, offset)."""
    partitions = [{"topic": topic, "partition": partition, "offset": offset} for topic, partition, offset in reads]
    return await gateway.send("POST", "/v1/fetch", orjson.dumps({"partitions": partitions, **more}), JSON)


def values(answer):
    return [[record["value"] for record in entry.get("records", ())] for entry in answer.json["partitions"]]


async def waiting(gateway, *reads, **more):
    return await long_poll(gateway, fetch_many(gateway, *reads, **{"wait_ms": LONG_MS, **more}))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
async def test_a_produce_to_any_of_them_wakes_the_poll_at_once(new_topic, acks):
    topic = await new_topic(4)
    for partition in range(4):
        poll = await waiting(topic.gateway, *((topic.name, number, 0) for number in range(4)))
        begun = time.monotonic()
        await topic.post_lines(f'"record of {partition}"', to=partition, acks=acks)
        answer = await poll
        assert time.monotonic() - begun < PROMPT_S
        assert values(answer)[partition] == [f"record of {partition}"]
        topic = await new_topic(4)


async def test_min_bytes_counts_all_of_them_together(new_topic):
    topic = await new_topic(4)
    poll = await waiting(topic.gateway, *((topic.name, number, 0) for number in range(4)), min_bytes=10_000)
    for partition in range(3):
        await topic.post(b"x" * 3_000, "text/plain", to=partition)
        await asyncio.sleep(0.05)
    assert not poll.done()
    await topic.post(b"x" * 3_000, "text/plain", to=3)
    async with asyncio.timeout(PROMPT_S):
        assert [len(entry["records"]) for entry in (await poll).json["partitions"]] == [1, 1, 1, 1]


async def test_min_bytes_beyond_max_bytes_counts_as_max_bytes(new_topic):
    topic = await new_topic(2)
    poll = await waiting(topic.gateway, (topic.name, 0, 0), (topic.name, 1, 0), min_bytes=2**31 - 1, max_bytes=2_000)
    await topic.post(b"x" * 4_000, "text/plain", to=1)
    async with asyncio.timeout(PROMPT_S):
        assert len((await poll).json["partitions"][1]["records"]) == 1


async def test_a_deleted_topic_ends_the_poll_with_a_problem(new_topic):
    stays, goes = await new_topic(), await new_topic()
    poll = await waiting(stays.gateway, (stays.name, 0, 0), (goes.name, 0, 0))
    await goes.gateway.send("DELETE", goes.path)
    async with asyncio.timeout(PROMPT_S):
        answer = await poll
    assert answer.status == 207
    assert answer.json["partitions"][1]["problem"]["code"] == "unknown_topic"


async def test_max_records_holds_for_the_whole_answer_and_nothing_is_passed_over(new_topic):
    topic = await new_topic(4)
    for partition in range(4):
        await topic.post_lines(*(f'"{partition}.{number}"' for number in range(5)), to=partition)
    seen, offsets = [[], [], [], []], [0, 0, 0, 0]
    for _ in range(7):
        answer = await fetch_many(
            topic.gateway, *((topic.name, number, offset) for number, offset in enumerate(offsets)), max_records=3
        )
        given = values(answer)
        assert 0 < sum(map(len, given)) <= 3
        seen = [before + new for before, new in zip(seen, given, strict=True)]
        offsets = [entry["next_offset"] for entry in answer.json["partitions"]]
    assert seen == [[f"{partition}.{number}" for number in range(5)] for partition in range(4)]


async def test_max_bytes_holds_for_the_whole_answer_and_no_partition_starves(new_topic):
    """A reader that always starts at the beginning still sees every partition eventually."""
    topic = await new_topic(4)
    for partition in range(4):
        for _ in range(4):
            await topic.post(b"x" * 30_000, "text/plain", to=partition)
    seen = set()
    for _ in range(8):
        answer = await fetch_many(topic.gateway, *((topic.name, number, 0) for number in range(4)), max_bytes=50_000)
        counts = [len(entry["records"]) for entry in answer.json["partitions"]]
        assert 0 < sum(counts) <= 4, counts
        seen |= {number for number, count in enumerate(counts) if count}
    assert seen == {0, 1, 2, 3}


async def test_a_record_larger_than_max_bytes_is_given_all_the_same(new_topic):
    topic = await new_topic(2)
    await topic.post(b"x" * 100_000, "text/plain", to=1)
    answer = await fetch_many(topic.gateway, (topic.name, 0, 0), (topic.name, 1, 0), max_bytes=1)
    assert [len(entry["records"]) for entry in answer.json["partitions"]] == [0, 1]


@in_process_only
async def test_it_counts_as_one_long_poll(start_gateway):
    gateway = await start_gateway(long_polls_max=2)
    topic = await gateway.create("many", 20)
    everything = [(topic.name, number, 0) for number in range(20)]
    polls = [await waiting(gateway, *everything) for _ in range(2)]
    refused = await fetch_many(gateway, *everything, wait_ms=LONG_MS)
    assert_problem(refused, "too_many_long_polls", limit=2)
    await topic.post_lines("1", to=13)
    for answer in await asyncio.gather(*polls):
        assert values(answer)[13] == [1]


@in_process_only
async def test_a_poll_whose_client_leaves_leaves_nothing_behind(start_gateway):
    gateway = await start_gateway()
    topic = await gateway.create("left", 10)
    polls = [await waiting(gateway, *((topic.name, number, 0) for number in range(10))) for _ in range(3)]
    for poll in polls:
        poll.cancel()
    await until_long_polls(gateway, 0)
    await topic.post_lines("1", to=3)
    assert values(await fetch_many(gateway, (topic.name, 3, 0))) == [[1]]


@in_process_only  # two connections may reach two shards, and each shard counts its own
async def test_partitions_that_are_waited_on_are_bounded_too(start_gateway):
    gateway = await start_gateway(long_poll_partitions_max=12)
    topic = await gateway.create("wide", 10)
    everything = [(topic.name, number, 0) for number in range(10)]
    poll = await waiting(gateway, *everything)
    assert_problem(await fetch_many(gateway, *everything, wait_ms=LONG_MS), "too_many_long_polls", limit=12)
    narrow = await long_poll(gateway, topic.fetch(offset=0, wait_ms=LONG_MS))
    await topic.post_lines("1", to=0)
    assert (await poll).status == (await narrow).status == 200


@in_process_only
async def test_more_partitions_than_allowed_are_refused(start_gateway):
    gateway = await start_gateway(fetch_partitions_max=3)
    topic = await gateway.create("wide", 4)
    assert (await fetch_many(gateway, *((topic.name, number, 0) for number in range(3)))).status == 200
    refused = await fetch_many(gateway, *((topic.name, number, 0) for number in range(4)))
    assert_problem(refused, "body_too_large", limit=3)


async def test_a_thousand_partitions_in_one_request(new_topic):
    topic = await new_topic(1000)
    everything = [(topic.name, number, 0) for number in range(1000)]
    poll = asyncio.create_task(fetch_many(topic.gateway, *everything, wait_ms=LONG_MS))
    await asyncio.sleep(0.5)
    await topic.post_lines('"one of a thousand"', to=777)
    async with asyncio.timeout(PROMPT_S):
        answer = await poll
    assert [(number, given) for number, given in enumerate(values(answer)) if given] == [(777, ["one of a thousand"])]
