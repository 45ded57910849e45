"""The consumer against a node that follows the contract, and that fails in every way the contract allows."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from aiohttp import web

from penstock import Client, ClientClosed, ClientError, ConnectionFailed, ProblemError, Record, UndecodableBatch
from penstock.records import decode_records
from tests.penstock.conftest import UNREACHABLE
from tests.penstock.fake_node import FakeNode, FakePartition, Stored, answering, problem, reset
from tests.waiting import until


def fill(partition: FakePartition, count: int, timestamp: int = 0) -> None:
    base = len(partition.records)
    partition.append([Stored(None, b"%d" % n, {}, timestamp or 1000 + n) for n in range(base, base + count)])


def fetches(fake: FakeNode) -> list[int]:
    """The offsets of the fetches so far."""
    return [int(query["offset"]) for _, path, query, _ in fake.seen if path.endswith("/records")]


async def read_all(client: Client, **options: object) -> list[Record]:
    return [record async for record in client.consume("t", follow=False, **options)]  # type: ignore[arg-type]


async def test_reads_every_record_of_every_partition_in_order(client: Client, fake: FakeNode) -> None:
    for partition in fake.add_topic("t", 3):
        fill(partition, 100)
    records = await read_all(client, fetch_bytes_max=20)
    assert len(records) == 300
    for number in range(3):
        mine = [record for record in records if record.partition == number]
        assert [record.offset for record in mine] == list(range(100))
        assert [record.json() for record in mine] == list(range(100))


async def test_it_says_in_which_rack_it_stands(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    fill(partition, 3)
    assert len(await read_all(client)) == 3
    assert not any("Penstock-Rack" in headers for headers in fake.seen_headers)
    assert len(await read_all(client, rack="b")) == 3
    assert "b" in [headers.get("Penstock-Rack") for headers in fake.seen_headers]


async def test_a_long_poll_wakes_when_a_record_comes(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    async with client.consume("t", fetch_wait_ms=60_000) as consumer:
        waiting = asyncio.create_task(consumer.poll())
        await until(lambda: fetches(fake))
        fill(partition, 1)
        (record,) = await asyncio.wait_for(waiting, 45)
    assert record.offset == 0


async def test_latest_means_when_the_consumer_started(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    fill(partition, 3)
    async with client.consume("t", start="latest") as consumer:
        fill(partition, 1)
        assert [record.offset for record in await consumer.poll()] == [3]


async def test_starts_at_an_offset_a_time_or_saved_positions(client: Client, fake: FakeNode) -> None:
    for partition in fake.add_topic("t", 2):
        fill(partition, 10)
    assert len(await read_all(client, start=8)) == 4
    assert len(await read_all(client, start={0: 9})) == 11
    assert [r.offset for r in await read_all(client, start=datetime.fromtimestamp(1.007, UTC), partitions=[1])] == [
        7,
        8,
        9,
    ]
    assert await read_all(client, start=datetime.fromtimestamp(5, UTC)) == []


async def test_positions_count_what_was_handed_out_and_not_what_was_fetched(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    fill(partition, 10)
    async with client.consume("t") as consumer:
        assert consumer.positions() == {0: 0}
        async for record in consumer:
            if record.offset == 3:
                break
        assert consumer.positions() == {0: 4}
        assert [record.offset for record in await consumer.poll()] == [4, 5, 6, 7, 8, 9]
        assert consumer.positions() == {0: 10}


async def test_poll_gives_nothing_after_its_timeout(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    async with client.consume("t") as consumer:
        assert await consumer.poll(timeout_ms=50) == []
        assert not consumer.is_at_end


async def test_without_follow_it_ends_where_the_log_ended_at_the_start(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    fill(partition, 5)
    consumer = client.consume("t", follow=False, fetch_bytes_max=1)
    await consumer.start()
    fill(partition, 5)
    assert len([record async for record in consumer]) == 5
    assert consumer.is_at_end
    assert await consumer.poll() == []


async def test_a_closed_consumer_gives_nothing_more(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    fill(partition, 10)
    consumer, unstarted = client.consume("t"), client.consume("t")
    assert (await consumer.next()).offset == 0
    await consumer.close()
    await unstarted.close()
    before = fetches(fake)
    for one in (consumer, unstarted):
        with pytest.raises(ClientClosed):
            await one.next()
    assert fetches(fake) == before


async def test_a_read_that_waits_ends_when_another_task_closes_the_consumer(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    consumer = client.consume("t")
    reading = asyncio.ensure_future(consumer.next())
    await until(lambda: fetches(fake))
    await consumer.close()
    async with asyncio.timeout(60):
        with pytest.raises(ClientClosed):
            await reading


async def test_closing_the_client_ends_its_producers_and_consumers(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    fill(partition, 10)
    consumer, producer = client.consume("t"), client.producer(linger_ms=60_000)
    assert (await consumer.next()).offset == 0
    delivery = await producer.send("t", 1)
    await client.close()
    with pytest.raises(ClientClosed):
        await delivery
    with pytest.raises(ClientClosed):
        await consumer.next()
    for open_one in (client.producer, lambda: client.consume("t"), lambda: client.queue("g", topics="t")):
        with pytest.raises(ClientClosed):
            open_one()
    await consumer.close()
    assert len(partition.records) == 10


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [5, 6, 7, 8, 9]), ("latest", [10])])
async def test_410_follows_the_policy(client: Client, fake: FakeNode, policy: str, expected: list[int]) -> None:
    (partition,) = fake.add_topic("t")
    fill(partition, 10)
    partition.log_start = 5
    async with client.consume("t", start=2, out_of_range=policy) as consumer:
        await until(lambda: fetches(fake)[1:])
        if policy == "latest":
            assert fetches(fake)[:2] == [2, 10]
            fill(partition, 1)
        assert [record.offset for record in await consumer.poll()] == expected


async def test_410_and_416_fail_by_default(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    fill(partition, 10)
    partition.log_start = 5
    for start, code in ((2, "offset_below_log_start"), (11, "offset_above_high_watermark")):
        consumer = client.consume("t", start=start)
        for _ in range(2):  # it keeps failing
            with pytest.raises(ProblemError) as caught:
                await consumer.poll()
            assert caught.value.code == code
        await consumer.close()


async def test_a_start_beyond_the_end_is_refused_without_follow_too(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    fill(partition, 3)
    with pytest.raises(ProblemError) as caught:
        await read_all(client, start=4)
    assert caught.value.code == "offset_above_high_watermark"
    assert len(await read_all(client, start=4, out_of_range="earliest")) == 3
    assert await read_all(client, start=4, out_of_range="latest") == []


async def test_retryable_failures_are_retried(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    fill(partition, 3)
    fake.fail(reset, method="GET")
    fake.fail(answering(lambda: problem(503, "overloaded", retryable=True)), method="GET")
    fake.fail(answering(lambda: problem(429, "too_many_long_polls", retryable=True, retry_after_s=0)), method="GET")
    assert len(await read_all(client)) == 3


async def test_gives_up_when_the_node_stays_away() -> None:
    async with Client(UNREACHABLE) as client:
        with pytest.raises(ConnectionFailed):
            await client.consume("t", unreachable_timeout_ms=0).poll()


async def test_what_is_not_retryable_ends_the_consumer(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    fake.fail(answering(lambda: problem(403, "forbidden")), method="GET", path="/records")
    with pytest.raises(ProblemError) as caught:
        await client.consume("t").poll()
    assert caught.value.code == "forbidden"


async def test_prefetch_is_bounded(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    fill(partition, 50)
    async with client.consume("t", fetch_bytes_max=1, prefetch_batches=3) as consumer:
        await until(lambda: len(fetches(fake)) == 3)
        await asyncio.sleep(0.1)  # no fourth comes
        assert len(fetches(fake)) == 3
        await consumer.poll()
        await until(lambda: len(fetches(fake)) == 4)
        await asyncio.sleep(0.05)
        assert len(fetches(fake)) == 4


async def test_closing_ends_the_long_polls(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t", 4)
    consumer = client.consume("t", fetch_wait_ms=60_000)
    await consumer.poll(timeout_ms=50)
    await until(lambda: fake.open_now == 4)
    await asyncio.wait_for(consumer.close(), 30)
    with pytest.raises(ClientClosed):
        await consumer.poll()


async def test_an_answer_that_no_node_sends_is_reported(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    fill(partition, 1)
    nonsense = answering(lambda: web.Response(text="hi", headers={"Penstock-Next-Offset": "1"}))
    fake.fail(nonsense, method="GET", path="/records")
    with pytest.raises(ClientError, match="not what a node sends"):
        await client.consume("t").poll()


def test_an_undecodable_batch_is_one_record_whose_value_raises() -> None:
    body = (
        b'{"topic":"t","partition":2,"records":[{"offset":5,"last_offset":9,"error":"undecodable"}],"next_offset":10}'
    )
    (record,) = decode_records(body)
    assert record.next_offset == 10
    assert repr(record) == "<Record t/2@5 undecodable>"
    with pytest.raises(UndecodableBatch):
        _ = record.value


def test_unknown_answer_fields_are_ignored() -> None:
    body = b'{"topic":"t","partition":0,"new":[],"records":[{"offset":0,"value":1,"newer":true}],"next_offset":1}'
    (record,) = decode_records(body)
    assert record.value == b"1"
