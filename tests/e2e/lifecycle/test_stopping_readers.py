"""SIGTERM during reads of many partitions: they return the records they have and the next positions."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.e2e.load import create, metric
from tests.e2e.node_process import running_process
from tests.scenarios.event_source import event_source

pytestmark = pytest.mark.e2e

PROMPT_S = 30.0  # half of the longest wait


async def test_fetches_over_many_partitions_are_answered_200_with_what_there_is(tmp_path):
    with running_process(tmp_path, shards=2) as node:
        await create(node.url, "t", 4)
        wanted = [{"topic": "t", "partition": number, "offset": 0} for number in range(4)]
        async with aiohttp.ClientSession() as session:

            async def poll():
                body = {"partitions": wanted, "wait_ms": 60_000}
                async with session.post(f"{node.url}/v1/fetch", json=body) as response:
                    return response.status, [entry.get("records") for entry in (await response.json())["partitions"]]

            polls = [asyncio.create_task(poll()) for _ in range(10)]
            async with asyncio.timeout(PROMPT_S):
                while await metric(node.url, "penstock_long_polls") < len(polls):
                    await asyncio.sleep(0.02)
            node.begin_stop()
            async with asyncio.timeout(PROMPT_S):
                assert await asyncio.gather(*polls) == [(200, [[], [], [], []])] * 10
        assert await asyncio.to_thread(node.exit_code) == 0
        assert "Traceback" not in node.errors


async def test_event_streams_end_with_when_to_come_back(tmp_path):
    with running_process(tmp_path, shards=2) as node:
        await create(node.url, "t", 4)
        async with (
            event_source(node.port, "/v1/topics/t/records") as one,
            event_source(node.port, "/v1/topics/t/partitions/1/records", http2=True) as other,
            aiohttp.ClientSession() as session,
        ):
            await session.post(f"{node.url}/v1/topics/t/partitions/1/records", data=b"last")
            assert (await one.next()).json["value_base64"]
            assert (await other.next()).id == "1"
            one.retry_ms = other.retry_ms = None
            node.begin_stop()
            assert await one.next() is None
            assert await other.next() is None
            assert one.retry_ms == other.retry_ms == 1000
            assert one.last_id == "0-1-0-0"
        assert await asyncio.to_thread(node.exit_code) == 0
        assert "Traceback" not in node.errors


async def test_streams_whose_clients_take_nothing_are_not_waited_for(tmp_path):
    with running_process(tmp_path, shutdown_timeout_ms=600_000) as node:
        await create(node.url, "t", 1)
        async with aiohttp.ClientSession() as session:
            lines = b"\n".join(b'"%b"' % (b"x" * 1_000_000) for _ in range(7))
            for _ in range(3):
                headers = {"Content-Type": "application/x-ndjson"}
                async with session.post(f"{node.url}/v1/topics/t/records", data=lines, headers=headers) as response:
                    assert response.status == 200
        _, writer = await asyncio.open_connection("127.0.0.1", node.port, limit=1024)
        path = "/v1/topics/t/records?from=earliest"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n".encode())
        async with asyncio.timeout(PROMPT_S):
            while await metric(node.url, "penstock_event_streams") < 1:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)
        node.begin_stop()
        async with asyncio.timeout(60):
            assert await asyncio.to_thread(node.exit_code) == 0
        writer.close()
        assert "Traceback" not in node.errors
