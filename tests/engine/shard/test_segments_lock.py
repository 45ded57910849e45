"""A disk that is slow to remove or truncate the files of one partition delays no other partition."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from engine.format import batch as record_batch
from engine.runtime.clock import SystemClock
from engine.runtime.disk import RealDisk
from engine.runtime.tasks import BackgroundTasks
from engine.shard import housekeeping
from engine.shard.housekeeping import EXPIRING_AT_ONCE, Housekeeping
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.replica.acks import Acks
from tests.engine.conftest import running_node

LONG_S = 30.0
STUCK = 0  # the partition whose files the disk blocks


class StuckDisk(FaultyDisk):
    """Blocks in `unlink` of segments of one partition until it is released."""

    def __init__(self) -> None:
        super().__init__(RealDisk(), [Rule("unlink", f"/{STUCK}/", times=None, act=self._stay)])
        self.is_in = threading.Event()
        self.may_go_on = threading.Event()

    def _stay(self, path: str) -> None:
        if path.endswith(".log"):
            self.is_in.set()
            assert self.may_go_on.wait(2 * LONG_S)


async def fill(node, number: int) -> None:
    for _ in range(3):
        leader = node.leaders["t", number]
        await leader.produce(record_batch.encode_values([b"v"] * 10, 5), Acks.ALL, 20_000)
        await node.shard.committer.roll(node.shard.partition("t", number))


@pytest.mark.parametrize("what", ["deleting", "cutting", "restarting", "mending"])
async def test_work_on_one_partition_does_not_wait_for_the_disk_to_remove_files_of_another(tmp_path, clock, what):
    disk = StuckDisk()
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", 2, 1, {})
        for number in (STUCK, 1):
            await fill(node, number)
        shard, stuck, other = node.shard, node.shard.partition("t", STUCK), node.shard.partition("t", 1)
        deleting = asyncio.ensure_future(shard.delete_before(stuck, 20))
        try:
            assert await asyncio.to_thread(disk.is_in.wait, LONG_S)
            async with asyncio.timeout(LONG_S):
                if what == "deleting":
                    assert await shard.delete_before(other, 20) == 20
                    assert other.log.segments[0].base_offset == 20
                elif what == "cutting":
                    await shard.truncate(other, 20)
                    assert other.log_end == 20
                elif what == "restarting":
                    await shard.reset_log(other, 50, 50)
                    assert (other.log.log_start, other.log_end) == (50, 50)
                else:
                    good = tmp_path / "good"
                    good.write_bytes(b"")
                    assert not await shard.quarantine.repair(other, 5, str(good))  # there is no such segment
            assert not deleting.done()
        finally:
            disk.may_go_on.set()
        assert await deleting == 20


async def test_the_same_partition_waits(tmp_path, clock):
    disk = StuckDisk()
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", 1, 1, {})
        await fill(node, STUCK)
        shard, stuck = node.shard, node.shard.partition("t", STUCK)
        deleting = asyncio.ensure_future(shard.delete_before(stuck, 20))
        assert await asyncio.to_thread(disk.is_in.wait, LONG_S)
        cutting = asyncio.ensure_future(shard.truncate(stuck, 25))
        for _ in range(100):
            await asyncio.sleep(0)
        assert stuck.segments_lock.locked()
        assert not cutting.done()
        disk.may_go_on.set()
        await asyncio.gather(deleting, cutting)
        assert (stuck.log.log_start, stuck.log_end) == (20, 20)  # the batch that holds 25 begins at 20


async def test_housekeeping_continues_while_files_of_one_partition_are_not_removed(monkeypatch):
    """Some at once, each partition once, with checkpoints meanwhile."""
    monkeypatch.setattr(housekeeping, "TICK_S", 0.001)

    class Keeper:
        saved = 0

        async def fill_spares(self) -> None:
            """No-op."""

        async def save_checkpoints(self) -> None:
            self.saved += 1

    class One:
        offline = settings = loaded_index = None
        name = "t"
        at_once = most_at_once = 0

        def __init__(self, is_stuck: bool) -> None:
            self.begun = 0
            self.is_stuck = is_stuck
            self.log = self.active = self.validator = self

        def is_due_to_roll(self, *_) -> bool:
            return False

        def expire(self, *_) -> None:
            """No-op: nothing is expired."""

        async def removed(self) -> None:
            self.begun += 1
            One.at_once += 1
            One.most_at_once = max(One.most_at_once, One.at_once)
            await (asyncio.Event().wait() if self.is_stuck else asyncio.sleep(0))
            One.at_once -= 1

    ones = [One(is_stuck) for is_stuck in (True, False, True, False)]
    ones += [One(False) for _ in range(20)] + [One(True)]
    log_manager, tasks = Keeper(), BackgroundTasks()
    keeping = Housekeeping(lambda: ones, SimpleNamespace(), log_manager, SystemClock(), One.removed, tasks)  # type: ignore[arg-type]
    ticking = asyncio.ensure_future(keeping.run())
    async with asyncio.timeout(LONG_S):
        while log_manager.saved < 20:
            await asyncio.sleep(0)
    ticking.cancel()
    await asyncio.wait([ticking])
    assert [one.begun for one in ones if one.is_stuck] == [1, 1, 1]
    assert min(one.begun for one in ones if not one.is_stuck) > 1
    assert One.most_at_once == EXPIRING_AT_ONCE
    tasks.cancel()
    await tasks.wait_ended()
