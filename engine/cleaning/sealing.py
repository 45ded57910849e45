"""Checks the batches of a newly sealed segment, makes its derived files, and notifies the shipper once it is committed.

The checksum of a segment is made only of valid batches: the active segment may have been damaged since its batches were
written, and a checksum of damaged bytes would validate them permanently. The file is therefore read. If it has exactly
the bytes that this process wrote, its batches are not checked one by one. Damage is noted and logged.

Runs in the background. Only a truncation of the same log waits for it (`saved`): it must not find an index or a
checksum made of truncated batches. Derived files are never evidence: without them only the next start is slower.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import TypeVar

from engine.cleaning.segment_check import Finding, SealedFile, examine, sealed_file
from engine.errors import EngineError
from engine.format.checksum import at_once
from engine.log.segment import Segment, save_index
from engine.partition.partition import Partition
from engine.producers.snapshots import State, save_state
from engine.runtime.disk import Disk
from engine.runtime.tasks import BackgroundTasks

T = TypeVar("T")
OnDamaged = Callable[[Partition, SealedFile, Finding], Awaitable[object]]

log = logging.getLogger("penstock.engine")


class Sealer:
    """Saves the sealed segments of a shard. Calls `on_sealed` with a partition each time that it has more to ship.

    `on_damaged` quarantines the damage that the check of a segment finds.
    """

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        background: BackgroundTasks,
        on_sealed: Callable[[Partition], None],
        on_damaged: OnDamaged,
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._background = background
        self._on_sealed = on_sealed
        self._on_damaged = on_damaged
        self._saving: dict[Partition, set[asyncio.Task[None]]] = {}
        self._is_stopping = False

    def __repr__(self) -> str:
        return f"Sealer(saving={sum(map(len, self._saving.values()))})"

    def start_saving(self, partition: Partition, segments: list[Segment]) -> None:
        work = self._save(partition, segments, partition.validator.take_states())
        task = self._background.start(work, "saving a sealed segment", of=partition.name)
        self._saving.setdefault(partition, set()).add(task)
        task.add_done_callback(lambda task: self._on_saved(partition, segments, task))

    async def wait_saved(self, partition: Partition) -> None:
        """Waits until no save of a partition is in progress."""
        while tasks := self._saving.get(partition):
            await asyncio.wait(tasks)
            await asyncio.sleep(0)  # tasks that wait for the same end run first

    def stop(self) -> None:
        """Stops waiting for segments to be committed."""
        self._is_stopping = True

    def _on_saved(self, partition: Partition, segments: list[Segment], task: asyncio.Task[None]) -> None:
        tasks = self._saving[partition]
        tasks.discard(task)
        if not tasks:
            del self._saving[partition]
        if not task.cancelled():
            work = self._notify_sealed(partition, segments[-1].next_offset)
            self._background.start(work, "reporting a sealed segment", of=partition.name)

    async def _notify_sealed(self, partition: Partition, end: int) -> None:
        with suppress(EngineError):
            while partition.high_watermark < end and not self._is_stopping:
                future = partition.watermark.polls.wait_for(end)
                try:
                    await future  # only committed segments are shipped
                finally:
                    partition.watermark.polls.give_up(end, future)
        self._on_sealed(partition)

    async def _save(self, partition: Partition, segments: list[Segment], states: list[State]) -> None:
        for state in states:
            try:
                args = (partition.log.directory, state, partition.high_watermark, partition.snapshots)
                await self._in_thread(save_state, self._disk, *args)
            except OSError as error:
                partition.validator.keys.save_all_next()
                log.warning("state not saved", extra={"partition": partition.name, "reason": str(error)})
        for segment in segments:
            file = sealed_file(segment)
            try:
                await self._in_thread(save_index, self._disk, segment)
                finding = await self._in_thread(examine, self._disk, file, at_once, segment.written_checksum)
                if finding.damage:
                    await self._on_damaged(partition, file, finding)
            except (OSError, EngineError) as error:
                log.warning("index or checksum not saved", extra={"segment": segment.path, "reason": str(error)})

    async def _in_thread(self, function: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)
