"""The HTTP server on a real port, with applications of a few lines and clients that send raw bytes."""

import asyncio
import gc
import socket
import ssl
import struct
import weakref
from random import Random

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import InformationalResponseReceived, StreamEnded, StreamReset

from gateway.wire import frames, server
from gateway.wire.connection import HELD_BYTES_MAX
from gateway.wire.exchange import Exchange
from gateway.wire.frames import frame
from gateway.wire.http2 import LEAVE_PING
from tests.gateway.wire.http2_client import HELLO
from tests.gateway.wire.served import GET, Served, until


@pytest.fixture
async def served():
    served = Served()
    yield served
    await served.server.close(0.0)


WAIT = b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n"


async def test_a_connection_that_breaks_between_pipelined_requests_is_let_go(served):
    """Before the fix it stayed among the server's connections permanently, and used up a slot."""
    client = await served.client(WAIT + 6 * GET)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    served.connection.transport.pause_reading()  # the server notices the reset when it writes an answer
    client.close()
    served.gate.set()
    await until(lambda: not served.server.connections)
    assert served.server.under_way == 0


async def test_a_client_that_leaves_while_its_pipelined_requests_wait_is_noticed(served):
    client = await served.client(WAIT + 3 * GET)
    client.close()
    await until(lambda: not served.server.connections)
    assert served.cancelled == 1
    assert served.begun == ["/wait"]


async def test_no_more_of_a_pipeline_is_taken_in_than_one_piece(served):
    """18 bytes of a request take a hundred times their size once they are parsed."""
    many = 12_000
    client = await served.client(WAIT + many * b"GET / HTTP/1.1\r\n\r\n")
    assert len(served.connection._exchanges) < 1000
    served.gate.set()
    loop = asyncio.get_running_loop()
    answers, last = 0, b""
    while answers < many + 1:
        piece = await loop.sock_recv(client, 2**20)
        answers += (last + piece).count(b"ok")
        last = piece[-1:]
    client.close()


async def test_a_client_is_read_no_further_than_so_many_bytes_while_requests_wait(served):
    client = await served.client(WAIT + GET)
    loop = asyncio.get_running_loop()
    sending = asyncio.ensure_future(loop.sock_sendall(client, b"x" * 2**24))
    await until(lambda: not served.connection.transport.is_reading())
    assert served.connection.core.held_bytes <= HELD_BYTES_MAX + 256 * 1024
    sending.cancel()
    client.close()


async def test_pipelined_requests_are_answered_before_a_connection_ends(served):
    """Before the fix the first answer announced the close, and the answer of the second, running request was lost."""
    client = await served.client(WAIT + 2 * GET)
    served.server.announce_leave()
    served.gate.set()
    loop = asyncio.get_running_loop()
    answer = b""
    while data := await loop.sock_recv(client, 2**16):
        answer += data
    assert answer.count(b"ok") == 3
    assert answer.count(b"connection: close") == 1
    client.close()


async def test_the_first_request_of_a_client_that_has_just_connected_is_answered_before_its_connection_ends(
    served, monkeypatch
):
    """Before the fix it was closed a tenth of a second after the port: a client on a busy machine had no answer."""
    monkeypatch.setattr(server, "FIRST_REQUEST_S", 3600.0)
    idle = await served.client(GET)
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setblocking(False)
    await loop.sock_connect(client, served.place)
    served.server.close_ports()
    leaving = asyncio.ensure_future(served.server.leave(60.0))
    await until(lambda: len(served.server.connections) == 1)  # the idle one has ended
    await loop.sock_sendall(client, GET)
    answer = b""
    while data := await loop.sock_recv(client, 2**16):
        answer += data
    assert answer.count(b"ok") == answer.count(b"connection: close") == 1
    await leaving
    client.close()
    idle.close()


