"""Changes an open log for another replica's records: starts an epoch, truncates, or resets it.

The shell around engine/log/truncation.py and engine/log/leader_epochs.py, which do the work on the disk, in a thread.
Meanwhile no group of the committer touches the partition; queued appends of clients or a leader fail; no save or trim
of its segments is in progress.
A truncation works on a copy of the log, and removed segments stay open meanwhile: reads in the loop never meet a half
truncated log. Order: (1) the limit of reads is lowered to the new end; (2) the recovery point is lowered, durably; (3)
the truncation; (4) the state derived from the log is rebuilt: positions, sequences, keys, tokens; (5) the recovery
point is saved.
Invariant: a disk failure after (2) takes the partition offline, since the state of its files is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from engine.cleaning.sealing import Sealer
from engine.compaction.progress import lower_progress
from engine.directory.log_directory_manager import LogDirectoryManager
from engine.errors import LogTruncated, storage_error
from engine.format.batch import Buffer
from engine.log.batch_boundaries import boundary_below
from engine.log.leader_epochs import record_epoch
from engine.log.segment import Segment
from engine.log.truncation import batch_start, reset_to, truncate_to
from engine.partition.committer import Committer
from engine.partition.partition import Partition
from engine.producers.key_window import KeyBudget
from engine.producers.state_loader import load_validator
from engine.producers.state_transfer import import_state
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk
from engine.runtime.file_retries import retry_until_files_free

T = TypeVar("T")


class DivergenceHandler:
    """Works on the logs of a shard's partitions; callers must shield the calls from cancels."""

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        clock: Clock,
        committer: Committer,
        log_manager: LogDirectoryManager,
        sealer: Sealer,
        key_budget: KeyBudget,
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._clock = clock
        self._committer = committer
        self._log_manager = log_manager
        self._sealer = sealer
        self._key_budget = key_budget

    def __repr__(self) -> str:
        return f"DivergenceHandler({self._committer})"

    async def start_epoch(self, partition: Partition, epoch: int) -> None:
        """Starts an epoch: durable first, then used by later appends. Raises StorageFull, StorageFailed."""
        async with self._committer.pause(partition):
            self._reject_queued(partition)
            log = partition.log
            if not log.epochs or log.epochs[-1].epoch != epoch:
                await self._on_disk(partition, "beginning an epoch", record_epoch, log, epoch, log.log_end)
            log.leader_epoch = epoch

    async def truncate(self, partition: Partition, offset: int) -> None:
        async with self._paused_appends(partition):
            log = partition.log
            cut_at = await self._on_disk(partition, "finding the cut", batch_start, log, offset)
            if cut_at == log.log_end:  # perhaps drops epochs, and no record
                await self._cut(partition, offset, truncate_to, offset)
                return
            if cut_at < partition.high_watermark:
                args = (log, cut_at, Segment.pread)
                partition.watermark.set_back(*await self._on_disk(partition, "finding the cut", boundary_below, *args))
            partition.durable_end = min(partition.durable_end, cut_at)
            await self._save_points(partition)
            old_end = log.log_end
            partition.compacted_end = min(partition.compacted_end, cut_at)
            await self._on_disk(partition, "cutting the log", lower_progress, self._disk, log.directory, cut_at)
            await self._cut(partition, offset, truncate_to, offset)
            await self._reload_state(partition, old_end)

    async def reset(self, partition: Partition, offset: int, log_start: int, producer_state: Buffer) -> None:
        async with self._paused_appends(partition):
            old_end = partition.log_end
            partition.durable_end = 0  # until all is removed, any of it may come back
            await self._save_points(partition)
            at = (self._disk, partition.log.directory, offset)
            await self._on_disk(
                partition, "importing the leader's producer state", import_state, *at, bytes(producer_state)
            )
            partition.compacted_end = 0
            await self._on_disk(partition, "cutting the log", lower_progress, *at[:2], 0)
            await self._cut(partition, 0, reset_to, offset, log_start)
            partition.durable_end = offset
            await self._reload_state(partition, old_end)

    @asynccontextmanager
    async def _paused_appends(self, partition: Partition) -> AsyncIterator[None]:
        async with self._committer.pause(partition):
            self._reject_queued(partition)
            await self._sealer.wait_saved(partition)
            async with partition.segments_lock:
                yield

    def _reject_queued(self, partition: Partition) -> None:
        if partition.offline is not None:
            raise partition.offline
        text = f"{partition.name}: another replica became leader while the append was queued"
        self._committer.fail_queued(partition, LogTruncated(text))

    async def _cut(self, partition: Partition, changed_from: int, cut: Callable[..., None], *args: int) -> None:
        log, copy = partition.log, partition.log.copy()
        releases: list[Callable[[], None]] = []
        try:
            for segment in log.segments:
                if segment.next_offset > changed_from:
                    releases.append(segment.begin_read())
            await self._on_disk(partition, "cutting the log", cut, copy, *args, is_fatal=True)
            log.replace_with(copy)
        finally:
            for release in releases:
                release()

    async def _reload_state(self, partition: Partition, old_end: int) -> None:
        partition.cut(old_end)
        now_ms, old = self._clock.steady_ms(), partition.validator
        args = (self._disk, partition.name, partition.log, partition.settings, now_ms)
        rebuilt = partial(load_validator, is_replicated=True)
        validator = await self._on_disk(partition, "reading the log", rebuilt, *args, is_fatal=True)
        validator.counts = old.counts
        validator.keys.window.dropped += old.keys.window.dropped
        old.keys.window.clear()
        validator.keys.window.use_budget(self._key_budget, now_ms)
        partition.validator = validator
        await self._save_points(partition)

    async def _save_points(self, partition: Partition) -> None:
        try:
            await self._log_manager.save_points(partition)
        except OSError as error:
            self._log_manager.record_failure(partition, error, "saving recovery points")
            raise storage_error(f"{partition.name}: saving recovery points", error) from error

    async def _on_disk(
        self,
        partition: Partition,
        doing: str,
        function: Callable[..., T],
        *args: object,
        is_fatal: bool = False,
    ) -> T:
        work = partial(asyncio.get_running_loop().run_in_executor, self._executor, function, *args)
        try:
            if is_fatal:  # a started truncation must end; repeating it from the start is harmless
                return await retry_until_files_free(f"{partition.name}: {doing}", work)
            return await work()
        except OSError as error:
            self._log_manager.record_failure(partition, error, doing)
            failure = storage_error(f"{partition.name}: {doing}", error)
            if is_fatal:
                partition.go_offline(failure)
            raise failure from error
