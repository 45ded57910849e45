"""Keeps a fencing token findable while it is in force: the file `fenced` beside the log.

The file is made durable, empty, before a log has its first token, so that a start without a snapshot scans the whole of
that log for it, and of no other. Before retention deletes the control batch that sets the current token or removes it,
the file records that durably. Rules: engine/producers/fencing.py.
Invariant: the file records only what the log had durably.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from engine.errors import storage_error
from engine.partition.partition import Partition
from engine.producers.fence_file import save_fence
from engine.producers.fencing import NO_FENCE, Fence
from engine.runtime.disk import Disk


async def mark_fenced(disk: Disk, executor: Executor, partition: Partition) -> None:
    """Notes durably that a log may have a token, before one is set. Raises StorageFull, StorageFailed."""
    fencing = partition.validator.fencing
    if fencing.is_noted:
        return
    async with partition.segments_lock:  # the partition may be moving to another directory
        try:
            await _save(disk, executor, partition.log.directory, NO_FENCE)
        except OSError as error:
            raise storage_error(f"{partition.name}: setting a fencing token", error) from error
    fencing.is_noted = True


async def save_fence_below(disk: Disk, executor: Executor, partition: Partition, below: int) -> None:
    """Records the token before the durable segments that end at or below an offset are deleted. Raises OSError."""
    fencing = partition.validator.fencing
    if not fencing.kept_offset < fencing.present.offset < below:
        return
    async with partition.segments_lock:  # the partition may be moving to another directory
        fence = fencing.present
        await _save(disk, executor, partition.log.directory, fence)
        fencing.is_noted, fencing.kept_offset = True, fence.offset


async def _save(disk: Disk, executor: Executor, directory: str, fence: Fence) -> None:
    await asyncio.get_running_loop().run_in_executor(executor, save_fence, disk, directory, fence)
