"""Deletes the oldest records of a shard's partitions: the expired ones, and those below a given offset.

engine/cleaning/retention.py computes what is expired; engine/cleaning/log_start.py works on the log and the files.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any

from engine.cleaning.log_start import LogStartAdvancer
from engine.cleaning.retention import Bounds, expired_below
from engine.directory.log_directory_manager import LogDirectoryManager
from engine.errors import NO_SPACE, storage_error
from engine.partition.fence_checkpoint import save_fence_below
from engine.partition.partition import Partition
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk


class RecordDeletion:
    """Deletes records. `tiered_end` and `leading_epoch` are those of `ShardEvents`."""

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        clock: Clock,
        log_manager: LogDirectoryManager,
        advancer: LogStartAdvancer,
        tiered_end: Callable[[Partition], int | None],
        leading_epoch: Callable[[Partition], int | None],
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._clock = clock
        self._log_manager = log_manager
        self._log_start_advancer = advancer
        self._tiered_end = tiered_end
        self._leading_epoch = leading_epoch

    def __repr__(self) -> str:
        return f"RecordDeletion({self._log_start_advancer})"

    def expired(self, partition: Partition) -> Bounds:
        is_leader = self._leading_epoch(partition) is not None
        return expired_below(partition, self._clock.steady_ms(), self._tiered_end(partition), is_leader=is_leader)

    def due(self, partition: Partition) -> Coroutine[Any, Any, None] | None:
        """Returns the pending work; None without any."""
        return self.expire(partition) if self._log_start_advancer.is_due(partition, self.expired(partition)) else None

    async def expire(self, partition: Partition) -> None:
        """Deletes the expired records. Raises OSError, unless the whole directory has failed."""
        bounds = self.expired(partition)
        if self._log_start_advancer.is_due(partition, bounds):
            try:
                await save_fence_below(self._disk, self._executor, partition, bounds.local)
                await self._log_start_advancer.advance(partition, bounds)
            except OSError as error:
                if not self._log_manager.record_failure(partition, error, "expiring records"):
                    raise

    async def delete_below(self, partition: Partition, offset: int) -> None:
        """Deletes the records below an offset. Raises StorageFull, StorageFailed."""
        try:
            await save_fence_below(self._disk, self._executor, partition, offset)
            await self._log_start_advancer.advance(partition, Bounds(offset, offset))
        except OSError as error:
            self._log_manager.record_failure(partition, error, "deleting records")
            if error.errno in NO_SPACE and partition.log.log_start >= offset:
                return  # deleted durably; a later call removes the files
            raise storage_error(f"{partition.name}: deleting records", error) from error
