"""A shard without threads, so that a run over a RecordingDisk does the same operations in the same order each time.

Shard, committer, recovery and data directory are the real ones. Only the writer thread and the executor are replaced by
ones that run in the caller, and there are no timers. tests/engine/shard/test_shard.py tests the threads.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from unittest import mock

from engine.directory.log_directories import open_data_directories
from engine.partition.partition import Partition
from engine.partition.writer import Group, carry_out
from engine.producers.appends import Appended
from engine.runtime.disk import Disk
from engine.shard.shard import Shard
from replication.replica.acks import Acks
from tests.engine.conftest import EventHooks, HandClock

DATA_DIR = "/srv/penstock"


class InlineWriter:
    """WriterThread's interface; the group is carried out before `submit` returns."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk

    def write_now(self, group: Group) -> bool:
        return False

    def submit(self, group: Group, on_done: Callable[[Group], None]) -> None:
        carry_out(self._disk, group)
        on_done(group)

    def stop(self) -> None:
        """No-op: the queue is always empty."""


class InlineExecutor(Executor):
    """Runs everything at once in the calling thread."""

    def submit(self, fn, /, *args, **kwargs):
        future: Future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class InlineNode:
    """A shard with leaders, and the periodic work of its ticker."""

    def __init__(self, shard: Shard, hooks: EventHooks, clock: HandClock) -> None:
        self.shard = shard
        self.hooks = hooks
        self.clock = clock
        self.is_killed = False
        self.leaders = hooks.leaders

    def kill(self) -> None:
        """End this life without a stop, as kill -9 does."""
        self.is_killed = True

    def append(self, partition: Partition, batch: bytearray, acks: Acks) -> asyncio.Future[Appended]:
        return self.leaders[partition.topic, partition.number].append(batch, acks)

    async def acknowledged(self, partition: Partition, appended: asyncio.Future[Appended], acks: Acks) -> Appended:
        leader = self.leaders[partition.topic, partition.number]
        return await leader.acknowledge(appended, acks, 5000)

    def checkpoint(self) -> None:
        for directory in self.shard.directories:
            directory.save_checkpoints(self.shard.log_manager._checkpoints_in(directory))

    async def expire(self, partition: Partition, tiered_end: int | None = None) -> None:
        self.hooks.tiered_end = lambda _: tiered_end
        await self.shard.deletion.expire(partition)

    async def idle(self) -> None:
        """Return when everything queued is written and every background save has ended."""
        await self.shard.committer.wait_drained()
        await self.shard._background.wait_ended()


@asynccontextmanager
async def inline_node(disk: Disk, clock: HandClock, further: Sequence[str] = ()) -> AsyncIterator[InlineNode]:
    """Run one life of a node. It ends with a clean stop, unless a kill or an error such as a power loss ended it."""
    clock.pass_ms(1)  # so that each life has other ids
    ids = (f"id{clock.ms}-{n}" for n in itertools.count())
    loop = asyncio.get_running_loop()
    with mock.patch("engine.shard.shard.WriterThread", InlineWriter), mock.patch.object(loop, "call_later", _never):
        boot_id = f"boot {getattr(disk, 'boots', 1)}"
        directories = open_data_directories(
            disk, [DATA_DIR, *further], node_id=1, cluster_id=None, boot_id=boot_id, new_id=ids.__next__
        )
        first, others = directories.first, directories.additional
        hooks = EventHooks()
        shard = Shard(disk, first, clock, InlineExecutor(), ids.__next__, additional=others, events=hooks.events())
        node = InlineNode(shard, hooks, clock)
        await shard.start()
        try:
            yield node
            if not node.is_killed:
                await shard.stop()
        finally:
            shard._ticker.cancel()


def _never(delay: float, callback: Callable[..., object], *args: object) -> asyncio.Handle:
    """Flushes and ticks do not run by themselves here; a timer would only keep a dead node's memory alive."""
    return asyncio.Handle(print, (), asyncio.get_running_loop())
