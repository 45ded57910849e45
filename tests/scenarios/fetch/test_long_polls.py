"""A fetch that waits: it returns as soon as a record arrives, at its deadline, or when its client disconnects."""

import asyncio
import time

import pytest

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import in_process_only, sharded_only
from tests.scenarios.long_polls import long_poll, until_long_polls

LONG_MS = 60_000  # far longer than any wait here: a missed wakeup fails by seconds, not by milliseconds
PROMPT_S = 45.0


async def waiting(topic, **query):
    """Start a long poll at the end; returns once the node has it."""
    return await long_poll(topic.gateway, topic.fetch(**{"from": "latest", "wait_ms": LONG_MS, **query}))


async def long_polls_are(topic, expected):
    await until_long_polls(topic.gateway, expected)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
async def test_a_produce_wakes_a_waiting_reader_at_once(topic, acks):
    poll = await waiting(topic)
    begun = time.monotonic()
    await topic.post_lines('"news"', acks=acks)
    answer = await poll
    assert time.monotonic() - begun < PROMPT_S
    assert [record["value"] for record in answer.json["records"]] == ["news"]
    assert answer.json["next_offset"] == 1


async def test_many_readers_wake_together(new_topic):
    topic = await new_topic(2)
    polls = [await waiting(topic) for _ in range(10)]
    others = await waiting(topic, partition=1)
    await topic.post_lines('"news"', to=0)
    async with asyncio.timeout(PROMPT_S):
        answers = await asyncio.gather(*polls)
    assert all(answer.json["records"][0]["value"] == "news" for answer in answers)
    assert not others.done(), "a produce to one partition does not wake readers of another"
    others.cancel()


async def test_min_bytes_waits_until_so_much_is_there(topic):
    poll = await waiting(topic, min_bytes=10_000, max_bytes=100_000)
    for _ in range(3):
        await topic.post(b"x" * 3_000, "text/plain")
        await asyncio.sleep(0.05)
    assert not poll.done()
    await topic.post(b"x" * 3_000, "text/plain")
    async with asyncio.timeout(PROMPT_S):
        assert len((await poll).json["records"]) == 4


async def test_min_bytes_beyond_max_bytes_counts_as_max_bytes(topic):
    poll = await waiting(topic, min_bytes=2**31 - 1, max_bytes=2_000)
    await topic.post(b"x" * 4_000, "text/plain")
    async with asyncio.timeout(PROMPT_S):
        assert len((await poll).json["records"]) == 1


async def test_a_long_poll_ends_when_its_client_leaves(topic):
    await long_polls_are(topic, 0)  # earlier tests used the same node
    polls = [await waiting(topic) for _ in range(3)]
    assert await topic.gateway.metric("penstock_long_polls") == 3
    for poll in polls:
        poll.cancel()
    await long_polls_are(topic, 0)
    await topic.post_lines("1")
    assert len(await topic.records()) == 1


async def test_those_who_stay_are_still_woken_after_another_has_left(topic):
    await long_polls_are(topic, 0)
    stays, leaves = await waiting(topic), await waiting(topic)
    leaves.cancel()
    await long_polls_are(topic, 1)
    await topic.post_lines("1")
    async with asyncio.timeout(PROMPT_S):
        assert len((await stays).json["records"]) == 1


@in_process_only  # each shard has its own limit
async def test_long_polls_beyond_the_limit_get_retry_after(start_gateway):
    topic = await (await start_gateway(long_polls_max=2)).create("crowded")
    polls = [await waiting(topic), await waiting(topic)]
    refused = await topic.fetch(offset=0, wait_ms=1000)
    assert_problem(refused, "too_many_long_polls", limit=2, retryable=True)
    assert refused.headers["Retry-After"]
    assert (await topic.fetch(offset=0)).status == 200, "a fetch without wait_ms is not counted"
    polls[0].cancel()
    await long_polls_are(topic, 1)
    polls.append(await waiting(topic))
    await topic.post_lines("1")
    assert (await polls[2]).status == 200


@sharded_only
async def test_hundreds_of_long_polls_share_one_connection(topic):
    """HTTP/2: each is a stream, and the other streams continue."""
    polls = [asyncio.create_task(topic.fetch(**{"from": "latest", "wait_ms": LONG_MS})) for _ in range(300)]
    async with asyncio.timeout(PROMPT_S):
        while await topic.gateway.metric("penstock_long_polls") < 300:
            await asyncio.sleep(0.05)
        await topic.post_lines('"news"')
        answers = await asyncio.gather(*polls)
    assert all(answer.json["records"][0]["value"] == "news" for answer in answers)


async def test_a_deleted_topic_ends_its_long_polls(topic):
    poll = await waiting(topic)
    await topic.gateway.send("DELETE", topic.path)
    async with asyncio.timeout(PROMPT_S):
        assert_problem(await poll, "unknown_topic")
