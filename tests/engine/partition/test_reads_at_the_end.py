"""A read at the end of the log reads only the last written bytes from the disk, across rolls too."""

import pytest

from engine.format import batch as record_batch
from engine.log import log as engine_log
from engine.runtime.disk import RealDisk
from replication.replica.acks import Acks
from tests.engine.conftest import running_node


class CountingDisk(RealDisk):
    """Counts the bytes that are read of a log."""

    def __init__(self) -> None:
        self.read_bytes: list[int] = []

    def pread_nowait(self, handle: int, length: int, position: int) -> bytes:
        self.read_bytes.append(length)
        return super().pread_nowait(handle, length, position)


async def append(node) -> tuple[int, int]:
    """Append a batch of one record; return its offset and size."""
    data = record_batch.encode_values([b"x" * 50], 5)
    leader = node.leaders["t", 0]
    appended = await leader.acknowledge(leader.append(data, Acks.ALL), Acks.ALL, 5000)
    return appended.end - 1, len(data)


async def test_a_reader_at_the_end_reads_no_byte_more_than_was_written(tmp_path, clock):
    disk = CountingDisk()
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", 1, 1, {})
        for number in range(60):
            offset, size_bytes = await append(node)
            chunk = await node.shard.reader.read(node.shard.partition("t", 0), offset, 1 << 20)
            assert chunk.next_offset == offset + 1 == number + 1
            assert [record.offset for record in record_batch.decode(chunk.data)] == [offset]
            assert disk.read_bytes[-1] == size_bytes
            if number % 25 == 24:
                await node.shard.roll_topic("t")


@pytest.mark.parametrize("recent_max", [1, 7, 1000])
async def test_every_offset_is_found_whatever_is_remembered(tmp_path, clock, monkeypatch, recent_max):
    monkeypatch.setattr(engine_log, "RECENT_MAX", recent_max)
    async with running_node(tmp_path / "data", clock) as node:
        await node.shard.create_topic("t", 1, 1, {})
        for number in range(30):
            await append(node)
            if number == 11:
                await node.shard.roll_topic("t")
        partition = node.shard.partition("t", 0)
        assert len(partition.log._recent) <= recent_max
        for offset in range(30):
            chunk = await node.shard.reader.read(partition, offset, 1 << 20)
            records = [record.offset for record in record_batch.decode(chunk.data)]
            assert records == list(range(offset, 12 if offset < 12 else 30))
