"""The reader of event streams reads all of them, and knows the age of the oldest event of a chunk."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import orjson
import pytest

from gateway.settings import NodeSettings
from loadtests.tail_reader import TOPIC, Reading, age_s
from node.processes.server import running_node
from tests.gateway.server.served import served
from tests.gateway.server.test_head_cache import exchange

STREAMS = 3


@pytest.mark.parametrize(
    ("text", "age"),
    [
        (b'data: {"value":"at 7.5 x"}\n\ndata: {"value":"at 9 x"}\n\n', 2.5),
        (b'7.5 x"}\n\ndata: {"value":"at 9 x"}\n\n', 1.0),
        (b'data: {"value":"at 7.', None),
        (b": a comment\n\n", None),
    ],
)
def test_the_age_is_that_of_the_first_whole_time(text: bytes, age: float | None) -> None:
    room = bytearray(text + b'"at 1 x')  # of an earlier chunk
    assert age_s(room, len(text), 10.0) == age


async def test_events_reach_the_reader_on_all_streams(tmp_path: Path) -> None:
    async with running_node(NodeSettings(data_dir=str(tmp_path / "data"))) as node, served(node, is_short=True) as made:
        await node.shard.create_topic(TOPIC, 1, 1, {})
        place, _ = made
        command = [sys.executable, "-m", "loadtests.tail_reader", *map(str, (place[1], STREAMS, STREAMS))]
        process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"ready\n"
        body = orjson.dumps(f"at {time.monotonic()} x")
        head = f"POST /v1/topics/{TOPIC}/records HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        head += f"Content-Type: application/x-ndjson\r\nContent-Length: {len(body)}\r\n\r\n"
        assert b" 200 " in await exchange(place, head.encode() + body)
        reading = Reading([], 0, 0.0)
        async with asyncio.timeout(60):
            while len(reading.ages_s) < STREAMS:
                process.stdin.write(b"\n")
                reading = msgspec.json.decode(await process.stdout.readline(), type=Reading)
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 60) == 0
    assert all(0 < age < 60 for age in reading.ages_s), reading
    assert reading.received_bytes >= STREAMS * len(body)
