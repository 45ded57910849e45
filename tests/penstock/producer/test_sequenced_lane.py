"""A producer's reaction to every answer to a numbered batch, over real sockets, with several requests in flight."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from penstock import (
    Client,
    ClientClosed,
    ClientError,
    Delivery,
    DeliveryTimedOut,
    IdempotenceUnavailable,
    ProblemError,
    Producer,
)
from penstock.producer.sequences import Pipeline
from tests.penstock.conftest import QUICK
from tests.penstock.fake_node import FakeNode, FakePartition, answering, problem, reset
from tests.waiting import pass_time, until

ONE_EACH = {"batch_bytes": 1, "linger_ms": 0}  # one batch a record


def values(partition: FakePartition) -> list[int]:
    return [int(record.value or b"") for record in partition.records]


def only(fake: FakeNode, value: int, act: Callable[[web.Request], Any]) -> None:
    """A fault for the batch of this one value; batches before it are executed."""

    async def choose(request: web.Request) -> web.StreamResponse:
        if await request.read() == b"%d" % value:
            return await act(request)
        fake.fail(choose)
        return await fake._produce(request)

    fake.fail(choose)


async def opened(client: Client, **changed: Any) -> Producer:
    """A producer whose first batch is stored, so that several may be in flight."""
    producer = client.producer(**{"in_flight_max": 5, **ONE_EACH, **changed})
    await (await producer.send("t", 0))
    return producer


async def outcomes(deliveries: list[Delivery]) -> list[Any]:
    return await asyncio.gather(*deliveries, return_exceptions=True)


async def test_numbers_count_the_records_of_each_partition(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t", 2)
    async with client.producer(linger_ms=60_000) as producer:
        for partition in (0, 1, 0):
            await producer.send_many("t", range(3), partition=partition)
            await producer.flush()
    sent = [
        (path[-9], *(headers[f"Producer-{name}"] for name in ("Id", "Epoch", "Seq")))
        for (_, path, _, _), headers in zip(fake.seen, fake.seen_headers, strict=True)
        if path.endswith("/records")
    ]
    assert sent == [("0", "1", "0", "0"), ("1", "1", "0", "0"), ("0", "1", "0", "3")]
    assert fake.producers == 1


async def test_a_batch_that_is_refused_costs_those_behind_it_nothing(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    producer = await opened(client)
    only(fake, 2, answering(lambda: problem(403, "forbidden")))
    results = await outcomes(await producer.send_many("t", range(1, 6)))
    await producer.close()
    assert [getattr(result, "code", None) for result in results] == [None, "forbidden", None, None, None]
    assert results[1].no_side_effects
    assert values(partition) == [0, 1, 3, 4, 5]
    assert producer.statistics().epochs_raised == 1
    assert fake.verdicts[-1][1] == 1  # the epoch of the last stored batch


async def test_only_the_record_to_blame_fails_also_with_others_behind_it(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    producer = client.producer(in_flight_max=5, batch_bytes=20, linger_ms=20)
    await (await producer.send("t", 0))
    fake.fail(answering(lambda: problem(400, "malformed_ndjson", line=3)))
    results = await outcomes(await producer.send_many("t", range(1, 60)))
    failed = [rank + 1 for rank, result in enumerate(results) if isinstance(result, ProblemError)]
    assert failed == [3]
    assert values(partition) == [value for value in range(60) if value != 3]


async def test_after_a_delivery_timeout_the_outcome_is_indeterminate_and_nothing_is_stored_twice(
    client: Client, fake: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, on_gap = set(), Pipeline.on_gap
    monkeypatch.setattr(Pipeline, "on_gap", lambda self, sent: refused.add(id(sent)) or on_gap(self, sent))
    (partition,) = fake.add_topic("t")
    producer = await opened(client, delivery_timeout_ms=200_000)

    async def stuck(request: web.Request) -> web.StreamResponse:
        await fake.released.wait()
        return await fake._produce(request)

    only(fake, 1, stuck)
    first = await producer.send_many("t", range(1, 4))
    await until(lambda: {b"1", b"2", b"3"} <= {body for *_, body in fake.seen})
    await until(lambda: len(refused) == 2)  # the client knows that the second and the third have no side effects
    pass_time(100)
    later = await producer.send_many("t", range(4, 7))
    pass_time(100)
    results = await outcomes(first)
    assert isinstance(results[0], DeliveryTimedOut)
    assert not results[0].no_side_effects
    assert [type(result).__name__ for result in await outcomes(later)] == ["RecordPosition"] * 3
    fake.released.set()
    await until(lambda: not fake.open_now)
    stored = values(partition)
    assert len(stored) == len(set(stored))
    assert stored[-3:] == [4, 5, 6]
    for value, result in zip((2, 3), results[1:], strict=True):
        assert (value in stored) is not isinstance(result, DeliveryTimedOut)
        assert not isinstance(result, DeliveryTimedOut) or result.no_side_effects
    await producer.abort()


async def test_a_batch_stored_long_ago_is_a_success_without_a_position(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    producer = await opened(client)
    fake.fail(answering(lambda: problem(409, "duplicate_older_than_window")), after=True)
    position = await (await producer.send("t", 1))
    assert (position.partition, position.offset) == (0, None)
    await (await producer.send("t", 2))
    assert producer.statistics().duplicates == 1
    assert producer.statistics().epochs_raised == 0
    await producer.close()


async def test_who_is_fenced_stops_and_does_not_take_the_partition_back(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    producer = await opened(client)
    partition.sequences.note(1, 5, 0, 1, 99)
    results = await outcomes(await producer.send_many("t", range(1, 9)))
    assert {result.code for result in results} == {"producer_fenced"}
    with pytest.raises(ProblemError, match="producer_fenced"):
        await (await producer.send("t", 9))
    assert values(partition) == [0]
    assert max(epoch for _, epoch, *_ in fake.verdicts) == 0
    await producer.close()


async def test_another_log_behind_the_address_gets_a_fresh_id(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    producer = await opened(client)
    fake.producers = 0
    (partition,) = fake.add_topic("t")
    for delivery in await producer.send_many("t", range(1, 6)):
        await delivery
    assert values(partition) == list(range(1, 6))
    await producer.close()


async def test_a_node_that_lost_what_it_had_stored_is_gone_on_with(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    producer = await opened(client)
    await (await producer.send("t", 1))
    partition.records.pop()
    partition.sequences.known[1].batches.pop()
    for delivery in await producer.send_many("t", range(2, 7)):
        await delivery
    assert values(partition) == [0, 2, 3, 4, 5, 6]
    assert producer.statistics().epochs_raised == 1
    await producer.close()


async def test_a_node_that_takes_no_number_at_all_is_asked_with_pauses_until_the_timeout(
    client: Client, fake: FakeNode
) -> None:
    fake.add_topic("t")
    producer = await opened(client, delivery_timeout_ms=100_000)
    for _ in range(10_000):
        fake.fail(answering(lambda: problem(409, "sequence_gap", retryable=True, expected_seq=0)))
    began = asyncio.get_running_loop().time()
    delivery = await producer.send("t", 1)
    await until(lambda: len(fake.seen) > 40)
    assert asyncio.get_running_loop().time() - began > 0.2  # with pauses of 10 to 20 ms
    pass_time(100)
    with pytest.raises(DeliveryTimedOut):
        await delivery
    await producer.abort()


async def test_a_node_without_producer_ids_is_an_error_or_sequences_are_off(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    fake.gives_ids = False
    producer = client.producer()
    with pytest.raises(IdempotenceUnavailable, match="if_offered"):
        await (await producer.send("t", 1))
    assert partition.records == []
    async with client.producer(idempotence="if_offered", **ONE_EACH) as producer:
        await producer.send_many("t", range(5))
    assert values(partition) == list(range(5))
    assert not any("Producer-Id" in headers for headers in fake.seen_headers)


async def test_an_id_that_is_not_given_fails_records_that_were_never_sent(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    fake.fail(answering(lambda: problem(403, "forbidden", no_side_effects=False)), path="/v1/producers")
    async with client.producer(**ONE_EACH) as producer:
        with pytest.raises(ProblemError) as caught:
            await (await producer.send("t", 1))
        assert (caught.value.code, caught.value.no_side_effects) == ("forbidden", True)
        await (await producer.send("t", 2))
    assert values(partition) == [2]


async def test_many_partitions_ask_for_one_id_and_wait_out_a_node_that_is_busy(client: Client, fake: FakeNode) -> None:
    partitions = fake.add_topic("t", 20)
    for _ in range(3):
        fake.fail(answering(lambda: problem(503, "overloaded", retryable=True)), path="/v1/producers")
    async with client.producer() as producer:
        for partition in range(20):
            await producer.send("t", partition, partition=partition)
    assert [values(partition) for partition in partitions] == [[number] for number in range(20)]
    assert fake.producers == 1


async def test_an_abort_gives_every_record_a_result(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    producer = await opened(client, backoff_ms=5_000, backoff_ms_max=5_000)
    only(fake, 1, reset)
    deliveries = await producer.send_many("t", range(1, 20))
    await until(lambda: b"1" in [body for *_, body in fake.seen])
    await producer.abort()
    results = await outcomes(deliveries)
    assert all(isinstance(result, ClientClosed) for result in results)
    assert not results[0].no_side_effects
    assert results[-1].no_side_effects
    assert producer.statistics().buffered_bytes == 0


FATES = ("reset before", "reset after", "late", "busy", "unsure", "refused")


def planted(fake: FakeNode, chance: random.Random, share: float) -> None:
    """From now on this share of the requests meets a fault; the caller defines `refused`."""
    carry_out = fake._produce

    async def produce(request: web.Request) -> web.Response:
        fate = chance.choice(FATES) if chance.random() < share else "none"
        if fate == "late":
            await asyncio.sleep(chance.random() * 0.02)
        if fate == "busy":
            return problem(503, "overloaded", retryable=True)
        if fate == "reset before":
            return await reset(request)
        if fate == "refused" and chance.random() < 0.3:
            return problem(403, "forbidden")
        response = await carry_out(request)
        if fate == "reset after":
            return await reset(request)
        return problem(504, "ack_timeout", retryable=True, no_side_effects=False) if fate == "unsure" else response

    fake._produce = produce  # type: ignore[method-assign]


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_on_the_way_each_record_is_stored_once_and_in_order(seed: int, fake: FakeNode) -> None:
    from aiohttp.test_utils import TestServer

    chance = random.Random(seed)
    planted(fake, chance, share=0.4)
    partitions = fake.add_topic("t", 2)
    server = TestServer(fake.application())
    await server.start_server()
    try:
        async with Client(str(server.make_url("/")), options=QUICK, jitter=chance) as client:
            producer = client.producer(in_flight_max=chance.choice([1, 2, 5, 16]), batch_bytes=40, linger_ms=0)
            deliveries = []
            for value in range(400):
                deliveries.append(await producer.send("t", value, partition=value % 2))
                if chance.random() < 0.1:
                    await asyncio.sleep(0.001)
            results = await outcomes(deliveries)
            await producer.close()
    finally:
        await server.close()
    stored = [value for partition in partitions for value in values(partition)]
    refused = {value for value, result in enumerate(results) if isinstance(result, ClientError)}
    unsure = {value for value in refused if not results[value].no_side_effects}
    assert {results[value].code for value in refused - unsure} <= {"forbidden"}
    # after one with an unknown outcome
    assert {results[value].code for value in unsure} <= {"forbidden", "delivery_timed_out"}
    for number, partition in enumerate(partitions):
        expected = [value for value in range(number, 400, 2) if value not in refused]
        assert [value for value in values(partition) if value not in unsure] == expected
    assert len(stored) == len(set(stored))
    for value, result in enumerate(results):
        if value not in refused and result.offset is not None:
            assert values(partitions[value % 2])[result.offset] == value
