"""Fetches between nodes over kept connections, which are closed after a timeout without data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from gateway.links.internal_link import FETCH_PATH, Credentials
from gateway.links.replica_exchange import ReplicaExchanges
from replication.replica.fetcher import PeerUnreachable

CREDENTIALS = Credentials("the cluster", "the secret")


class Leader:
    """Answers each fetch with its own body, twice; `stall` delays answers after their first byte."""

    def __init__(self) -> None:
        self.connections: set[object] = set()
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.released = asyncio.Event()
        self.released.set()
        self.url = ""

    async def fetch(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.connections.add(request.transport)
        self.headers.append(dict(request.headers))
        answer = web.StreamResponse(status=self.status, headers={"Content-Length": str(2 * len(body))})
        await answer.prepare(request)
        await answer.write(body[:1])
        await self.released.wait()
        await answer.write((body + body)[1:])
        return answer


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    found = Leader()
    app = web.Application()
    app.router.add_post(FETCH_PATH, found.fetch)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    found.url = f"http://{host}:{port}"
    yield found
    found.released.set()
    await runner.cleanup()


@pytest.fixture
async def exchanges() -> AsyncIterator[ReplicaExchanges]:
    found = ReplicaExchanges(CREDENTIALS, wait_ms=100)
    yield found
    await found.close()


async def test_fetches_one_after_the_other_share_a_connection(leader: Leader, exchanges: ReplicaExchanges) -> None:
    exchange = exchanges.to(leader.url)
    for number in range(5):
        body = b"%d" % number * 100_000
        assert await exchange(body) == body * 2
    assert len(leader.connections) == 1
    assert {**leader.headers[-1], **CREDENTIALS.headers()} == leader.headers[-1]


async def test_a_fetch_that_is_held_does_not_hold_up_the_next(leader: Leader, exchanges: ReplicaExchanges) -> None:
    exchange = exchanges.to(leader.url)
    leader.released.clear()
    held = asyncio.ensure_future(exchange(b"held"))
    while not leader.connections:
        await asyncio.sleep(0.002)
    second = asyncio.ensure_future(exchange(b"next"))
    while len(leader.connections) < 2:
        await asyncio.sleep(0.002)
    leader.released.set()
    assert [await second, await held] == [b"nextnext", b"heldheld"]


async def test_a_leader_that_falls_silent_is_out_of_reach(
    leader: Leader, exchanges: ReplicaExchanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "_silence_s", 0.1)
    leader.released.clear()
    exchange = exchanges.to(leader.url)
    with pytest.raises(PeerUnreachable, match="no byte arrived"):
        await exchange(b"a")
    leader.released.set()
    monkeypatch.setattr(exchanges, "_silence_s", 60)
    assert await exchange(b"b") == b"bb", "over another connection"
    assert len(leader.connections) == 2


async def test_an_error_and_a_missing_node_are_reported(leader: Leader, exchanges: ReplicaExchanges) -> None:
    leader.status = 403
    with pytest.raises(PeerUnreachable, match="answers 403"):
        await exchanges.to(leader.url)(b"a")
    with pytest.raises(PeerUnreachable, match="Connect"):
        await exchanges.to("http://127.0.0.1:1")(b"a")


async def test_a_fetch_that_is_called_off_leaves_no_answer_for_the_next(
    leader: Leader, exchanges: ReplicaExchanges
) -> None:
    exchange = exchanges.to(leader.url)
    leader.released.clear()
    given_up = asyncio.ensure_future(exchange(b"given up"))
    while not leader.connections:
        await asyncio.sleep(0.002)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    leader.released.set()
    assert await exchange(b"x") == b"xx"


async def test_after_a_close_nothing_is_fetched_any_more(leader: Leader, exchanges: ReplicaExchanges) -> None:
    exchange = exchanges.to(leader.url)
    await exchange(b"a")
    await exchanges.close()
    with pytest.raises(PeerUnreachable):
        await exchange(b"b")
