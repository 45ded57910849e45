"""Puts compacted segments in the place of the old ones, in the log and on the disk, at the owner of the partition.

Invariants:
- a new file replaces exactly the bytes that it was made of: the segments are the same, and their checksums too;
- readers in progress keep reading the old files, through handles that are opened before;
- a compaction never replaces segments that are damaged or active; a damaged one is replaced by its leader's copy only
  (replication/replica/unreadable.py), whose records may be superseded by later ones here: the log counts as not
  compacted from there on, before the copy is fetched;
- the place of the high watermark follows the bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

from engine.cleaning.foreign_batches import save_misplaced_batches
from engine.cleaning.segment_check import examine, sealed_file
from engine.compaction.leaders_copy import LeadersCopy, may_replace, swap_in
from engine.compaction.log_compaction import NewSegment
from engine.compaction.plan import LogFiles, SegmentFile
from engine.compaction.progress import Progress, load_progress, lower_progress, save_progress
from engine.errors import Draining
from engine.format import paths
from engine.format.checksum import Checksum, at_once, checksum_of, load_checksum, save_checksum
from engine.log.log import BytePosition
from engine.log.segment import Segment, save_index
from engine.log.segment_swap import (
    Swap,
    begin_swap,
    cancel_swap,
    new_file_path,
    put_in_place,
    remove_new_files,
    remove_replaced,
    settle_swaps,
)
from engine.partition.partition import Partition
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk
from engine.runtime.tasks import BackgroundTasks
from engine.topic_settings import TopicSettings

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("penstock.engine")


def own_compacted_end(partition: Partition) -> int:
    """Returns how far the only replica is compacted."""
    return partition.compacted_end


class SegmentSwapper:
    """Lists what may be compacted of a shard's partitions, and replaces it. Counts since the start."""

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        clock: Clock,
        compacted_by_all: Callable[[Partition], int] = own_compacted_end,
        on_compacted: Callable[[Partition], None] = lambda _: None,
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._clock = clock
        self._compacted_by_all, self._on_compacted = compacted_by_all, on_compacted
        self._begun_ms = clock.steady_ms()  # identifies this process among those before it
        self.removed_records = 0
        self.freed_bytes = 0
        self._background = BackgroundTasks()
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"SegmentSwapper(removed={self.removed_records}, freed_bytes={self.freed_bytes})"

    def stop(self) -> None:
        """Begins no further work: the worker may ask until it has stopped too."""
        self._is_stopped = True

    async def wait_ended(self) -> None:
        """Waits for the swaps in progress."""
        await self._background.wait_ended()

    async def files(self, partition: Partition) -> LogFiles:
        """Returns the sealed segments of a partition, as far as they may be replaced: a round begins.

        Removes what a round that did not end has left. Raises OSError, Draining.
        """
        async with partition.segments_lock:
            generation = self._generation(partition)
            segments = [] if partition.offline is not None else _replaceable(partition)
            if partition.offline is None:
                await self._in_thread(_clear, self._disk, partition.log.directory)
        rows = await self._in_thread(_list_rows, self._disk, segments)
        log = partition.log
        return LogFiles(log.directory, log.log_start, rows, self._clock.steady_ms(), generation)

    async def progress(self, partition: Partition) -> Progress:
        """Returns how far a partition is compacted, here and as far as known by all replicas. Raises OSError."""
        async with partition.segments_lock:
            saved = await self._load_progress(partition)
            progress = self._with_all(partition, saved)
            if progress != saved and partition.offline is None:
                await self._in_thread(save_progress, self._disk, partition.log.directory, progress)
            return progress

    async def _load_progress(self, partition: Partition) -> Progress:
        progress = await self._in_thread(load_progress, self._disk, partition.log.directory)
        progress = progress.truncated(partition.high_watermark)
        partition.compacted_end = progress.cleaned_end
        return progress

    def _with_all(self, partition: Partition, progress: Progress) -> Progress:
        retention_ms = partition.settings.delete_retention_ms
        return progress.with_all(self._compacted_by_all(partition), self._clock.steady_ms(), retention_ms)

    async def end_round(self, partition: Partition, end: int, expired_below: int, generation: tuple[int, int]) -> None:
        """Saves that a partition is compacted below `end`, unless it was truncated since. Raises OSError.

        The time of its tombstones begins when all replicas have ended such a round: until its last swap, readers
        have met records that they delete.
        """
        async with partition.segments_lock:
            if partition.offline is None and generation == self._generation(partition):
                reached = (await self._load_progress(partition)).after_round(end, expired_below=expired_below)
                partition.compacted_end = reached.cleaned_end
                self._on_compacted(partition)
                reached = self._with_all(partition, reached)
                await self._in_thread(save_progress, self._disk, partition.log.directory, reached)

    async def replace(self, partition: Partition, new: NewSegment) -> bool:
        """Puts a new file in the place of the segments that it was made of.

        Returns False, without the new file, if the log has changed since. Raises OSError: the log is as before.
        A cancel ends the wait, not the swap: the log in memory and the files must agree.
        """
        return await self._background.finish(self._replace(partition, new), "swapping compacted segments")

    async def _replace(self, partition: Partition, new: NewSegment) -> bool:
        async with partition.segments_lock:
            old = self._still_there(partition, new)
            directory = partition.log.directory
            is_wanted = old and partition.settings.is_compacted
            if not is_wanted or not await self._in_thread(_fit, self._disk, directory, new):
                await self._in_thread(_drop, self._disk, new_file_path(directory, new.base_offset))
                return False
            for segment in old:
                await self._in_thread(_open_for_reads, segment)
            if any(segment.damage for segment in old):
                return False
            for segment in old:
                segment.set_being_replaced(is_being_replaced=True)
            ends = [segment.begin_read() for segment in old]
            try:
                await self._in_thread(_swap, self._disk, directory, new, old[-1].last_append_ms)
            except BaseException:
                for segment in old:
                    segment.set_being_replaced(is_being_replaced=False)
                raise
            finally:
                for end in ends:
                    end()
            segment = _as_segment(self._disk, directory, new, old)
            partition.log.replace_segments(old, segment)
            end_position = BytePosition(segment.base_offset, segment.size_bytes)
            partition.watermark.follow_compaction(segment.base_offset, segment.next_offset, end_position)
            for replaced_segment in old:
                replaced_segment.mark_deleted()
            self.removed_records += new.removed
            self.freed_bytes += new.freed_bytes
            await self._in_thread(_save_derived, self._disk, segment, new.file)
            return True

    async def begin_copy(self, partition: Partition, segment: Segment) -> int:
        """Counts the log as not compacted from a damaged segment on, durably. Returns the partition's cuts.

        The fetches of the copy report it to the leader: no tombstone of a record that the copy may have goes at any
        replica until this one has compacted again. Rounds in progress end without effect. Raises OSError, Draining.
        """
        async with partition.segments_lock:
            if partition.offline is None:
                partition.cuts += 1
                partition.compacted_end = min(partition.compacted_end, segment.base_offset)
                directory = partition.log.directory
                await self._in_thread(lower_progress, self._disk, directory, segment.base_offset)
            return partition.cuts

    async def replace_damaged(self, partition: Partition, copy: LeadersCopy) -> bool:
        """Puts a leader's copy in the place of a damaged segment.

        Returns False, without the copy, if the log has changed since. Raises OSError: the segment is as before. A
        cancel ends the wait, not the swap.
        """
        return await self._background.finish(self._replace_damaged(partition, copy), "replacing a damaged segment")

    async def _replace_damaged(self, partition: Partition, copy: LeadersCopy) -> bool:
        old, log_ = copy.segment, partition.log
        path = new_file_path(log_.directory, old.base_offset, paths.REPAIRED)
        copy_path = await self._in_thread(save_misplaced_batches, self._disk, old)
        if copy_path is not None:
            extra = {"partition": partition.name, "segment": old.path, "kept": copy_path}
            log.error("a damaged segment file has batches of another log; a copy was kept", extra=extra)
        async with partition.segments_lock:
            if not may_replace(partition, copy):
                await self._in_thread(_drop, self._disk, path)
                return False
            old.set_being_replaced(is_being_replaced=True)
            release = old.begin_read()
            try:
                await self._in_thread(swap_in, self._disk, copy)
            except BaseException:
                old.set_being_replaced(is_being_replaced=False)
                raise
            finally:
                release()
            segment = Segment(
                self._disk,
                log_.directory,
                old.base_offset,
                size_bytes=copy.file.size_bytes,
                next_offset=old.next_offset,
            )
            segment.created_ms, segment.last_append_ms = old.created_ms, old.last_append_ms
            log_.replace_segments([old], segment)
            end_position = BytePosition(segment.base_offset, segment.size_bytes)
            partition.watermark.follow_compaction(segment.base_offset, segment.next_offset, end_position)
            old.mark_deleted()
            await self._in_thread(_save_derived, self._disk, segment, copy.file)
            return True

    def _generation(self, partition: Partition) -> tuple[int, int]:
        return self._begun_ms, partition.cuts

    def _still_there(self, partition: Partition, new: NewSegment) -> list[Segment]:
        """Returns the segments that a new file replaces; none if one of them has changed."""
        by_base = {segment.base_offset: segment for segment in _replaceable(partition)}
        present = [by_base.get(row.base_offset) for row in new.replaced]
        same = [
            segment
            for segment, row in zip(present, new.replaced, strict=True)
            if segment is not None
            and (segment.next_offset, segment.size_bytes) == (row.end_offset, row.size_bytes)
            and not segment.damage
        ]
        return same if len(same) == len(present) and partition.offline is None else []

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **_: P.kwargs) -> T:
        if self._is_stopped:
            raise Draining("the node stops")
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)


