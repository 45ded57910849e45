"""A topic of very many partitions: created, grown, stopped and started again. Counts calls to the disk and processor
time.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager

import pytest

from engine.directory.log_directory_manager import SAVE_S
from engine.directory.safe_delete import STEPS_AT_ONCE, run_all_steps, run_some_steps, topic_dir_removal
from engine.format import batch
from engine.partition.writer import PARALLEL_SYNCS_MIN
from engine.runtime.slices import SLICE
from engine.shard.opening import BATCH, PARALLEL_OPENINGS
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock, Node, running_node
from tests.scale.count import SCALE
from tests.scale.counting_disk import CountingDisk

T = 1_700_000_000_000
FEW = 100  # syncs of one change of the catalog

Start = Callable[[], AbstractAsyncContextManager[Node]]


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def start(tmp_path, clock, disk) -> Start:
    return lambda: running_node(tmp_path / "data", clock, disk)


async def fill(node: Node, name: str, *, producer: bool = False) -> None:
    """Write and fsync one record in each partition; with `sequences` from a producer that a start must restore."""
    waits = []
    for number in node.shard.topic(name).partitions:
        data = batch.encode_values([b"v"], T)
        if producer:
            batch.stamp_sequence(data, 7, 0, 0)
        waits.append(node.leaders[name, number].produce(data, Acks.ALL, 600_000))
    await asyncio.gather(*waits)


async def test_creating_and_growing_a_topic_syncs_directories_and_not_partitions(start, disk):
    async with start() as node:
        disk.reset()
        await node.shard.create_topic("t", SCALE // 2, 1, {})
        assert disk.topic_syncs < FEW
        disk.reset()
        await node.shard.alter_topic("t", {}, SCALE - 1)
        assert disk.topic_syncs < FEW
        disk.reset()
        await node.shard.alter_topic("t", {}, SCALE)
        assert sum(disk.calls.values()) < FEW + 50, "growing by one partition is one partition's work"
        assert len(node.shard.topic("t").partitions) == SCALE


async def test_new_partitions_are_opened_in_batches_with_few_calls_each(start, disk, monkeypatch):
    submitted: list[object] = []
    submit = ThreadPoolExecutor.submit

    def counted(executor: ThreadPoolExecutor, work: Callable[..., object], *arguments: object) -> object:
        submitted.append(work)
        return submit(executor, work, *arguments)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counted)
    async with start() as node:
        for change in (
            lambda: node.shard.create_topic("t", SCALE, 1, {}),
            lambda: node.shard.alter_topic("t", {}, 2 * SCALE),
        ):
            disk.reset()
            submitted.clear()
            await change()
            assert disk.calls["listdir"] <= SCALE + FEW // 10
            assert sum(disk.calls.values()) <= 6 * SCALE + FEW, "mkdir; listdir, mkdir, open, close, open"
            assert len(submitted) <= SCALE // BATCH + PARALLEL_OPENINGS + FEW // 10
        assert [one.number for one in node.shard.partitions()] == list(range(2 * SCALE))


async def test_the_first_records_of_a_partition_make_its_directory_durable(start, disk):
    async with start() as node:
        await node.shard.create_topic("t", SCALE, 1, {})
        disk.reset()
        await fill(node, "t")
        directories = [one.log.directory for one in node.shard.partitions()]
        assert [disk.synced[one] for one in directories] == [1] * SCALE
        disk.reset()
        await fill(node, "t")
        assert not any(disk.synced[one] for one in directories)


async def test_first_records_of_many_partitions_leave_others_their_turn(start, disk):
    """Counts groups in the event loop: how many syncs ahead the writer is depends on the machine."""
    async with start() as node:
        await node.shard.create_topic("many", SCALE, 1, {})
        await node.shard.create_topic("other", 1, 1, {})
        disk.reset()
        filling = asyncio.gather(fill(node, "many"))
        while not disk.topic_syncs:
            await asyncio.sleep(0.001)
        committer, groups = node.shard.committer, []
        before = committer.groups
        appended = committer.append(
            node.shard.partition("other", 0), bytearray(batch.encode_values([b"v"], T)), wants_sync=True
        )
        appended.add_done_callback(lambda _: groups.append(committer.groups))
        await appended
        assert not filling.done(), "the others are all through: nothing was waited for"
        assert groups[0] - before <= 2, "its own group, and one that began as that one ended"
        await filling


def meeting_another() -> Callable[[], None]:
    """Return a function for threads: the first caller waits until there is a second one."""
    threads: set[int] = set()
    are_several = threading.Event()

    def wait() -> None:
        threads.add(threading.get_ident())
        if len(threads) > 1:
            are_several.set()
        assert are_several.wait(60)

    return wait


async def test_syncs_of_many_partitions_are_under_way_at_once(start, disk):
    async with start() as node:
        await node.shard.create_topic("t", PARALLEL_SYNCS_MIN, 1, {})
        disk.on_sync = meeting_another()
        await fill(node, "t")


async def test_a_stop_saves_several_partitions_at_once(start, disk):
    async with start() as node:
        await node.shard.create_topic("t", PARALLEL_SYNCS_MIN, 1, {})
        await fill(node, "t", producer=True)
        disk.on_sync = meeting_another()


async def test_a_stop_with_data_in_every_partition_syncs_no_partition(start, disk):
    async with start() as node:
        await node.shard.create_topic("t", SCALE, 1, {})
        await fill(node, "t")
        disk.reset()
    assert disk.syncs < FEW
    disk.reset()
    async with start() as node:
        assert disk.syncs < FEW, "nor does the start behind it"
        assert all(one.log_end == 1 for one in node.shard.partitions())
        await node.shard.delete_topic("t")


async def test_a_stop_does_not_save_for_longer_than_it_may(start, disk, clock):
    """Saved state only makes the next start faster: the log has everything."""
    async with start() as node:
        await node.shard.create_topic("t", SCALE, 1, {})
        await fill(node, "t", producer=True)
        disk.reset()
        disk.on_sync = lambda: clock.pass_ms(100)
    assert disk.syncs < FEW + 10 * SAVE_S
    disk.on_sync = None
    clock.restart()
    async with start() as node:
        again = batch.encode_values([b"v"], T)
        batch.stamp_sequence(again, 7, 0, 0)
        for number in (0, SCALE - 1):
            assert (await node.leaders["t", number].produce(again, Acks.ALL, 600_000)).is_duplicate


async def test_checkpoints_write_one_file(start, disk):
    async with start() as node:
        await node.shard.create_topic("t", SCALE, 1, {})
        await fill(node, "t")
        disk.reset()
        await node.shard.log_manager.save_checkpoints()
        assert disk.syncs <= 2  # the file and its directory
        await node.shard.log_manager.save_checkpoints()
        assert disk.syncs <= 2, "nothing has changed"


async def test_a_deletion_is_done_once_it_is_durable_and_its_files_go_later(start, disk, tmp_path):
    """Other work does not wait for thousands of removals; a stop interrupts them between two, and a start continues."""
    may_go_on = threading.Event()
    home = tmp_path / "data" / "topics" / "t"
    async with start() as node:
        await node.shard.create_topic("t", SCALE, 1, {})
        disk.reset()
        disk.on_remove = lambda: disk.calls["rmdir"] <= STEPS_AT_ONCE or may_go_on.wait(60)
        await node.shard.delete_topic("t")
        assert [one.name.endswith(".deleted") for one in home.iterdir()] == [True]
        _, is_new = await node.shard.create_topic("t", 1, 1, {})
        assert is_new
        stopping = asyncio.create_task(node.shard.catalog.stop())
        await asyncio.sleep(0)
        may_go_on.set()
        await stopping
        assert disk.calls["rmdir"] == 2 * STEPS_AT_ONCE
    async with start() as node:
        assert len(node.shard.topic("t").partitions) == 1
        while len(list(home.iterdir())) > 1:
            await asyncio.sleep(0.01)
    assert disk.calls["rmdir"] == SCALE + 1


def test_a_partition_of_many_segments_is_removed_a_few_files_at_a_time(tmp_path, disk):
    (tmp_path / "0").mkdir()
    for base_offset in range(3 * STEPS_AT_ONCE):
        (tmp_path / "0" / f"{base_offset:020d}.log").touch()
    removing = topic_dir_removal(disk, str(tmp_path), keep_name=True)
    assert not run_some_steps(removing, STEPS_AT_ONCE)
    assert len(list((tmp_path / "0").iterdir())) == 2 * STEPS_AT_ONCE
    assert run_all_steps(removing) == []
    assert list(tmp_path.iterdir()) == []


async def test_partitions_are_taken_in_and_let_go_in_slices(start):
    in_turn: list[int] = []

    async def turns() -> None:
        while True:
            in_turn.append(0)
            await asyncio.sleep(0)

    def counted(call: Callable[..., None]) -> Callable[..., None]:
        def count(*arguments: object) -> None:
            in_turn[-1] += 1
            call(*arguments)

        return count

    async with start() as node:
        ticking = asyncio.create_task(turns())
        node.hooks.opened = counted(node.hooks.opened)
        await node.shard.create_topic("t", 1, 1, {})
        await node.shard.alter_topic("t", {}, SCALE)
        assert (sum(in_turn), max(in_turn) <= 2 * SLICE) == (SCALE, True)
        node.hooks.went_offline = counted(node.hooks.went_offline)
        in_turn[:] = [0]
        await node.shard.delete_topic("t")
        assert (sum(in_turn), max(in_turn) <= 2 * SLICE) == (SCALE, True)
        ticking.cancel()