async def test_no_100_follows_an_answer_over_http2():
    """Before the fix the body of the rejected request was still requested and read after its answer."""

    async def refuse(exchange: Exchange) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await exchange.wait_readable()
        exchange.answer(408, [("Content-Length", "2")], b"no")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await exchange.wait_readable()
        exchange.stop_body()

    served = Served(refuse)
    h2 = H2Connection(H2Configuration(client_side=True))
    h2.initiate_connection()
    head = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "h"), ("expect", "100-continue")]
    h2.send_headers(1, head)
    loop = asyncio.get_running_loop()
    client = socket.create_connection(served.place)
    client.setblocking(False)
    await loop.sock_sendall(client, h2.data_to_send())
    events = []
    while not any(isinstance(event, StreamReset) for event in events):
        events += h2.receive_data(await loop.sock_recv(client, 2**16))
    assert sum(isinstance(event, InformationalResponseReceived) for event in events) == 1
    assert any(isinstance(event, StreamEnded) for event in events)
    client.close()
    await served.server.close(0.0)


async def test_a_renewed_certificate_ends_a_connection_with_an_open_request(served, monkeypatch):
    """Before the fix its further requests were rejected while a long poll was open, and after 2,000 the connection
    ended.
    """
    monkeypatch.setattr(server, "RENEWAL_GRACE_S", 0.05)
    loop = asyncio.get_running_loop()
    wait = b"\x82\x86\x04\x05/wait\x41\x01h"
    get = b"\x82\x86\x84\x41\x01h"
    ends = frames.END_HEADERS | frames.END_STREAM
    client = await served.client(HELLO + frame(frames.HEADERS, ends, 1, wait))
    served.server.renew(served.door, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), lambda _: False)
    await loop.sock_sendall(client, frame(frames.HEADERS, ends, 3, get))
    seen = b""
    goaway = frames.goaway(frames.STREAM_ID_MAX, frames.NO_ERROR)
    while goaway not in seen:
        seen += await loop.sock_recv(client, 2**16)
    assert frame(frames.DATA, frames.END_STREAM, 3, b"ok") in seen
    await loop.sock_sendall(client, frame(frames.PING, frames.ACK, 0, LEAVE_PING))
    served.gate.set()
    while data := await loop.sock_recv(client, 2**16):
        seen += data
    assert frames.goaway(3, frames.NO_ERROR) in seen
    assert frame(frames.DATA, frames.END_STREAM, 1, b"ok") in seen
    assert served.cancelled == 0
    client.close()


