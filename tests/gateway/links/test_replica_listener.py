"""The answers to replica fetches: outside the request order, one after the other, and only to members of the
cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace

import pytest

from engine.errors import Invalid
from gateway.links import replica_listener as replica_listening
from gateway.links.internal_link import FETCH_PATH, Credentials
from gateway.links.internal_listener import InternalListener
from gateway.links.replica_exchange import ReplicaExchanges
from replication.replica.fetcher import PeerUnreachable
from tests.waiting import pass_time, until

OURS = Credentials("cluster-1", "a secret")
HEADERS = "".join(f"{name}: {value}\r\n" for name, value in OURS.headers().items())


class Answers:
    """Returns the body in two pieces. `hold`: an event to wait for first."""

    def __init__(self) -> None:
        self.hold: asyncio.Event | None = None
        self.begun = self.given_up = 0

    async def __call__(self, body: bytes) -> list[bytes | memoryview]:
        self.begun += 1
        if body == b"nonsense":
            raise Invalid("this is not a fetch")
        if body == b"bug":
            raise ValueError
        try:
            if self.hold is not None:
                await self.hold.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return [body[:1], memoryview(body)[1:]]


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
async def listener(answers: Answers) -> AsyncIterator[InternalListener]:
    listener = InternalListener(OURS, {}, answers)
    await listener.open("127.0.0.1", 0)
    yield listener
    await listener.close()


def request(body: bytes, headers: str = HEADERS, length: str | None = None) -> bytes:
    announced = str(len(body)) if length is None else length
    return f"POST {FETCH_PATH} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {announced}\r\n\r\n".encode() + body


async def received(listener: InternalListener, *sent: bytes) -> bytes:
    """Return everything received until the other side closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    for one in sent:
        writer.write(one)
        await asyncio.sleep(0.001)
    async with asyncio.timeout(60):
        data = await reader.read()
    writer.close()
    return data


@pytest.mark.parametrize("size", [1, 70_000, 3_000_000])
async def test_a_body_is_answered_whole(listener: InternalListener, size: int) -> None:
    exchanges = ReplicaExchanges(OURS, 100)
    exchange, body = exchanges.to(f"http://127.0.0.1:{listener.port}"), bytes(range(256)) * (size // 256 + 1)
    assert bytes(await exchange(body)) == body
    assert bytes(await exchange(body[:-1])) == body[:-1], "over the same connection"
    assert len(exchanges._open) == 1
    await exchanges.close()


async def test_requests_of_one_connection_are_answered_in_their_order_however_they_arrive(
    listener: InternalListener,
) -> None:
    data = request(b"first") + request(b"second") + request(b"nonsense")
    parts = [data[at : at + 7] for at in range(0, len(data), 7)]
    answer = await received(listener, *parts)
    assert [answer.count(word) for word in (b" 200 OK", b" 400 Bad Request")] == [2, 1]
    assert answer.index(b"first") < answer.index(b"second") < answer.index(b"this is not a fetch")


@pytest.mark.parametrize(
    ("foreign", "status"),
    [(replace(OURS, secret="another"), b" 401 "), (replace(OURS, cluster_id="cluster-2"), b" 403 ")],
)
async def test_a_stranger_is_refused_before_the_body(
    listener: InternalListener, foreign: Credentials, status: bytes
) -> None:
    headers = "".join(f"{name}: {value}\r\n" for name, value in foreign.headers().items())
    answer = await received(listener, request(b"", headers, length="1000000"))
    assert status in answer
    assert OURS.secret.encode() not in answer


@pytest.mark.parametrize(
    "announced",
    [
        request(b"", length="-1"),
        request(b"", length=""),
        request(b"", length="²"),
        request(b"", length="99999999999"),
        request(b"x").replace(b"Content-Length: 1", b"Transfer-Encoding: chunked"),
        request(b"x", HEADERS + "X-Long: " + "x" * 20_000 + "\r\n"),
    ],
    ids=["negative", "empty", "no digit", "too long", "chunked", "a head without end"],
)
async def test_a_body_without_a_length_that_can_be_is_refused(listener: InternalListener, announced: bytes) -> None:
    assert b" 400 Bad Request" in await received(listener, announced)


async def test_a_bug_is_an_answer_too(listener: InternalListener) -> None:
    exchanges = ReplicaExchanges(OURS, 100)
    with pytest.raises(PeerUnreachable, match="500"):
        await exchanges.to(f"http://127.0.0.1:{listener.port}")(b"bug")
    await exchanges.close()


async def test_what_nobody_waits_for_any_more_is_given_up(listener: InternalListener, answers: Answers) -> None:
    answers.hold = asyncio.Event()
    _, gone = await asyncio.open_connection("127.0.0.1", listener.port)
    gone.write(request(b"a"))
    _, stays = await asyncio.open_connection("127.0.0.1", listener.port)
    stays.write(request(b"b"))
    await until(lambda: answers.begun == 2)
    gone.close()
    async with asyncio.timeout(60):
        while answers.given_up < 1:
            await asyncio.sleep(0.005)
        await listener.close()
    assert answers.given_up == 2, "a listener that closes waits for no fetch"
    stays.close()


async def test_anything_else_is_handed_over_with_what_came_of_it(listener: InternalListener) -> None:
    announced = f"GET /elsewhere HTTP/1.1\r\nHost: x\r\n{HEADERS}Connection: close\r\n\r\n".encode()
    assert b" 404 " in await received(listener, announced[:1], announced[1:30], announced[30:])
    assert b" 404 " in await received(listener, request(b"a fetch before"), announced)


@pytest.mark.parametrize(
    "sent", [b"", b"POST /int", request(b"x")[:60], b"GET /internal/v1/link HTTP/1.1\r\nHost: x\r\n", b"\x16\x03\x01"]
)
async def test_who_has_not_said_who_it_is_soon_is_closed(listener, monkeypatch, sent):
    monkeypatch.setattr(replica_listening, "HEAD_S", 0.05)
    with suppress(ConnectionResetError):
        assert await received(listener, sent) == b""
    assert not listener._fetches.connections


async def test_who_may_fetch_may_be_silent_afterwards(listener):
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    for _ in range(2):
        writer.write(request(b"abc"))
        assert (await reader.readuntil(b"abc")).startswith(b"HTTP/1.1 200")
        pass_time(2 * replica_listening.HEAD_S)
        await asyncio.sleep(0.01)  # what is due by then ends it in the next step
    writer.close()


async def test_who_does_not_know_the_secret_is_closed_whatever_it_asks_for(listener):
    answer = await received(listener, b"GET /internal/v1/link HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 401")
