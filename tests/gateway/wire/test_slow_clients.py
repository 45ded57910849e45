"""Answers wait for clients that do not read, within bounds."""

import asyncio
import socket
import struct

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import StreamEnded, StreamReset

from gateway.wire import frames
from gateway.wire.connection import READY_BYTES_MAX
from gateway.wire.exchange import Exchange
from gateway.wire.frames import frame
from tests.gateway.wire.http2_client import GET_BLOCK, HEADERS_END, HELLO
from tests.gateway.wire.served import GET, Served, until

PIECE = b"x" * 300_000


PIECES = 40  # beyond what the kernel takes for a client that does not read


class Streaming:
    """An application that answers in pieces, each once there is room for it. `/torn` ends without an end."""

    def __init__(self):
        self.given = {}

    async def __call__(self, exchange: Exchange) -> None:
        path = exchange.head.path
        exchange.begin(200, [])
        for number in range(PIECES):
            await exchange.wait_room()
            exchange.write(PIECE)
            self.given[exchange.stream_id] = number + 1
            if path == "/torn":
                await exchange.wait_room()
                return
        exchange.finish()

    async def until_it_waits(self, stream_id):
        """Returns the number of pieces given, once it has not grown for some turns of the loop."""
        given, turns = -1, 0
        while turns < 50:
            await asyncio.sleep(0.001)
            given, turns = self.given.get(stream_id, 0), turns + 1 if self.given.get(stream_id, 0) == given > 0 else 0
        return given


async def test_pieces_wait_for_a_client_that_does_not_read():
    streaming = Streaming()
    served = Served(streaming)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
    client.connect(served.place)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(client, GET.replace(b"h\r\n\r\n", b"h\r\nConnection: close\r\n\r\n"))
    given = await streaming.until_it_waits(1)
    assert given < PIECES
    assert served.connection.unsent_bytes < 4 * len(PIECE)
    answer = b""
    while data := await loop.sock_recv(client, 2**20):
        answer += data
    assert answer.endswith(b"\r\n0\r\n\r\n")
    assert answer.count(b"x") == PIECES * len(PIECE)
    client.close()
    await served.server.close(0.0)


SMALL = b"x" * 16_000  # less than the frames of HTTP/2 and than what is counted for each connection


MANY = 4000


OPEN_WINDOWS = HELLO + frame(frames.SETTINGS, 0, 0, struct.pack(">HI", frames.INITIAL_WINDOW_SIZE, 2**31 - 1))
OPEN_WINDOWS += frames.window_update(0, 2**31 - 1 - 2**16)


def _http2_requests():
    return OPEN_WINDOWS + b"".join(frame(frames.HEADERS, HEADERS_END, 1 + 2 * n, GET_BLOCK) for n in range(MANY))


class Small:
    """An application that answers at once, as a task or without one."""

    def __init__(self):
        self.begun = 0

    async def __call__(self, exchange: Exchange) -> None:
        self.begun += 1
        exchange.answer(200, [("Content-Length", str(len(SMALL)))], SMALL)

    def take(self, connection, stream_id, head, body):
        self.begun += 1
        headers = [("Content-Length", str(len(SMALL)))]
        connection.delay(stream_id, Leaving(), len(body))
        asyncio.get_running_loop().call_soon(connection.complete, stream_id, 200, headers, SMALL)
        return True


class Leaving:
    def cancel(self):
        pass


@pytest.mark.parametrize("without_task", [False, True])
@pytest.mark.parametrize("requests", [MANY * GET, _http2_requests()], ids=["http1", "http2"])
async def test_small_answers_do_not_pile_up_for_a_client_that_does_not_read(requests, without_task):
    """Before the fix each request was answered at once: 64 MB waited for this client, as long as it read a trickle."""
    small = Small()
    served = Served(small)
    served.server.take = small.take if without_task else None
    loop = asyncio.get_running_loop()
    client = socket.create_connection(served.place)
    client.setblocking(False)
    sending = asyncio.ensure_future(loop.sock_sendall(client, requests))
    await until(lambda: served.server.connections)
    connection = served.connection
    await until(lambda: not connection.transport.is_reading() or small.begun == MANY)
    assert connection.unsent_bytes < 12 * READY_BYTES_MAX  # HTTP/2 takes the requests of a portion together
    answered = 0
    while answered < MANY * len(SMALL):
        piece = await loop.sock_recv(client, 2**20)
        assert piece
        answered += piece.count(b"x")
        assert connection.unsent_bytes < 12 * READY_BYTES_MAX
    await sending
    assert small.begun == MANY
    client.close()
    await served.server.close(0.0)


async def test_an_answer_without_its_end_is_seen_to_be_cut_off():
    served = Served(Streaming())
    reader, writer = await asyncio.open_connection(*served.place)
    writer.write(GET.replace(b"/g", b"/torn"))
    answer = await reader.read()
    assert answer.count(b"x") == len(PIECE)
    assert not answer.endswith(b"0\r\n\r\n")
    writer.close()
    await served.server.close(0.0)


async def test_a_stream_with_a_closed_window_keeps_no_other_from_its_pieces():
    """And a stream that is cut off is reset."""
    streaming = Streaming()
    served = Served(streaming)
    h2 = H2Connection(H2Configuration(client_side=True))
    h2.initiate_connection()
    h2.increment_flow_control_window(2**30)
    for stream_id, path in ((1, "/"), (3, "/"), (5, "/torn")):
        head = [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "h")]
        h2.send_headers(stream_id, head, end_stream=True)
        if stream_id > 1:
            h2.increment_flow_control_window(2**30, stream_id)
    loop = asyncio.get_running_loop()
    client = socket.create_connection(served.place)
    client.setblocking(False)
    await loop.sock_sendall(client, h2.data_to_send())
    ended = set()
    while len(ended) < 2:
        for event in h2.receive_data(await loop.sock_recv(client, 2**20)):
            if isinstance(event, StreamEnded | StreamReset):
                ended.add((type(event), event.stream_id))
        await loop.sock_sendall(client, h2.data_to_send())
    assert ended == {(StreamEnded, 3), (StreamReset, 5)}
    assert streaming.given == {1: 1, 3: PIECES, 5: 1}
    client.close()
    await served.server.close(0.0)
