"""Keeps a fencing token findable for as long as it is in force: the log says so, and that says that the log does.

Two duties beside appending control batches. A file `fenced` is made durable before a log has its first token, so that a
start without a snapshot walks the whole of that log for it, and of no other. And before retention lets the control
batch go that sets the token in force, another one says it again at the log's end. Rules: engine/fencing.py.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Executor

from engine import paths
from engine.admission import Terms
from engine.committer import Committer
from engine.control_batch import encode_fence
from engine.disk import Disk, write_atomically
from engine.errors import FencingTokenMismatch, storage_error
from engine.partition import Partition


async def note_fenced(disk: Disk, executor: Executor, partition: Partition) -> None:
    """Before a token is set. Raises StorageFull, StorageFailed."""
    fencing = partition.admission.fencing
    if fencing.is_noted:
        return
    try:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(executor, write_atomically, disk, _file(partition.log.directory), b"")
    except OSError as error:
        raise storage_error(f"{partition.name}: setting a fencing token", error) from error
    fencing.is_noted = True


def was_fenced(disk: Disk, directory: str) -> bool:
    """Whether a partition's log may hold a token."""
    return disk.stat(_file(directory)) is not None


async def keep_fence(partition: Partition, committer: Committer, below: int, now_ms: int) -> None:
    """Before the segments that end at or below an offset go. Raises what an append meets."""
    fence = partition.admission.fencing.present
    if not fence.token or fence.offset >= below:
        return
    try:
        again = encode_fence(fence.token, now_ms)
        await committer.append(partition, again, Terms(fencing_token=fence.token), wants_sync=True)
    except FencingTokenMismatch:
        return  # just replaced, further up
    await committer.roll(partition)  # durable when done


def _file(directory: str) -> str:
    return os.path.join(directory, paths.FENCED)