def _replaceable(partition: Partition) -> list[Segment]:
    """Returns the sealed segments that are committed and durable."""
    limit = min(partition.high_watermark, partition.durable_end)
    return [segment for segment in partition.log.segments[:-1] if segment.next_offset <= limit]


def _list_rows(disk: Disk, segments: Sequence[Segment]) -> tuple[SegmentFile, ...]:
    """Returns the rows of segments. Makes the first checksum that is missing: a kill may have come before it."""
    rows = [
        SegmentFile(
            segment.base_offset,
            segment.next_offset,
            segment.path,
            segment.size_bytes,
            segment.last_append_ms,
            None if (checksum := load_checksum(disk, segment.path)) is None else checksum.crc32c,
            bool(segment.damage),
        )
        for segment in segments
    ]
    missing = next((at for at, row in enumerate(rows) if row.crc32c is None and not row.is_damaged), None)
    if missing is not None:
        segment = segments[missing]
        is_damaged = bool(examine(disk, sealed_file(segment), at_once, segment.written_checksum).damage)
        checksum = None if is_damaged else load_checksum(disk, segment.path)
        rows[missing] = rows[missing]._replace(crc32c=checksum and checksum.crc32c, is_damaged=is_damaged)
    return tuple(rows)


def _fit(disk: Disk, directory: str, new: NewSegment) -> bool:
    """True if the old files have the checksums of the copied bytes, and the new file is whole.

    A truncated log may have grown to the same size. A compactor that has given up may write the new file again.
    """
    checksums = [load_checksum(disk, row.path) for row in new.replaced]
    same = all(
        seen is not None and seen.crc32c == row.crc32c for seen, row in zip(checksums, new.replaced, strict=True)
    )
    path = new_file_path(directory, new.base_offset)
    return same and disk.stat(path) is not None and checksum_of(disk, path) == new.file


