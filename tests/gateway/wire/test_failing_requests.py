"""An exception anywhere below the transport ends one request: with 500 if no answer has begun, else with its stream.

The byte of the audit, `Content-Type: text/\\xff`, raised in the callback of the transport, which closed the connection.
"""

import asyncio
import socket
from random import Random

import pytest

from gateway.wire import frames
from gateway.wire.exchange import Exchange
from gateway.wire.frames import CANCEL, DATA, END_STREAM, HEAD, HEADERS, PADDED, RST_STREAM, frame
from gateway.wire.http2 import Http2
from gateway.wire.http2_streams import CONNECTION_WINDOW, STREAM_WINDOW
from gateway.wire.messages import WireLimits
from tests.gateway.wire.http2_client import HELLO
from tests.gateway.wire.served import Served, until

STATUS_500, STATUS_200 = b"\x8e", b"\x88"  # of HPACK's static table


def post(stream_id: int, path: bytes, *fields: bytes, flags: int = frames.END_HEADERS) -> bytes:
    block = b"\x83\x86\x04" + bytes([len(path)]) + path + b"\x41\x01h" + b"".join(fields)
    return frame(HEADERS, flags, stream_id, block)


def get(stream_id: int, path: bytes) -> bytes:
    block = b"\x82\x86\x04" + bytes([len(path)]) + path + b"\x41\x01h"
    return frame(HEADERS, frames.END_HEADERS | END_STREAM, stream_id, block)


LENGTH_1 = b"\x0f\x0d\x011"  # content-length: 1


async def failing(exchange: Exchange) -> None:
    """An application that does what the path says."""
    match exchange.head.path:
        case "/raise" | "/take":  # the second in a task, if another one has not begun yet
            raise ZeroDivisionError
        case "/begin-and-raise":
            exchange.begin(200, [])
            exchange.write(b"begun")
            raise ZeroDivisionError
        case "/refuse":  # as for a token that is missing, or a body that is too large
            exchange.answer(413, [("Content-Length", "0")])
            exchange.stop_body()
        case "/answer":  # and leaves the body
            exchange.answer(200, [("Content-Length", "0")])
        case "/read":
            while exchange.read_nowait() != b"":
                await exchange.wait_readable()
            exchange.answer(200, [("Content-Length", "0")])
        case "/once":
            await exchange.wait_readable()
            exchange.read_nowait()
            await asyncio.sleep(60)
        case _:
            await asyncio.sleep(60)


def take(connection, stream_id, head, body):
    if head.path == "/take":
        raise ZeroDivisionError
    return


async def open_client(served: Served) -> socket.socket:
    client = socket.socket()
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, served.place)
    return client


@pytest.fixture
async def served():
    served = Served(failing, take=take, rejection=lambda status: ([("Content-Length", "0")], b""))
    yield served
    await served.server.close(0.0)


class Wire:
    """The frames that come on a connection of HTTP/2."""

    def __init__(self, client: socket.socket):
        self.client, self.data, self.seen = client, b"", []

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.client, data)

    async def read_until(self, kind: int, stream_id: int) -> bytes:
        """Return the payload of a frame. Frames before it are seen too."""
        while True:
            found = [payload for one, number, payload in self.seen if (one, number) == (kind, stream_id)]
            if found:
                return found[0]
            data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.client, 1 << 16), 60)
            assert data, "the connection has ended"
            self.data += data
            while len(self.data) >= frames.HEAD_BYTES:
                high, low, one, _, number = HEAD.unpack_from(self.data)
                end = frames.HEAD_BYTES + (high << 8 | low)
                if len(self.data) < end:
                    break
                self.seen.append((one, number, self.data[frames.HEAD_BYTES : end]))
                self.data = self.data[end:]
                assert one != frames.GOAWAY


async def test_over_http2_a_request_that_raises_gets_500_and_the_others_go_on(served):
    wire = Wire(await open_client(served))
    await wire.send(HELLO + get(1, b"/wait"))
    for stream_id, path in ((3, b"/take"), (5, b"/raise")):
        await wire.send(get(stream_id, path))
        assert (await wire.read_until(HEADERS, stream_id)).startswith(STATUS_500)
    await wire.send(post(7, b"/take") + frame(DATA, END_STREAM, 7, b"x"))
    assert (await wire.read_until(HEADERS, 7)).startswith(STATUS_500)
    await wire.send(get(9, b"/begin-and-raise"))
    assert await wire.read_until(RST_STREAM, 9) == frames.WORD.pack(frames.INTERNAL_ERROR)
    assert served.connection.has_requests, "the first request still waits"
    await wire.send(get(11, b"/answer"))
    assert (await wire.read_until(HEADERS, 11)).startswith(STATUS_200)
    await until(lambda: served.server.under_way == 1)


async def test_over_http1_a_request_that_raises_gets_500_and_those_behind_it_are_answered(served):
    client, answers = await open_client(served), b""
    head = b" HTTP/1.1\r\nHost: h\r\n"
    whole = [b"GET %b%b\r\n" % (path, head) for path in (b"/take", b"/raise", b"/answer", b"/take", b"/answer")]
    broken = b"POST /raise" + head + b"Content-Length: 9\r\n\r\nx"  # a body that no task reads: the connection ends
    await asyncio.get_running_loop().sock_sendall(client, b"".join(whole) + broken)
    while data := await asyncio.get_running_loop().sock_recv(client, 1 << 16):
        answers += data
    found = [line.split()[1] for line in answers.split(b"\r\n") if line.startswith(b"HTTP/1.1")]
    assert found == [b"500", b"500", b"200", b"500", b"200", b"500"]


