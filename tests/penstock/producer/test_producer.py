"""The producer against a node that follows the contract, and that fails in every way the contract allows."""

from __future__ import annotations

import asyncio
import time

import pytest

from penstock import (
    BufferFull,
    Client,
    ClientClosed,
    ClientOptions,
    ConnectionFailed,
    DeliveryTimedOut,
    ProblemError,
    RecordPosition,
)
from penstock.producer.partitioners import partition_of_key
from tests.penstock.conftest import UNREACHABLE
from tests.penstock.fake_node import NOW_MS, FakeNode, answering, problem, reset
from tests.waiting import pass_time, until

RECORDS = "/v1/topics/t/partitions/0/records"


async def test_each_record_gets_its_position(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    async with client.producer() as producer:
        deliveries = [await producer.send("t", {"n": n}) for n in range(3)]
        positions = [await delivery for delivery in deliveries]
    assert positions == [RecordPosition("t", 0, n, NOW_MS) for n in range(3)]
    assert [record.value for record in fake.topics["t"][0].records] == [b'{"n":0}', b'{"n":1}', b'{"n":2}']


async def test_records_within_the_linger_travel_together(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    async with client.producer(linger_ms=60_000) as producer:
        for n in range(500):
            await producer.send("t", n)
    assert len(fake.bodies_by_path[RECORDS]) == 1


async def test_a_full_batch_does_not_wait_for_the_linger(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    producer = client.producer(linger_ms=60_000, batch_bytes=100)
    deliveries = await producer.send_many("t", [b'"' + b"x" * 47 + b'"'] * 5)
    assert (await asyncio.wait_for(deliveries[0], 60)).offset == 0
    await producer.close()
    assert all(len(body) <= 100 for body in fake.bodies_by_path[RECORDS])


async def test_keys_choose_partitions_as_kafka_does(client: Client, fake: FakeNode) -> None:
    partitions = fake.add_topic("t", 5)
    keys = [f"key-{n}" for n in range(50)]
    async with client.producer() as producer:
        await producer.send_many("t", [b"1"] * 50, keys=keys)
    for number, partition in enumerate(partitions):
        assert {record.key for record in partition.records} == {
            key.encode() for key in keys if partition_of_key(key.encode(), 5) == number
        }


async def test_keyless_records_fill_whole_batches_and_use_all_partitions(client: Client, fake: FakeNode) -> None:
    partitions = fake.add_topic("t", 3)
    async with client.producer(batch_bytes=1000, linger_ms=60_000) as producer:
        deliveries = await producer.send_many("t", [b'"' + b"x" * 17 + b'"'] * 450)
    positions = [await delivery for delivery in deliveries]
    assert [len(partition.records) for partition in partitions] == [150, 150, 150]
    bodies = [body for path, sent in fake.bodies_by_path.items() if path.endswith("/records") for body in sent]
    assert {body.count(b"\n") + 1 for body in bodies} == {50}
    # Batches of a partition may overtake each other on their way: then one is retried.
    assert (producer.statistics().batches, len(fake.bodies_by_path["/v1/topics/t"]), fake.producers) == (9, 1, 1)
    assert len(set(positions)) == 450


async def test_an_unknown_topic_is_reported_by_send(client: Client) -> None:
    with pytest.raises(ProblemError) as caught:
        await client.producer().send("nowhere", 1)
    assert (caught.value.code, caught.value.status) == ("unknown_topic", 404)


async def test_an_unknown_partition_is_reported_by_the_delivery(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    producer = client.producer()
    delivery = await producer.send("t", 1, partition=7)
    with pytest.raises(ProblemError) as caught:
        await delivery
    assert caught.value.code == "unknown_partition"
    await producer.close()  # the failure has been raised before


async def test_flush_raises_a_failure_that_nobody_awaited(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    producer = client.producer()
    await producer.send("t", 1, partition=7)
    with pytest.raises(ProblemError):
        await producer.flush()
    await producer.flush()
    assert producer.statistics().records_failed == 1


async def test_acks_0_gives_no_offset(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    async with client.producer(acks="0") as producer:
        assert (await (await producer.send("t", 1))).offset is None


async def test_retry_after_is_obeyed(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    fake.fail(answering(lambda: problem(429, "too_many_requests", retryable=True, retry_after_s=1)))
    began = time.monotonic()
    async with client.producer() as producer:
        assert (await (await producer.send("t", 1))).offset == 0
    assert time.monotonic() - began >= 1
    assert producer.statistics().retries == 1


async def test_what_is_not_retryable_fails_at_once(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    fake.fail(answering(lambda: problem(403, "forbidden", "may not write")))
    producer = client.producer()
    with pytest.raises(ProblemError, match="may not write"):
        await (await producer.send("t", 1))
    assert len(fake.bodies_by_path[RECORDS]) == 1


@pytest.mark.parametrize(("idempotence", "stored"), [("on", 1), ("off", 2)])
async def test_a_lost_answer_stores_a_record_twice_only_without_sequences(
    client: Client, fake: FakeNode, idempotence: str, stored: int
) -> None:
    partition = fake.add_topic("t")[0]
    fake.fail(reset, after=True)
    async with client.producer(idempotence=idempotence) as producer:
        position = await (await producer.send("t", 1))
    assert position.offset == len(partition.records) - 1 == stored - 1


async def test_without_retry_ambiguous_a_reset_is_reported(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    fake.fail(reset, after=True)
    producer = client.producer(retry_ambiguous=False, idempotence="off")
    with pytest.raises(ConnectionFailed) as caught:
        await (await producer.send("t", 1))
    assert not caught.value.no_side_effects
    assert len(fake.topics["t"][0].records) == 1


async def test_delivery_timeout_ends_retries_and_reports_the_last_failure(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    for _ in range(100):
        fake.fail(answering(lambda: problem(503, "overloaded", "later", retryable=True)))
    producer = client.producer(delivery_timeout_ms=20_000, backoff_ms=60_000, backoff_ms_max=60_000)
    with pytest.raises(DeliveryTimedOut) as caught:
        await (await producer.send("t", 1))
    assert isinstance(caught.value.last, ProblemError)
    assert caught.value.last.code == "overloaded"
    assert caught.value.no_side_effects


async def test_delivery_timeout_cuts_a_stalled_request(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    fake.fail(fake.hold)
    producer = client.producer(delivery_timeout_ms=100_000)
    delivery = await producer.send("t", 1)
    await until(lambda: fake.bodies_by_path[RECORDS])
    pass_time(100)
    with pytest.raises(DeliveryTimedOut) as caught:
        await delivery
    assert not caught.value.no_side_effects


async def test_a_full_buffer_blocks_until_there_is_room(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    async with client.producer(buffer_bytes=100, batch_bytes=50) as producer:
        for n in range(200):
            await producer.send("t", n)
            assert producer.statistics().buffered_bytes <= 100
    assert len(fake.topics["t"][0].records) == 200
    assert producer.statistics().buffered_bytes == 0


async def test_a_full_buffer_raises_if_asked_to(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    async with client.producer(buffer_bytes=10, buffer_full="raise") as producer:
        await producer.send("t", 12345)
        with pytest.raises(BufferFull):
            await producer.send("t", 67890)


async def test_a_record_larger_than_the_buffer_can_be_sent(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    async with client.producer(buffer_bytes=10) as producer:
        assert (await (await producer.send("t", "x" * 100))).offset == 0


async def test_a_refused_line_fails_alone(client: Client, fake: FakeNode) -> None:
    partition = fake.add_topic("t")[0]
    fake.fail(answering(lambda: problem(400, "malformed_ndjson", "line 3 is bad", line=3)))
    producer = client.producer()
    deliveries = await producer.send_many("t", range(5))
    outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
    assert isinstance(outcomes[2], ProblemError)
    assert [o.offset for o in outcomes if isinstance(o, RecordPosition)] == [0, 1, 2, 3]
    assert [record.value for record in partition.records] == [b"0", b"1", b"3", b"4"]
    assert producer.statistics().buffered_bytes == 0


async def test_a_batch_that_is_too_large_is_halved(client: Client, fake: FakeNode) -> None:
    partition = fake.add_topic("t")[0]
    for _ in range(2):
        fake.fail(answering(lambda: problem(413, "batch_too_large", limit=10)))
    async with client.producer() as producer:
        deliveries = await producer.send_many("t", range(100))
        assert [(await delivery).offset for delivery in deliveries] == list(range(100))
    assert [int(record.value or b"") for record in partition.records] == list(range(100))
    assert len(fake.bodies_by_path[RECORDS]) == 5  # 100, 50, 25, 25, 50


async def test_in_flight_max_allows_requests_at_once_when_the_first_is_stored(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    producer = client.producer(in_flight_max=3, batch_bytes=1, linger_ms=0)
    await (await producer.send("t", 0))
    for _ in range(4):
        fake.fail(fake.hold)
    await producer.send_many("t", range(4))
    await until(lambda: fake.open_now == 3)
    await asyncio.sleep(0.05)  # no fourth comes
    assert fake.open_now == 3
    await producer.abort()


@pytest.mark.parametrize("changed", [{"idempotence": "off"}, {"acks": "0"}])
async def test_one_request_at_a_time_per_partition_without_sequences(
    client: Client, fake: FakeNode, changed: dict[str, str]
) -> None:
    fake.add_topic("t")
    producer = client.producer(batch_bytes=1, linger_ms=0, **changed)
    for _ in range(2):
        fake.fail(fake.hold)
    await producer.send_many("t", range(4))
    await until(lambda: fake.open_now == 1)
    await asyncio.sleep(0.05)  # no second comes
    assert fake.open_now == 1
    assert fake.producers == 0
    await producer.abort()


async def test_abort_fails_what_is_not_acknowledged(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    fake.fail(fake.hold)
    producer = client.producer(batch_bytes=1, linger_ms=0)
    under_way, waiting = await producer.send("t", 1), await producer.send("t", 2)
    await until(lambda: fake.bodies_by_path[RECORDS])
    await producer.abort()
    for delivery, no_side_effects in ((under_way, False), (waiting, True)):
        with pytest.raises(ClientClosed) as caught:
            await delivery
        assert caught.value.no_side_effects is no_side_effects
    with pytest.raises(ClientClosed):
        await producer.send("t", 3)


async def test_a_node_that_is_not_there_is_no_side_effect() -> None:
    async with Client(UNREACHABLE) as client:
        with pytest.raises(ConnectionFailed) as caught:
            await client.list_topics()
    assert caught.value.no_side_effects


async def test_an_answer_that_is_no_node_is_reported(client: Client, fake: FakeNode) -> None:
    from aiohttp import web

    fake.fail(answering(lambda: web.Response(text="<html>hello</html>")), method="GET", path="/v1/topics")
    with pytest.raises(ProblemError, match="is this the address of a Penstock node"):
        await client.list_topics()
    fake.fail(answering(lambda: web.Response(status=502, text="bad gateway")), method="GET", path="/v1/topics")
    with pytest.raises(ProblemError, match="bad gateway") as caught:
        await client.list_topics()
    assert (caught.value.code, caught.value.retryable) == ("http_502", True)


async def test_a_waiting_send_can_be_cancelled_without_losing_room(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    fake.fail(fake.hold)
    async with client.producer(buffer_bytes=10, linger_ms=0) as producer:
        await producer.send("t", 1234567)
        blocked = asyncio.create_task(producer.send("t", 7654321))
        await asyncio.sleep(0.02)
        assert not blocked.done()
        blocked.cancel()
        await asyncio.gather(blocked, return_exceptions=True)
        fake.released.set()
    assert producer.statistics().buffered_bytes == 0


async def test_conditions_of_a_posted_body_travel_as_headers(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    await client.post_records("t", b"1", partition=0, idempotency_key="k-1", expected_end=0, fencing_token="mine")
    sent = fake.seen_headers[-1]
    assert (sent["Idempotency-Key"], sent["Penstock-Expected-End"], sent["Penstock-Fencing-Token"]) == (
        "k-1",
        "0",
        "mine",
    )
    await client.post_records("t", b"1", partition=0, source="file", source_positions=(3, 5))
    sent = fake.seen_headers[-1]
    assert (sent["Penstock-Source"], sent["Penstock-Source-Positions"]) == ("file", "3-5")
    await client.post_records("t", b"1", partition=0)
    assert not {"Idempotency-Key", "Penstock-Expected-End", "Penstock-Fencing-Token"} & fake.seen_headers[-1].keys()


async def test_a_keyed_body_is_repeated_whatever_the_options_say_of_ambiguity(fake_url: str, fake: FakeNode) -> None:
    fake.add_topic("t")
    async with Client(fake_url, options=ClientOptions(retry_ambiguous=False, backoff_ms=1)) as client:
        fake.fail(reset)
        assert (await client.post_records("t", b"1", partition=0, idempotency_key="k"))["results"][0]["count"] == 1
        fake.fail(reset)
        with pytest.raises(ConnectionFailed):
            await client.post_records("t", b"1", partition=0)


async def test_a_refusal_after_a_lost_answer_proves_nothing(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    fake.fail(reset, after=True)
    fake.fail(answering(lambda: problem(412, "log_end_mismatch", log_end=1)))
    with pytest.raises(ProblemError) as caught:
        await client.post_records("t", b"1", partition=0, expected_end=0)
    assert caught.value.members["log_end"] == 1
    assert not caught.value.no_side_effects


async def test_acknowledged_records_are_counted_by_the_time_at_which_the_node_took_them(
    client: Client, fake: FakeNode
) -> None:
    fake.add_topic("t")
    async with client.producer() as producer:
        for number in range(5):
            await producer.send("t", number, partition=0)
        await producer.flush()
        [count] = producer.take_accepted_counts()
        assert (count.topic, count.from_ms, count.records) == ("t", NOW_MS - NOW_MS % 600_000, 5)
        assert producer.take_accepted_counts() == []
