"""A poll of several partitions when one of them fails while it waits, and the room that its answer holds."""

import asyncio
from pathlib import Path

import orjson
import pytest

from engine.errors import StorageFailed
from engine.format import batch as record_batch
from replication.replica.acks import Acks
from tests.gateway.server.served import served
from tests.gateway.server.test_head_cache import exchange, node_of

POLL = "/v1/groups/g/members/m/poll"


async def send(place: tuple[str, int], method: str, path: str, document: object) -> bytes:
    body = orjson.dumps(document)
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
    return await exchange(place, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_partition_that_fails_while_a_first_poll_waits_fails_alone(tmp_path: Path, is_deleted: bool) -> None:
    async with node_of(tmp_path) as node, served(node) as (place, _):
        for topic in ("aa", "bb"):
            await send(place, "PUT", f"/v1/topics/{topic}", {"partitions": 1})
        poll = asyncio.create_task(send(place, "POST", POLL, {"topics": ["aa", "bb"], "wait_ms": 6000}))
        async with asyncio.timeout(60):
            while node.reads.long_polls.open != 1:
                await asyncio.sleep(0.001)
        if is_deleted:
            await node.shard.delete_topic("aa")
        else:
            node.shard.partition("aa", 0).go_offline(StorageFailed("the disk fails"))
        answer = await poll
        assert answer.startswith(b"HTTP/1.1 200 " if is_deleted else b"HTTP/1.1 207 ")
        assert orjson.loads(answer.partition(b"\r\n\r\n")[2])["token"]


async def test_a_large_answer_with_a_form_holds_no_room_once_it_is_sent(tmp_path: Path) -> None:
    async with node_of(tmp_path, compress_bytes_min=1 << 20) as node, served(node) as (place, _):
        await send(place, "PUT", "/v1/topics/aa", {"partitions": 4})
        first = await send(place, "POST", POLL, {"topics": ["aa"]})
        token = orjson.loads(first.partition(b"\r\n\r\n")[2])["token"]
        batch = record_batch.encode_values([b"1"] * 600, 5)
        for number in range(4):
            replica = node.reads.partitions.replica(node.shard.partition("aa", number))
            await replica.append(bytearray(batch), Acks.ALL)
        answer = await send(place, "POST", POLL, {"topics": ["aa"], "token": token, "wait_ms": 2000})
        assert len(answer) > 64 * 1024
        async with asyncio.timeout(60):
            while node.server.responses.size_bytes:
                await asyncio.sleep(0.001)
