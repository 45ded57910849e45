"""Sessions of fetches: what a request may leave out, what an answer leaves out, and how a session ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.kafka.codec.fetch import AskedPartition, FetchRequest, Key
from gateway.kafka.codec.messages import Message
from gateway.kafka.errors import Error
from gateway.kafka.fetch_sessions import IDLE_S, POSITION_BYTES, Begun, FetchSessions
from node.node import Node
from tests.gateway.kafka.served import Connection, batch, connected, fetch, kafka_node, produce


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with kafka_node(tmp_path) as (node, _):
        await node.shard.create_topic("t", 3, 1, {})
        yield node


@pytest.fixture
async def client(node: Node) -> AsyncIterator[Connection]:
    async with connected(node) as connection:
        yield connection


async def ask(client: Connection, message: Message, version: int = 12) -> Message:
    client.send("Fetch", version, message)
    return await asyncio.wait_for(client.receive(), 10)


def found(answer: Message) -> dict[int, int]:
    """Returns the bytes of records by partition."""
    return {row.partition_index: len(row.records) for topic in answer.responses for row in topic.partitions}


async def test_an_answer_names_only_what_has_changed(client: Connection, node: Node) -> None:
    whole = await ask(client, fetch("t", {0: 0, 1: 0, 2: 0}, session=(0, 0)))
    assert (whole.error_code, found(whole)) == (0, {0: 0, 1: 0, 2: 0})
    session = whole.session_id
    assert session > 0
    assert found(await ask(client, fetch("t", {}, session=(session, 1)))) == {}
    async with connected(node) as other:
        other.send("Produce", 9, produce("t", {1: batch(b"now")}))
        await other.receive()
    read = await ask(client, fetch("t", {}, session=(session, 2), max_wait_ms=5000))
    assert (read.session_id, list(found(read))) == (session, [1])
    assert found(read)[1] > 0
    assert found(await ask(client, fetch("t", {1: 1}, session=(session, 3)))) == {}  # the client has the watermark
    assert list(found(await ask(client, fetch("t", {1: 0}, session=(session, 4), forgotten=[0, 2])))) == [1]
    assert sorted(found(await ask(client, fetch("t", {2: 0}, session=(session, 5))))) == [1, 2]


async def test_a_wait_of_a_session_ends_with_records(client: Connection, node: Node) -> None:
    session = (await ask(client, fetch("t", {0: 0, 1: 0}, session=(0, 0)))).session_id
    client.send("Fetch", 12, fetch("t", {}, session=(session, 1), max_wait_ms=20_000))
    async with connected(node) as other:
        other.send("Produce", 9, produce("t", {1: batch(b"now")}))
        await other.receive()
    assert list(found(await asyncio.wait_for(client.receive(), 10))) == [1]
    assert node.long_polls.open == 0


async def test_requests_that_do_not_fit_their_session(client: Connection, node: Node) -> None:
    topic_id = bytes.fromhex(node.shard.topic("t").record.topic_id)
    session = (await ask(client, fetch("t", {0: 0}, session=(0, 0)))).session_id
    assert (await ask(client, fetch("t", {}, session=(session, 2)))).error_code == Error.INVALID_FETCH_SESSION_EPOCH
    assert (await ask(client, fetch("t", {}, session=(session + 1, 1)))).error_code == Error.FETCH_SESSION_ID_NOT_FOUND
    mixed = await ask(client, fetch(topic_id, {0: 0}, session=(session, 1)), 13)
    assert (mixed.error_code, mixed.session_id) == (Error.FETCH_SESSION_TOPIC_ID_ERROR, 0)
    async with connected(node) as other:  # a session is of its connection
        stolen = await ask(other, fetch("t", {}, session=(session, 1)))
        assert stolen.error_code == Error.FETCH_SESSION_ID_NOT_FOUND
    assert (await ask(client, fetch("t", {}, session=(session, 1)))).error_code == 0
    ended = await ask(client, fetch("t", {0: 0}, session=(session, -1)))
    assert (ended.error_code, ended.session_id, found(ended)) == (0, 0, {0: 0})
    assert (await ask(client, fetch("t", {}, session=(session, 2)))).error_code == Error.FETCH_SESSION_ID_NOT_FOUND


async def test_errors_and_epochs_are_answered_in_sessions_each_time(client: Connection) -> None:
    whole = await ask(client, fetch("t", {0: 0, 7: 0}, session=(0, 0)))
    session = whole.session_id
    for epoch in (1, 2):
        answer = await ask(client, fetch("t", {}, session=(session, epoch)))
        assert [(row.partition_index, row.error_code) for row in answer.responses[0].partitions] == [
            (7, Error.UNKNOWN_TOPIC_OR_PARTITION)
        ]
    moved = await ask(client, fetch("t", {0: 0}, session=(session, 3), current_leader_epoch=9, forgotten=[7]))
    [row] = moved.responses[0].partitions
    assert (row.partition_index, row.error_code) == (0, Error.UNKNOWN_LEADER_EPOCH)
    again = await ask(client, fetch("t", {}, session=(session, 4)))
    assert [row.error_code for row in again.responses[0].partitions] == [Error.UNKNOWN_LEADER_EPOCH]


async def test_a_partition_with_records_is_read_after_the_others(client: Connection) -> None:
    client.send("Produce", 9, produce("t", {number: batch(b"x" * 500) for number in range(3)}))
    await client.receive()
    first = fetch("t", {0: 0, 1: 0, 2: 0}, session=(0, 0))
    first.max_bytes = 1  # a batch of one partition
    answer = await ask(client, first)
    orders = [[number for number, size_bytes in found(answer).items() if size_bytes]]
    for epoch in (1, 2, 3):
        next_one = fetch("t", {}, session=(answer.session_id, epoch))
        next_one.max_bytes = 1
        orders.append(list(found(await ask(client, next_one))))
    assert orders == [[0], [1], [2], [0]]


async def test_a_session_ends_with_its_connection(node: Node, tmp_path: Path) -> None:
    async with kafka_node(tmp_path / "other") as (other, listener):
        await other.shard.create_topic("t", 1, 1, {})
        async with connected(other) as client:
            await ask(client, fetch("t", {0: 0}, session=(0, 0)))
            sessions = listener.context.fetch_sessions
            assert len(sessions) == 1
        while len(sessions):
            await asyncio.sleep(0.01)
        assert sessions.size_bytes == 0


def asked(*numbers: int) -> list[AskedPartition]:
    return [AskedPartition(number, -1, 0, -1, 1000) for number in numbers]


def whole(epoch: int = 0, session_id: int = 0, count: int = 1) -> FetchRequest:
    topics: list[tuple[Key, list[AskedPartition]]] = [("t", asked(*range(count)))] if count else []
    return FetchRequest(-1, 0, 1, 1000, False, session_id, epoch, topics, [], "")


def holder() -> SimpleNamespace:
    return SimpleNamespace(session=None)


def begin(
    sessions: FetchSessions, of: SimpleNamespace, request: FetchRequest, owner: str = "a", now: float = 0.0
) -> Begun:
    begun = sessions.begin(of, request, owner, now, has_ids=False)
    assert isinstance(begun, Begun)
    return begun


def test_sessions_are_bounded_and_idle_ones_make_room() -> None:
    size_bytes = POSITION_BYTES + 1
    sessions = FetchSessions(bytes_max=4 * size_bytes)
    first, second, third, fourth = (holder() for _ in range(4))
    for of, owner in ((first, "a"), (second, "a"), (third, "b")):
        assert begin(sessions, of, whole(), owner).session is not None
    assert begin(sessions, fourth, whole(), "a").session is None, "one owner has half of the room"
    assert begin(sessions, fourth, whole(), "b", 1.0).session is not None
    late = holder()
    assert begin(sessions, late, whole(), "c", IDLE_S - 1).session is None, "all others are in use"
    assert begin(sessions, late, whole(), "c", IDLE_S).session is not None
    assert sessions.begin(first, whole(1, first.session.id, 0), "a", IDLE_S, has_ids=False) is (
        Error.FETCH_SESSION_ID_NOT_FOUND
    )
    assert sessions.size_bytes == 4 * size_bytes
    assert not first.session.positions, "its connection may stay, but holds nothing that is not counted"


def test_a_session_that_grows_beyond_the_room_ends() -> None:
    sessions, of = FetchSessions(bytes_max=4 * (POSITION_BYTES + 1)), holder()
    session = begin(sessions, of, whole()).session
    assert session is not None
    assert sessions.begin(of, whole(1, session.id, 9), "a", 0.0, has_ids=False) is Error.FETCH_SESSION_ID_NOT_FOUND
    assert (sessions.size_bytes, of.session) == (0, None)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from([-1, 0, 1, 2, 3])), max_size=30))
def test_the_bytes_of_sessions_are_those_of_their_positions(steps: list[tuple[int, int, int]]) -> None:
    sessions, holders = FetchSessions(bytes_max=12 * (POSITION_BYTES + 1)), [holder() for _ in range(3)]
    for at, (which, count, epoch) in enumerate(steps):
        of = holders[which]
        session_id = 0 if of.session is None else of.session.id
        sessions.begin(of, whole(epoch, session_id, count), str(which), float(at * 40), has_ids=False)
        open_sessions = [one.session for one in holders if one.session is not None]
        sizes = {one.id: sum(POSITION_BYTES + len(key) for key, _ in one.positions) for one in open_sessions}
        assert all(one.size_bytes == sizes[one.id] for one in open_sessions)
        assert 0 <= sessions.size_bytes <= 12 * (POSITION_BYTES + 1)
    for of in holders:
        sessions.close(of)
    assert (sessions.size_bytes, len(sessions)) == (0, 0)
