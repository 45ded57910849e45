"""Fixtures of the engine tests: a manual clock, a shard in a temporary directory."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path

import pytest

from engine.directory.log_directories import log_offline, open_data_directories
from engine.partition.partition import Partition
from engine.runtime.disk import Disk, RealDisk
from engine.runtime.pooled_disk import PooledDisk
from engine.shard.served_topics import Topic
from engine.shard.shard import Shard, ShardEvents, record_in_catalog
from replication.replica.standalone import StandaloneReplica, StandaloneReplicas
from tests import disk_faults

SMALL_MIB = 24


class HandClock:
    """Time that moves only when a test advances it."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000
        self.seconds = 1000.0
        self._began_ms = self.ms - 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.seconds

    def steady_ms(self) -> int:
        return self._began_ms + round(self.seconds * 1000)

    def restart(self) -> None:
        """A new process: its steady time begins at the current wall time."""
        self._began_ms = self.ms - round(self.seconds * 1000)

    def pass_ms(self, ms: int) -> None:
        self.ms += ms
        self.seconds += ms / 1000


class EventHooks:
    """The handlers of a shard's events. A test may replace them."""

    def __init__(self) -> None:
        self.replicas = StandaloneReplicas(1)
        self.leaders: dict[tuple[str, int], StandaloneReplica] = {}
        self.opened = self._lead
        self.closed = self.moved_away = self.sealed = self.tiered_end = lambda *_: None
        self.positions_moved = self.replicas.on_positions_moved
        self.went_offline = self.replicas.partition_went_offline
        self.read_failed = self.replicas.on_read_failed
        self.damaged = self.replicas.on_damaged
        self.directory_failed = log_offline
        self.moved = record_in_catalog
        self.leading_epoch, self.compacted_by_all = self.replicas.leading_epoch, self.replicas.compacted_by_all

    def events(self) -> ShardEvents:
        return ShardEvents(**{field.name: partial(self._call, field.name) for field in fields(ShardEvents)})

    def follow(self, partition: Partition) -> None:
        """Make a partition the follower of a leader elsewhere: the test moves its high watermark."""
        self.replicas.on_closed([partition])
        partition.is_replicated = True

    def _call(self, event: str, *arguments: object) -> object:
        return getattr(self, event)(*arguments)

    def _lead(self, shard: Shard, topic: Topic, partition: Partition) -> None:
        self.replicas.on_opened(shard, topic, partition)
        self.leaders[partition.topic, partition.number] = self.replicas.by_partition[partition]


class Node:
    """A shard with leaders, as the gateway composes them, without HTTP."""

    def __init__(self, shard: Shard, hooks: EventHooks) -> None:
        self.shard = shard
        self.hooks = hooks
        self.leaders = hooks.leaders


@asynccontextmanager
async def running_node(
    path: Path,
    clock: HandClock,
    disk: Disk | None = None,
    further: Sequence[Path] = (),
    ids: Iterator[str] | None = None,
) -> AsyncIterator[Node]:
    ids = ids or (f"id{n}" for n in itertools.count())
    disk = disk or PooledDisk(RealDisk(), 64)
    with ThreadPoolExecutor(2) as executor:
        directories = open_data_directories(
            disk,
            [str(one) for one in (path, *further)],
            node_id=1,
            cluster_id=None,
            boot_id="boot",
            new_id=ids.__next__,
        )
        hooks = EventHooks()
        first, others = directories.first, directories.additional
        shard = Shard(disk, first, clock, executor, ids.__next__, additional=others, events=hooks.events())
        node = Node(shard, hooks)
        try:
            await shard.start()
        except BaseException:
            directories.release()
            raise
        try:
            yield node
        finally:
            await shard.stop()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def new_node(tmp_path, clock) -> Callable[..., object]:
    return lambda: running_node(tmp_path / "data", clock)


@pytest.fixture
async def node(new_node: Callable[..., AbstractAsyncContextManager[Node]]) -> AsyncIterator[Node]:
    """Return a node with a topic t of one partition."""
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        yield node


@pytest.fixture
def small_file_system(tmp_path) -> Iterator[Path]:
    try:
        with disk_faults.small_file_system(tmp_path / "mounted", SMALL_MIB) as mounted:
            yield mounted
    except disk_faults.CannotMount as error:
        pytest.skip(str(error))
