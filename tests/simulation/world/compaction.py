"""Compaction on a simulated node: the real compactor, swapper, plan and swap of files, step by step.

Compactor.compact is driven without an event loop. Between two steps, and between two calls of the disk, everything
else goes on: appends, elections, truncations that wait for the lock, kills. A process can end at each call of a swap.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.compaction.compactor import Compactor
from engine.compaction.log_compaction import NewSegment
from engine.compaction.swapping import OwnPartition, SegmentSwapper
from engine.errors import EngineError
from engine.runtime.throttled_thread import ThrottledThread
from engine.topic_settings import TopicSettings
from replication.cores.role import Leave
from tests.simulation.world.tier import Rest

if TYPE_CHECKING:
    from tests.simulation.world.hosted import Hosted
    from tests.simulation.world.node import Life

STEP_S = 0.05  # of a round
CHANGES = frozenset({"open", "pwritev", "fdatasync", "fsync_dir", "rename", "unlink", "set_modified"})


@dataclass(frozen=True)
class TableOptions:
    """The settings of a compacted topic. `crashes`: the share of a swap's calls of the disk at which its node ends."""

    cleanup_policy: str = "compact"
    delete_retention_ms: int = 2000
    min_compaction_lag_ms: int = 0
    min_cleanable_dirty_percent: int = 20
    memory_bytes: int = 1 << 16
    check_s: float = 0.3
    crashes: float = 0.01

    def settings(self, of_topic: TopicSettings) -> TopicSettings:
        return replace(
            of_topic,
            cleanup_policy=self.cleanup_policy,
            delete_retention_ms=self.delete_retention_ms,
            min_compaction_lag_ms=self.min_compaction_lag_ms,
            min_cleanable_dirty_percent=self.min_cleanable_dirty_percent,
        )


class Swapped(NamedTuple):
    """The batches of a replica before and after a swap, which happened between two times."""

    partition: str
    node_id: int
    began: float
    ended: float
    before: bytes
    after: bytes


class ThreadDisk:
    """The disk of a process, for a thread of it: between two calls everything else goes on, and the process may end."""

    def __init__(self, life: Life, crashes: float) -> None:
        self._life = life
        self._disk = life.node.disk
        self._crashes = crashes
        self.is_swapping = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._disk, name)
        if name == "close":  # of a process that has ended, too: it changes nothing
            return call  # type: ignore[no-any-return]

        def called(*args: Any, **options: Any) -> Any:
            self._between_calls(name in CHANGES)
            return call(*args, **options)

        return called

    def _between_calls(self, is_change: bool) -> None:
        life, random = self._life, self._life.world.random
        if self.is_swapping and is_change and random.random() < self._crashes:
            life.node.crashes_in_swap()
        life.wait_in_thread(0.02 * random.random() if random.random() < 0.05 else 0.0)


class SteppedThread(ThrottledThread):
    """Every call runs at the next step, and takes what its calls of the disk take."""

    def __init__(self) -> None:
        """Starts no thread."""

    def __repr__(self) -> str:
        return "SteppedThread()"

    def pace(self, size_bytes: int) -> None:
        """The disk waits."""

    async def run(self, function: Callable[..., Any], *args: Any, **_: Any) -> Any:
        await Rest()
        return function(*args)


class SteppedSwapper(SegmentSwapper):
    def __init__(self, hosted: Hosted, disk: ThreadDisk) -> None:
        super().__init__(disk, None, hosted.life.clock, self._by_all)  # type: ignore[arg-type]
        self._life, self._hosted, self._thread_disk = hosted.life, hosted, disk

    async def replace(self, partition: Any, new: NewSegment) -> bool:
        return await self._replace(partition, new)

    def _by_all(self, _: object) -> int:
        log, leader = self._hosted.log, self._hosted.leader
        if leader is not None:
            log.compacted_by_all = max(log.compacted_by_all, leader.compacted_by_all)
        return log.compacted_by_all

    async def _in_thread(self, function: Callable[..., Any], *args: Any, **_: Any) -> Any:
        if self._life.world.random.random() < 0.3:
            await Rest()
        self._thread_disk.is_swapping = function.__name__ == "_swap"
        try:
            return function(*args)
        finally:
            self._thread_disk.is_swapping = False


