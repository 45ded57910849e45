"""The queue of a share group against a real node, and the replay of its dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import orjson
import pytest

from penstock import Client, ClientClosed, ClientOptions
from penstock import sync as penstock_sync
from penstock.admin.single_request import SingleRequestClient
from penstock.cli.commands.dead_letters import GROUP, Maker, replay_all

pytestmark = pytest.mark.e2e
QUICK = ClientOptions(backoff_ms=5, backoff_ms_max=20, fetch_wait_ms=300)


@pytest.fixture
async def client(node_url: str) -> AsyncIterator[Client]:
    async with Client(node_url, options=QUICK) as client:
        yield client


@pytest.fixture
async def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """Make a topic with six records."""
    name = str(request.node.name)[:100]
    await client.create_topic(name)
    async with client.producer(linger_ms=0) as producer:
        for number in range(6):
            await producer.send(name, number, key=f"k{number}", headers=[("a", b"b")])
    return name


async def test_a_closed_queue_locks_nothing_more(client: Client, topic: str) -> None:
    queue = client.queue(topic, topics=topic)
    first = await anext(queue)
    await queue.close()
    for call in (queue.take, queue.__anext__):
        with pytest.raises(ClientClosed):
            await call()
    assert await first.accept(), "what was handed out still gets its outcome"
    async with client.queue(topic, topics=topic) as other:
        assert [record.offset for record in await other.take(100)] == [1, 2, 3, 4, 5]


async def test_each_record_gets_an_outcome(client: Client, topic: str) -> None:
    await client.configure_group(topic, {"kind": "share", "redelivery_delay_ms": 0})
    async with client.queue(topic, topics=topic) as queue:
        first = await anext(queue)
        assert (first.offset, first.json(), first.key, first.delivery_count) == (0, 0, b"k0", 1)
        assert await first.accept()
        assert await first.accept()  # the answer may have been lost
        assert not await first.reject()
        with pytest.raises(ZeroDivisionError):
            async with await anext(queue):
                _ = 1 / 0
        again = await anext(queue)
        assert (again.offset, again.delivery_count) == (1, 2)
        assert await again.extend(lock_ms=60_000)
        assert await again.release(delay_ms=60_000)
        rest = await queue.take(100)
        assert [record.offset for record in rest] == [2, 3, 4, 5]
        assert await queue.accept(rest) == []
        [part] = (await client.describe_group(topic))["partitions"]
        assert (part["offset"], part["delayed"], part["lag"]) == (1, 1, 1)


async def test_records_that_were_not_handed_out_are_released_at_the_end(client: Client, topic: str) -> None:
    async with client.queue(topic, topics=topic, max_records=4) as queue:
        assert await (await anext(queue)).accept()
    async with client.queue(topic) as queue:
        assert [record.offset for record in await queue.take(100)] == [1, 2, 3, 4, 5]


async def test_a_record_stays_locked_inside_its_block(client: Client, topic: str) -> None:
    async with client.queue(topic, topics=topic, lock_ms=60_000, is_extending=True) as queue:
        record = await anext(queue)
        queue._lock_s = 0.01
        async with record:
            before = client.statistics().requests
            while client.statistics().requests < before + 2:
                await asyncio.sleep(0.01)
        assert not await record.release()


def test_the_sync_queue_does_the_same(node_url: str) -> None:
    with penstock_sync.Client(node_url, options=QUICK) as client:
        client.create_topic("sync-queue")
        with client.producer() as producer:
            producer.send_many("sync-queue", range(6))
        with client.queue("sync-queue", topics="sync-queue") as queue:
            with next(queue) as record:
                assert (record.json(), record.offset, record.delivery_count) == (0, 0, 1)
            second = next(queue)
            assert [second.extend(), second.release(delay_ms=0), second.reject()] == [True, True, False]
            rest = queue.take(100)
            assert queue.accept(rest) == []
            assert client.describe_group("sync-queue")["partitions"][0]["lag"] == 0


async def test_a_record_that_its_deserializer_refuses_is_rejected(client: Client, topic: str) -> None:
    """Any other error releases it: another delivery may do better."""
    await client.create_topic(dead := topic + ".dead")
    await client.configure_group(topic, {"kind": "share", "dead_letter_topic": dead})

    class Numbers:
        """Refuses all but even numbers."""

        def deserialize(self, topic: str, data: bytes) -> int:
            if int(data) == 4:
                raise OSError("the registry is away")
            if int(data) % 2:
                raise ValueError("odd")
            return int(data)

    done: list[tuple[str, int]] = []
    async with client.queue(
        topic, topics=topic, key_deserializer="string", value_deserializer=Numbers(), max_records=6
    ) as queue:
        for record in await queue.take(6):
            with suppress(ValueError, OSError):
                async with record:
                    done.append((record.decoded_key(), record.decoded()))
        assert [record.offset for record in await queue.take(6, timeout_ms=30_000)] == [4], "after its delay"
    assert done == [("k0", 0), ("k2", 2)]
    letters = []
    async for letter in client.consume(dead, start=0):
        letters.append(letter)
        if len(letters) == 3:
            break
    headers = [dict(one.headers) for one in letters]
    assert [one["dead-letter-offset"] for one in headers] == [b"1", b"3", b"5"]
    assert {(one["dead-letter-reason"], one["dead-letter-error"]) for one in headers} == {
        (b"rejected", b"not deserialized: ValueError('odd')")
    }


def test_the_sync_queue_rejects_what_its_deserializer_refuses(node_url: str) -> None:
    with penstock_sync.Client(node_url, options=QUICK) as client:
        client.create_topic("refused")
        with client.producer(linger_ms=0) as producer:
            producer.send("refused", b"{").result()
            producer.send("refused", {"a": 1}).result()
        with client.queue("refused", topics="refused", value_deserializer="json") as queue:
            with pytest.raises(ValueError), next(queue) as record:
                record.decoded()
            with next(queue) as record:
                assert record.decoded() == {"a": 1}
        [part] = client.describe_group("refused")["partitions"]
        assert (part["offset"], part["lag"], part["dropped"]) == (2, 0, 1)


async def test_dead_letters_are_replayed_once(client: Client, node_url: str, topic: str) -> None:
    """One that the node rejects, here because its topic is gone, waits however often the command runs."""
    await client.create_topic(topic + ".dead")
    await client.post_records(topic + ".dead", _dead_letter(topic, topic + ".gone"), ndjson="records")
    await client.configure_group(topic, {"kind": "share", "dead_letter_topic": topic + ".dead"})
    async with client.queue(topic, topics=topic) as queue:
        for record in await queue.take(2):
            assert await record.reject(error="bad")
        while (await client.describe_group(topic))["partitions"][0]["dead_letters"] < 2:
            await asyncio.sleep(0.05)
        once = SingleRequestClient(node_url)
        found = [await asyncio.to_thread(replay_all, once, Maker(GROUP, topic), topic + ".dead") for _ in range(7)]
        assert [(one.replayed, one.rejected) for one in found] == [(2, 1), *[(0, 1)] * 6]
        assert "no topic" in found[-1].reason
        await client.create_topic(topic + ".gone")
        assert await asyncio.to_thread(replay_all, once, Maker(GROUP, topic), topic + ".dead") == (1, 0, 0, "")
        [back] = [record async for record in client.consume(topic + ".gone", follow=False)]
        assert (back.value, dict(back.headers)) == (
            b"7",
            {"dead-letter-group": b"earlier", "dead-letter-topic": b"first", "dead-letter-partition": b"0"},
        )
        records = await queue.take(100)
    assert [record.json() for record in records] == [2, 3, 4, 5, 0, 1]
    assert (records[-1].key, records[-1].headers) == (b"k1", [("a", b"b")])


def _dead_letter(group: str, topic: str) -> bytes:
    """Return a dead letter of a topic of dead letters, as a line of NDJSON: it has been one before."""
    headers = {"dead-letter-group": ["earlier", group], "dead-letter-topic": ["first", topic]}
    return orjson.dumps({"value": 7, "headers": {**headers, "dead-letter-partition": ["0", "0"]}})
