"""Connections that move between two servers: the client gets each answer, in order, and notices nothing else."""

import asyncio

import pytest
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded

from gateway.connections import connection_migration
from gateway.connections.socket_passing import SocketPassing
from tests.gateway.wire.served import Served, until

REQUESTS_MIN = 4


class Shard(Served):
    """A server that answers with its number and the header `x-n`. It notes a request as served by `server_of(path)`."""

    def __init__(self, index, directory, server_of):
        self.index = index
        self.server_of = server_of
        self.moved = 0
        self.directory = directory
        self.socket_passing = SocketPassing(index, self.path_of, REQUESTS_MIN, self.count_moved)
        super().__init__(self.answer, self.socket_passing.moves_of)
        self.socket_passing.open(self.server)

    def path_of(self, number):
        return str(self.directory / f"{number}.sock")

    def count_moved(self):
        self.moved += 1

    async def answer(self, exchange):
        self.begun.append(exchange.head.path)
        if exchange.head.path == "/wait":
            await self.gate.wait()
        size = 0
        while True:
            await exchange.wait_readable()
            if not (data := exchange.read_nowait()):
                break
            size += len(data)
        owner = self.server_of(exchange.head.path)
        if owner != self.index:
            exchange.connection.moves.note_served(owner)
        body = b"%d %s %d" % (self.index, ",".join(exchange.head.values_of("x-n")).encode(), size)
        exchange.answer(200, [("Content-Length", str(len(body)))], body)


def to_second(path):
    return 1


@pytest.fixture
async def shards(tmp_path):
    shards = [Shard(index, tmp_path, to_second) for index in range(2)]
    yield shards
    for shard in shards:
        shard.socket_passing.close()
        await shard.server.close(0.0)


class Http1Client:
    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def send(self, number, path="/g", body=b""):
        head = f"POST {path} HTTP/1.1\r\nHost: h\r\nX-N: {number}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)

    async def receive(self):
        async with asyncio.timeout(60):
            head = await self.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            return (await self.reader.readexactly(length)).decode()


class Http2Client:
    def __init__(self, reader, writer):
        self.reader, self.writer, self.h2 = reader, writer, H2Connection()
        self.h2.initiate_connection()
        self.answers, self.bodies = {}, {}

    def head(self, number, path="/g", *, ends=True):
        stream = self.h2.get_next_available_stream_id()
        fields = [(":method", "POST"), (":scheme", "http"), (":authority", "h"), (":path", path)]
        self.h2.send_headers(stream, [*fields, ("x-n", str(number)), ("user-agent", "moving")], end_stream=ends)
        return stream

    def flush(self):
        self.writer.write(self.h2.data_to_send())

    async def receive(self, count):
        """Return once so many requests have been answered since the beginning."""
        async with asyncio.timeout(60):
            while len(self.answers) < count:
                data = await self.reader.read(65536)
                assert data, "the connection ended"
                for event in self.h2.receive_data(data):
                    if isinstance(event, ResponseReceived):
                        assert dict(event.headers)[b":status"] == b"200"
                    elif isinstance(event, DataReceived):
                        self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
                    elif isinstance(event, StreamEnded):
                        self.answers[event.stream_id] = self.bodies.get(event.stream_id, b"").decode()
                self.flush()


async def connect(kind, shard):
    reader, writer = await asyncio.open_connection(*shard.place)
    return kind(reader, writer)


def places(shards):
    return [len(shard.server.connections) for shard in shards]


async def test_a_connection_of_http1_moves_to_the_process_that_serves_its_requests(shards):
    client = await connect(Http1Client, shards[0])
    answers = []
    for number in range(3 * REQUESTS_MIN):
        client.send(number, body=b"x" * number)
        answers.append(await client.receive())
        if number == REQUESTS_MIN:
            await until(lambda: places(shards) == [0, 1])
    assert [one.split(" ", 1)[1] for one in answers] == [f"{number} {number}" for number in range(3 * REQUESTS_MIN)]
    assert [answers[0][0], answers[REQUESTS_MIN - 1][0], answers[-1][0]] == ["0", "0", "1"]
    assert shards[0].server.under_way == shards[1].server.under_way == 0
    assert [one.moved for one in shards] == [0, 1], "the process that takes it counts it"


