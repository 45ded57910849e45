"""Cuts off the old end of a log: raises log_start, forgets sealed segments and removes their files.

Decides nothing: engine/cleaning/retention.py says what has expired, an operator what shall go. Readers are safe: a
segment leaves the log first, and its file handle stays open until the last read of it is done.
Invariants: log_start is durable before a file below it goes, so that a crash between the two leaves only unread files;
a snapshot remembers what the records told of their producers and keys before they go, unless the disk is too full for
one; files go oldest first, each durably, or recovery would find a hole. What cannot be removed now is tried again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TypeVar

from engine.cleaning.retention import Bounds
from engine.format import paths
from engine.log.segment import Segment
from engine.partition.partition import Partition
from engine.producers.snapshots import remembers, save_state
from engine.producers.state_transfer import Taken, state_of, taken
from engine.runtime.disk import Disk

T = TypeVar("T")

log = logging.getLogger("penstock.engine")


class LogStartAdvancer:
    """Trims the partitions of a shard.

    `save_log_start` makes a partition's log_start durable, if it is not yet; `saved` waits for snapshots on their way.
    """

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        save_log_start: Callable[[Partition], Awaitable[None]],
        saved: Callable[[Partition], Awaitable[None]],
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._save_log_start = save_log_start
        self._saved = saved
        self._condemned: dict[Partition, list[Segment]] = {}  # out of their logs, oldest first, files still there

    def __repr__(self) -> str:
        return f"LogStartAdvancer(condemned={sum(map(len, self._condemned.values()))})"

    def is_due(self, partition: Partition, bounds: Bounds) -> bool:
        """Whether `trim` would do anything."""
        log = partition.log
        return bounds.log_start > log.log_start or log.has_segments_below(bounds.local) or partition in self._condemned

    async def trim(self, partition: Partition, bounds: Bounds) -> None:
        """Give up what lies below `bounds.log_start`; remove sealed segments that end at or below `bounds.local`.

        Raises OSError; then log_start may be raised, and files are left that the next call removes.
        """
        async with partition.segments_lock:
            partition.log.log_start = max(partition.log.log_start, bounds.log_start)
            await self._save_log_start(partition)
            if partition.log.has_segments_below(bounds.local):
                await self._remember(partition, bounds.local)
            condemned = self._condemned.setdefault(partition, [])
            condemned += partition.log.drop_oldest(bounds.local)
            while condemned:
                segment = condemned[0]
                await self._in_thread(remove_segment, self._disk, segment)
                segment.deleted()
                condemned.remove(segment)
            self._condemned.pop(partition, None)

    async def _remember(self, partition: Partition, below: int) -> None:
        """A roll's snapshot may have failed, or be of what is not committed and may be cut off."""
        await self._saved(partition)
        kept_from, committed = partition.log.kept_from(below), partition.high_watermark
        if await self._in_thread(remembers, self._disk, partition.log.directory, kept_from, committed):
            return
        try:
            args = (partition.log.directory, taken(partition.validator, kept_from), committed)
            await self._in_thread(save_taken, self._disk, *args)
        except OSError as error:
            if error.errno != errno.ENOSPC:  # then what is let go makes the room
                raise
            log.warning(
                "records go that no snapshot remembers", extra={"partition": partition.name, "reason": str(error)}
            )

    async def _in_thread(self, function: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    def forget(self, partition: Partition) -> None:
        """The partition is deleted, and all its files with it."""
        for segment in self._condemned.pop(partition, []):
            segment.deleted()


def save_taken(disk: Disk, directory: str, of: Taken, committed: int) -> None:
    """What must be known of the records below an offset, whole in one snapshot. Raises OSError."""
    save_state(disk, directory, state_of(of), committed)


def remove_segment(disk: Disk, segment: Segment) -> None:
    """Unlink what there is of a segment's files, the log last, durably."""
    for suffix in paths.SEGMENT_SUFFIXES:
        if disk.stat(segment.file(suffix)) is not None:
            disk.unlink(segment.file(suffix))
    disk.fsync_dir(segment.directory)
