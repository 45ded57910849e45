"""After a wave of clients of any kind the node's memory is back (docs/reference/limits.md, "Memory after use").

The clients of two waves stay connected: an idle connection holds nothing of its last body. Unread answers are in
test_memory_of_unread_answers.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.e2e.clients.deaf_clients import MIB, begin_peak, peak_mib, resident_mib
from tests.e2e.node_process import running_process
from tests.scenarios.gateways import over_http2

pytestmark = [pytest.mark.e2e, pytest.mark.long]

CLIENTS = 500
BODY = b"\n".join([b'{"a":"%s"}' % (b"x" * 1000)] * 500)
COME_BACK_S = 15.0
REST_FACTOR = 1.5
WAVE_MIB = 30  # a wave that takes less shows nothing

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def post(path: str) -> bytes:
    fields = f"Host: a\r\nContent-Type: application/x-ndjson\r\nContent-Length: {len(BODY)}\r\n"
    return f"POST {path} HTTP/1.1\r\n{fields}\r\n".encode()


# What each client sends, and whether it reads the head of an answer.
WAVES = {
    "uploads that end half-way": (post("/v1/topics/t/records") + BODY[: len(BODY) // 2], False),
    "bodies, answered": (post("/v1/topics/t/records") + BODY, True),
    "bodies for a topic that is not there": (post("/v1/topics/nosuch/records") + BODY, True),
}
STAY = {"bodies, answered", "bodies for a topic that is not there"}


@asynccontextmanager
async def clients(port: int, sent: bytes, *, reads: bool) -> AsyncIterator[list[Streams]]:
    async def one() -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await writer.drain()
        if reads:
            await reader.readuntil(b"\r\n\r\n")
        return reader, writer

    made = await asyncio.gather(*(one() for _ in range(CLIENTS)))
    try:
        yield made
    finally:
        for _, writer in made:
            writer.transport.abort()


@pytest.mark.parametrize("wave", WAVES)
async def test_memory_is_back_within_15_seconds_of_a_wave(tmp_path, wave):
    sent, reads = WAVES[wave]
    with running_process(tmp_path) as process:
        async with over_http2(process.port) as gateway:
            topic = await gateway.create("t")
            for _ in range(16):
                assert (await topic.post(BODY, "application/x-ndjson", acks="all")).status == 200
            assert (await topic.fetch(0, max_bytes=4 * MIB)).status == 200
            before = resident_mib(process.pid)
            begin_peak(process.pid)
            async with clients(process.port, sent, reads=reads):
                await asyncio.sleep(1)
                if wave in STAY:
                    rest = await came_back(process.pid, before)
            if wave not in STAY:
                rest = await came_back(process.pid, before)
            peak = peak_mib(process.pid)
    print(f"{wave}: {before:.0f} MiB before, {peak:.0f} at most, {rest:.0f} afterwards")
    assert peak - before > WAVE_MIB
    assert rest <= REST_FACTOR * before


async def came_back(pid: int, before: float) -> float:
    """Return the memory in MiB once it is within the factor, or after the time for that."""
    deadline = asyncio.get_running_loop().time() + COME_BACK_S
    while (rest := resident_mib(pid)) > REST_FACTOR * before and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.5)
    return rest
