"""Share groups over HTTP: acquire, acknowledge, dead letters, rights, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.scenarios.gateways import Answer
from tests.scenarios.groups.group_client import GroupClient, ok, problem
from tests.tokens import add_token, bearer


class Queue:
    """A share group of a gateway."""

    def __init__(self, group: GroupClient, topic: str) -> None:
        self.group = group
        self.topic = topic

    async def acquire(self, max_records: int = 100, **body: Any) -> dict[str, Any]:
        return ok(
            await self.group.send("POST", "/acquire", {"topics": [self.topic], "max_records": max_records, **body})
        )

    async def acknowledge(self, lock: str, *records: dict[str, Any], **body: Any) -> Answer:
        entries = [{"topic": self.topic, "partition": 0, **record} for record in records]
        more = {"records": entries} if entries else {}
        return await self.group.send("POST", "/acknowledge", {"lock": lock, **more, **body})


@pytest.fixture
async def queue(group, topic):
    await topic.post_records(*({"value": number, "key": f"k{number % 2}"} for number in range(6)))
    return Queue(group, topic.name)


def offsets(answer: dict[str, Any]) -> list[int]:
    return [record["offset"] for record in answer["records"]]


async def test_each_record_has_its_own_outcome(queue):
    answer = await queue.acquire()
    outcomes = [
        {"offset": 0, "last_offset": 2},
        {"offset": 4, "outcome": "release", "delay_ms": 0},
        {"offset": 5, "outcome": "reject"},
    ]
    for _ in range(2):
        assert ok(await queue.acknowledge(answer["lock"], *outcomes))["acknowledged"] == 5
    described = await queue.group.describe()
    [part] = described["partitions"]
    assert (described["kind"], part["offset"], part["in_flight"], part["available"], part["dropped"]) == (
        "share",
        3,
        1,
        1,
        1,
    )
    again = await queue.acquire()
    assert [(record["offset"], record["delivery_count"]) for record in again["records"]] == [(4, 2)]


async def test_an_outcome_after_the_lock_is_refused(queue):
    answer = await queue.acquire(2, lock_ms=100)
    waiting = await queue.acquire(2, wait_ms=60_000, member_id="b")
    while offsets(waiting) != [0, 1]:  # which may be the first, if the lock has ended already
        waiting = await queue.acquire(2, wait_ms=60_000, member_id="b")
    late = await queue.acknowledge(answer["lock"], {"offset": 0, "last_offset": 1})
    assert problem(late) == (409, "lock_expired")
    assert late.json["refused"][0]["code"] == "lock_expired"
    partly = await queue.acknowledge(waiting["lock"], {"offset": 0}, {"offset": 5})
    assert (partly.status, partly.json["acknowledged"], partly.json["refused"][0]["offset"]) == (207, 1, 5)


async def test_a_caller_waits_for_new_records_and_for_released_ones(group, topic):
    queue = Queue(group, topic.name)
    waiting = asyncio.ensure_future(queue.acquire(wait_ms=20_000))
    while (await group.send("GET")).status != 200:
        await asyncio.sleep(0.01)
    await topic.post_records({"value": 1})
    answer = await waiting
    assert offsets(answer) == [0]
    waiting = asyncio.ensure_future(queue.acquire(wait_ms=20_000))
    await asyncio.sleep(0)
    ok(await queue.acknowledge(answer["lock"], outcome="release", error="busy"))
    assert offsets(await waiting) == [0]


async def test_records_of_one_key_wait_for_each_other(queue):
    assert (await queue.group.send("PUT", "", {"config": {"kind": "share", "order": "key"}})).status == 201
    answer = await queue.acquire()
    assert offsets(answer) == [0, 1]
    ok(await queue.acknowledge(answer["lock"], {"offset": 1}))
    assert offsets(await queue.acquire()) == [3]


async def test_a_dead_letter_has_its_origin_and_a_copy_once(queue, topic, new_topic):
    dead = await new_topic()
    settings = {"kind": "share", "dead_letter_topic": dead.name, "deliveries_max": 1}
    assert (await queue.group.send("PUT", "", {"config": settings})).status == 201
    answer = await queue.acquire(2)
    ok(
        await queue.acknowledge(
            answer["lock"], {"offset": 0, "outcome": "reject", "error": "bad"}, {"offset": 1, "outcome": "release"}
        )
    )
    while (await queue.group.describe())["partitions"][0]["dead_letters"] < 2:
        await asyncio.sleep(0.05)
    records = await dead.records()
    assert [record["value"] for record in records] == [0, 1]
    assert records[0]["headers"] == {
        "dead-letter-reason": "rejected",
        "dead-letter-attempts": "1",
        "dead-letter-group": queue.group.name,
        "dead-letter-topic": queue.topic,
        "dead-letter-topic-id": (await topic.describe())["topic_id"],
        "dead-letter-partition": "0",
        "dead-letter-offset": "0",
        "dead-letter-error": "bad",
    }
    assert records[1]["headers"]["dead-letter-reason"] == "deliveries_max"


async def test_records_that_do_not_fit_are_given_back(group, topic):
    for number in range(4):
        await topic.post_records({"value": str(number) * 3000})
    queue = Queue(group, topic.name)
    answer = await queue.acquire(max_bytes=4_000)
    assert 0 < len(answer["records"]) < 4
    rest = await queue.acquire()
    assert offsets(answer) + offsets(rest) == [0, 1, 2, 3]
    assert {record["delivery_count"] for record in rest["records"]} == {1}


async def test_a_caller_needs_the_rights_to_its_group_and_topics(start_gateway, tmp_path):
    path = tmp_path / "tokens.toml"
    tokens = {
        "admin": add_token(path, "admin", admin=[""], write=[""]),
        "worker": add_token(path, "worker", read=["t"], group=["jobs."]),
        "other": add_token(path, "other", read=["u"], group=["jobs."]),
    }
    gateway = await start_gateway(tokens_file=str(path))
    for topic in ("t", "dead"):
        assert (await gateway.send("PUT", f"/v1/topics/{topic}", b"{}", bearer(tokens["admin"]))).status == 201

    async def acquire(token: str, name: str = "jobs.g", **body: Any) -> Answer:
        return await GroupClient(gateway, name, bearer(tokens[token])).send("POST", "/acquire", body)

    ok(await acquire("worker", topics=["t"]))
    assert problem(await acquire("other", topics=["t"])) == (403, "forbidden")
    assert problem(await acquire("other")) == (403, "forbidden")  # it may not read what the group reads
    assert problem(await acquire("worker", "bank.g", topics=["t"])) == (403, "forbidden")
    worker = GroupClient(gateway, "jobs.g", bearer(tokens["worker"]))
    refused = await worker.send("PATCH", "", {"config": {"dead_letter_topic": "dead"}})
    assert problem(refused) == (403, "forbidden")
