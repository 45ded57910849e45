"""Advances log_start, removes sealed segments from the log and deletes their files.

Decides nothing: engine/cleaning/retention.py computes the expired part; operators delete records by request. Readers
are safe: a segment leaves the log first, and its file handle stays open until the last read of it is done.
Invariants:
- log_start is durable before it rises in memory, so a refused deletion changes nothing, and before a file below it is
  deleted, so a crash between the two leaves only unread files;
- a snapshot keeps the producers and keys of the records before their deletion, unless the disk is too full for one;
- files are deleted oldest first, each durably, or recovery would find a hole.
A failed deletion is retried by the next call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TypeVar

from engine.cleaning.foreign_batches import set_aside_foreign
from engine.cleaning.retention import Bounds
from engine.errors import NO_SPACE
from engine.format import paths
from engine.format.spare_files import write_without_room
from engine.log.segment import Segment
from engine.partition.partition import Partition
from engine.producers.snapshots import SnapshotFiles, remembers, save_state
from engine.producers.state_transfer import StateSnapshot, state_of, take_snapshot
from engine.runtime.disk import Disk

T = TypeVar("T")

log = logging.getLogger("penstock.engine")


class LogStartAdvancer:
    """Trims the partitions of a shard.

    `save_log_start` makes a partition's log_start durable and then raises it; `saved` waits for snapshots in progress.
    """

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        save_log_start: Callable[[Partition, int], Awaitable[None]],
        saved: Callable[[Partition], Awaitable[None]],
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._save_log_start = save_log_start
        self._saved = saved
        # removed from their logs, oldest first; their files remain
        self._to_delete: dict[Partition, list[Segment]] = {}

    def __repr__(self) -> str:
        return f"LogStartAdvancer(condemned={sum(map(len, self._to_delete.values()))})"

    def is_due(self, partition: Partition, bounds: Bounds) -> bool:
        """True if `advance` would change the log or delete files."""
        log = partition.log
        return bounds.log_start > log.log_start or log.has_segments_below(bounds.local) or partition in self._to_delete

    async def advance(self, partition: Partition, bounds: Bounds) -> None:
        """Raise log_start to `bounds.log_start`; remove sealed segments that end at or below `bounds.local`.

        Raises OSError; if log_start is raised then, files remain, which the next call deletes.
        """
        async with partition.segments_lock:
            await self._save_log_start(partition, bounds.log_start)
            is_saved = True
            if partition.log.has_segments_below(bounds.local):
                is_saved = await self._save_state_below(partition, bounds.local)
            to_delete = self._to_delete.setdefault(partition, [])
            to_delete += partition.log.drop_oldest(bounds.local)
            while to_delete:
                segment = to_delete[0]
                await self._in_thread(remove_segment, self._disk, segment)
                segment.mark_deleted()
                to_delete.remove(segment)
            self._to_delete.pop(partition, None)
            if not is_saved:  # there is room now
                await self._save_state_below(partition, bounds.local)

    async def _save_state_below(self, partition: Partition, below: int) -> bool:
        """Saves the state of the records that go; returns False if the disk is too full, even for a spare file.

        The snapshot of a roll may have failed, or contain uncommitted records that may be truncated.
        """
        await self._saved(partition)
        kept_from, committed = partition.log.kept_from(below), partition.high_watermark
        directory, files = partition.log.directory, partition.snapshots
        if await self._in_thread(remembers, self._disk, directory, kept_from, committed, files):
            return True
        try:
            args = (directory, take_snapshot(partition.validator, kept_from), committed, files)
            await self._in_thread(save_state_below, self._disk, *args)
        except OSError as error:
            if error.errno not in NO_SPACE:  # on a full disk the deletion itself makes the room
                raise
            log.warning(
                "records are deleted before a snapshot contains their producers",
                extra={"partition": partition.name, "reason": str(error)},
            )
            return False
        return True

    async def _in_thread(self, function: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    def drop(self, partition: Partition) -> None:
        """Drops the state of a deleted partition, whose files are removed too."""
        for segment in self._to_delete.pop(partition, []):
            segment.mark_deleted()


def save_state_below(
    disk: Disk, directory: str, of: StateSnapshot, committed: int, files: SnapshotFiles | None = None
) -> None:
    """Save the state of the records below an offset, complete in one snapshot. Raises OSError."""
    save_state(disk, directory, state_of(of), committed, files, write=write_without_room)


def remove_segment(disk: Disk, segment: Segment) -> None:
    """Unlink the files of a segment, the log last, durably. Raises OSError.

    A file with batches of another log is renamed and kept (engine/cleaning/foreign_batches.py).
    """
    if (foreign_path := set_aside_foreign(disk, segment)) is not None:
        extra = {"segment": segment.path, "kept": foreign_path}
        log.error("an expired segment file has batches of another log and was kept", extra=extra)
    for suffix in paths.SEGMENT_SUFFIXES:
        if disk.stat(segment.file(suffix)) is not None:
            disk.unlink(segment.file(suffix))
    disk.fsync_dir(segment.directory)
