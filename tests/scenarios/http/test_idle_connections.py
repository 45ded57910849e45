"""Idle connections are closed. A connection with a long poll, a stream or a slow body is not idle."""

import asyncio

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived

from tests.e2e.node_process import running_process
from tests.scenarios.gateways import over_http2
from tests.scenarios.raw_http1 import request_head

IDLE_MS, SILENT_MS = 1500, 1200  # a slow client of these tests is not taken for a silent one
BUSY_S = 2.5  # of a slow client, and longer than either timeout
HUNG_UP_S = 60.0


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """Start two shards: each must track its own connections on the shared port."""
    settings = {"connections_max_idle_ms": IDLE_MS, "header_read_timeout_ms": SILENT_MS, "shards": 2}
    with running_process(tmp_path_factory.mktemp("idle"), **settings, http2_ping_ms=1000) as process:
        yield process
        assert "Traceback" not in process.errors


async def rest_of(reader):
    async with asyncio.timeout(HUNG_UP_S):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


def http2_hello():
    connection = H2Connection(H2Configuration(client_side=True))
    connection.initiate_connection()
    return connection


def send_request(connection, method, path, *headers, ends=True):
    stream = connection.get_next_available_stream_id()
    pseudo = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "127.0.0.1")]
    connection.send_headers(stream, [*pseudo, *headers], end_stream=ends)
    return stream


async def events_until_hung_up(reader, writer, connection):
    """Behave as a correct client: answer settings and pings."""
    events = []
    async with asyncio.timeout(HUNG_UP_S):
        while data := await reader.read(65536):
            events += connection.receive_data(data)
            writer.write(connection.data_to_send())
    return events


def body_of(events):
    return b"".join(event.data for event in events if isinstance(event, DataReceived))


async def test_a_client_without_a_complete_request_is_disconnected(process):
    opened = [await asyncio.open_connection("127.0.0.1", process.port) for _ in range(3)]
    for (_, writer), sent in zip(opened, (b"", b"PRI * HTTP/2", b"GET /healthz HT"), strict=True):
        writer.write(sent)
    assert await asyncio.gather(*(rest_of(reader) for reader, _ in opened)) == [b""] * 3
    for _, writer in opened:
        writer.close()


async def test_an_http2_connection_without_a_request_is_closed(process):
    reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
    connection = http2_hello()
    writer.write(connection.data_to_send())
    await events_until_hung_up(reader, writer, connection)
    writer.close()


async def test_an_http2_connection_is_closed_when_it_is_idle_though_it_answers_pings(process):
    reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
    connection = http2_hello()
    send_request(connection, "GET", "/healthz")
    writer.write(connection.data_to_send())
    events = await events_until_hung_up(reader, writer, connection)
    assert body_of(events), "its request was answered"
    writer.close()


async def test_an_http1_connection_is_closed_when_it_is_idle(process):
    reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert (await rest_of(reader)).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_places_of_silent_connections_come_back(tmp_path):
    settings = {"connections_max": 16, "header_read_timeout_ms": SILENT_MS, "connections_max_idle_ms": IDLE_MS}
    with running_process(tmp_path, **settings) as process:
        silent = [await asyncio.open_connection("127.0.0.1", process.port) for _ in range(40)]
        async with asyncio.timeout(HUNG_UP_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
            writer.write(request_head("GET", "/healthz"))
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        for _, opened in [*silent, (reader, writer)]:
            opened.close()


async def test_a_long_poll_a_stream_and_a_slow_body_are_not_idle(process, new_name):
    async with over_http2(process.port) as gateway:
        paths = [(await gateway.create(new_name(), 2)).path for _ in range(3)]
    kinds = (long_polls, event_stream, slow_body)
    await asyncio.gather(*(kind(process, path) for kind, path in zip(kinds, paths, strict=True)))


async def long_polls(process, topic_path):
    """Over both protocols, for a partition in either process."""
    http1, http2 = [], []
    for partition in (0, 1):
        path = f"{topic_path}/partitions/{partition}/records?offset=0&wait_ms={int(BUSY_S * 1000)}"
        reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
        writer.write(request_head("GET", path))
        http1.append((reader, writer))
        reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
        connection = http2_hello()
        send_request(connection, "GET", path)
        writer.write(connection.data_to_send())
        http2.append((reader, writer, connection))
    for answer in await asyncio.gather(*(rest_of(reader) for reader, _ in http1)):
        assert answer.startswith(b"HTTP/1.1 200 "), answer
    for events in await asyncio.gather(*(events_until_hung_up(*connection) for connection in http2)):
        assert b'"next_offset":0' in body_of(events)
    for _, writer, *_ in [*http1, *http2]:
        writer.close()


async def event_stream(process, topic_path):
    reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
    writer.write(request_head("GET", f"{topic_path}/records?from=earliest", "Accept: text/event-stream"))
    await asyncio.sleep(BUSY_S)
    async with over_http2(process.port) as gateway:
        assert (await gateway.send("POST", f"{topic_path}/records", b"late")).status == 200
    async with asyncio.timeout(HUNG_UP_S):
        await reader.readuntil(b"data: ")
    writer.close()


async def slow_body(process, topic_path):
    """Over both protocols."""
    reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
    writer.write(request_head("POST", f"{topic_path}/records", "Content-Length: 10"))
    reader2, writer2 = await asyncio.open_connection("127.0.0.1", process.port)
    connection = http2_hello()
    stream = send_request(connection, "POST", f"{topic_path}/records", ends=False)
    for number in range(10):
        writer.write(b"x")
        connection.send_data(stream, b"x", end_stream=number == 9)
        writer2.write(connection.data_to_send())
        await asyncio.sleep(BUSY_S / 10)
    answer, events = await asyncio.gather(rest_of(reader), events_until_hung_up(reader2, writer2, connection))
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert b'"results"' in body_of(events)
    writer.close()
    writer2.close()
