"""Keeps a fencing token findable for as long as it is in force: the file `fenced` beside the log.

Two duties. The file is made durable, empty, before a log has its first token, so that a start without a snapshot walks
the whole of that log for it, and of no other. And before retention lets the control batch go that says which token is
in force, or that none is any more, the file says it durably. Rules: engine/fencing.py.
Invariant: the file tells of nothing that the log never had durably.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Executor

from engine import paths
from engine.disk import Disk, read_file, write_atomically
from engine.errors import storage_error
from engine.fencing import NO_FENCE, Fence
from engine.partition import Partition
from engine.small_file import read_rows, rows_as_text

_HEADER = "penstock fenced 1"


async def note_fenced(disk: Disk, executor: Executor, partition: Partition) -> None:
    """Before a token is set. Raises StorageFull, StorageFailed."""
    fencing = partition.admission.fencing
    if fencing.is_noted:
        return
    try:
        await _save(disk, executor, partition.log.directory, [])
    except OSError as error:
        raise storage_error(f"{partition.name}: setting a fencing token", error) from error
    fencing.is_noted = True


async def keep_fence(disk: Disk, executor: Executor, partition: Partition, below: int) -> None:
    """Before the segments that end at or below an offset go; they are durable. Raises OSError."""
    fencing = partition.admission.fencing
    fence = fencing.present
    if fencing.kept_offset < fence.offset < below:
        await _save(disk, executor, partition.log.directory, [f"{fence.offset} {fence.token}"])
        fencing.is_noted, fencing.kept_offset = True, fence.offset


def kept_fence(disk: Disk, directory: str) -> Fence | None:
    """What the log has let go of; NO_FENCE if that is nothing. None: the log has never had a token.

    A file in doubt tells that there was one, and no more.
    """
    data = read_file(disk, _file(directory))
    if data is None:
        return None
    rows = read_rows(_HEADER, data)
    return Fence(rows[0][1], int(rows[0][0])) if rows else NO_FENCE


async def _save(disk: Disk, executor: Executor, directory: str, rows: list[str]) -> None:
    text = rows_as_text(_HEADER, rows)
    await asyncio.get_running_loop().run_in_executor(executor, write_atomically, disk, _file(directory), text)


def _file(directory: str) -> str:
    return os.path.join(directory, paths.FENCED)
