"""Encrypted records through a real node: the node has no value in the clear, and every kind of consumer opens them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Client, Encryption, EncryptionFailed, Output, Record
from penstock import sync as penstock_sync
from penstock.admin.single_request import SingleRequestClient
from penstock.cli.commands.dead_letters import GROUP, Maker, replay_all
from tests.e2e.node_process import running_process
from tests.penstock.encryption.rings import NEW, ring

pytestmark = pytest.mark.e2e

SECRET = "4929 1234 5678"
SENT = [
    ({"card": SECRET}, "k", {"content-type": "application/json"}),
    (SECRET.encode(), b"\xff\xfe", {"content-type": "text/plain", "a": [b"\xff", "x"]}),
    (b"", None, None),
]
VALUES = [b'{"card":"4929 1234 5678"}', SECRET.encode(), b""]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    directory = tmp_path_factory.mktemp("encryption-node")
    with running_process(directory) as node:
        yield node.url, directory


@pytest.fixture
def encryption(tmp_path: Path) -> Encryption:
    return Encryption(ring(tmp_path / "keys.toml"))


@pytest.fixture
async def client(node: tuple[str, Path], encryption: Encryption) -> AsyncIterator[Client]:
    async with Client(node[0], encryption=encryption) as client:
        yield client


async def send_all(client: Client, topic: str, sent: list[Any] = SENT) -> None:
    await client.create_topic(topic)
    async with client.producer() as producer:
        for value, key, headers in sent:
            await producer.send(topic, value, key=key, headers=headers)


def seen(records: list[Any]) -> list[Any]:
    return [(record.key, record.value, sorted(name for name, _ in record.headers)) for record in records]


EXPECTED = [
    (b"k", VALUES[0], ["content-type"]),
    (b"\xff\xfe", VALUES[1], ["a", "a", "content-type"]),
    (None, VALUES[2], []),
]


async def test_consumers_open_what_the_disk_does_not_show(client: Client, node: tuple[str, Path]) -> None:
    await send_all(client, "cards")
    assert seen([record async for record in client.consume("cards", follow=False)]) == EXPECTED
    verified = [record async for record in client.consume("cards", follow=False, verify_crc=True)]
    assert seen(verified) == EXPECTED
    assert verified[0].json() == {"card": SECRET}
    stored = b"".join(path.read_bytes() for path in node[1].rglob("*") if path.is_file())
    assert b"encryption-key-id" in stored  # the records are in these files
    assert SECRET.encode() not in stored
    decoded = [record async for record in client.consume("cards", follow=False, value_deserializer="string")]
    assert decoded[1].decoded() == SECRET


async def test_the_sync_client_writes_and_reads_the_same(node: tuple[str, Path], encryption: Encryption) -> None:
    def work() -> tuple[list[Any], list[bytes | None]]:
        with penstock_sync.Client(node[0], encryption=encryption) as client:
            client.create_topic("cards.sync")
            with client.producer() as producer:
                for value, key, headers in SENT:
                    producer.send("cards.sync", value, key=key, headers=headers)
            with client.consumer(group="cards.sync", topics="cards.sync") as consumer:
                polled = consumer.poll(20_000)
            return seen(list(client.consume("cards.sync", follow=False))), [record.value for record in polled]

    assert await asyncio.to_thread(work) == (EXPECTED, VALUES)


async def test_a_dead_letter_opens_there_and_when_it_is_replayed(client: Client, node: tuple[str, Path]) -> None:
    await send_all(client, "cards.jobs")
    await client.create_topic("cards.dead")
    await client.configure_group("cards.jobs", {"kind": "share", "dead_letter_topic": "cards.dead"})
    async with client.queue("cards.jobs", topics="cards.jobs") as queue:
        record = await anext(queue)
        assert record.json() == {"card": SECRET}
        await record.reject(error="no")
    dead = await anext(aiter(client.consume("cards.dead", first_topics="cards.jobs")))
    assert dead.first_topic == "cards.jobs"
    assert (dead.topic, dead.key, dead.json()) == ("cards.dead", b"k", {"card": SECRET})
    assert ("dead-letter-topic", b"cards.jobs") in dead.headers
    once = SingleRequestClient(node[0])
    replayed = await asyncio.to_thread(replay_all, once, Maker(GROUP, "cards.jobs"), "cards.dead")
    assert (replayed.replayed, replayed.rejected) == (1, 0)
    back = [record async for record in client.consume("cards.jobs", follow=False)]
    assert seen(back) == [*EXPECTED, EXPECTED[0]]


async def test_a_record_that_is_copied_into_another_topic_is_refused_unless_it_may_come(
    client: Client, node: tuple[str, Path], encryption: Encryption
) -> None:
    """One who may write to a topic copies a stored record of another one there, as it is."""
    await send_all(client, "cards.from", SENT[:1])
    await client.create_topic("cards.to")
    async with Client(node[0]) as stranger:
        stolen = await anext(aiter(stranger.consume("cards.from", follow=False)))
        async with stranger.producer() as producer:
            await producer.send("cards.to", stolen.value, key=stolen.key, headers=stolen.headers)
    async with client.producer() as producer:
        await producer.send("cards.to", "own")

    def outcome(record: Any) -> Any:
        try:
            return record.json()
        except EncryptionFailed as error:
            return error.code if "cards.to/0@0" in str(error) and record.first_topic == "cards.from" else error

    seen_by = {
        (): ["first_topic_refused", "own"],
        ("cards.to",): ["first_topic_refused", "own"],
        ("cards.to", "cards.from"): [{"card": SECRET}, "own"],
    }
    for accepted, expected in seen_by.items():
        given: Any = {"first_topics": accepted} if accepted else {}
        async with client.consume("cards.to", follow=False, **given) as read:
            assert [outcome(record) async for record in read] == expected
        group = f"copies.{len(accepted)}.{'.'.join(accepted)}"
        async with client.consumer(group=group, topics="cards.to", **given) as member:
            polled: list[Any] = []
            while len(polled) < 2:
                polled += await member.poll(20_000)
        assert [outcome(record) for record in polled] == expected
        await client.configure_group(f"{group}.q", {"kind": "share"})
        async with client.queue(f"{group}.q", topics="cards.to", **given) as queue:
            taken = await anext(queue)
            assert outcome(taken) == expected[0]
            await taken.accept()


async def test_first_topics_without_encryption_are_refused(node: tuple[str, Path]) -> None:
    async with Client(node[0]) as clear:
        with pytest.raises(ValueError, match="first_topics needs a client with encryption"):
            clear.consume("cards", first_topics="cards")


async def test_a_processor_encrypts_its_outputs(client: Client, node: tuple[str, Path]) -> None:
    await send_all(client, "cards.in")
    await client.create_topic("cards.out")

    def process(record: Record) -> list[Output]:
        return [Output("cards.out", record.value, record.key, record.headers)]

    async with client.processor(
        group="cards", topics="cards.in", process=process, outputs={"cards.out": 1}
    ) as processor:
        while processor.processed < len(SENT):
            await processor.process_next()
    assert seen([record async for record in client.consume("cards.out", follow=False)]) == EXPECTED


async def test_a_wrong_ring_fails_at_the_value_and_the_consumer_goes_on(
    client: Client, node: tuple[str, Path], tmp_path: Path
) -> None:
    await send_all(client, "cards.mixed")
    async with Client(node[0]) as clear, clear.producer() as producer:
        await producer.send("cards.mixed", b"clear", key="k")
        await producer.send("cards.mixed", None, key="k")
    other = Encryption(ring(tmp_path / "other.toml", "old", {"old": NEW}))
    async with Client(node[0], encryption=other) as stranger:
        records = [record async for record in stranger.consume("cards.mixed", follow=False)]
    codes = []
    for record in records[:4]:
        with pytest.raises(EncryptionFailed, match=f"cards.mixed/0@{record.offset}") as raised:
            _ = record.value
        codes.append(raised.value.code)
    assert codes == ["key_wrong", "key_wrong", "key_wrong", "not_encrypted"]
    assert records[4].value is None


async def test_a_body_is_not_posted_in_the_clear_by_a_client_with_encryption(client: Client) -> None:
    with pytest.raises(ValueError, match="does not encrypt"):
        await client.post_records("cards", b"1")
