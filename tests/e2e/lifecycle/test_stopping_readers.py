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


async def test_readers_get_what_there_is_and_streams_when_to_come_back(tmp_path):
    """Long polls of one partition, fetches of many partitions, and event streams, over both protocols."""
    wanted = [{"topic": "t", "partition": number, "offset": int(number == 1)} for number in range(4)]
    with running_process(tmp_path, shards=2) as node:
        await create(node.url, "t", 4)
        partitions = f"{node.url}/v1/topics/t/partitions"
        async with (
            event_source(node.port, "/v1/topics/t/records") as one,
            event_source(node.port, "/v1/topics/t/partitions/1/records", http2=True) as other,
            aiohttp.ClientSession() as session,
        ):

            async def poll(partition):
                async with session.get(f"{partitions}/{partition}/records?from=latest&wait_ms=60000") as response:
                    return response.status, (await response.json())["records"]

            async def fetch():
                async with session.post(
                    f"{node.url}/v1/fetch", json={"partitions": wanted, "wait_ms": 60_000}
                ) as found:
                    return found.status, [entry.get("records") for entry in (await found.json())["partitions"]]

            async def until_waiting(count):
                async with asyncio.timeout(PROMPT_S):
                    while await metric(node.url, "penstock_long_polls") < count:
                        await asyncio.sleep(0.02)

            await session.post(f"{partitions}/1/records", data=b"last")
            assert (await one.next()).json["value_base64"]
            assert (await other.next()).id.endswith(".1")
            one.retry_ms = other.retry_ms = None
            streams = await metric(node.url, "penstock_long_polls")
            polls = [asyncio.create_task(poll(n % 2)) for n in range(10)]
            await until_waiting(streams + 10)
            fetches = [asyncio.create_task(fetch()) for _ in range(10)]
            await until_waiting(streams + 20)
            node.begin_stop()
            async with asyncio.timeout(PROMPT_S):
                assert await asyncio.gather(*polls) == [(200, [])] * 10
                assert await asyncio.gather(*fetches) == [(200, [[], [], [], []])] * 10
                assert await one.next() is None
                assert await other.next() is None
            assert one.retry_ms == other.retry_ms == 1000
            assert one.last_id.endswith(".0-1-0-0")
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
