"""Polls of groups that wait without a task: each ends as one with a task does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.format import batch as record_batch
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.model.errors import CoordinatorMoved
from gateway.groups.model.values import ResetCall
from node.node import Node
from replication.replica.acks import Acks
from tests.gateway.server.served import served
from tests.gateway.server.test_delayed_fetch import until_open
from tests.gateway.server.test_head_cache import LONG, SHORT, comparable, exchange, node_of


class Scene:
    """One group, which reads the topic of its name. `is_short`: its polls may wait without a task."""

    def __init__(self, node: Node, place: tuple[str, int], name: str) -> None:
        self.node, self.place, self.name = node, place, name

    async def call(self, method: str, path: str, body: object = None) -> bytes:
        data = b"" if body is None else orjson.dumps(body)
        head = f"{method} /v1/groups/{self.name}{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        return await exchange(self.place, f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)

    async def poll(self, member: str, **body: Any) -> bytes:
        return await self.call("POST", f"/members/{member}/poll", body)

    async def token(self, member: str = "a") -> str:
        """Returns the token of a member that has joined."""
        return str(orjson.loads((await self.poll(member, topics=[self.name])).partition(b"\r\n\r\n")[2])["token"])

    async def append(self) -> None:
        partition = self.node.shard.partition(self.name, 0)
        await self.node.reads.partitions.replica(partition).append(record_batch.encode_values([b"1"], 5), Acks.ALL)

    async def replace_coordinator(self) -> None:
        self.hosted.close(CoordinatorMoved("replaced"))
        await self.append()

    async def grow(self) -> None:
        await self.node.shard.alter_topic(self.name, {}, 2)
        self.hosted.decide(Coordinator.sweep)
        await self.append()

    async def reset(self) -> None:
        self.hosted.decide(lambda core, now, source: core.reset(ResetCall(self.name, (), force=True), now, source))
        await self.append()

    @property
    def hosted(self) -> Any:
        found = self.node.server.groups.coordinators.present(self.name)
        assert found is not None
        return found

    @property
    def watching(self) -> set[str]:
        return {type(one).__name__ for group in self.hosted._watching.values() for one in group}


_TOPIC_ID = re.compile(rb'"[0-9a-f]{32}"')
Event = Callable[[Scene], Awaitable[object] | None]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with node_of(tmp_path) as node:
        yield node


async def waited(node: Node, event: Event, *, is_short: bool, config: object = None, **body: Any) -> bytes:
    """Returns the answer of a poll that waits while an event happens."""
    name = SHORT if is_short else LONG
    async with served(node, is_short=is_short) as (place, short):
        scene = Scene(node, place, name)
        if config is not None:
            assert b" 20" in await scene.call("PUT", "", {"config": config})
        paused = [{"topic": name, "partition": 0}] if body.pop("is_paused", False) else []
        body = {"topics": [name], "token": await scene.token(), "wait_ms": 30_000, "paused": paused, **body}
        asking = asyncio.create_task(scene.poll("a", **body))
        if body["wait_ms"] == 30_000:
            await until_open(node, 1)
            assert ("DelayedPoll" in scene.watching) is is_short
        if (happening := event(scene)) is not None:
            await happening
        answer = await asking
        assert short.without_task == (is_short and body["wait_ms"] < 1000)
    watermark = node.shard.topics[name].partitions[0].watermark if name in node.shard.topics else ()
    waits = len(watermark.polls) if watermark else 0
    assert (node.long_polls.open, node.server.metrics.requests_in_flight.value, waits) == (0, 0, 0)
    assert (len(node.lifecycle.draining), node.server.bodies.held_bytes) == (0, 0)
    return answer


async def both(node: Node, event: Event, config: object = None, **body: Any) -> bytes:
    """Returns the answer, which is the same with and without a task."""
    answers = []
    for is_short in (True, False):
        answers.append(await waited(node, event, is_short=is_short, config=config, **body))
        node.lifecycle.is_draining = False
        node.lifecycle.draining.retreat(0)
    short, long = (comparable(_TOPIC_ID.sub(b'"x"', one)) for one in answers)
    assert short == long
    return answers[0]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (lambda scene: scene.append(), b'"value":1'),
        (lambda scene: scene.grow(), b'"assigned":2'),
        (lambda scene: scene.call("DELETE", "/members/a"), b'"code":"stale_token"'),
        (lambda scene: scene.node.lifecycle.drain(), b'"assigned":1'),
        (lambda scene: scene.replace_coordinator(), b'"value":1'),
        (lambda scene: scene.reset(), b'"code":"stale_token"'),
        (lambda scene: scene.node.shard.delete_topic(scene.name), b'"code":"unknown_topic"'),
    ],
    ids=["records", "another assignment", "removed", "drained", "another coordinator", "reset", "topic deleted"],
)
async def test_an_event_ends_the_wait_as_it_ends_that_of_a_task(node: Node, event: Event, expected: bytes) -> None:
    assert expected in await both(node, event)


@pytest.mark.parametrize(
    ("config", "is_paused"), [({}, False), ({"auto_commit": False}, True), ({"topics_priority": "none"}, False)]
)
async def test_a_poll_without_records_is_answered_at_its_deadline(node: Node, config: object, is_paused: bool) -> None:
    answer = await both(node, lambda _: None, config, wait_ms=20, is_paused=is_paused)
    assert b'"partitions":[]' in answer


async def test_a_client_that_leaves_leaves_no_wait(node: Node) -> None:
    async with served(node, is_short=True) as (place, _):
        scene = Scene(node, place, SHORT)
        body = {"topics": [SHORT], "token": await scene.token(), "wait_ms": 30_000}
        leaving = asyncio.create_task(scene.poll("a", **body))
        await until_open(node, 1)
        leaving.cancel()
        await until_open(node, 0)
        assert (scene.watching, node.server.metrics.requests_in_flight.value) == (set(), 0)
        assert scene.hosted.coordinator.groups[SHORT].members["a"].waiting == 0
