"""Bodies that never arrive, or arrive slowly: 408 in bounded time, nothing is stored, other requests continue."""

import asyncio
import time

import pytest

from tests.e2e.node_process import running_process
from tests.scenarios.gateways import OverHttp2, http2_only, over_http2
from tests.scenarios.raw_http1 import exchange, request_head

TIMEOUT_MS = 400
SETTINGS = {
    "body_read_timeout_ms": TIMEOUT_MS,
    "body_bytes_per_second_min": 2**20,
    "lingering_close_ms_max": 100,  # after a 408 the node keeps reading for this long, 10 s by default
}


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """Start a real node: aiohttp's own server, which the in-process form uses, does not measure the time of a body."""
    with running_process(tmp_path_factory.mktemp("slow-bodies"), **SETTINGS) as process:
        yield process


@pytest.fixture
async def topic(process, new_name):
    async with over_http2(process.port) as gateway:
        yield await gateway.create(new_name())


async def in_thread(function, *args):
    return await asyncio.get_running_loop().run_in_executor(None, lambda: function(*args))


async def test_a_missing_body_gets_408(topic):
    """Of either framing, whether some of it has come or nothing."""

    async def missing(framing, sent):
        head = request_head("POST", f"{topic.path}/records", framing)
        started = time.monotonic()
        answer = await in_thread(exchange, topic.gateway.port, head, sent)
        assert answer.startswith(b"HTTP/1.1 408 "), answer
        assert b'"code":"body_timeout"' in answer
        assert b'"retryable":true,"no_side_effects":true' in answer
        assert time.monotonic() - started >= TIMEOUT_MS / 1000

    lengths = ("Content-Length: 10", "Content-Length: 2000000")
    cases = [(framing, sent) for framing in lengths for sent in (b"", b"12345")]
    cases += [("Transfer-Encoding: chunked", sent) for sent in (b"", b"5\r\n12345\r\n")]
    await asyncio.gather(*(missing(*case) for case in cases))
    assert (await topic.positions())["log_end"] == 0


async def test_a_stream_without_its_body_gets_408_and_its_connection_stays_open(topic):
    gateway = topic.gateway
    assert isinstance(gateway, OverHttp2)
    streams = []
    for headers in ({}, {"content-length": "10"}, {"content-length": "2000000"}):
        stream_id, stream = gateway.client.begin("POST", f"{topic.path}/records", headers, is_whole=False)
        gateway.client.send_part(stream_id, b"12345")
        streams.append(stream)
    async with asyncio.timeout(60):
        await asyncio.gather(*(stream.answered for stream in streams))
    assert all((":status", "408") in stream.headers for stream in streams)
    assert (await topic.post(b"whole", "text/plain")).status == 200
    assert await topic.values() == ["whole"]


async def test_a_trickle_does_not_extend_the_timeout(topic):
    """A byte now and then does not extend the time: the body must arrive at least at the slowest allowed rate."""
    reader, writer = await asyncio.open_connection("127.0.0.1", topic.gateway.port)
    writer.write(request_head("POST", f"{topic.path}/records", "Transfer-Encoding: chunked"))
    trickling = asyncio.create_task(trickle(writer))
    try:
        async with asyncio.timeout(60):
            answer = await reader.read()
    finally:
        trickling.cancel()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408 "), answer


async def trickle(writer):
    while True:
        writer.write(b"1\r\nx\r\n")
        await asyncio.sleep(0.02)


@http2_only
async def test_a_large_body_that_arrives_steadily_may_take_longer(start_gateway):
    """Each piece moves the deadline: the required rate is 1 KiB a second, and the body is much faster."""
    gateway = await start_gateway(body_read_timeout_ms=TIMEOUT_MS, body_bytes_per_second_min=2**10)
    topic = await gateway.create("steady")
    head = request_head("POST", f"{topic.path}/records", "Content-Length: 1500000", "Content-Type: text/plain")
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(head)
    for _ in range(15):
        writer.write(b"x" * 100_000)
        await asyncio.sleep(2 * TIMEOUT_MS / 1000 / 15)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    assert answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 413 ")), answer


@http2_only
async def test_an_incomplete_request_head_is_disconnected(start_gateway):
    gateway = await start_gateway(header_read_timeout_ms=1500)
    assert (await gateway.send("GET", "/healthz")).status == 200
    clients = []
    for head in (b"POST / HT", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"GET / HTTP/1.1\r\nA: "):
        clients.append(await asyncio.open_connection("127.0.0.1", gateway.port))
        clients[-1][1].write(head)
    for reader, writer in clients:
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
    assert (await gateway.send("GET", "/healthz")).status == 200, "a connection that has had a request stays open"
