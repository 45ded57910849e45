"""Long polls that wake for the same records in the same form share one read and one rendering."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec import structs

from engine.format import batch as record_batch
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from gateway.fetch import partition_reads
from gateway.fetch.request import JSON, NDJSON, FetchRequest
from gateway.settings import NodeSettings
from node.node import Node
from node.processes.server import running_node
from replication.replica.acks import Acks

POLLS = 5


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running_node(NodeSettings(data_dir=str(tmp_path / "data"))) as node:
        await node.shard.create_topic("t", 1, 1, {"durability": "os"})
        yield node


@pytest.fixture
def offsets(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the offset of each read of the log."""
    read, offsets = node.reads.reader.read, list[int]()

    async def counted(partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        offsets.append(offset)
        return await read(partition, offset, max_bytes)

    monkeypatch.setattr(node.reads.reader, "read", counted)
    return offsets


def wanted(media_type: str, max_records: int | None = None) -> FetchRequest:
    return FetchRequest(None, "latest", None, None, max_records, 1, 60_000, None, "records", media_type)


async def woken(node: Node, requests: list[FetchRequest]) -> list[tuple[Any, bytes | bytearray]]:
    """Returns the answers of long polls that wait at the end and wake together."""
    partition = node.shard.partition("t", 0)
    polls = [asyncio.create_task(partition_reads.fetch(node.reads, partition, one)) for one in requests]
    while node.reads.long_polls.open < len(polls):
        await asyncio.sleep(0)
    batch = record_batch.encode_values([b'{"n":1}', b'{"n":2}'], 5)
    await node.reads.partitions.replica(partition).append(batch, Acks.LEADER)
    return await asyncio.wait_for(asyncio.gather(*polls), 60)


async def test_polls_of_one_form_are_read_and_rendered_once(node: Node, offsets: list[int]) -> None:
    one_each = await woken(node, [wanted(JSON), wanted(NDJSON), wanted(JSON, max_records=1)])
    assert offsets == [0, 0, 0]
    assert [len(orjson.loads(one_each[at][1])["records"]) for at in (0, 2)] == [2, 1]
    before = node.shard.partition("t", 0).bytes_out
    offsets.clear()
    answers = await woken(node, [wanted(form) for form in (JSON, NDJSON) for _ in range(POLLS)])
    assert offsets == [2, 2]
    assert [headers["Penstock-Next-Offset"] for headers, _ in answers] == ["4"] * (2 * POLLS)
    assert len({bytes(body) for _, body in answers}) == 2
    assert node.shard.partition("t", 0).bytes_out - before == before // 3 * 2 * POLLS


async def test_a_filtered_poll_shares_with_polls_of_the_same_filter(node: Node, offsets: list[int]) -> None:
    def filtered(*filters: str) -> FetchRequest:
        return structs.replace(wanted(NDJSON), filters=filters)

    answers = await woken(node, [filtered("value/n=1")] * POLLS + [filtered("value/n=2")] + [wanted(NDJSON)])
    assert offsets == [0, 0, 0]
    assert [body.count(b"\n") for _, body in answers] == [1] * POLLS + [1, 2]


async def test_a_poll_alone_keeps_nothing(node: Node) -> None:
    await woken(node, [wanted(JSON)])
    assert node.reads.polled.size_bytes == 0
