"""The client against a real node: records are stored as sent, and read as stored."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from loadtests.cluster.zookeeper import reserve_port
from penstock import Client, ClientOptions, ConnectionFailed, ProblemError
from penstock.admin.single_request import SingleRequestClient
from penstock.producer.partitioners import partition_of_key
from tests.e2e.node_process import running_process

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def node_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_process(tmp_path_factory.mktemp("client-node")) as node:
        yield node.url


@pytest.fixture
async def client(node_url: str) -> AsyncIterator[Client]:
    async with Client(node_url) as client:
        yield client


async def read_all(client: Client, topic: str, **how: object) -> list:  # type: ignore[type-arg]
    return [record async for record in client.consume(topic, follow=False, **how)]  # type: ignore[arg-type]


async def test_every_kind_of_record_comes_back_as_it_went(client: Client) -> None:
    await client.create_topic("kinds")
    sent = [
        (b'{"spaced" : 1}', None, None),
        (b"[1, 2]", "key", {"a": "b"}),
        (b"\x00\xff", b"\xff\xfe", {"a": [b"\xff", "x", None]}),
        (None, "gone", None),
        (b"", 5, None),
        (b"1", {"composed": True}, {}),
        ({"grün": [1.5, "x" * 500]}, "ключ", {"content-type": "application/json"}),
        ("a text", None, {"content-type": "text/plain"}),
        (b'"with quotes"', None, {"content-type": "text/plain"}),
        ("a JSON string", None, None),
    ]
    stored = [value if value is None or isinstance(value, bytes) else orjson.dumps(value) for value, _, _ in sent]
    stored[7] = b"a text"  # as its media type says
    async with client.producer(linger_ms=50) as producer:
        deliveries = [await producer.send("kinds", value, key=key, headers=headers) for value, key, headers in sent]
        assert [(await delivery).offset for delivery in deliveries] == list(range(len(sent)))
    records = await read_all(client, "kinds")
    assert [record.value for record in records] == stored
    for (_, key, headers), record in zip(sent, records, strict=True):
        expected_key = key if key is None or isinstance(key, (str, bytes)) else orjson.dumps(key)
        assert record.key == (expected_key.encode() if isinstance(expected_key, str) else expected_key)
        assert sorted({name for name, _ in record.headers}) == sorted(headers or {})
    assert records[2].headers == [("a", b"\xff"), ("a", b"x"), ("a", None)]


async def test_the_node_agrees_on_the_partition_of_a_key(client: Client) -> None:
    """A client that leaves the choice to the node must find the same keys in the same partitions."""
    await client.create_topic("agreed", partitions=5)
    keys = [f"key-{n}" for n in range(200)]
    lines = b"\n".join(orjson.dumps({"key": key, "value": 0}) for key in keys)
    await client.post_records("agreed", lines, ndjson="records")
    records = await read_all(client, "agreed")
    assert len(records) == 200
    assert all(partition_of_key(record.key, 5) == record.partition for record in records)


async def test_many_records_over_many_partitions_lose_nothing_and_keep_their_order(client: Client) -> None:
    await client.create_topic("many", partitions=4)
    async with client.producer(batch_bytes=20_000) as producer:
        deliveries = await producer.send_many("many", range(50_000), keys=[n % 100 for n in range(50_000)])
        positions = [await delivery for delivery in deliveries]
    assert len({(position.partition, position.offset) for position in positions}) == 50_000
    by_position = {(record.partition, record.offset): record.json() for record in await read_all(client, "many")}
    assert [by_position[position.partition, position.offset] for position in positions] == list(range(50_000))
    for key in range(100):
        mine = [position.offset for position in positions[key::100]]
        assert mine == sorted(mine)


async def test_a_consumer_follows_a_producer(client: Client) -> None:
    await client.create_topic("followed", partitions=3)

    async def consume() -> list[int]:
        got: list[int] = []
        async with client.consume("followed") as consumer:
            while len(got) < 3_000:
                got += [record.json() for record in await consumer.poll()]
        return got

    consuming = asyncio.create_task(consume())
    async with client.producer(acks="1") as producer:
        for n in range(3_000):
            await producer.send("followed", n)
            if n % 500 == 0:
                await asyncio.sleep(0.02)
    assert sorted(await asyncio.wait_for(consuming, 60)) == list(range(3_000))


async def test_a_consumer_resumes_anywhere_without_loss_or_repeat(client: Client) -> None:
    await client.create_topic("resumed", partitions=2)
    async with client.producer() as producer:
        await producer.send_many("resumed", range(2_000))
    chance, got, positions = random.Random(7), [], {}
    while len(got) < 2_000:
        async with client.consume("resumed", start=positions, fetch_bytes_max=3_000) as consumer:
            for _ in range(chance.randrange(1, 300)):
                if len(got) < 2_000:
                    record = await anext(consumer)
                    got.append(record.json())
            positions = consumer.positions()
    assert sorted(got) == list(range(2_000))


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
async def test_compressed_bodies_are_understood(client: Client, compression: str) -> None:
    await client.create_topic(f"packed-{compression}")
    async with Client(client.url, options=ClientOptions(compression=compression)) as packing:
        async with packing.producer() as producer:
            await producer.send_many(f"packed-{compression}", range(500))
        await packing.post_records(f"packed-{compression}", b"1\n2\n")
    records = await read_all(client, f"packed-{compression}")
    assert [record.json() for record in records] == [*range(500), 1, 2]


async def test_text_and_bytes_come_back_as_their_serializers_made_them(client: Client) -> None:
    await client.create_topic("serialized")
    texts = ["plain", '"quoted"', "12", "", "grün\nzwei Zeilen"]
    async with client.producer(value_serializer="string", key_serializer="string") as producer:
        await producer.send_many("serialized", texts, keys=texts)
    async with client.producer(value_serializer="bytes") as producer:
        await producer.send("serialized", b"\x00\xff")
    records = await read_all(client, "serialized")
    assert [record.value for record in records] == [*(text.encode() for text in texts), b"\x00\xff"]
    assert [record.key for record in records] == [*(text.encode() for text in texts), None]
    assert records[0].headers == [("content-type", b"text/plain; charset=utf-8")]


@pytest.mark.parametrize("verify_crc", [False, True])
async def test_the_node_sends_only_records_that_pass_the_filters(client: Client, verify_crc: bool) -> None:
    topic = f"filtered-{verify_crc}"
    await client.create_topic(topic)
    async with client.producer() as producer:
        for number in range(100):
            headers = {"type": f"t{number % 5}"}
            await producer.send(topic, {"n": number}, key=f"k{number % 3}", headers=headers, partition=0)
    found = await read_all(client, topic, filters=["header.type=t4", "key^=k1"], verify_crc=verify_crc)
    assert [record.offset for record in found] == [number for number in range(100) if number % 15 == 4]
    assert await read_all(client, topic, filters=["value/n=100"], verify_crc=verify_crc) == []
    with pytest.raises(ProblemError, match="expected key=TEXT"):
        await read_all(client, topic, filters=["n=1"])


async def test_starting_at_a_time(client: Client) -> None:
    await client.create_topic("timed")
    async with client.producer() as producer:
        for n in range(100):
            await producer.send("timed", n, timestamp=datetime(2013, 1, 1, 0, n % 60, n // 60, tzinfo=UTC))
    first = (await read_all(client, "timed", start="2013-01-01T00:59:00Z"))[0]
    assert first.json() == 59


async def test_a_record_that_is_too_large_fails_alone(client: Client) -> None:
    await client.create_topic("limited", config={"record_bytes_max": 1000})
    async with client.producer(linger_ms=50) as producer:
        deliveries = await producer.send_many("limited", ["x" * (2000 if n == 33 else 10) for n in range(60)])
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
    failed = [(n, outcome) for n, outcome in enumerate(outcomes) if isinstance(outcome, Exception)]
    assert [(n, type(error), error.code) for n, error in failed] == [(33, ProblemError, "record_too_large")]
    assert len(await read_all(client, "limited")) == 59


async def test_a_batch_beyond_the_topics_limit_is_split(client: Client) -> None:
    await client.create_topic("narrow", config={"record_bytes_max": 1024, "batch_bytes_max": 65_536})
    async with client.producer(linger_ms=100) as producer:
        await producer.send_many("narrow", ["x" * 500] * 400)
    assert len(await read_all(client, "narrow")) == 400


async def test_the_short_client_says_the_same_as_the_async_one(client: Client, node_url: str) -> None:
    once = SingleRequestClient(node_url)
    created = once.create_topic("same", partitions=2)
    assert await client.describe_topic("same") == created
    assert once.list_topics() == await client.list_topics()
    assert once.cluster() == await client.cluster()
    assert once.find_positions("same", 1) == await client.find_positions("same", 1)
    assert once.delete_topic("same") == {}
    for call in (once.describe_topic, once.tier_status):
        with pytest.raises(ProblemError) as caught:
            call("same")
        assert (caught.value.status, caught.value.code) == (404, "unknown_topic")


@pytest.mark.parametrize(
    ("in_flight_max", "kills", "form"), [pytest.param(5, 2, {}, marks=pytest.mark.long), (16, 1, {"shards": 2})]
)
async def test_kills_of_a_node_neither_lose_nor_double_nor_turn_round_a_record(
    tmp_path: Path, in_flight_max: int, kills: int, form: dict[str, int]
) -> None:
    """The producer keeps retrying while the node is killed repeatedly, with many requests in flight."""
    options = ClientOptions(linger_ms=1, batch_bytes=500, backoff_ms_max=200, in_flight_max=in_flight_max)
    sent, deliveries = 0, []
    with contextlib.ExitStack() as started:
        port = started.enter_context(contextlib.closing(reserve_port())).getsockname()[1]
        node = started.enter_context(running_process(tmp_path, port=port, **form))
        async with Client(node.url, options=options) as client:
            await client.create_topic("kept", partitions=2)
            producer = client.producer()
            for _ in range(kills):
                for value in range(sent, sent + 2_000):
                    deliveries.append(await producer.send("kept", value, partition=value % 2))
                sent += 2_000
                await deliveries[-1_500]
                node.kill()
                if not form:  # the shards of a killed supervisor answer for a moment longer
                    with pytest.raises(ConnectionFailed):
                        await client.list_topics()
                node = await asyncio.to_thread(started.enter_context, running_process(tmp_path, port=port, **form))
            positions = [await delivery for delivery in deliveries]
            await producer.close()
            stored = await read_all(client, "kept")
    for number in range(2):
        mine = [record.json() for record in stored if record.partition == number]
        assert mine == list(range(number, sent, 2))
    by_position = {(record.partition, record.offset): record.json() for record in stored}
    assert [by_position[position.partition, position.offset] for position in positions] == list(range(sent))
