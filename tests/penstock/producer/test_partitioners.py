"""The partition of a record that names none."""

from __future__ import annotations

import pytest

from penstock import Client
from penstock.producer.partitioners import RoundRobin, chooser
from tests.penstock.fake_node import FakeNode


def test_round_robin_goes_through_the_partitions_of_each_topic() -> None:
    choose = RoundRobin()
    assert [choose("a", "key", 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert choose("b", None, 3) == 0
    assert choose("a", None, 2) == 0  # never above the topic's partitions


async def test_round_robin_spreads_records_of_one_key(client: Client, fake: FakeNode) -> None:
    partitions = fake.add_topic("t", 3)
    async with client.producer(partitioner="round_robin") as producer:
        await producer.send_many("t", range(9), keys=["same"] * 9)
    assert [len(partition.records) for partition in partitions] == [3, 3, 3]


async def test_sticky_ignores_keys_and_fills_batches(client: Client, fake: FakeNode) -> None:
    partitions = fake.add_topic("t", 3)
    async with client.producer(partitioner="sticky", linger_ms=100) as producer:
        await producer.send_many("t", range(30), keys=map(str, range(30)))
    assert sorted(len(partition.records) for partition in partitions) == [0, 0, 30]


async def test_a_function_gets_the_stored_key_and_may_leave_the_choice(client: Client, fake: FakeNode) -> None:
    partitions = fake.add_topic("t", 2)
    seen = []

    def by_first_letter(topic: str, key: bytes | None, partitions: int) -> int | None:
        seen.append((topic, key, partitions))
        return None if key is None else key[0] % partitions

    async with client.producer(partitioner=by_first_letter) as producer:
        await producer.send("t", 1, key="a")
        await producer.send("t", 2, key=5)
        await producer.send("t", 3)
        await producer.send("t", 4, key="b", partition=1)  # a named partition has priority
    assert seen == [("t", b"a", 2), ("t", b"5", 2), ("t", None, 2)]
    assert {record.value for record in partitions[1].records} >= {b"1", b"2", b"4"}


async def test_a_partition_that_is_none_is_reported_by_send(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t", 2)
    async with client.producer(partitioner=lambda topic, key, partitions: 2) as producer:
        with pytest.raises(ValueError, match="chose partition 2 of t, which has 2"):
            await producer.send("t", 1)


def test_a_name_that_is_no_partitioner_is_refused() -> None:
    with pytest.raises(ValueError, match="one of key_hash, sticky, round_robin"):
        chooser("murmur")
