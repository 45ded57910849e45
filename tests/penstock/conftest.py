"""A fake node over real sockets, and clients of it with short pauses and with timeouts that a slow machine keeps."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from aiohttp.test_utils import TestServer
from pytest_aiohttp.plugin import AiohttpServer

from penstock.aio import Client
from penstock.options import ClientOptions
from tests.penstock.fake_node import FakeNode

UNREACHABLE = "http://127.0.0.1:1"  # a port that no test is given
QUICK = ClientOptions(
    linger_ms=2, backoff_ms=5, backoff_ms_max=20, fetch_wait_ms=300, delivery_timeout_ms=60_000,
    unreachable_timeout_ms=60_000, request_timeout_ms=600_000,
)  # fmt: skip


@pytest.fixture
def fake() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def fake_url(fake: FakeNode, aiohttp_server: AiohttpServer) -> AsyncIterator[str]:
    server = await aiohttp_server(fake.application())
    yield str(server.make_url("/")).rstrip("/")
    fake.released.set()


@pytest.fixture
async def client(fake_url: str) -> AsyncIterator[Client]:
    async with Client(fake_url, options=QUICK) as client:
        yield client


@pytest.fixture
def url(fake: FakeNode) -> Iterator[str]:
    """Run the fake node in a separate thread, because the tests block theirs; return its URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = TestServer(fake.application())
    asyncio.run_coroutine_threadsafe(server.start_server(), loop).result()
    yield str(server.make_url("/")).rstrip("/")
    asyncio.run_coroutine_threadsafe(server.close(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