def test_a_frame_that_cannot_be_handled_ends_its_stream_alone():
    core = Http2(WireLimits())
    core.receive(HELLO + post(1, b"/") + post(3, b"/"), 0.0)
    core._open[3].announced = "planted"
    events = core.receive(frame(DATA, 0, 3, b"x") + frame(DATA, 0, 1, b"x"), 0.0)
    assert [(type(one).__name__, one.stream_id) for one in events] == [("StreamReset", 3), ("BodyPart", 1)]
    assert frames.reset(3, frames.INTERNAL_ERROR) in b"".join(map(bytes, core.take_output(1 << 16)))
    assert not core.is_closing
    assert left(core) == CONNECTION_WINDOW - 1, "the byte of the first stream waits for its reader"


def test_a_header_block_that_cannot_be_decoded_ends_the_connection_with_goaway():
    """The table may be out of step: later blocks could be read as other headers."""
    core = Http2(WireLimits())
    core.receive(HELLO, 0.0)
    core._heads._decoder = None
    core.receive(get(1, b"/"), 0.0)
    assert core.is_closing
    assert frames.goaway(1, frames.INTERNAL_ERROR)[9:17] in b"".join(map(bytes, core.take_output(1 << 16)))


def left(core: Http2) -> int:
    """Return what the client may send on the connection, once what was read since the last update is given back."""
    return core._window._left + core._window._consumed


PIECE = b"x" * 1000
LARGE = b"\x00\x01a\x7f\x81\x07" + b"a" * 1024  # a field
ENDS = {
    "read": post(1, b"/read") + frame(DATA, 0, 1, PIECE) + frame(DATA, END_STREAM, 1, PIECE),
    "read, in one piece": post(1, b"/read") + frame(DATA, END_STREAM, 1, PIECE),
    "with padding": post(1, b"/read") + frame(DATA, PADDED | END_STREAM, 1, b"\x40" + PIECE + bytes(64)),
    "nothing but padding": post(1, b"/read") + frame(DATA, PADDED, 1, b"\x40" + bytes(64)) + frame(DATA, 1, 1, b""),
    "refused early": post(1, b"/refuse") + 3 * frame(DATA, 0, 1, PIECE) + frame(DATA, END_STREAM, 1, PIECE),
    "answered early": post(1, b"/answer") + 3 * frame(DATA, 0, 1, PIECE) + frame(DATA, END_STREAM, 1, PIECE),
    "taken and failed": post(1, b"/take") + frame(DATA, END_STREAM, 1, PIECE),
    "failed": post(1, b"/raise") + 3 * frame(DATA, 0, 1, PIECE),
    "failed in its answer": post(1, b"/begin-and-raise") + 3 * frame(DATA, 0, 1, PIECE),
    "reset by the client": post(1, b"/once") + 3 * frame(DATA, 0, 1, PIECE) + frames.reset(1, CANCEL),
    "data behind a reset": post(1, b"/once") + frames.reset(1, CANCEL) + 2 * frame(DATA, 0, 1, PIECE),
    "more than announced": post(1, b"/once", LENGTH_1) + frame(DATA, 0, 1, PIECE) + frame(DATA, 0, 1, PIECE),
    "more than announced, at its end": post(1, b"/once", LENGTH_1) + frame(DATA, END_STREAM, 1, PIECE),
    "less than announced": post(1, b"/once", LENGTH_1) + frame(DATA, END_STREAM, 1, b""),
    "data behind the end": get(1, b"/once") + 2 * frame(DATA, 0, 1, PIECE),
    "larger than the window of the stream": post(1, b"/wait") + frame(DATA, 0, 1, bytes(16_384)) * 257,
    "trailers": post(1, b"/read") + frame(DATA, 0, 1, PIECE) + frame(HEADERS, 5, 1, b"\x00\x01a\x011"),
    "broken trailers": post(1, b"/once") + frame(DATA, 0, 1, PIECE) + frame(HEADERS, 5, 1, b"\x00\x01A\x011"),
    "refused stream": b"".join(post(n, b"/wait") for n in range(1, 2051, 2)) + frame(DATA, 1, 2049, PIECE),
    "a head that is too large": post(1, b"/", flags=0) + 18 * frame(frames.CONTINUATION, 0, 1, 4 * LARGE)
    + frame(frames.CONTINUATION, frames.END_HEADERS, 1) + 3 * frame(DATA, 0, 1, PIECE),
}  # fmt: skip


@pytest.mark.parametrize("sent", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("seed", range(2))
async def test_each_byte_of_a_body_is_given_back_once_however_its_stream_ends(served, sent, seed):
    """Before the fix DATA of a faulty stream was kept: after 1,024 such frames uploads on the connection hung."""
    assert STREAM_WINDOW < 257 * 16_384
    wire, random = Wire(await open_client(served)), Random(seed)
    at = random.sample(range(1, len(sent)), min(len(sent) - 1, 3 * seed))
    for start, end in zip([0, *sorted(at)], [*sorted(at), len(sent)], strict=True):
        await wire.send((b"" if start else HELLO) + sent[start:end])
        await asyncio.sleep(0.001 if seed else 0)
    await wire.send(frame(frames.PING, 0, 0, b"received"))
    await wire.read_until(frames.PING, 0)
    connection = served.connection
    opened = [post(9001 + 2 * n, b"/answer", flags=5) for n in range(1)]
    await wire.send(frames.reset(1, CANCEL) + b"".join(opened))  # what still waits ends
    await until(lambda: len(connection._exchanges) <= (1024 if len(sent) > 20_000 else 0))
    await until(lambda: left(connection.core) == CONNECTION_WINDOW)
    await asyncio.sleep(0.01)
    assert left(connection.core) == CONNECTION_WINDOW, "no byte is given back twice"
    wire.client.close()
