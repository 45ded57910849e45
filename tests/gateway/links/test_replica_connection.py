"""A connection for replica fetches: bodies of every size arrive complete, and invalid data closes the connection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
from aiohttp import web

from engine.runtime.read_buffers import ReceiveBuffers
from gateway.links import replica_connection
from gateway.links.replica_connection import ReplicaConnection

SIZES = (0, 1, 1000, 65_536, 100_000, 3_000_000)


class Node(NamedTuple):
    port: int
    bodies: list[bytes]


def request_for(number: int) -> bytes:
    body = b"%d" % number
    return b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (number, len(body)) + body


async def connected(port: int) -> ReplicaConnection:
    loop, buffers = asyncio.get_running_loop(), ReceiveBuffers(1 << 20)
    _, connection = await loop.create_connection(lambda: ReplicaConnection(buffers), "127.0.0.1", port)
    return connection


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    """aiohttp's server, configured as the internal listener; it answers with a body of the requested size."""
    bodies = [os.urandom(size) for size in SIZES]

    async def answer(request: web.Request) -> web.Response:
        number = int(await request.read())
        return web.Response(body=bodies[number], status=200 if number else 401)

    app = web.Application()
    app.router.add_post("/{number}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield Node(runner.addresses[0][1], bodies)
    await runner.cleanup()


async def test_one_connection_takes_answers_of_every_size(node: Node) -> None:
    connection = await connected(node.port)
    for number in (*range(len(SIZES)), *reversed(range(len(SIZES)))):
        assert connection.is_idle
        waiting = connection.send(request_for(number))
        assert not connection.is_idle
        answer = await asyncio.wait_for(waiting, 60)
        assert answer.status == (200 if number else 401)
        assert answer.body == node.bodies[number]
    connection.close()


async def connected_to(pieces: list[bytes], *, is_closed: bool = True, has_request: bool = True) -> ReplicaConnection:
    """Connect to a server that sends exactly these pieces, and perhaps closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if has_request:
            await reader.read(1)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.002)
        if is_closed:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    connection = await connected(server.sockets[0].getsockname()[1])
    server.close()
    return connection


HEAD = b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 5\r\n\r\n"


@pytest.mark.parametrize("cut", [1, 10, len(HEAD) - 1, len(HEAD), len(HEAD) + 2])
async def test_an_answer_may_come_in_pieces(cut: int) -> None:
    answer = HEAD + b"hello"
    connection = await connected_to([answer[:cut], answer[cut:]], is_closed=False)
    assert await asyncio.wait_for(connection.send(b"ask"), 60) == (200, b"hello")
    connection.close()


@pytest.mark.parametrize(
    "sent",
    [
        [b""],
        [HEAD],
        [HEAD, b"hell"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"],
        [b"SSH-2.0-OpenSSH_9.2\r\n\r\n"],
        [HEAD + b"hello and more"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * replica_connection.HEAD_BYTES_MAX],
    ],
)
async def test_what_is_no_whole_answer_ends_the_connection_with_an_error(sent: list[bytes]) -> None:
    connection = await connected_to(sent)
    with pytest.raises(OSError, match=r"no node writes|closed the connection|reset"):
        await asyncio.wait_for(connection.send(b"ask"), 60)
    assert not connection.is_idle


async def test_what_nobody_has_asked_for_ends_the_connection() -> None:
    connection = await connected_to([HEAD + b"hello"], is_closed=False, has_request=False)
    async with asyncio.timeout(60):
        while connection.is_idle:
            await asyncio.sleep(0.002)


async def test_an_answer_that_nobody_waits_for_any_more_does_no_harm(node: Node) -> None:
    connection = await connected(node.port)
    connection.send(request_for(2)).cancel()
    async with asyncio.timeout(60):
        while not connection.is_idle:
            await asyncio.sleep(0.002)
    assert (await asyncio.wait_for(connection.send(request_for(3)), 60)).body == node.bodies[3]
    connection.close()
