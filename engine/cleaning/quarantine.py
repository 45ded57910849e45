"""Quarantines damaged records of the own partitions, and replaces damaged segments by good copies.

The scrubber, reads and the check at sealing find damage; engine/cleaning/segment_check.py locates it.
engine/tiering/reading/repair.py gets the copies.
Invariants:
- readers are kept from damage before it is written down, and it is written down before a repair;
- a good copy replaces the file in one rename, under the lock of the partition's segments, so that a segment that has
  expired meanwhile never returns;
- an active segment is rolled before its damage is noted;
- a replaced file is kept if it has batches of another log (engine/cleaning/foreign_batches.py).
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from operator import attrgetter
from typing import ParamSpec, TypeVar

from engine.cleaning.foreign_batches import save_foreign_batches
from engine.cleaning.sealing import Sealer
from engine.cleaning.segment_check import Finding, SealedFile, examine, sealed_file
from engine.errors import EngineError
from engine.format import paths
from engine.format.checksum import at_once, load_checksum
from engine.format.spare_files import write_without_room
from engine.log.damaged_ranges import Damage, encode_quarantine
from engine.log.segment import Segment
from engine.partition.partition import Partition
from engine.runtime.disk import Disk
from engine.runtime.tasks import in_background

log = logging.getLogger("penstock.engine")

P = ParamSpec("P")
T = TypeVar("T")


class Quarantine:
    """The damage of a shard's partitions, and the counts of repairs since the start."""

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        sealer: Sealer,
        roll: Callable[[Partition], Awaitable[int]],
        damaged: Callable[[Partition, int], None],
    ) -> None:
        self._sealer = sealer
        self._disk = disk
        self._executor = executor
        self._roll = roll
        self._damaged = damaged  # is called with the first offset of what was found
        self._examining: dict[Segment, asyncio.Task[None]] = {}
        self._file_lock = asyncio.Lock()  # a read and the scrubber may find damage at once, and a repair may end
        self.scrubbed_bytes = 0
        self.damaged_found = 0
        self.repaired = 0

    def __repr__(self) -> str:
        return f"Quarantine(scrubbed_bytes={self.scrubbed_bytes}, found={self.damaged_found}, repaired={self.repaired})"

    async def examine(self, partition: Partition, segment: Segment) -> None:
        """Examines a segment in which a read found bad bytes. The damage is noted when this returns.

        Concurrent calls share one examination.
        """
        task = self._examining.get(segment)
        if task is None:
            task = in_background(self._search(partition, segment), "examining a segment", of=segment.path)
            self._examining[segment] = task
            task.add_done_callback(lambda _: self._examining.pop(segment, None))
        await asyncio.shield(task)

    async def record(self, partition: Partition, file: SealedFile, finding: Finding) -> bool:
        """Stores the finding of an examination. Returns False if the segment was removed. Raises OSError."""
        self.scrubbed_bytes += finding.scrubbed_bytes
        segment = _sealed_segment(partition, file.base_offset)
        if segment is None or segment.is_being_replaced or partition.offline is not None:
            return False
        if (segment.path, segment.next_offset, segment.size_bytes) != (file.path, file.end_offset, file.size_bytes):
            return False  # it was compacted, or moved to another data directory
        if segment.damage != finding.damage:
            if finding.damage:
                return await self._quarantine_ranges(partition, segment, finding.damage, finding.scrubbed_bytes)
            await self._release_segment(segment)
        return True

    async def repair(self, partition: Partition, base_offset: int, path: str) -> bool:
        """Replaces a segment's file by the good copy. Returns False if the segment was removed. Raises OSError."""
        await self._save_foreign_batches(partition, base_offset, path)
        async with partition.segments_lock:
            segment = _sealed_segment(partition, base_offset)
            if segment is None or partition.offline is not None:
                await self._in_thread(self._disk.unlink, path)
                return False
            await self._in_thread(self._swap, segment, path)
            await self._release_segment(segment)
            self.repaired += 1
            return True

    async def _save_foreign_batches(self, partition: Partition, base_offset: int, path: str) -> None:
        """Runs outside of the lock: the file of a sealed segment does not change, and is read completely."""
        segment = _sealed_segment(partition, base_offset)
        if segment is None or partition.offline is not None:
            return
        copy_path = await self._in_thread(save_foreign_batches, self._disk, segment.path, path)
        if copy_path is not None:
            extra = {"partition": partition.name, "segment": segment.path, "kept": copy_path}
            log.error("a damaged segment file has batches of another log; a copy was kept", extra=extra)

    async def _search(self, partition: Partition, segment: Segment) -> None:
        try:
            if segment is partition.log.active:
                await self._roll(partition)
                await self._sealer.wait_saved(partition)  # the segment has been checked and has its index
            file = sealed_file(segment)
            finding = await self._in_thread(examine, self._disk, file, at_once)
            if await self.record(partition, file, finding) and not finding.damage:
                await self._in_thread(self._drop_index, segment)  # the index may have misled the reader
                segment.mark_replaced(segment.size_bytes)
        except (EngineError, OSError) as error:
            extra = {"partition": partition.name, "segment": segment.path, "reason": str(error)}
            log.error("a read found damaged bytes, and the check of the segment failed", extra=extra)

    async def _quarantine_ranges(
        self, partition: Partition, segment: Segment, damages: tuple[Damage, ...], size_bytes: int
    ) -> bool:
        """Returns False if no byte of the segment itself is damaged: the segment behind it is missing."""
        if await self._is_gap(segment, gap := damages[-1]):
            missing = await self._split(partition, segment, gap)
            if missing is None:
                return False
            await self._quarantine_ranges(partition, missing, (Damage(gap.start_offset, gap.end_offset, 0, 0),), 0)
            if not (damages := damages[:-1]):
                return False
        if segment.is_being_replaced:
            return False
        self.damaged_found += not segment.damage
        segment.mark_damaged(damages, size_bytes)
        if size_bytes == 0:
            segment.mark_lost()
        for damage in damages:
            log.error(
                "damaged records were quarantined",
                extra={
                    "partition": partition.name,
                    "segment": segment.path,
                    "first_offset": damage.start_offset,
                    "end_offset": damage.end_offset,
                },
            )
        self._damaged(partition, damages[0].start_offset)
        async with self._file_lock:
            if segment.damage:  # it was not repaired meanwhile
                rows = encode_quarantine(segment.damage)
                await self._in_thread(write_without_room, self._disk, segment.file(paths.QUARANTINE), rows)
        return True

    async def _is_gap(self, segment: Segment, last: Damage) -> bool:
        """True if a file has its sealed length, and yet ends before the next segment begins."""
        if last.end_offset != segment.next_offset or last.start_offset in (segment.base_offset, segment.next_offset):
            return False
        checksum = await self._in_thread(load_checksum, self._disk, segment.path)
        return checksum is not None and checksum.size_bytes == last.start_position == last.end_position

    async def _split(self, partition: Partition, segment: Segment, gap: Damage) -> Segment | None:
        """End the segment where its file does, and begin a missing one there. Returns None if the log has changed."""
        async with partition.segments_lock:
            if segment is not _sealed_segment(partition, segment.base_offset) or segment.next_offset != gap.end_offset:
                return None
            return partition.log.insert_missing(segment, gap.start_offset)

    async def _release_segment(self, segment: Segment) -> None:
        """The file at the path is good, by a repair or by an operator."""
        async with self._file_lock:
            segment.mark_replaced(await self._in_thread(self._clear_damage, segment))

    def _swap(self, segment: Segment, path: str) -> None:
        self._disk.rename(path, segment.path)
        self._disk.fsync_dir(segment.directory)

    def _drop_index(self, segment: Segment) -> None:
        for suffix in (paths.OFFSET_INDEX, paths.TIME_INDEX):
            if self._disk.stat(segment.file(suffix)) is not None:
                self._disk.unlink(segment.file(suffix))

    def _clear_damage(self, segment: Segment) -> int:
        stat = self._disk.stat(segment.path)
        assert stat is not None
        if self._disk.stat(segment.file(paths.QUARANTINE)) is not None:
            self._disk.unlink(segment.file(paths.QUARANTINE))
            self._disk.fsync_dir(segment.directory)
        return stat.size_bytes

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **_: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)