async def test_the_bytes_of_two_connections_are_not_mixed():
    """They arrive in the same room, also those before the protocol is known."""

    async def echo(exchange: Exchange) -> None:
        body = b""
        while (piece := exchange.read_nowait()) != b"":
            body += piece or b""
            await exchange.wait_readable()
        exchange.answer(200, [("Content-Length", str(len(body)))], body)

    served = Served(echo)
    streams = [await asyncio.open_connection(*served.place) for _ in range(2)]
    bodies = [b"1" * 300_000, b"2" * 300_000]
    for start, end in ((0, 1), (1, 30), (30, 70_000), (70_000, 400_000)):
        for (_, writer), body in zip(streams, bodies, strict=True):
            writer.write((b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n" + body)[start:end])
            await writer.drain()
        await asyncio.sleep(0.01)
    for (reader, writer), body in zip(streams, bodies, strict=True):
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(len(body)) == body
        writer.close()
    await served.server.close(0.0)


BLOCK = b"\x82\x86\x84\x41\x01h" + b"\x90" * 9000
POST_H2 = frame(frames.HEADERS, frames.END_HEADERS, 1, b"\x83\x86\x84\x41\x01h")
FLOODS = {
    "DATA": HELLO + POST_H2 + frame(frames.DATA, 0, 1, b"x") * 26_000,
    "WINDOW_UPDATE": HELLO + frames.window_update(0, 1) * 20_000,
    "header blocks": HELLO + b"".join(frame(frames.HEADERS, frames.END_HEADERS, n, BLOCK) for n in range(1, 121, 2)),
    "chunks": b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 40_000,
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_a_client_of_small_pieces_leaves_turns_of_the_loop_to_others(flood):
    """Before the fix another client waited for 25 s: the loop read and parsed as long as there was data."""

    async def read(exchange: Exchange) -> None:
        while exchange.read_nowait() != b"":
            await exchange.wait_readable()

    served = Served(read)
    loop = asyncio.get_running_loop()
    client = socket.create_connection(served.place)
    client.setblocking(False)
    await loop.sock_sendall(client, flood)
    await until(lambda: served.server.connections)
    parsed, rounds = [], 0
    connection = served.connection
    await until(lambda: connection.core is not None and connection.core.held_bytes)
    while (held := connection.core.held_bytes) > 0 and rounds < 20:
        await asyncio.sleep(0)
        rounds += 1
        parsed.append(held - connection.core.held_bytes)
    assert rounds > 5, "one portion in a turn"
    assert max(parsed) <= 2 * 64 * 1024  # a piece that arrives in the same turn is a portion too
    client.close()
    await served.server.close(0.0)


def pipeline(seed: int) -> tuple[bytes, bytes]:
    """Requests of every framing, and the answers to them in their order."""
    random = Random(seed)
    requests, answers = [], []
    for number in range(random.randrange(1, 40)):
        body = b"x" * random.choice([0, 1, 100, 20_000, 300_000])
        chunk = random.choice([1_000, 50_000])
        head = b"POST /%d HTTP/1.1\r\nHost: h\r\n" % number
        if random.random() < 0.3:
            head += b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
        if random.random() < 0.5:
            requests.append(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        else:
            chunks = [body[start : start + chunk] for start in range(0, len(body), chunk)]
            coded = b"".join(b"%x;a=b\r\n%b\r\n" % (len(one), one) for one in chunks)
            requests.append(head + b"Transfer-Encoding: chunked\r\n\r\n" + coded + b"0\r\nTrailer: 1\r\n\r\n")
        answers.append(b"/%d %d;" % (number, len(body)))
    return b"".join(requests), b"".join(answers)


@pytest.mark.parametrize("seed", range(8))
async def test_a_pipeline_in_pieces_of_any_size_is_answered_in_order(seed):
    async def count(exchange: Exchange) -> None:
        while exchange.read_nowait() != b"":
            await exchange.wait_readable()
        answer = f"{exchange.head.path} {exchange.received_bytes};".encode()
        exchange.answer(200, [("Content-Length", str(len(answer)))], answer)

    served = Served(count)
    requests, answers = pipeline(seed)
    reader, writer = await asyncio.open_connection(*served.place)

    async def send() -> None:
        random, start = Random(seed), 0
        while start < len(requests):
            end = start + random.choice([1, 1_000, 16_384, 100_000, 500_000])
            writer.write(requests[start:end])
            await writer.drain()
            start = end

    sending = asyncio.ensure_future(send())
    got = b""
    async with asyncio.timeout(60):
        while len(got) < len(answers):
            head = await reader.readuntil(b"\r\n\r\n")
            got += await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
    assert got == answers
    await sending
    writer.close()
    await served.server.close(0.0)


@pytest.mark.parametrize("body_bytes", [60_000, 300_000])
async def test_an_idle_connection_holds_nothing_of_its_last_body(body_bytes):
    """The core of HTTP/1.1 kept its last events: up to 63 kB of each idle connection."""

    async def read(exchange: Exchange) -> None:
        while exchange.read_nowait() != b"":
            await exchange.wait_readable()
        exchange.answer(200, [("Content-Length", "0")])

    served = Served(read)
    reader, writer = await asyncio.open_connection(*served.place)
    writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % body_bytes + b"x" * body_bytes)
    await reader.readuntil(b"\r\n\r\n")
    core = served.connection.core
    seen, left, found = set(), [core], 0
    while left:  # what only the core refers to
        one = left.pop()
        if id(one) not in seen and isinstance(one, (list, dict, tuple, bytes, bytearray, memoryview, type(core))):
            seen.add(id(one))
            found += len(one) if isinstance(one, (bytes, bytearray, memoryview)) else 0
            left += gc.get_referents(one)
    assert found < 4000
    writer.close()
    await served.server.close(0.0)


@pytest.mark.parametrize("hello", [GET, HELLO])
async def test_a_closed_connection_is_freed_without_a_collection(hello):
    """The core and its parser, or its own methods, referred to each other until 50,000 objects were there."""
    served = Served()
    reader, writer = await asyncio.open_connection(*served.place)
    writer.write(hello)
    await reader.read(1)
    core = weakref.ref(served.connection.core)
    connection = served.connection
    gc.disable()
    try:
        writer.transport.abort()
        await until(lambda: not served.server.connections)
        connection.core = connection.output = None  # the cycle of the core is the question
        await until(lambda: core() is None)
    finally:
        gc.enable()
    await served.server.close(0.0)
