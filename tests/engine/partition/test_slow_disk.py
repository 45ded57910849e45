"""A slow disk: acks=all waits for it, and the event loop never does."""

import asyncio
import errno
import threading
from collections.abc import Callable

import pytest

from engine.errors import StorageFull
from engine.format import batch
from engine.partition.writer import QUICK_FOR_S, QUICK_GROUPS_MIN, QUICK_SYNC_S, QUICK_WRITE_S, DiskPace, Group
from engine.producers.appends import Appended
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.replica.acks import Acks
from tests.engine.conftest import running_node
from tests.waiting import LIMIT_S, until

TURNS = 20


class Writes(FaultyDisk):
    """Notes the thread of each write of a log."""

    def __init__(self) -> None:
        super().__init__(RealDisk())
        self.threads: list[str] = []

    def pwritev(self, handle, buffers, position):
        if self._path(handle).endswith(".log"):
            self.threads.append(threading.current_thread().name)
        return super().pwritev(handle, buffers, position)


async def append(node, count: int = 1, acks: Acks = Acks.LEADER, value: bytes = b"1") -> None:
    for _ in range(count):
        await node.leaders["t", 0].produce(batch.encode_values([value], 5), acks, 20_000)


@pytest.fixture
async def quick(tmp_path, clock):
    """Run a node whose disk has been quick for long enough, by a clock that does not move."""
    disk = Writes()
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", 1, 1, {})
        await append(node, QUICK_GROUPS_MIN + 1)  # nothing came before the first
        disk.threads.clear()
        yield node, disk


LOOP, THREAD = threading.main_thread().name, "penstock-writer"


async def test_a_stalled_fsync_or_write_does_not_stop_the_loop(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", 2, 1, {})
        leader = node.leaders["t", 0]
        for operation in ("fdatasync", "pwritev"):
            goes_on = threading.Event()
            disk.rules = [Rule(operation, ".log", act=held_by(goes_on))]
            stalled = asyncio.ensure_future(leader.produce(batch.encode_values([b"1"], 5), Acks.ALL, 60_000))
            await until(lambda: disk.rules[0].matched)
            for _ in range(TURNS):
                await asyncio.sleep(0.001)
            assert not stalled.done(), "the disk is waited for"
            goes_on.set()
            await stalled


def held_by(goes_on: threading.Event) -> Callable[[str], None]:
    """Stall a call of the disk until then. In the thread of the loop it would stall the loop too."""
    main = threading.get_ident()

    def act(_: str) -> None:
        assert threading.get_ident() != main
        goes_on.wait(LIMIT_S)

    return act


async def test_reads_from_memory_continue_while_the_disk_stalls(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", 1, 1, {})
        leader, partition = node.leaders["t", 0], node.shard.partition("t", 0)
        await leader.produce(batch.encode_values([b"1"], 5), Acks.ALL, 20_000)
        goes_on = threading.Event()
        disk.rules = [Rule("fdatasync", ".log", act=held_by(goes_on))]
        stalled = asyncio.ensure_future(leader.produce(batch.encode_values([b"2"], 5), Acks.ALL, 60_000))
        await until(lambda: disk.rules[0].matched)
        chunk = await node.shard.reader.read(partition, 0, 1000)
        assert [record.value for record in batch.decode(chunk.data)] == [b"1"]
        assert not stalled.done()
        goes_on.set()
        assert await stalled == Appended(1, 1)


async def test_other_replicas_copy_what_is_written_while_it_is_synced(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", 2, 1, {})
        goes_on = threading.Event()
        disk.rules = [Rule("fdatasync", ".log", act=held_by(goes_on))]
        for number, is_replicated in enumerate((True, False)):
            partition = node.shard.partition("t", number)
            partition.is_replicated = is_replicated
            await node.shard.committer.append(partition, batch.encode_values([b"1"], 5), wants_sync=True)
            assert (partition.log_end, partition.durable_end) == (1, 0 if is_replicated else 1)
            goes_on.set()
            await node.shard.committer.wait_drained()
            assert partition.durable_end == 1


def test_a_disk_is_quick_after_many_quick_groups_that_came_soon_after_each_other():
    def pace_after(*groups: Group, pause_s: float = 0.0, later_s: float = 0.0) -> bool:
        pace, now = DiskPace(), 0.0
        for group in groups:
            now += pause_s
            pace.observe(group, now)
        return pace.is_quick(now + later_s)

    quick = Group([], write_s=QUICK_WRITE_S, sync_s=QUICK_SYNC_S)
    slow_write, slow_sync = Group([], write_s=2 * QUICK_WRITE_S), Group([], sync_s=2 * QUICK_SYNC_S)
    many = [quick] * QUICK_GROUPS_MIN
    assert pace_after(*many)
    assert not pace_after(*many[1:])
    assert not pace_after(*many, slow_write)
    assert not pace_after(*many, slow_sync, *many[1:])
    assert pace_after(*many, slow_sync, *many)
    assert not pace_after(*many, pause_s=2 * QUICK_FOR_S)
    assert pace_after(*many, later_s=QUICK_FOR_S)
    assert not pace_after(*many, later_s=1.1 * QUICK_FOR_S)


async def test_the_loop_writes_small_groups_of_a_quick_disk_and_the_thread_all_others(quick):
    node, disk = quick
    await append(node, 5)
    assert disk.threads == [LOOP] * 5
    disk.threads.clear()
    await append(node, acks=Acks.ALL)
    await append(node, value=b"x" * 100_000)
    assert disk.threads == [THREAD, THREAD]


async def test_after_a_slow_write_the_thread_writes(quick, clock):
    node, disk = quick
    disk.rules = [Rule("pwritev", ".log", act=lambda _: clock.pass_ms(round(5000 * QUICK_WRITE_S)))]
    await append(node)
    disk.threads.clear()
    await append(node, 5)
    assert disk.threads == [THREAD] * 5


async def test_a_write_that_fails_in_the_loop_is_undone_by_the_thread(quick):
    node, disk = quick
    partition = node.shard.partition("t", 0)
    before = partition.log_end, partition.log.size_bytes
    disk.rules = [
        Rule("pwritev", ".log", times=1, write_bytes=10),
        Rule("pwritev", ".log", times=2, error=errno.ENOSPC),
    ]
    with pytest.raises(StorageFull):
        await append(node)
    assert (partition.log_end, partition.log.size_bytes) == before
    assert disk.threads == [LOOP, THREAD]
    await append(node)
    assert partition.log_end == before[0] + 1
    await node.shard.committer.sync_all(lambda: [partition])
    chunk = await node.shard.reader.read(partition, before[0], 1000)
    assert [record.value for record in batch.decode(chunk.data)] == [b"1"]
