"""Fetches of a partition of this process: those that wait for records hold no task, and the append answers them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from engine.format import batch as record_batch
from engine.format.batch import Codec
from engine.partition.partition import Partition
from gateway.fetch import fetch, partition_reads
from gateway.http.offload import TIMED_BYTES
from gateway.server.adapter import Adapter
from node.node import Node
from replication.replica.acks import Acks
from tests.gateway.server.served import served
from tests.gateway.server.test_head_cache import SHORT, exchange, node_of

FORMS = ("application/json", "application/x-ndjson", record_batch.MEDIA_TYPE)
RECORD = b'{"n":1}'
Event = Callable[[Node, Partition], object]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with node_of(tmp_path) as node:
        yield node


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the targets of the requests that have had a task."""
    found, answer = list[str](), Adapter.answer
    monkeypatch.setattr(Adapter, "answer", lambda *given: found.append(given[1].query) or answer(*given))
    return found


def poll(offset: object, query: str = "wait_ms=30000", accept: str = FORMS[1], close: str = "close") -> bytes:
    path = f"/v1/topics/{SHORT}/partitions/0/records?offset={offset}&{query}"
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\nConnection: {close}\r\n\r\n".encode()


async def append(node: Node, partition: Partition, *values: bytes, codec: Codec = Codec.NONE) -> None:
    batch = record_batch.encode_values(list(values), 5, codec)
    await node.reads.partitions.replica(partition).append(batch, Acks.ALL)


async def until_open(node: Node, count: int) -> None:
    async with asyncio.timeout(60):
        while node.reads.long_polls.open != count:
            await asyncio.sleep(0.001)


async def after(
    node: Node, event: Event, request: bytes = poll(0), *, waits: bool = True, is_short: bool = True
) -> bytes:
    """Returns the answer of a poll that waits while an event happens."""
    partition = node.shard.partition(SHORT, 0)
    async with served(node, is_short=is_short) as (place, _):
        asking = asyncio.create_task(exchange(place, request))
        if waits:
            await until_open(node, 1)
        done = event(node, partition)
        if asyncio.iscoroutine(done):
            await done
        answer = await asking
    waiting = len(partition.watermark.polls)
    assert (node.reads.long_polls.open, node.server.metrics.requests_in_flight.value, waiting) == (0, 0, 0)
    return answer


async def test_the_append_answers_in_its_call(node: Node, tasks: list[str]) -> None:
    """And a request that has a task, since its connection was busy, gets the same."""
    offset, appending = 0, lambda node, partition: append(node, partition, RECORD, b'"x"')
    for accept in FORMS:
        for more in ("", "&max_records=1", "&value=text", "&max_bytes=1"):
            bodies = []
            for is_short in (True, False):
                answer = await after(node, appending, poll(offset, f"wait_ms=30000{more}", accept), is_short=is_short)
                assert b"200 OK" in answer
                assert (
                    f"penstock-next-offset: {offset + 1 + (more != '&max_records=1' or accept == FORMS[2])}".encode()
                    in answer
                )
                bodies.append(answer.partition(b"\r\n\r\n")[2].count(b'"offset":'))
                offset += 2
            assert bodies[0] == bodies[1]
            assert len(tasks) == offset // 4


@pytest.mark.parametrize("accept", FORMS)
async def test_a_poll_without_records_is_answered_at_its_deadline(node: Node, tasks: list[str], accept: str) -> None:
    for _ in range(3):  # the second of two polls shares what is rendered for the first
        answer = await after(node, lambda *_: None, poll(0, "wait_ms=20", accept), waits=False)
        assert b"200 OK" in answer
        assert b"penstock-next-offset: 0\r\n" in answer
        async with served(node) as (place, _):
            answers = await asyncio.gather(*(exchange(place, poll(0, "wait_ms=20", accept)) for _ in range(4)))
        assert {one.partition(b"\r\n\r\n")[2] for one in answers} == {answer.partition(b"\r\n\r\n")[2]}
    assert not tasks


@pytest.mark.parametrize("query", ["from=latest&wait_ms=30000", "offset=0&min_bytes=0&wait_ms=30000", "offset=0"])
async def test_other_fetches_of_no_records_have_no_task(node: Node, tasks: list[str], query: str) -> None:
    request = poll(0).replace(b"offset=0&wait_ms=30000", query.encode())
    waits = "latest" in query
    event = (lambda node, partition: append(node, partition, RECORD)) if waits else lambda *_: None
    answer = await after(node, event, request, waits=waits)
    assert b"200 OK" in answer
    assert (RECORD in answer) == waits
    assert not tasks


@pytest.mark.parametrize(
    "event",
    [
        lambda node, partition: append(node, partition, b'"%b"' % (b"x" * TIMED_BYTES)),
        lambda node, partition: append(node, partition, *[RECORD] * 100, codec=Codec.GZIP),
    ],
    ids=["large", "compressed"],
)
async def test_what_takes_time_is_answered_by_a_task(node: Node, tasks: list[str], event: Event) -> None:
    answer = await after(node, event)
    assert b"200 OK" in answer
    assert b'"offset":0' in answer
    assert len(tasks) == 1


