"""SIGTERM: started requests complete, all data is durable, and the next start skips recovery. test_stopping_readers.py
has the requests that wait.
"""

from __future__ import annotations

import asyncio
import signal
import time

import aiohttp
import pytest

from tests.e2e.load import Load, create, metric, read_log
from tests.e2e.node_process import running_process

pytestmark = pytest.mark.e2e

PROMPT_S = 60.0
NEVER_MS = 600_000  # a shutdown timeout that no stop here uses up
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("shards", [pytest.param(0, marks=pytest.mark.long), 2], ids=["one process", "two shards"])
async def test_a_stop_under_load_loses_nothing_and_the_next_start_scans_nothing(tmp_path, shards):
    with running_process(tmp_path, shards=shards, shutdown_timeout_ms=NEVER_MS) as node:
        await create(node.url, "t", 4)
        load = Load(node.url, "t", partitions=4, clients=16)
        async with load.under_way() as ledger:
            await load.acknowledgements(300)
            node.begin_stop()
            begun = time.monotonic()
            assert await asyncio.to_thread(node.exit_code) == 0
            assert time.monotonic() - begun < PROMPT_S
        assert ledger.rejected.keys() <= {"draining"}, ledger.rejected
        assert ledger.breaks.total() <= 4, "nearly every client gets an answer instead of a reset"
        assert "Traceback" not in node.errors
    with running_process(tmp_path, shards=shards) as node:
        assert await metric(node.url, "penstock_recovered_bytes") == 0
        (await read_log(node.url, "t", 4)).assert_holds(ledger)
        assert node.stop() == 0


async def begun_request(node, length):
    """Send the head of a produce, and return when the node waits for its body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(b"POST /v1/topics/t/records HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n" % length)
    writer.write(b"Content-Type: application/x-ndjson\r\nExpect: 100-continue\r\n\r\n")
    assert await asyncio.wait_for(reader.readexactly(len(CONTINUE)), PROMPT_S) == CONTINUE
    return reader, writer


async def test_a_request_that_had_begun_is_finished(tmp_path):
    """Its body arrives only after the signal; it is still stored, acknowledged and durable."""
    with running_process(tmp_path, shutdown_timeout_ms=NEVER_MS) as node:
        await create(node.url, "t", 1)
        reader, writer = await begun_request(node, 6)
        writer.write(b"[1")
        node.begin_stop()
        await asyncio.sleep(0.5)
        writer.write(b",2]\n")
        answer = await asyncio.wait_for(reader.read(65536), PROMPT_S)
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        writer.close()
        assert await asyncio.to_thread(node.exit_code) == 0
    with running_process(tmp_path) as node:
        assert (await read_log(node.url, "t", 1)).partitions == [[[1, 2]]]
        assert node.stop() == 0


async def test_a_draining_node_says_so_to_those_who_come(tmp_path):
    """While requests are in progress: here a slow upload."""
    with running_process(tmp_path, shutdown_timeout_ms=NEVER_MS) as node:
        await create(node.url, "t", 1)
        reader, writer = await begun_request(node, 2)
        writer.write(b"1")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{node.url}/readyz") as response:
                assert response.status == 200
            node.begin_stop()
            async with asyncio.timeout(PROMPT_S):
                while (await session.get(f"{node.url}/readyz")).status == 200:
                    await asyncio.sleep(0.02)
            for method, path in (("GET", "/readyz"), ("POST", "/v1/topics/t/records"), ("PUT", "/v1/topics/u")):
                async with session.request(method, node.url + path) as response:
                    assert (response.status, (await response.json())["code"]) == (503, "draining")
                    assert response.headers["Retry-After"]
            async with session.get(f"{node.url}/healthz") as response:
                assert response.status == 200
        writer.write(b"2")
        assert (await reader.read(65536)).startswith(b"HTTP/1.1 200 ")
        writer.close()
        assert await asyncio.to_thread(node.exit_code) == 0


async def test_a_request_that_never_ends_does_not_hold_a_stop_for_ever(tmp_path):
    with running_process(tmp_path, shutdown_timeout_ms=500) as node:
        await create(node.url, "t", 1)
        _, writer = await begun_request(node, 9)
        writer.write(b"1")
        begun = time.monotonic()
        node.begin_stop()
        assert await asyncio.to_thread(node.exit_code) == 0
        assert time.monotonic() - begun < PROMPT_S
        writer.close()


async def test_ctrl_c_is_a_stop_too(tmp_path):
    with running_process(tmp_path) as node:
        await create(node.url, "t", 1)
        node.begin_stop(signal.SIGINT)
        assert await asyncio.to_thread(node.exit_code) == 0
        assert "Traceback" not in node.errors
    assert not (tmp_path / "data" / "running").exists(), "a stop is clean"
