"""Reads of a file at a place that the owner has named: checked bytes, or nothing."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.format import batch as record_batch
from engine.partition import shared_file_read
from engine.partition.partition import Partition
from engine.partition.shared_file_read import FILES_MAX, FileRange, SharedFileReads, file_range_of
from engine.runtime.disk import RealDisk, WouldBlock
from gateway.fetch.request import FetchRequest
from gateway.routing.calls import PartitionArguments
from node.node import Node
from replication.replica.acks import Acks
from tests.gateway.server.test_head_cache import SHORT, node_of

RECORDS = 8


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with node_of(tmp_path) as node:
        partition = node.shard.partition(SHORT, 0)
        for number in range(RECORDS):
            batch = record_batch.encode_values([b'"%b"' % (b"%d" % number * 30_000)], 5)
            await node.reads.partitions.replica(partition).append(batch, Acks.ALL)
        yield node


@pytest.fixture
def partition(node: Node) -> Partition:
    return node.shard.partition(SHORT, 0)


def placed(partition: Partition, offset: int = 0) -> FileRange:
    place = file_range_of(partition, offset, 1 << 20)
    assert place is not None
    return place


class CountingDisk(RealDisk):
    def __init__(self) -> None:
        self.opened: list[int] = []
        self.closed: list[int] = []

    def open(self, path: str, **options: Any) -> int:
        self.opened.append(super().open(path, **options))
        return self.opened[-1]

    def close(self, handle: int) -> None:
        self.closed.append(handle)
        super().close(handle)


async def test_the_bytes_are_those_that_the_owner_reads(node: Node, partition: Partition) -> None:
    for offset in (0, 1, RECORDS - 4):
        place = msgspec.msgpack.decode(msgspec.msgpack.encode(placed(partition, offset)), type=FileRange)
        found = await node.reads.placed.read(place, offset)
        assert found == await node.reads.reader.read(partition, offset, 1 << 20)
    node.reads.placed.close()


async def test_the_owner_reads_what_is_small_uncommitted_or_damaged(partition: Partition) -> None:
    for offset in (-1, RECORDS - 1, RECORDS, RECORDS + 1):
        assert file_range_of(partition, offset, 1 << 20) is None
    partition.log.segments[0].loaded_index = None
    assert file_range_of(partition, 0, 1 << 20) is None


async def test_another_file_of_the_name_is_not_served(node: Node, partition: Partition) -> None:
    reads, place = SharedFileReads(disk := CountingDisk(), node.executor), placed(partition)
    assert await reads.read(place, 0) is not None
    data = bytearray(Path(place.path).read_bytes())
    data[50_000] ^= 1
    for content in (bytes(data), bytes(data[:1000]), b""):
        Path(f"{place.path}.other").write_bytes(content)
        os.replace(f"{place.path}.other", place.path)
        reads.close()  # else the first file is still there
        assert await reads.read(place, 0) is None
    Path(place.path).unlink()
    assert await reads.read(place, 0) is None
    reads.close()
    assert sorted(disk.opened) == sorted(disk.closed)


async def test_what_is_not_in_memory_is_read_in_a_thread(node: Node, partition: Partition) -> None:
    class ColdDisk(CountingDisk):
        def pread_nowait(self, handle: int, length: int, position: int) -> bytes:
            raise WouldBlock

    reads = SharedFileReads(ColdDisk(), node.executor)
    found = await asyncio.gather(*(reads.read(placed(partition), offset) for offset in (0, 0, 1)))
    assert found[0] == found[1] == await node.reads.reader.read(partition, 0, 1 << 20)
    assert found[2] is not None
    reads.close()


@pytest.mark.parametrize(("is_reading", "fails"), [(False, False), (True, False), (True, True)])
async def test_a_reader_that_leaves_leaves_no_file_open(
    node: Node, partition: Partition, is_reading: bool, fails: bool
) -> None:
    entered, may_end = threading.Event(), threading.Event()

    class SlowDisk(CountingDisk):
        def open(self, path: str, **options: Any) -> int:
            if not is_reading:
                entered.set()
                may_end.wait(60)
            return super().open(path, **options)

        def pread_nowait(self, handle: int, length: int, position: int) -> bytes:
            raise WouldBlock

        def pread(self, handle: int, length: int, position: int) -> bytes:
            entered.set()
            may_end.wait(60)
            if fails:
                raise OSError(5, "planted")
            return super().pread(handle, length, position)

    reads = SharedFileReads(disk := SlowDisk(), node.executor)
    reading = asyncio.create_task(reads.read(placed(partition), 0))
    await asyncio.to_thread(entered.wait, 60)
    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading
    reads.close()
    assert not disk.closed, "the thread still uses it"
    may_end.set()
    async with asyncio.timeout(60):
        while len(disk.closed) != 1:
            await asyncio.sleep(0.01)
    assert disk.closed == disk.opened


async def test_files_are_closed_when_nobody_reads_them(
    node: Node, partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_file_read, "CLOSE_S", 0.02)
    reads, place = SharedFileReads(disk := CountingDisk(), node.executor), placed(partition)
    for number in range(FILES_MAX + 3):
        copy = Path(f"{place.path}.{number}")
        copy.write_bytes(Path(place.path).read_bytes())
        assert await reads.read(FileRange(str(copy), place.start, place.size_bytes, place.next_offset, place.check), 0)
        assert len(disk.opened) - len(disk.closed) <= FILES_MAX
    async with asyncio.timeout(30):
        while len(disk.closed) < len(disk.opened):
            await asyncio.sleep(0.01)


async def test_the_owner_names_a_place_or_gives_the_answer(
    node: Node, partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = node.router.handlers()["fetch"].function
    topic_id = node.topics.topic(SHORT).record.topic_id

    async def asked(offset: int) -> Any:
        wanted = FetchRequest(
            offset, None, None, None, None, 1, 0, None, "records", record_batch.MEDIA_TYPE, may_be_placed=True
        )
        return await call(PartitionArguments(topic_id, SHORT, 0, 0, wanted), b"")

    before = partition.bytes_out
    (headers, place), body = await asked(0)
    assert (place, body) == (placed(partition), b"")
    assert headers["Penstock-Next-Offset"] == str(RECORDS)
    assert partition.bytes_out == before + place.size_bytes
    headers, body = await asked(RECORDS - 1)
    assert headers["Penstock-Base-Offset"] == str(RECORDS - 1)
    assert len(body) > 30_000
    monkeypatch.setattr(type(partition.validator.fencing), "has_been_used", True)
    headers, body = await asked(0)
    assert isinstance(headers, dict)
    assert body