@pytest.mark.parametrize(
    ("event", "is_found"),
    [
        (lambda node, partition: partition.wake_all() or append(node, partition, RECORD), True),
        (lambda node, partition: node.lifecycle.drain() or partition.wake_all(), False),
    ],
    ids=["woken early", "drained"],
)
async def test_a_wait_that_ends_early_goes_on_unless_the_node_drains(
    node: Node, tasks: list[str], event: Event, is_found: bool
) -> None:
    answer = await after(node, event)
    assert b"200 OK" in answer
    assert (RECORD in answer) == is_found
    assert not tasks


@pytest.mark.parametrize("query", ["min_bytes=200&wait_ms=30000", "filter=value/n=2&wait_ms=30000"])
async def test_records_that_are_not_enough_leave_the_time_that_is_left(
    node: Node, tasks: list[str], query: str
) -> None:
    async def append_twice(node: Node, partition: Partition) -> None:
        await append(node, partition, RECORD)
        await until_open(node, 1)
        assert len(tasks) == 1
        await append(node, partition, b'{"n":2,"text":"%b"}' % (b"x" * 200))

    answer = await after(node, append_twice, poll(0, query))
    assert b'"n":2' in answer


async def test_a_deleted_topic_ends_its_polls(node: Node) -> None:
    answer = await after(node, lambda node, partition: node.shard.delete_topic(partition.topic))
    assert b"404 Not Found" in answer
    assert b'"code":"unknown_topic"' in answer


async def test_a_failure_of_the_answer_does_not_reach_the_append(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(fetch, "fetch_now", failing)
    answer = await after(node, lambda node, partition: append(node, partition, RECORD))
    assert b"500 Internal Server Error" in answer
    assert node.shard.partition(SHORT, 0).offline is None
    assert node.shard.partition(SHORT, 0).high_watermark == 1


async def test_stored_batches_that_are_there_need_no_task(node: Node, tasks: list[str]) -> None:
    """Large ones too, of sealed segments and of the active one."""
    partition = node.shard.partition(SHORT, 0)
    for number in range(8):
        await append(node, partition, b'"%b"' % (b"%d" % number * 60_000))
        if number == 3:
            await node.shard.committer.roll(partition)
    await node.reads.reader.read(partition, 0, 1)  # opens the sealed segment, for which a fetch needs a task
    async with served(node) as (place, _):
        for query in ("", "max_bytes=1", "max_bytes=130000"):
            for offset in (0, 2, 4, 7):
                before = partition.bytes_out, node.server.metrics.fetch_bytes.value
                head, _, body = (await exchange(place, poll(offset, query, FORMS[2]))).partition(b"\r\n\r\n")
                assert b"200 OK" in head
                assert (b"\r\netag:" in head) == (offset < 4)
                assert record_batch.read_header(body).base_offset == offset
                assert partition.bytes_out - before[0] == node.server.metrics.fetch_bytes.value - before[1] == len(body)
    assert not tasks
    assert node.responses.size_bytes == 0
    assert node.server.metrics.requests_in_flight.value == 0


@pytest.mark.parametrize("is_short", [True, False])
async def test_a_client_that_leaves_leaves_no_wait(node: Node, is_short: bool) -> None:
    async with served(node, is_short=is_short) as (place, _):
        _, writer = await asyncio.open_connection(*place)
        writer.write(poll(0, close="keep-alive"))
        await until_open(node, 1)
        writer.close()
        await until_open(node, 0)
    assert len(node.shard.partition(SHORT, 0).watermark.polls) == 0
    assert node.server.metrics.requests_in_flight.value == 0
    assert node.shard.partition(SHORT, 0).watermark.polls._by_end == {1: {}}


async def test_waiting_polls_hold_no_task(node: Node) -> None:
    async with served(node) as (place, _):
        writers = [(await asyncio.open_connection(*place))[1] for _ in range(100)]
        await asyncio.sleep(0)
        before = len(asyncio.all_tasks())
        for writer in writers:
            writer.write(poll(0, close="keep-alive"))
        await until_open(node, len(writers))
        assert len(asyncio.all_tasks()) <= before
        for writer in writers:
            writer.close()
        await until_open(node, 0)


async def test_polls_of_a_connection_are_answered_in_their_order(node: Node) -> None:
    """Those behind a poll that waits begin after its answer."""
    async with served(node) as (place, _):
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
    rendered, render = [], partition_reads._render

    def counted(*arguments: object) -> object:
        rendered.append(arguments)
        return render(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(partition_reads, "_render", counted)
    async with served(node) as (place, _):
        asking = [asyncio.create_task(exchange(place, poll(0, accept=form))) for form in FORMS[:2] * 40]
        await until_open(node, len(asking))
        await append(node, node.shard.partition(SHORT, 0), RECORD)
        answers = await asyncio.gather(*asking)
    assert len(rendered) == 2
    assert len({answer.partition(b"\r\n\r\n")[2] for answer in answers}) == 2
    heads = [answer.partition(b"\r\n\r\n")[0].split(b"\r\n") for answer in answers]
    names = {tuple(line.partition(b":")[0] for line in head) for head in heads}
    assert len(names) == 1, "those that share their headers have the same ones"
