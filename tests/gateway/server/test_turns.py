"""A connection with many large fetches: what is read for it, and when other connections are answered."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from engine.runtime.loop_waits import TURN_S, loop_waits
from gateway.settings import NodeSettings
from gateway.wire import frames
from gateway.wire.exchange import READ_BYTES_LEAST
from gateway.wire.frames import PREFACE, frame
from node.node import Node
from node.processes.server import running_node
from tests.gateway.server.served import served
from tests.tokens import add_token

BATCH_BYTES, BATCHES = 100_000, 40
STREAMS = 100
PATH = "/v1/topics/t/partitions/0/records"
QUERIES = (
    "from=earliest&max_bytes=33554432",
    "offset=0&max_bytes=33554432",
    "offset=0&max_bytes=33554432&max_records=999",
)
STORED = "application/vnd.penstock.recordbatch"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running_node(NodeSettings(data_dir=str(tmp_path / "data"))) as node:
        await node.shard.create_topic("t", 1, 1, {})
        async with served(node, is_short=True) as ((host, port), _), ClientSession(f"http://{host}:{port}") as client:
            for _ in range(BATCHES):
                headers = {"Content-Type": "text/plain"}
                async with client.post(f"{PATH}?acks=all", data=b"x" * BATCH_BYTES, headers=headers) as answer:
                    assert answer.status == 200
        yield node


def literal(name: str, value: str) -> bytes:
    assert max(len(name), len(value)) < 127
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def fetches(query: str, accept: str, window: int) -> bytes:
    """An HTTP/2 connection that asks for much in few bytes."""
    block = (
        b"\x82\x86"
        + literal(":authority", "127.0.0.1")
        + literal(":path", f"{PATH}?{query}")
        + literal("accept", accept)
    )
    begins = PREFACE + frame(frames.SETTINGS, 0, 0, struct.pack(">HI", frames.INITIAL_WINDOW_SIZE, window))
    flags = frames.END_HEADERS | frames.END_STREAM
    return begins + b"".join(frame(frames.HEADERS, flags, 1 + 2 * number, block) for number in range(STREAMS))


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson", STORED])
@pytest.mark.parametrize("query", QUERIES)
async def test_for_a_client_without_a_window_a_piece_is_read_and_not_what_it_asks_for(
    node: Node, query: str, accept: str
) -> None:
    """Before, each of the streams read all 4 MB of the topic into memory."""
    fetch_bytes = node.metrics.fetch_bytes
    before, answered = fetch_bytes.value, node.metrics.answers["fetch", 200].count
    async with served(node, is_short=True) as (place, _):
        _, writer = await asyncio.open_connection(*place)
        writer.write(fetches(query, accept, 0))
        async with asyncio.timeout(60):
            while node.metrics.answers["fetch", 200].count < answered + STREAMS:
                await asyncio.sleep(0.001)
        writer.transport.abort()
    assert 0 < fetch_bytes.value - before <= STREAMS * READ_BYTES_LEAST


@pytest.mark.parametrize("accept", ["application/json", STORED])
@pytest.mark.parametrize("query", QUERIES[:2])
async def test_other_connections_have_their_turns_between_the_fetches_of_one(
    node: Node, query: str, accept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock in which a look takes half a turn: before, all fetches of a portion ran in one turn."""
    clock = [0.0]

    def now_s() -> float:
        clock[0] += TURN_S / 2
        return clock[0]

    async with served(node, is_short=True) as (place, _):
        reader, writer = await asyncio.open_connection(*place)
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        monkeypatch.setattr(loop_waits().turns, "_now_s", now_s)
        _, flood = await asyncio.open_connection(*place)
        answers = node.metrics.answers["fetch", 200]
        before = answers.count
        flood.write(fetches(query, accept, 0))
        async with asyncio.timeout(60):
            while answers.count == before:
                await asyncio.sleep(0)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            while b"200 OK" not in await reader.readline():
                pass
        assert answers.count - before < STREAMS / 2
        flood.transport.abort()
        writer.close()


async def test_connections_of_one_caller_have_one_owner_and_others_their_address(tmp_path: Path) -> None:
    """Of a tenant they have its id. All that share an owner share its part of the loop."""
    path = tmp_path / "tokens.toml"
    token = add_token(path, "shop", write=["t"])
    settings = NodeSettings(data_dir=str(tmp_path / "data"), tokens_file=str(path))
    async with running_node(settings) as node, served(node, is_short=True) as (place, _):
        turns = loop_waits().turns
        for headers, owner in (("", place[0]), (f"Authorization: Bearer {token}\r\n", "token:shop")):
            clients = [await asyncio.open_connection(*place) for _ in range(2)]
            for reader, writer in clients:
                writer.write(f"GET /v1/cluster HTTP/1.1\r\nHost: {place[0]}\r\n{headers}\r\n".encode())
                await reader.readuntil(b"\r\n\r\n")
            assert turns.clients_of(owner) == 2
            for _, writer in clients:
                writer.transport.abort()
            async with asyncio.timeout(10):
                while turns.clients_of(owner):
                    await asyncio.sleep(0.001)