async def test_pipelined_requests_are_answered_in_order_wherever_they_are_read(shards):
    client = await connect(Http1Client, shards[0])
    for number in range(200):
        client.send(number)
        if number % 7 == 0:
            await asyncio.sleep(0.001)
    assert [(await client.receive())[2:] for _ in range(200)] == [f"{number} 0" for number in range(200)]


async def test_a_pipelined_request_waits_for_a_slow_one_with_which_the_connection_could_not_move(shards, monkeypatch):
    monkeypatch.setattr(connection_migration, "WAIT_S", 0.01)
    client = await connect(Http1Client, shards[0])
    for number in range(REQUESTS_MIN):
        client.send(number)
    client.send("slow", "/wait")
    client.send("next")
    await until(lambda: shards[0].begun[-1:] == ["/wait"])
    await until(lambda: shards[0].connection.moves._requests_min > REQUESTS_MIN)  # it has given up
    for _ in range(10):
        await asyncio.sleep(0)
    assert shards[0].begun[-1] == "/wait"
    shards[0].gate.set()
    assert [(await client.receive())[2:] for _ in range(REQUESTS_MIN + 2)][-3:] == ["3 0", "slow 0", "next 0"]


async def test_a_connection_that_moves_is_sent_once_and_leaves_what_it_holds_to_the_other_process(shards):
    """Its output lets it go on while it moves, and two requests end before it has moved."""
    taken = []
    client = await connect(Http2Client, shards[0])
    client.head("first")
    client.flush()
    await client.receive(1)
    shards[0].server.take = lambda connection, stream_id, head, body: taken.append(head)
    connection = shards[0].connection
    for _ in range(REQUESTS_MIN):
        connection.moves.note_served(1)
    connection.moves.on_request_end()
    connection.moves.on_request_end()
    client.head("held")
    connection.core.hold(client.h2.data_to_send())
    connection.resume_writing()
    await until(lambda: places(shards) == [0, 1])
    await client.receive(2)
    assert list(client.answers.values()) == ["0 first 0", "1 held 0"]
    assert (shards[1].moved, taken) == (1, [])


async def test_a_connection_of_http2_moves_with_its_header_table_and_its_streams(shards):
    client = await connect(Http2Client, shards[0])
    expected = {}
    for turn in range(40):
        for part in range(3):
            expected[client.head(turn * 3 + part)] = f"{turn * 3 + part} 0"
        client.flush()
        await client.receive(len(expected))
    assert {stream: answer[2:] for stream, answer in client.answers.items()} == expected
    assert places(shards) == [0, 1]
    assert {answer[0] for answer in client.answers.values()} == {"0", "1"}


async def test_a_frame_of_which_one_process_has_read_the_beginning_ends_in_the_other(shards):
    client = await connect(Http2Client, shards[0])
    client.head(0)
    client.flush()
    await client.receive(1)  # no other frame of the client comes between
    for number in range(1, REQUESTS_MIN):
        client.head(number)
    data = client.h2.data_to_send()
    client.head("cut")
    cut = client.h2.data_to_send()
    client.writer.write(data + cut[:12])
    await client.receive(REQUESTS_MIN)
    await until(lambda: places(shards) == [0, 1])
    client.writer.write(cut[12:])
    await client.receive(REQUESTS_MIN + 1)
    assert list(client.answers.values())[-1] == "1 cut 0"


async def test_windows_go_on_where_they_were(shards):
    """The client's window is all used at first: the process that takes over counts from there."""
    client = await connect(Http2Client, shards[0])
    for number in range(10):
        stream = client.head(number, ends=False)
        client.flush()
        for _ in range(64):
            while client.h2.local_flow_control_window(stream) < 16_384:
                client.flush()
                for event in client.h2.receive_data(await client.reader.read(65536)):
                    assert not isinstance(event, StreamEnded)
            client.h2.send_data(stream, b"x" * 16_384)
        client.h2.end_stream(stream)
        client.flush()
        await client.receive(number + 1)
    assert [answer[2:] for answer in client.answers.values()] == [f"{number} 1048576" for number in range(10)]
    assert places(shards) == [0, 1]


