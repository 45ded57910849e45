"""Many idle connections: half over HTTP/1.1, half over HTTP/2, each after one request.

500 of them by default; `make scale-long` has 10,000.
"""

import asyncio
import resource
import socket
import sys
import time

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection

from tests.e2e.clients.deaf_clients import open_files, resident_mib
from tests.e2e.node_process import running_process
from tests.scale.count import SCALE
from tests.scenarios.gateways import over_http2
from tests.scenarios.raw_http1 import request_head
from tests.waiting import until

pytestmark = pytest.mark.e2e

EACH_KIB_MAX = 64
ROOM_MIB = 30  # that a node grows by in other work
AT_ONCE = 100
STAY_MS = 3_600_000  # longer than the test


def allow_files(count: int) -> None:
    """Raise the limit of open files of this process and its children."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def request_of(number: int) -> bytes:
    if number % 2:
        return request_head("GET", "/healthz").replace(b"Connection: close\r\n", b"")
    connection = H2Connection(H2Configuration(client_side=True))
    connection.initiate_connection()
    fields = [(":method", "GET"), (":path", "/healthz"), (":scheme", "http"), (":authority", "127.0.0.1")]
    connection.send_headers(1, fields, end_stream=True)
    return connection.data_to_send()


async def request_once(port: int, number: int) -> socket.socket:
    loop, client = asyncio.get_running_loop(), socket.socket()
    client.setblocking(False)
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, request_of(number))
    received = b""
    while b'"status":' not in received:
        piece = await loop.sock_recv(client, 4096)
        assert piece, "hung up on"
        received += piece
    return client


async def test_idle_connections_cost_little_and_hold_up_nobody(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    allow_files(SCALE + 1000)
    settings = {"connections_max_idle_ms": STAY_MS, "header_read_timeout_ms": 600_000, "http2_ping_ms": STAY_MS}
    idle: list[socket.socket] = []
    try:
        with running_process(tmp_path, **settings) as process:
            async with over_http2(process.port) as gateway:
                topic = await gateway.create("t")
                assert (await topic.post(b"x", "text/plain")).status == 200
                files, before = open_files(process.pid), resident_mib(process.pid)
                for start in range(0, SCALE, AT_ONCE):
                    numbers = range(start, min(start + AT_ONCE, SCALE))
                    idle += await asyncio.gather(*(request_once(process.port, number) for number in numbers))
                grown = resident_mib(process.pid) - before
                assert open_files(process.pid) >= files + SCALE
                began = time.monotonic()
                for _ in range(20):
                    assert (await topic.post(b"x", "text/plain")).status == 200
                seconds = (time.monotonic() - began) / 20
                each_kib = grown * 1024 / SCALE
                summary = f"{SCALE} idle connections: {grown:.0f} MiB more, {each_kib:.1f} KiB each; "
                sys.stderr.write(f"\n{summary}a produce takes {1000 * seconds:.1f} ms meanwhile\n")
                assert grown < ROOM_MIB + SCALE * EACH_KIB_MAX / 1024
                for client in idle:
                    client.close()
                await until(lambda: open_files(process.pid) <= files + 5)
                assert (await topic.post(b"x", "text/plain")).status == 200
            assert process.stop() == 0
            assert "Traceback" not in process.errors
    finally:
        for client in idle:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_connections_beyond_the_limit_of_open_files_wait_and_leave_files_for_the_log(tmp_path):
    """A server that keeps retrying accept without a free file descriptor would use a full processor."""
    limit, limits = 128, resource.getrlimit(resource.RLIMIT_NOFILE)
    allow_files(SCALE + 1000)
    settings = {"connections_max_idle_ms": STAY_MS, "header_read_timeout_ms": 600_000}
    clients: list[socket.socket] = []
    with running_process(tmp_path, files_max=limit, **settings) as process:
        async with over_http2(process.port) as gateway:
            topic = await gateway.create("t")
            try:
                for _ in range(SCALE):  # the kernel completes as many of them as its queue holds
                    client = socket.socket()
                    clients.append(client)
                    client.setblocking(False)
                    client.connect_ex(("127.0.0.1", process.port))
                for number in range(10):
                    assert (await topic.post(b"x", "text/plain")).status == 200
                    assert (await topic.roll()).status == 200
                    assert (await topic.fetch(offset=number)).status == 200
                    assert open_files(process.pid) < limit
            finally:
                for client in clients:
                    client.close()
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            late = await asyncio.wait_for(request_once(process.port, 1), 60)
            late.close()
        assert process.stop() == 0
        assert "Too many open files" not in process.errors
