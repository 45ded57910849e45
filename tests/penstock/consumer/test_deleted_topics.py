"""Topics are deleted, and created again, under the consumers of the client: a real node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from penstock import Client, ClientOptions, ProblemError

pytestmark = pytest.mark.e2e
QUICK = ClientOptions(backoff_ms=5, backoff_ms_max=20, fetch_wait_ms=300, unreachable_timeout_ms=60_000)


@pytest.fixture
async def client(node_url: str) -> AsyncIterator[Client]:
    async with Client(node_url, options=QUICK) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("[", "-").replace("]", "")[:100]


async def fill(client: Client, topic: str, *values: int) -> None:
    await client.create_topic(topic, partitions=1)
    await client.post_records(topic, b"".join(b"%d\n" % value for value in values))


async def create_again(client: Client, topic: str, *values: int) -> None:
    await client.delete_topic(topic)
    await fill(client, topic, *values)


async def test_saved_positions_of_a_deleted_topic_are_refused(client: Client, name: str) -> None:
    await fill(client, name, *range(5))
    async with client.consume(name, follow=False) as consumer:
        assert len(await consumer.poll()) == 5
        saved, topic_id = consumer.positions(), consumer.topic_id
    await create_again(client, name, *range(10, 18))
    async with client.consume(name, start=saved, topic_id=topic_id, follow=False) as again:
        with pytest.raises(ProblemError, match="was created again") as refused:
            await again.poll()
        assert refused.value.code == "topic_id_mismatch"
    async with client.consume(name, start=saved, topic_id=topic_id, follow=False, out_of_range="earliest") as new:
        assert [one.json() for one in await new.poll()] == list(range(10, 18))


async def test_a_group_goes_on_with_the_other_topics_and_with_one_that_comes_back(
    client: Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = f"{name}.a", f"{name}.b"
    for topic in (first, second):
        await fill(client, topic, 1)
    async with asyncio.timeout(60):
        for terms in ({"topics": [first, second]}, {"topics_pattern": f"{name}.*"}):
            async with client.consumer(group=f"{name}.{len(terms)}.{next(iter(terms))}", **terms) as consumer:  # type: ignore[arg-type]
                assert {(await consumer.next()).topic for _ in range(2)} == {first, second}
                await client.delete_topic(first)
                await client.post_records(second, b"2\n")
                assert [(one.topic, one.json()) for one in [await consumer.next()]] == [(second, 2)]
                await asyncio.sleep(1.5)  # the coordinator has looked
                await fill(client, first, 10)
                assert [(one.topic, one.json()) for one in [await consumer.next()]] == [(first, 10)]
            await create_again(client, second, 1)
            await create_again(client, first, 1)
    assert caplog.text.count(f"topic {first} was deleted, the others are read") <= 2


async def test_a_consumer_whose_topics_are_all_deleted_says_so_once(client: Client, name: str) -> None:
    topics = [f"{name}.a", f"{name}.b"]
    for topic in topics:
        await fill(client, topic, 1)
    async with asyncio.timeout(60), client.consumer(group=name, topics=topics) as consumer:
        for _ in topics:
            await consumer.next()
        for topic in topics:
            await client.delete_topic(topic)
        with pytest.raises(ProblemError, match="all topics of the consumer were deleted") as ended:
            await consumer.next()
        assert all(topic in ended.value.detail for topic in topics)


async def test_a_queue_goes_on_with_the_other_topics(
    client: Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    topics = [f"{name}.a", f"{name}.b"]
    for topic in topics:
        await fill(client, topic, 1)
    async with asyncio.timeout(60), client.queue(name, topics=topics) as queue:
        for _ in topics:
            async with await anext(queue):
                pass
        await client.delete_topic(topics[0])
        for value in (2, 3):
            await client.post_records(topics[1], b"%d\n" % value)
            async with await anext(queue) as record:
                assert (record.topic, record.json()) == (topics[1], value)
        assert caplog.text.count(f"topic {topics[0]} was deleted, the others are read") == 1
        findings = (await client.explain_group(name))["findings"]
        assert [(one["cause"], one["topic"]) for one in findings if "topic" in one["cause"]] == [
            ("topic_missing", topics[0])
        ]
        assert "partition_unreachable" not in [one["cause"] for one in findings]
        await fill(client, topics[0], 7)
        async with await anext(queue) as record:
            assert (record.topic, record.offset, record.json()) == (topics[0], 0, 7)
        for topic in topics:
            await client.delete_topic(topic)
        with pytest.raises(ProblemError, match="all topics of the call were deleted"):
            await queue.take(1)
    with pytest.raises(ProblemError, match="there is no topic 'mistaken'"):
        await client.queue(name + ".2", topics=[*topics, "mistaken"]).take(1)