def _open_for_reads(segment: Segment) -> None:
    """Opens a segment for reads that are in progress when another file takes its name."""
    release = segment.begin_read()
    try:
        assert segment.handle >= 0
        assert segment.index is not None
    finally:
        release()


def _swap(disk: Disk, directory: str, new: NewSegment, modified_ms: int) -> None:
    also_replaced = tuple(row.base_offset for row in new.replaced[1:])
    swap = Swap(new.base_offset, also_replaced, new.file, modified_ms)
    settle_swaps(disk, directory)
    try:
        begin_swap(disk, directory, swap)
        put_in_place(disk, directory, swap)
    except OSError:
        cancel_swap(disk, directory, swap)
        raise
    try:
        remove_replaced(disk, directory, swap)
    except OSError as error:  # the new file is in place; the next swap or start removes the old ones
        log.warning("a swap of a compaction is not finished", extra={"path": directory, "reason": str(error)})


def _as_segment(disk: Disk, directory: str, new: NewSegment, old: Sequence[Segment]) -> Segment:
    segment = Segment(disk, directory, new.base_offset, size_bytes=new.file.size_bytes, next_offset=new.end_offset)
    segment.created_ms, segment.last_append_ms = old[0].created_ms, old[-1].last_append_ms
    return segment


def _save_derived(disk: Disk, segment: Segment, file: Checksum) -> None:
    """Writes the checksum and the indexes; without them the next reader is slower."""
    save_checksum(disk, segment.path, file)
    save_index(disk, segment)


def _clear(disk: Disk, directory: str) -> None:
    settle_swaps(disk, directory)
    remove_new_files(disk, directory)


def _drop(disk: Disk, path: str) -> None:
    if disk.stat(path) is not None:
        disk.unlink(path)


class OwnPartition:
    """A partition of this process, for the compactor."""

    def __init__(self, partition: Partition, swapper: SegmentSwapper) -> None:
        self.name = partition.name
        self._partition = partition
        self._swapper = swapper

    def __repr__(self) -> str:
        return f"OwnPartition({self.name})"

    @property
    def settings(self) -> TopicSettings:
        return self._partition.settings

    async def log_files(self) -> tuple[LogFiles, Progress]:
        return await self._swapper.files(self._partition), await self._swapper.progress(self._partition)

    async def replace(self, new: NewSegment) -> bool:
        return await self._swapper.replace(self._partition, new)

    async def end_round(self, end: int, expired_below: int, generation: tuple[int, int]) -> None:
        await self._swapper.end_round(self._partition, end, expired_below, generation)