async def test_a_connection_that_uses_both_processes_stays(shards):
    shards[0].server_of = lambda path: int(path == "/second")
    client = await connect(Http1Client, shards[0])
    for number in range(10 * REQUESTS_MIN):
        client.send(number, "/second" if number % REQUESTS_MIN else "/first")
        assert await client.receive() == f"0 {number} 0"
    assert places(shards) == [1, 0]


@pytest.mark.parametrize("is_body_missing", [True, False])
async def test_a_connection_with_a_request_that_does_not_end_goes_on_where_it_is(shards, is_body_missing):
    client = await connect(Http2Client, shards[0])
    slow = client.head("slow", "/g" if is_body_missing else "/wait", ends=not is_body_missing)
    for number in range(2 * REQUESTS_MIN):
        client.head(number)
        client.flush()
        await client.receive(number + 1)
    shards[0].gate.set()
    if is_body_missing:
        client.h2.send_data(slow, b"late", end_stream=True)
        client.flush()
    await client.receive(2 * REQUESTS_MIN + 1)
    assert client.answers[slow] == f"0 slow {4 if is_body_missing else 0}"
    assert {answer[0] for answer in client.answers.values()} == {"0"}


async def test_a_connection_whose_client_has_resized_its_header_table_stays(shards):
    client = await connect(Http2Client, shards[0])
    client.h2.encoder.header_table_size = 512
    for number in range(3 * REQUESTS_MIN):
        client.head(number)
        client.flush()
        await client.receive(number + 1)
    assert {answer[0] for answer in client.answers.values()} == {"0"}
    assert places(shards) == [1, 0]


async def test_a_process_without_room_returns_the_connection(shards):
    shards[1].server._connections_max = 0
    client = await connect(Http1Client, shards[0])
    for number in range(3 * REQUESTS_MIN):
        client.send(number)
        assert await client.receive() == f"0 {number} 0"
    assert [*shards[0].socket_passing._full_until] == [1], "the next attempt has a pause before it"
    assert [one.moved for one in shards] == [0, 0]
    await until(lambda: places(shards) == [1, 0])


async def test_a_process_takes_connections_of_others_up_to_half_of_its_own(shards):
    """The kernel sends it new ones however many it has: they would wait though another process has room."""
    shards[1].server._connections_max = 4
    clients = [await connect(Http1Client, shards[0]) for _ in range(3)]
    for number in range(3 * REQUESTS_MIN):
        for client in clients:
            client.send(number)
            assert (await client.receive())[2:] == f"{number} 0"
    await until(lambda: places(shards) == [1, 2])


async def test_connections_stay_when_the_other_process_stops(shards):
    shards[1].socket_passing.close()
    client = await connect(Http1Client, shards[0])
    for number in range(3 * REQUESTS_MIN):
        client.send(number)
        assert await client.receive() == f"0 {number} 0"
    assert (shards[1].moved, places(shards)) == (0, [1, 0])


async def test_an_answer_that_the_client_does_not_read_keeps_the_connection(shards, monkeypatch):
    """Its end has to leave this process before the connection does."""
    monkeypatch.setattr(connection_migration, "WAIT_S", 0.01)
    large = b"x" * (16 * 1024 * 1024)

    async def answer(exchange):
        exchange.connection.moves.note_served(1)
        exchange.answer(200, [("Content-Length", str(len(large)))], large)

    shards[0].server.application = answer
    client = await connect(Http1Client, shards[0])
    for number in range(REQUESTS_MIN):
        client.send(number)
        if number == REQUESTS_MIN - 1:
            await asyncio.sleep(0.1)
            assert places(shards) == [1, 0]
        assert len(await client.receive()) == len(large)
    client.send("next")
    assert len(await client.receive()) == len(large)