class LocalPartition:
    """A partition of this process, for its scrubber."""

    def __init__(self, topic_id: str, partition: Partition, quarantine: Quarantine) -> None:
        self.topic_id = topic_id
        self.topic = partition.topic
        self.number = partition.number
        self._partition = partition
        self._quarantine = quarantine

    async def list_sealed_files(self) -> list[SealedFile]:
        return sealed_files(self._partition)

    async def report(self, file: SealedFile, finding: Finding) -> bool:
        return await self._quarantine.record(self._partition, file, finding)

    async def repair(self, file: SealedFile, path: str) -> bool:
        return await self._quarantine.repair(self._partition, file.base_offset, path)


def sealed_files(partition: Partition) -> list[SealedFile]:
    """Returns a partition's sealed segments that are durable; none while it is offline."""
    if partition.offline is not None:
        return []
    sealed = partition.log.segments[:-1]
    return [sealed_file(segment) for segment in sealed if segment.next_offset <= partition.durable_end]


def _sealed_segment(partition: Partition, base_offset: int) -> Segment | None:
    segments = partition.log.segments
    at = bisect_left(segments, base_offset, hi=len(segments) - 1, key=attrgetter("base_offset"))
    return segments[at] if at < len(segments) - 1 and segments[at].base_offset == base_offset else None
