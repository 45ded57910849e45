"""The fault proxy against a server that records its requests: each fault does what its name says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.faults.proxy import FaultProxy, Link
from tests.faults.rules import EVERY_FAULT, NO_FAULTS, Dice, Fault, Rules

LOST = aiohttp.ClientError


class Recorder:
    """Records the requests in order. Its answer is the request's body."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self.broken = 0

    async def answer(self, request: web.Request) -> web.Response:
        try:
            body = await request.text()
        except (web.RequestPayloadError, ConnectionError, asyncio.CancelledError):
            self.broken += 1
            raise
        self.arrived.append(body)
        return web.Response(text=body)


@asynccontextmanager
async def link_of(rules: Rules, seed: int = 1) -> AsyncIterator[tuple[Link, Recorder, FaultProxy]]:
    recorder = Recorder()
    application = web.Application()
    application.router.add_route("*", "/", recorder.answer)
    async with TestServer(application) as server:
        assert server.port is not None
        async with FaultProxy(server.port) as proxy:
            yield await proxy.open_link(rules, seed), recorder, proxy


def only(fault: Fault, **more: int) -> Rules:
    return Rules(weights={fault: 1.0}, **more)


async def post(link: Link, body: str) -> str:
    """Send on a new connection."""
    async with aiohttp.ClientSession() as session, session.post(link.url, data=body.encode()) as response:
        return await response.text()


async def test_without_faults_everything_passes_unchanged_over_kept_connections():
    async with link_of(NO_FAULTS) as (link, recorder, _), aiohttp.ClientSession() as session:
        for n in range(3):
            async with session.post(link.url, data=str(n).encode() * 100_000) as response:
                assert await response.text() == str(n) * 100_000

        async def pieces() -> AsyncIterator[bytes]:
            yield b"in "
            yield b"chunks"

        async with session.post(link.url, data=pieces()) as response:
            assert await response.text() == "in chunks"
        async with session.head(link.url) as response:
            assert response.status == 200
        async with session.post(link.url, data=b"x", expect100=True) as response:
            assert await response.text() == "x"
    assert len(recorder.arrived) == 6
    assert link.happened == {Fault.NONE: 6}


@pytest.mark.parametrize("fault", [Fault.DELAY, Fault.DELAY_REPLY, Fault.REORDER])
async def test_what_is_late_is_answered(fault):
    async with link_of(only(fault)) as (link, recorder, _):
        assert await post(link, "a") == "a"
    assert recorder.arrived == ["a"]


async def test_a_dropped_request_does_not_arrive():
    async with link_of(only(Fault.DROP)) as (link, recorder, _):
        for _ in range(4):  # some by FIN, some by RST
            with pytest.raises(LOST):
                await post(link, "a")
    assert recorder.arrived == []


async def test_a_request_that_is_cut_never_arrives_whole():
    async with link_of(only(Fault.CUT_REQUEST)) as (link, recorder, _):
        for n in range(8):
            with pytest.raises(LOST):
                await post(link, f"{n}" * 1000)
    assert recorder.arrived == []
    assert recorder.broken > 0, "cuts were within bodies too"


async def test_a_reply_that_is_cut_was_carried_out():
    async with link_of(only(Fault.CUT_REPLY)) as (link, recorder, _):
        for n in range(8):
            with pytest.raises(LOST):
                await post(link, str(n))
    assert recorder.arrived == [str(n) for n in range(8)]


async def test_a_lost_reply_was_carried_out():
    async with link_of(only(Fault.LOSE_REPLY)) as (link, recorder, _):
        with pytest.raises(LOST):
            await post(link, "a")
    assert recorder.arrived == ["a"]


@pytest.mark.parametrize("fault", [Fault.DUPLICATE, Fault.REPLAY])
async def test_a_duplicate_arrives_twice_and_is_answered_once(fault):
    async with link_of(only(fault)) as (link, recorder, _):
        assert await post(link, "a") == "a"
        await link.wait_settled()
    assert recorder.arrived == ["a", "a"]
    assert link.late_statuses == {200: 1}


async def test_a_late_delivery_arrives_after_the_client_was_hung_up_on():
    async with link_of(only(Fault.DELIVER_LATE)) as (link, recorder, _):
        with pytest.raises(LOST):
            await post(link, "a")
        assert recorder.arrived == []
        await link.wait_settled()
    assert recorder.arrived == ["a"]


async def test_who_is_held_back_is_overtaken():
    """The first is held until the second has passed it."""
    async with link_of(only(Fault.REORDER, overtake_ms_max=60_000)) as (link, recorder, _):
        first = asyncio.create_task(post(link, "first"))
        while link.happened.total() < 1:
            await asyncio.sleep(0)
        link._dice = Dice(NO_FAULTS, 0)
        assert await post(link, "second") == "second"
        assert await first == "first"
    assert recorder.arrived == ["second", "first"]


async def test_old_requests_are_replayed_and_wait_for_a_node_that_is_away():
    async with link_of(NO_FAULTS) as (link, recorder, proxy):
        for n in range(5):
            await post(link, str(n))
        port, proxy.upstream_port = proxy.upstream_port, 9  # a port without a listener
        with pytest.raises(LOST):
            await post(link, "while it is away")
        replay = asyncio.create_task(link.replay(6))
        await asyncio.sleep(0.1)
        proxy.upstream_port = port
        await replay
    assert sorted(recorder.arrived[5:]) == ["0", "1", "2", "3", "4", "while it is away"]


async def test_bytes_that_are_no_http1_are_cut_after_so_many():
    """The first bytes of HTTP/2 suffice to recognise it."""
    received = bytearray()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            received.extend(data)
        writer.close()

    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    async with server, FaultProxy(server.sockets[0].getsockname()[1]) as proxy:
        rules = Rules(stream_cut_share=1.0, stream_cut_bytes_max=100)
        link = await proxy.open_link(rules, 3)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(link.url.rpartition(":")[2]))
        writer.write(preface + b"x" * 1000)
        assert await reader.read() == b"", "hung up on"
        writer.close()
    assert 0 < len(received) < len(preface) + 100


def test_the_same_seed_brings_the_same_fates():
    fates = [Dice(Rules(), "seed 5").fate() for _ in range(2)]
    assert fates[0] == fates[1]
    dice, other = Dice(Rules(), 5), Dice(Rules(), 6)
    assert [dice.fate() for _ in range(50)] != [other.fate() for _ in range(50)]


def test_every_fault_is_drawn():
    dice = Dice(Rules(), 1)
    assert {dice.fate().fault for _ in range(2_000)} == set(Fault) == EVERY_FAULT.keys()
