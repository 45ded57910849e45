"""The number of partitions is refreshed now and then; a cancelled wait for it affects no other caller."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from penstock.admin.topics import TopicPartitions
from penstock.aio import Client
from penstock.errors import ProblemError
from tests.penstock.conftest import QUICK, UNREACHABLE
from tests.penstock.fake_node import FakeNode, FakePartition, Stored, reset


async def test_a_failure_that_nobody_waits_for_any_more_is_not_reported() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    topics = TopicPartitions(Client(UNREACHABLE, options=QUICK)._attempts, 50, 1_000)
    waiting = asyncio.create_task(topics.load("flights"))
    while not topics._in_flight:
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    while topics._in_flight:
        await asyncio.sleep(0.01)
    del waiting  # it refers to the awaited task
    gc.collect()  # asyncio reports an unretrieved exception when its task is collected
    assert reported == []


async def test_the_number_of_partitions_is_asked_for_with_retries(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t", 3)
    for _ in range(2):
        fake.fail(reset, method="GET", path="/topics/t")
    assert await client.partition_count("t") == 3
    with pytest.raises(ProblemError, match="nowhere"):
        await client.partition_count("nowhere")


async def test_a_producer_uses_the_partitions_that_a_topic_has_grown_by(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t", 1)
    producer = client.producer(partitioner="round_robin")
    quick = TopicPartitions(client._attempts, 1_000, age_ms_max=1)
    producer._topics = quick
    await producer.send_many("t", range(4))
    fake.topics["t"] += [FakePartition(), FakePartition()]
    async with asyncio.timeout(60):
        while quick.cached_count("t") == 1:
            await producer.send("t", 0)
            await asyncio.sleep(0.005)
    sent = await producer.send_many("t", range(6))
    assert {(await delivery).partition for delivery in sent} == {0, 1, 2}
    await producer.send_many("t", range(3), partition=2)
    await producer.close()


async def test_records_without_a_key_reach_new_partitions_too(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t", 1)
    async with client.producer(batch_bytes=1, linger_ms=0) as producer:
        await producer.send_many("t", range(3))
        fake.topics["t"].append(FakePartition())
        await client._topics.load("t")
        await producer.send_many("t", range(20))
    assert len(fake.topics["t"][1].records) > 5


async def test_a_consumer_follows_new_partitions_from_their_beginning(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t", 1)
    new = FakePartition([Stored(None, b"7", {}, 1)])
    async with client.consume("t", start="latest", partitions_age_ms_max=20) as consumer:
        fake.topics["t"].append(new)
        async with asyncio.timeout(60):
            records = await consumer.poll()
    assert [(record.partition, record.offset, record.json()) for record in records] == [(1, 0, 7)]
    assert consumer.positions() == {0: 0, 1: 1}


async def test_a_consumer_of_named_partitions_does_not_ask_for_more(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t", 2)
    async with client.consume("t", partitions=[1], partitions_age_ms_max=1) as consumer:
        assert await consumer.poll(timeout_ms=50) == []
    assert not any(path == "/v1/topics/t" for _, path, _, _ in fake.seen)
