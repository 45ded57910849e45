"""One node of two shards, a group of librdkafka's members (KIP-848) and a member over HTTP: each record once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.kafka.test_both_doors import free_address, producer
from tests.e2e.lifecycle.test_shards import call
from tests.e2e.node_process import running_process

pytest.importorskip("confluent_kafka")

import confluent_kafka

pytestmark = pytest.mark.e2e

PARTITIONS = 6
WAIT_S = 60


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URL of HTTP and the address of Kafka's protocol."""
    kafka = free_address()
    with running_process(tmp_path_factory.mktemp("node"), shards=2, kafka_listen=kafka) as node:
        call(f"{node.url}/v1/topics/t", "PUT", {"partitions": PARTITIONS})
        yield node.url, kafka


class Group:
    """Members of both doors. `found` counts the values that they got."""

    def __init__(self, doors: tuple[str, str]) -> None:
        self.url, self.kafka = doors
        self.found: Counter[bytes] = Counter()
        self.members: list[Any] = []
        self.polled: dict[str, Any] = {}
        call(f"{self.url}/v1/groups/g", "PUT", {"config": {"heartbeat_ms": 200}})

    def add(self, **config: object) -> Any:
        given = {"bootstrap.servers": self.kafka, "group.id": "g", "group.protocol": "consumer"}
        member = confluent_kafka.Consumer(given | {"auto.offset.reset": "earliest"} | config)
        member.subscribe(["t"])
        self.members.append(member)
        return member

    def look(self) -> list[int]:
        """Gets what is there over both doors. Returns how many partitions each member has."""
        for member in self.members:
            for message in member.consume(1000, 0.05):
                assert message.error() is None, message.error()
                self.found[message.value()] += 1
        counts = [len(member.assignment()) for member in self.members]
        if not self.polled:
            return counts
        body = {"token": self.polled["token"]}
        self.polled = call(f"{self.url}/v1/groups/g/members/http/poll", "POST", body)
        for part in self.polled["partitions"]:
            self.found.update(str(record["value"]).encode() for record in part["records"])
        return [*counts, self.polled["assigned"]]

    def join_over_http(self) -> None:
        self.polled = call(f"{self.url}/v1/groups/g/members/http/poll", "POST", {"topics": ["t"]})

    def wait(self, counts: list[int], records: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while (found := self.look()) != counts or len(self.found) < records:
            assert time.monotonic() < deadline, (found, len(self.found), self.shown())

    def shown(self) -> Any:
        return call(f"{self.url}/v1/groups/g")


@pytest.fixture
def group(doors: tuple[str, str]) -> Iterator[Group]:
    group = Group(doors)
    yield group
    for member in group.members:
        member.close()


def test_members_of_both_doors_get_each_record_once(group: Group) -> None:
    sent = producer(group.kafka)
    total = 0

    def produce(count: int) -> None:
        nonlocal total
        for number in range(total, total + count):
            sent.produce("t", b"%d" % number, partition=number % PARTITIONS)
        assert sent.flush(30) == 0
        total += count

    produce(600)
    group.add()
    group.wait([6], 600)
    group.add()
    group.wait([3, 3], 600)
    group.join_over_http()
    produce(600)
    group.wait([2, 2, 2], 600)
    shown = group.shown()
    assert shown["state"] == "stable"
    assert sorted(len(one["assignment"]) for one in shown["members"]) == [2, 2, 2]
    deadline = time.monotonic() + WAIT_S
    while sum(group.found.values()) < total:
        assert time.monotonic() < deadline
        group.look()
    group.members.pop().close()
    group.wait([3, 3], 600)
    assert sum(group.found.values()) == total
    call(f"{group.url}/v1/groups/g/members/http", "DELETE")
    group.polled = {}
    group.wait([6], 600)
    group.members.pop().close()
    offsets = call(f"{group.url}/v1/groups/g/offsets")["offsets"]
    assert {one["partition"]: one["offset"] for one in offsets} == dict.fromkeys(range(PARTITIONS), total // PARTITIONS)
