"""Polls that wait: what ends them, and that they need no task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.format import batch as record_batch
from engine.runtime.pending import Pending
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.hosting.hosted import Hosted
from gateway.groups.model.errors import CoordinatorMoved
from gateway.groups.model.values import ResetCall
from node.node import Node
from replication.replica.acks import Acks
from tests.gateway.server.served import Counts, served
from tests.gateway.server.test_head_cache import SHORT, exchange, node_of
from tests.gateway.server.test_pending_fetch import until_open

TOPIC = SHORT
WRITER = 1  # the task that stores the records of groups


class Scene:
    """A node behind its HTTP server, and one group, which has the name of its topic."""

    def __init__(self, node: Node, place: tuple[str, int], counts: Counts) -> None:
        self.node, self.place, self.counts = node, place, counts

    def request(self, method: str, path: str, body: object = None) -> bytes:
        data = b"" if body is None else orjson.dumps(body)
        head = f"{method} /v1/groups/{TOPIC}{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data

    async def call(self, method: str, path: str, body: object = None) -> bytes:
        return await exchange(self.place, self.request(method, path, body))

    async def poll(self, member: str, **body: Any) -> bytes:
        return await self.call("POST", f"/members/{member}/poll", body)

    async def token(self) -> str:
        """Returns the token of a member that has joined."""
        return token_of(await self.poll("a", topics=[TOPIC]))

    async def append(self, *values: bytes) -> None:
        partition = self.node.shard.partition(TOPIC, 0)
        batch = record_batch.encode_values(list(values) or [b"1"], 5)
        await self.node.reads.partitions.replica(partition).append(batch, Acks.ALL)

    async def replace_coordinator(self) -> None:
        self.hosted.close(CoordinatorMoved("replaced"))
        await self.append()

    async def grow(self) -> None:
        await self.node.shard.alter_topic(TOPIC, {}, 2)
        self.hosted.decide(Coordinator.sweep)
        await self.append()

    async def reset(self) -> None:
        self.hosted.decide(lambda core, now, source: core.reset(ResetCall(TOPIC, (), force=True), now, source))
        await self.append()

    @property
    def hosted(self) -> Any:
        found = self.node.server.groups.coordinators.present(TOPIC)
        assert found is not None
        return found

    @property
    def watching(self) -> set[str]:
        return {type(one).__name__ for group in self.hosted._watching.values() for one in group}


def token_of(answer: bytes) -> str:
    return str(orjson.loads(answer.partition(b"\r\n\r\n")[2])["token"])


Event = Callable[[Scene], Awaitable[object] | None]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with node_of(tmp_path) as node, served(node) as (place, counts):
        yield Scene(node, place, counts)


def check_nothing_waits(scene: Scene) -> None:
    """Checks that no poll is among any waiters, nor counted."""
    node = scene.node
    watermark = node.shard.topics[TOPIC].partitions[0].watermark if TOPIC in node.shard.topics else None
    assert watermark is None or not watermark.polls
    assert (node.long_polls.open, node.server.metrics.requests_in_flight.value) == (0, 0)
    assert (len(node.lifecycle.draining), node.server.bodies.held_bytes) == (0, 0)
    assert not scene.hosted._watching


async def waited(scene: Scene, event: Event, **body: Any) -> bytes:
    """Returns the answer of a poll that waits while an event happens."""
    body = {"topics": [TOPIC], "token": await scene.token(), "wait_ms": 30_000, **body}
    asking = asyncio.create_task(scene.poll("a", **body))
    if body["wait_ms"] == 30_000:
        await until_open(scene.node, 1)
        assert scene.watching == {"PollWait"}
    if (happening := event(scene)) is not None:
        await happening
    answer = await asking
    check_nothing_waits(scene)
    return answer


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (lambda scene: scene.append(), b'"value":1'),
        (lambda scene: scene.grow(), b'"assigned":2'),
        (lambda scene: scene.call("DELETE", "/members/a"), b'"code":"stale_token"'),
        (lambda scene: scene.node.lifecycle.drain(), b'"assigned":1'),
        (lambda scene: scene.replace_coordinator(), b'"value":1'),
        (lambda scene: scene.reset(), b'"code":"stale_token"'),
    ],
    ids=["records", "another assignment", "removed", "drained", "another coordinator", "reset"],
)
async def test_an_event_ends_the_wait(scene: Scene, event: Event, expected: bytes) -> None:
    assert expected in await waited(scene, event)


@pytest.mark.parametrize(
    ("config", "is_paused"), [({}, False), ({"auto_commit": False}, True), ({"topics_priority": "none"}, False)]
)
async def test_a_poll_without_records_is_answered_at_its_deadline(
    scene: Scene, config: object, is_paused: bool
) -> None:
    assert b" 20" in await scene.call("PUT", "", {"config": config})
    paused = [{"topic": TOPIC, "partition": 0}] if is_paused else []
    answer = await waited(scene, lambda _: None, wait_ms=20, paused=paused)
    assert b'"partitions":[]' in answer


async def test_a_poll_waits_for_bytes(scene: Scene) -> None:
    async def append_two() -> None:
        await scene.append(b'{"a":1}')
        await scene.append(b'{"a":2}')

    answer = await waited(scene, lambda _: append_two(), min_bytes=100)
    assert b'{"a":1}' in answer
    assert b'{"a":2}' in answer


async def test_a_poll_waits_for_records_that_pass_its_filter(scene: Scene) -> None:
    async def append_two() -> None:
        await scene.append(b"1")
        await until_open(scene.node, 1)
        await scene.append(b"2")

    answer = await waited(scene, lambda _: append_two(), filter=["value=2"])
    assert b'"value":1' not in answer
    assert b'"value":2' in answer


async def test_a_poll_goes_on_without_a_topic_that_the_coordinator_does_not_miss_yet(scene: Scene) -> None:
    token = await scene.token()
    await scene.node.shard.delete_topic(TOPIC)
    for body in ({}, {"token": token}, {"token": token, "topics": [TOPIC], "wait_ms": 20}, {"paused": []}):
        answer = await scene.poll("a", **body)
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        assert b'"partitions":[]' in answer
        assert scene.hosted.coordinator.groups[TOPIC].members["a"].assigned, "its sweep has not run yet"
        token = token_of(answer)


async def test_polls_that_wait_and_polls_that_records_wake_have_no_task(scene: Scene) -> None:
    token = await scene.token()
    for _ in range(3):  # each but the first commits what the one before has delivered
        tasks, sent = len(asyncio.all_tasks()), scene.counts.without_task
        reader, writer = await asyncio.open_connection(*scene.place)
        writer.write(scene.request("POST", "/members/a/poll", {"token": token, "wait_ms": 30_000}))
        await until_open(scene.node, 1)
        assert len(asyncio.all_tasks()) <= tasks + WRITER
        await scene.append()
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        assert b'"value":1' in answer
        assert scene.counts.without_task == sent + 1
        token = token_of(answer)


async def test_a_large_answer_is_compressed_in_a_task(scene: Scene) -> None:
    values = [b'"%s"' % (b"%d" % number * 2000) for number in range(10)]
    sent = scene.counts.without_task
    answer = await waited(scene, lambda scene: scene.append(*values), wait_ms=30_000)
    assert all(value in answer for value in values)
    assert b"vary: accept-encoding" in answer.lower()
    assert scene.counts.without_task == sent


async def test_a_client_that_leaves_leaves_no_wait(scene: Scene) -> None:
    body = {"topics": [TOPIC], "token": await scene.token(), "wait_ms": 30_000}
    leaving = asyncio.create_task(scene.poll("a", **body))
    await until_open(scene.node, 1)
    leaving.cancel()
    await until_open(scene.node, 0)
    check_nothing_waits(scene)
    assert scene.hosted.coordinator.groups[TOPIC].members["a"].waiting == 0


async def test_a_client_that_leaves_while_its_commit_is_stored_is_not_answered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await scene.token()
    await scene.append()
    token = token_of(await scene.poll("a", token=token))
    storing: Pending[None] = Pending()
    monkeypatch.setattr(Hosted, "wait_stored", lambda *_: storing)
    leaving = asyncio.create_task(scene.poll("a", token=token))
    async with asyncio.timeout(60):
        while storing._receive is None:
            await asyncio.sleep(0.001)
    leaving.cancel()
    async with asyncio.timeout(60):
        while not storing.is_over:
            await asyncio.sleep(0.001)
    check_nothing_waits(scene)