class AsPartition:
    """A replica with the names of a Partition."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted
        self.name = hosted.partition
        self.watermark = self  # without the byte position that a real one has

    @property
    def compacted_end(self) -> int:
        return self._hosted.log.compacted_end

    @compacted_end.setter
    def compacted_end(self, end: int) -> None:
        self._hosted.log.compacted_end = end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hosted.log, name)

    def follow_compaction(self, *_: object) -> None:
        """The simulated log has no byte position of its high watermark."""


class Compaction:
    """The compaction of one partition on one node."""

    def __init__(self, hosted: Hosted, options: TableOptions) -> None:
        life = hosted.life
        self._hosted, self._options = hosted, options
        disk = ThreadDisk(life, options.crashes)
        self._swapper = SteppedSwapper(hosted, disk)
        self._own = Counted(OwnPartition(AsPartition(hosted), self._swapper), hosted)  # type: ignore[arg-type]
        self._compactor = Compactor(
            disk,  # type: ignore[arg-type]
            lambda: [self._own],
            SteppedThread(),
            memory_bytes=options.memory_bytes,
            check_ms=0,
            random_bytes=life.world.random.randbytes,
        )
        self._round: Coroutine[None, None, bool] | None = None
        self._is_stepping = False
        life.after(options.check_s * life.world.random.random(), self._step)

    def __repr__(self) -> str:
        return f"{self._swapper!r}"

    def _step(self) -> None:
        hosted, life = self._hosted, self._hosted.life
        pause_s = STEP_S if self._round is not None else self._options.check_s
        life.after(pause_s * (0.2 + life.world.random.random()), self._step)
        if self._is_stepping or hosted.log.offline or isinstance(hosted.role, Leave):
            return
        self._is_stepping = True
        try:
            self._round = self._round or self._compactor.compact(self._own)
            self._round.send(None)
        except StopIteration:
            self._round = None
        except (EngineError, OSError) as error:  # the log was truncated, or the disk is full
            self._round = None
            life.world.count("compactions failed")
            life.log("%s: not compacted: %s", hosted.partition, error)
        finally:
            self._is_stepping = False


class Counted:
    """The partition as the compactor sees it. Counts what happens to it."""

    def __init__(self, partition: OwnPartition, hosted: Hosted) -> None:
        self._own, self._hosted = partition, hosted
        self.name, self.settings = partition.name, partition.settings

    async def log_files(self) -> Any:
        """Lists the segments until each has its checksum: a real sealer makes them before."""
        files, progress = await self._own.log_files()
        for _ in files.sealed:
            if all(segment.crc32c is not None for segment in files.sealed):
                break
            files, progress = await self._own.log_files()
        is_waiting = self._hosted.log.compacted_by_all < progress.cleaned_end
        self._hosted.life.world.counts["tombstones kept for other replicas"] += is_waiting
        return files, progress

    async def replace(self, new: NewSegment) -> bool:
        life, log = self._hosted.life, self._hosted.log
        began, before = life.world.now, log.read_range(new.base_offset, new.end_offset)
        is_replaced = await self._own.replace(new)
        if is_replaced:
            after = log.read_range(new.base_offset, new.end_offset)
            life.node.swapped(Swapped(self.name, life.node_id, began, life.world.now, before, after))
        life.world.count("segments swapped" if is_replaced else "swaps refused")
        life.world.counts["records compacted away"] += new.removed if is_replaced else 0
        log.forget_removed()
        life.log("%s: compacted %d..%d: %s", self.name, new.base_offset, new.end_offset, is_replaced)
        return is_replaced

    async def end_round(self, end: int, expired_below: int, generation: tuple[int, int]) -> None:
        life = self._hosted.life
        life.world.counts["rounds without expired tombstones"] += expired_below > 0
        life.log("%s: compacted below %d, tombstones below %d are gone", self.name, end, expired_below)
        await self._own.end_round(end, expired_below, generation)
