"""What a partition's owner does about damage: keeps damaged records from being served, and takes a good copy in.

Examines nothing (engine/scrub.py) and gets no copies (engine/tiering/repair.py). Invariants: damage is in force for
readers before it is written down, and written down before anybody mends it; a good copy takes the place of the file in
one rename, under the trimmer's lock, so that a segment that has expired meanwhile never comes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

from engine import paths
from engine.damage import encode_quarantine
from engine.disk import Disk, write_atomically
from engine.partition import Partition
from engine.scrub import Finding, SealedFile
from engine.segment import Segment
from engine.trimming import Trimmer

log = logging.getLogger("penstock.engine")

P = ParamSpec("P")
T = TypeVar("T")


class Quarantine:
    """The damage of a shard's partitions, and what was done about it since the start."""

    def __init__(self, disk: Disk, executor: Executor, trimmer: Trimmer) -> None:
        self._disk = disk
        self._executor = executor
        self._trimmer = trimmer
        self.scrubbed_bytes = 0
        self.damaged_found = 0
        self.repaired = 0

    def __repr__(self) -> str:
        return f"Quarantine(scrubbed_bytes={self.scrubbed_bytes}, found={self.damaged_found}, repaired={self.repaired})"

    async def note(self, partition: Partition, file: SealedFile, finding: Finding) -> bool:
        """Take over what an examination found. False when the segment is gone. Raises OSError."""
        self.scrubbed_bytes += finding.scrubbed_bytes
        segment = _sealed_segment(partition, file.base_offset)
        if segment is None or partition.offline is not None:
            return False
        if segment.damage != finding.damage:
            if finding.damage:
                await self._lock_up(partition, segment, finding)
            else:
                await self._let_go(segment)
        return True

    async def mend(self, partition: Partition, base_offset: int, path: str) -> bool:
        """Let a good copy take the place of a segment's file. False when the segment is gone. Raises OSError."""
        async with self._trimmer.trimming:
            segment = _sealed_segment(partition, base_offset)
            if segment is None or partition.offline is not None:
                await self._in_thread(self._disk.unlink, path)
                return False
            await self._in_thread(self._swap, segment, path)
            await self._let_go(segment)
            self.repaired += 1
            return True

    async def _lock_up(self, partition: Partition, segment: Segment, finding: Finding) -> None:
        self.damaged_found += not segment.damage
        segment.damage = finding.damage
        for damage in finding.damage:
            log.error(
                "damaged records are in quarantine",
                extra={
                    "partition": partition.name,
                    "segment": segment.path,
                    "first_offset": damage.start_offset,
                    "end_offset": damage.end_offset,
                },
            )
        rows = encode_quarantine(finding.damage)
        await self._in_thread(write_atomically, self._disk, segment.file(paths.QUARANTINE), rows)

    async def _let_go(self, segment: Segment) -> None:
        """The file at the path is good: by a repair, or because an operator has put it there."""
        size_bytes = await self._in_thread(self._forget, segment)
        segment.replaced(size_bytes)

    def _swap(self, segment: Segment, path: str) -> None:
        self._disk.rename(path, segment.path)
        self._disk.fsync_dir(segment.directory)

    def _forget(self, segment: Segment) -> int:
        stat = self._disk.stat(segment.path)
        assert stat is not None
        if self._disk.stat(segment.file(paths.QUARANTINE)) is not None:
            self._disk.unlink(segment.file(paths.QUARANTINE))
            self._disk.fsync_dir(segment.directory)
        return stat.size_bytes

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **_: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)


class OwnPartition:
    """A partition of this process, for its scrubber."""

    def __init__(self, topic_id: str, partition: Partition, quarantine: Quarantine) -> None:
        self.topic_id = topic_id
        self.topic = partition.topic
        self.number = partition.number
        self._partition = partition
        self._quarantine = quarantine

    async def sealed_files(self) -> list[SealedFile]:
        return sealed_files(self._partition)

    async def found(self, file: SealedFile, finding: Finding) -> bool:
        return await self._quarantine.note(self._partition, file, finding)

    async def mend(self, file: SealedFile, path: str) -> bool:
        return await self._quarantine.mend(self._partition, file.base_offset, path)


def sealed_files(partition: Partition) -> list[SealedFile]:
    """A partition's sealed segments that are durable; none while it is offline."""
    if partition.offline is not None:
        return []
    return [
        SealedFile(segment.path, segment.base_offset, segment.next_offset, segment.size_bytes)
        for segment in partition.log.segments[:-1]
        if segment.next_offset <= partition.durable_end
    ]


def _sealed_segment(partition: Partition, base_offset: int) -> Segment | None:
    return next((s for s in partition.log.segments[:-1] if s.base_offset == base_offset), None)
