"""Hostile and broken clients: the node stays up and serves others, closes files and frees memory, and logs no error of
its own.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from contextlib import suppress
from functools import cache

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes

from tests.e2e.clients.deaf_clients import open_files, resident_mib
from tests.e2e.node_process import running_process
from tests.scenarios.gateways import over_http2

pytestmark = pytest.mark.e2e

CONNECTIONS = 300
AT_ONCE = 50
GROWTH_MIB_MAX = 60
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = b"POST /v1/topics/t/records HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def open_stream(connection: H2Connection, stream: int, *, ends: bool) -> None:
    fields = [(":method", "POST"), (":path", "/v1/topics/t/records"), (":scheme", "http"), (":authority", "127.0.0.1")]
    connection.send_headers(stream, fields, end_stream=ends)


def http2_bytes(resets: int = 0, *, ends: bool = True) -> bytes:
    """Return a client's first bytes: streams that are reset as soon as they are opened, and one more."""
    connection = H2Connection(H2Configuration(client_side=True))
    connection.initiate_connection()
    for number in range(resets):
        open_stream(connection, 2 * number + 1, ends=False)
        connection.reset_stream(2 * number + 1, ErrorCodes.CANCEL)
    open_stream(connection, 2 * resets + 1, ends=ends)
    return connection.data_to_send()


def frame(kind: int, flags: int, stream: int, payload: bytes, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def garbage(dice: random.Random) -> bytes:
    return dice.randbytes(dice.randrange(1, 4096))


def half_http1(dice: random.Random) -> bytes:
    complete = HEAD + b"Content-Length: 1000\r\n\r\n" + b"x" * 999
    return complete[: dice.randrange(1, len(complete))]


def broken_http1(dice: random.Random) -> bytes:
    return dice.choice(
        [
            HEAD + b"Content-Length: -1\r\n\r\n",
            HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nxxxxx",
            HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\n",
            HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nzz\r\n",
            HEAD + b"\x00: x\r\n\r\n",
            b"GET  HTTP/9.9\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),  # TLS on a plaintext port
        ]
    )


def half_http2(dice: random.Random) -> bytes:
    complete = http2_bytes(3, ends=False)
    return complete[: dice.randrange(1, len(complete))]


def broken_http2(dice: random.Random) -> bytes:
    settings = PREFACE + frame(4, 0, 0, b"")
    return dice.choice(
        [
            settings + garbage(dice),
            settings + frame(0, 0, 1, b"data of no stream"),
            settings + frame(1, 4, 1, b"\xff" * 40),  # invalid HPACK
            settings + frame(1, 0, 1, b"\x82"),  # headers without an end
            settings + frame(1, 4, 2, b"\x82"),  # a stream id that only a server may open
            settings + frame(8, 0, 0, struct.pack(">I", 2**31 - 1)),  # a window above the maximum
            settings + frame(4, 0, 0, b"\x00\x04\xff\xff\xff\xff"),
            settings + frame(0, 0, 1, b"", length=2**24 - 1),
            settings + frame(6, 0, 0, bytes(8)) * 500,  # pings
            settings + frame(4, 0, 0, b"") * 500,
        ]
    )


@cache
def rapid_resets(_: random.Random) -> bytes:
    return http2_bytes(50)


KINDS = [garbage, half_http1, broken_http1, half_http2, broken_http2, rapid_resets]
WAYS = ["reset", "close", "half-open", "stay"]


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    settings = {"header_read_timeout_ms": 1000, "connections_max_idle_ms": 1000, "body_read_timeout_ms": 1000}
    with running_process(tmp_path_factory.mktemp("strangers"), **settings) as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.errors
        assert "panicked" not in process.errors


async def visit(port: int, said: bytes, way: str) -> socket.socket | None:
    """Send bytes and leave in some way; returns the socket of a client that stays."""
    loop, client = asyncio.get_running_loop(), socket.socket()
    client.setblocking(False)
    try:
        await loop.sock_connect(client, ("127.0.0.1", port))
        await loop.sock_sendall(client, said)
        if way == "half-open":
            client.shutdown(socket.SHUT_WR)
    except OSError:
        client.close()  # disconnected already
        return None
    if way == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if way in ("reset", "close"):
        client.close()
        return None
    return client


async def serves(port: int) -> None:
    """A slow client may be taken for a silent one; then it comes back."""
    async with asyncio.timeout(60):
        while True:
            with suppress(ConnectionResetError):
                async with over_http2(port) as gateway:
                    assert (await gateway.send("GET", "/healthz")).status == 200
                    return


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_the_node_stays_up_and_has_everything_back(process, kind):
    """Random, with a fixed seed."""
    await serves(process.port)
    dice = random.Random(kind.__name__)
    files, memory = open_files(process.pid), resident_mib(process.pid)
    stay: list[socket.socket] = []
    try:
        for start in range(0, CONNECTIONS, AT_ONCE):
            visits = [visit(process.port, kind(dice), WAYS[n % len(WAYS)]) for n in range(start, start + AT_ONCE)]
            stay += [client for client in await asyncio.gather(*visits) if client is not None]
            await serves(process.port)
        async with asyncio.timeout(60):  # clients that stay are disconnected
            while open_files(process.pid) > files + 5:
                await asyncio.sleep(0.05)
    finally:
        for client in stay:
            client.close()
    assert resident_mib(process.pid) - memory < GROWTH_MIB_MAX
    await serves(process.port)
