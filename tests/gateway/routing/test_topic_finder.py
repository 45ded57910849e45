"""A cluster node asks the store before it reports permanently that a topic or partition does not exist."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gateway.http.problems import Problem
from gateway.routing.topic_finder import LOOKUPS_MAX, NAMES_MAX, TopicFinder
from replication.cluster.store_calls import StoreTimeout
from tests.scenarios.conformity import assert_problem

NDJSON = "application/x-ndjson"


async def test_a_topic_that_another_node_has_just_made_is_looked_for_before_there_is_none(cluster):
    """For every operation; each rejection follows a store query that was sent after its request."""
    topics = await cluster.create("t", leader=2)
    node, lookups = cluster.members[1].node, []
    record = node.shard.topics.stop_serving("t")  # as if this node did not know it yet

    async def exists(name: str) -> bool:
        lookups.append(name)
        await asyncio.sleep(0.01)
        if name == "t":
            node.shard.topics.serve({"t": record})
        return name == "t"

    node.topics._finder = TopicFinder(exists)
    entry = b'{"partitions":[{"topic":"t","partition":0,"offset":0}]}'
    json = {"Content-Type": "application/json"}
    line = b'{"topic":"t","value":1}'
    answers = await asyncio.gather(
        topics[1].post_lines("1"),
        topics[1].fetch(0),
        topics[1].gateway.send("POST", "/v1/fetch", entry, json),
        topics[1].gateway.send("POST", "/v1/records", line, {"Content-Type": NDJSON}),
        topics[1].gateway.send("GET", topics[1].path),
    )
    assert [answer.status for answer in answers] == [200] * 5
    assert set(lookups) == {"t"}
    assert len(lookups) <= 2
    lookups.clear()
    for path in ("/v1/topics/other", "/v1/topics/other", "/v1/topics/a+b"):
        assert_problem(await topics[1].gateway.send("GET", path), "unknown_topic")
    assert lookups == ["other", "other"]


async def test_a_partition_that_another_node_has_just_added_is_looked_for_before_there_is_none(cluster):
    """For every way to name it: a path, records, entries of a fetch, the position of a resumed stream."""
    topics = await cluster.create("t", partitions=3, leader=2)
    node, lookups = cluster.members[1].node, []
    grown = node.shard.topics["t"].record
    before = replace(grown, partitions=1)

    async def exists(name: str) -> bool:
        lookups.append(name)
        node.shard.topics["t"].record = grown
        return True

    node.topics._finder = TopicFinder(exists)
    await topics[2].post_lines("1", to=2)
    json, path = {"Content-Type": "application/json"}, topics[1].path
    line = b'{"topic":"t","partition":2,"value":1}'
    requests = [
        ("POST", f"{path}/partitions/2/records", b"1", {"Content-Type": NDJSON}),
        ("GET", f"{path}/partitions/2/records?offset=0", b"", {}),
        ("GET", f"{path}/partitions/2/offsets", b"", {}),
        ("GET", f"{path}/partitions/2/fence", b"", {}),
        ("POST", f"{path}/records", b'{"records":[{"value":1,"partition":2}]}', json),
        ("POST", f"{path}/records", b'{"records":[{"value":1,"partition":2}]}', {**json, "Idempotency-Key": "k"}),
        ("POST", "/v1/records", line, {"Content-Type": NDJSON}),
        ("POST", "/v1/fetch", b'{"partitions":[{"topic":"t","partition":2,"offset":0}]}', json),
        ("HEAD", f"{path}/records", b"", {"Accept": "text/event-stream", "Last-Event-ID": "0-0-1"}),
    ]
    for request in requests:
        node.shard.topics["t"].record = before
        answer = await topics[1].gateway.send(*request)
        assert answer.status == 200, (request, answer)
        assert b"problem" not in answer.body, request
        assert lookups == ["t"], request
        lookups.clear()
    assert_problem(await topics[1].post_lines("1", to=3), "unknown_partition")
    assert lookups == ["t"], "the final refusal was confirmed"
    node.topics._finder = TopicFinder(silent)
    assert_problem(await topics[1].post_lines("1", to=3), StoreTimeout.code)


async def test_a_stream_that_comes_back_is_never_answered_with_a_status_that_ends_it_for_good(cluster):
    """A node that has just started knows no topic yet, and the store does not answer."""
    topics = await cluster.create("t", leader=2)
    node, topic = cluster.members[1].node, topics[1]
    del node.shard.topics["t"]
    node.topics._finder = TopicFinder(silent)
    for path in (f"{topic.path}/records", f"{topic.path}/partitions/0/records"):
        stream = {"Accept": "text/event-stream"}
        assert_problem(await topic.gateway.send("GET", path, b"", stream), StoreTimeout.code, retryable=True)
        again = await topic.gateway.send("GET", path, b"", stream | {"Last-Event-ID": "0"})
        assert (again.status, again.headers["Content-Type"]) == (200, "text/event-stream")
        wait_ms = int(again.body.rpartition(b"\nretry: ")[2])
        least_ms = 1000 * int((await topic.gateway.send("GET", path, b"", stream)).headers["Retry-After"])
        assert least_ms <= wait_ms <= 2 * least_ms
        no_stream = await topic.gateway.send("GET", path, b"", {"Last-Event-ID": "0"})
        assert_problem(no_stream, StoreTimeout.code)
        assert int(no_stream.headers["Retry-After"]) > 0


async def silent(_: str) -> bool:
    raise StoreTimeout("the coordination store has not answered")


async def test_names_that_nobody_asks_for_are_forgotten_and_a_slow_answer_holds_up_no_other(monkeypatch):
    monkeypatch.setattr("gateway.routing.topic_finder.NAMES_MAX", 10)
    slow = asyncio.Event()

    async def exists(name: str) -> bool:
        if name == "slow":
            await slow.wait()
        return name == "slow"

    finder = TopicFinder(exists)
    waiting = asyncio.ensure_future(finder.find("slow"))
    await asyncio.sleep(0)
    for number in range(100):
        assert not await finder.find(f"t{number}")
        for one in list(finder._pending.values()):
            if one.is_idle is False and one is not finder._pending["slow"]:
                await one._asking  # its pause
    assert len(finder._pending) <= 10
    slow.set()
    assert await waiting


async def test_names_that_are_all_different_are_bounded_too():
    """Both concurrent queries and cached names are limited; requests beyond that are asked to retry."""
    now = most = 0

    async def exists(_: str) -> bool:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return False

    finder = TopicFinder(exists)
    names = [f"t{number}" for number in range(2 * NAMES_MAX)]
    answers = await asyncio.gather(*map(finder.find, names), return_exceptions=True)
    assert most <= LOOKUPS_MAX
    assert answers[:NAMES_MAX] == [False] * NAMES_MAX
    for refused in answers[NAMES_MAX:]:
        assert isinstance(refused, Problem)
        assert (refused.code, refused.response("r").headers["Retry-After"]) == ("overloaded", "1")
    assert len(finder._pending) <= NAMES_MAX
