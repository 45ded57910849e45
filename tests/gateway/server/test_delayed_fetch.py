"""Long polls without a task: answered by the append, and in every other case as the long path answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from engine.format import batch as record_batch
from engine.format.batch import Codec
from engine.partition.partition import Partition
from gateway.connections.response_buffers import ResponseBuffers
from gateway.server.adapter import Adapter
from gateway.server.delayed_fetch import NOW_BYTES_MAX, DelayedFetches
from node.node import Node
from replication.replica.acks import Acks
from tests.gateway.server.served import served
from tests.gateway.server.test_head_cache import LONG, SHORT, comparable, exchange, node_of

FORMS = ("application/json", "application/x-ndjson", record_batch.MEDIA_TYPE)
RECORD = b'{"n":1}'
Event = Callable[[Node, Partition], object]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with node_of(tmp_path) as node:
        yield node


def poll(
    offset: int, query: str = "wait_ms=30000", accept: str = FORMS[1], close: str = "close", topic: str = SHORT
) -> bytes:
    path = f"/v1/topics/{topic}/partitions/0/records?offset={offset}&{query}"
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\nConnection: {close}\r\n\r\n".encode()


async def append(node: Node, partition: Partition, *values: bytes, codec: Codec = Codec.NONE) -> None:
    batch = record_batch.encode_values(list(values), 5, codec)
    await node.reads.partitions.replica(partition).append(batch, Acks.ALL)


async def until_open(node: Node, count: int) -> None:
    async with asyncio.timeout(60):
        while node.reads.long_polls.open != count:
            await asyncio.sleep(0.001)


async def after(node: Node, offset: int, event: Event, query: str, accept: str, *, is_short: bool) -> bytes:
    """Returns the answer of a poll that waits while an event happens."""
    topic = SHORT if is_short else LONG
    partition = node.shard.partition(topic, 0)
    waiting = partition.watermark.polls
    async with served(node, is_short=is_short) as (place, _):
        asking = asyncio.create_task(exchange(place, poll(offset, query, accept, topic=topic)))
        if "wait_ms=30000" in query:
            await until_open(node, 1)
            kinds = {type(one).__name__ for group in waiting._by_end.values() for one in group}
            assert ("DelayedFetch" in kinds) is is_short
        done = event(node, partition)
        if asyncio.iscoroutine(done):
            await done
        answer = await asking
    assert (node.reads.long_polls.open, node.server.metrics.requests_in_flight.value, len(waiting)) == (0, 0, 0)
    return answer


async def both(
    node: Node, event: Event, offset: int = 0, query: str = "wait_ms=30000", accept: str = FORMS[1]
) -> list[bytes]:
    """Returns the answers with and without the short path."""
    answers = []
    for is_short in (True, False):
        answers.append(await after(node, offset, event, query, accept, is_short=is_short))
        node.lifecycle.is_draining = False
    return answers


async def test_the_append_answers_as_a_task_does(node: Node) -> None:
    offset = 0
    for accept in FORMS:
        for more in ("", "&max_records=1", "&value=text", "&max_bytes=1"):
            appending = lambda node, partition: append(node, partition, RECORD, b'"x"')  # noqa: E731
            short, long = await both(node, appending, offset, f"wait_ms=30000{more}", accept)
            assert comparable(short) == comparable(long), (accept, more)
            assert b"200 OK" in short
            offset += 2


@pytest.mark.parametrize("accept", FORMS)
async def test_a_poll_without_records_is_answered_at_its_deadline(node: Node, accept: str) -> None:
    short, long = await both(node, lambda *_: None, 0, "wait_ms=20", accept)
    assert comparable(short) == comparable(long)
    assert b"200 OK" in short


@pytest.mark.parametrize(
    "event",
    [
        lambda node, partition: append(node, partition, b'"%b"' % (b"x" * NOW_BYTES_MAX)),
        lambda node, partition: append(node, partition, *[RECORD] * 100, codec=Codec.GZIP),
        lambda node, partition: partition.wake_all() or append(node, partition, RECORD),
        lambda node, partition: node.lifecycle.drain() or partition.wake_all(),
    ],
    ids=["large", "compressed", "woken early", "drained"],
)
async def test_what_needs_a_task_is_answered_by_one(node: Node, event: Event) -> None:
    short, long = await both(node, event)
    assert comparable(short) == comparable(long)
    assert b"200 OK" in short


async def test_a_deleted_topic_ends_its_polls(node: Node) -> None:
    for answer in await both(node, lambda node, partition: node.shard.delete_topic(partition.topic)):
        assert b"404 Not Found" in answer
        assert b'"code":"unknown_topic"' in answer


async def test_a_failure_of_the_answer_does_not_reach_the_append(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(DelayedFetches, "found", failing)
    appending = lambda node, partition: append(node, partition, RECORD)  # noqa: E731
    answer = await after(node, 0, appending, "wait_ms=30000", FORMS[1], is_short=True)
    assert b"200 OK" in answer
    assert RECORD in answer
    assert node.shard.partition(SHORT, 0).offline is None


@pytest.mark.parametrize("has_room", [True, False])
async def test_stored_batches_that_are_there_need_no_task(
    node: Node, monkeypatch: pytest.MonkeyPatch, has_room: bool
) -> None:
    """Large ones too, of sealed segments and of the active one, unless the client does not read its answers."""
    tasks, answer = [], Adapter.answer
    monkeypatch.setattr(Adapter, "answer", lambda *arguments: tasks.append(1) or answer(*arguments))
    if not has_room:
        monkeypatch.setattr(ResponseBuffers, "has_room", lambda *_: False)
    partition = node.shard.partition(SHORT, 0)
    for number in range(8):
        await append(node, partition, b'"%b"' % (b"%d" % number * 60_000))
        if number == 3:
            await node.shard.committer.roll(partition)
    await node.reads.reader.read(partition, 0, 1)  # opens the sealed segment, for which a fetch needs a task
    for query in ("offset=0", "offset=2", "offset=4", "offset=7", "offset=1&max_bytes=1", "offset=4&max_bytes=130000"):
        answers, bytes_out = [], []
        for is_short in (True, False):
            before = partition.bytes_out, node.server.metrics.fetch_bytes.value
            async with served(node, is_short=is_short) as (place, _):
                get = f"GET /v1/topics/{SHORT}/partitions/0/records?{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                get += f"Accept: {FORMS[2]}\r\nConnection: close\r\n\r\n"
                answers.append(await exchange(place, get.encode()))
            bytes_out.append((partition.bytes_out - before[0], node.server.metrics.fetch_bytes.value - before[1]))
        short, long = answers
        assert comparable(short) == comparable(long), query
        assert short.partition(b"\r\n\r\n")[2] == long.partition(b"\r\n\r\n")[2]
        assert (b"\r\netag:" in short) == (query[7] < "4")
        assert bytes_out[0] == bytes_out[1]
    assert len(tasks) - 6 == (0 if has_room else 4), "answers of 64 KiB and more are counted"
    assert node.responses.size_bytes == 0
    assert node.server.metrics.requests_in_flight.value == 0


async def test_a_client_that_leaves_leaves_no_wait(node: Node) -> None:
    async with served(node, is_short=True) as (place, _):
        _, writer = await asyncio.open_connection(*place)
        writer.write(poll(0, close="keep-alive"))
        await until_open(node, 1)
        writer.close()
        await until_open(node, 0)
    assert len(node.shard.partition(SHORT, 0).watermark.polls) == 0
    assert node.server.metrics.requests_in_flight.value == 0
    assert node.shard.partition(SHORT, 0).watermark.polls._by_end == {1: {}}


async def test_polls_of_a_connection_are_answered_in_their_order(node: Node) -> None:
    """Those behind a poll that waits begin after its answer."""
    async with served(node, is_short=True) as (place, _):
        reader, writer = await asyncio.open_connection(*place)
        writer.write(poll(0, close="keep-alive"))
        await until_open(node, 1)
        writer.write(poll(1, close="keep-alive") + poll(0, "wait_ms=0"))
        for number in range(2):
            await append(node, node.shard.partition(SHORT, 0), b"%d" % number)
            await until_open(node, 1 - number)
        answers = await asyncio.wait_for(reader.read(), 60)
        writer.close()
    assert answers.count(b"HTTP/1.1 200 OK") == 3
    assert answers.index(b'"value":0') < answers.index(b'"value":1')
    assert answers.count(b'"value":0') == 2


async def test_polls_of_one_form_share_one_rendering(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered, render = [], DelayedFetches._rendered

    def counted(self: DelayedFetches, *arguments: object) -> object:
        rendered.append(arguments)
        return render(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(DelayedFetches, "_rendered", counted)
    async with served(node, is_short=True) as (place, _):
        asking = [asyncio.create_task(exchange(place, poll(0, accept=form))) for form in FORMS[:2] * 40]
        await until_open(node, len(asking))
        await append(node, node.shard.partition(SHORT, 0), RECORD)
        answers = await asyncio.gather(*asking)
    assert len(rendered) == 2
    assert len({answer.partition(b"\r\n\r\n")[2] for answer in answers}) == 2
