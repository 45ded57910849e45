"""Compacts the partitions of a node, one after another, in a thread of its own at a bounded rate.

Works on files and asks the owner of each partition what there is; so it runs in the node or in the worker process.
Never delays reads or appends. A partition that cannot be compacted is logged once per reason, and the others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from engine.compaction.latest_offsets import HASH_KEY_BYTES
from engine.compaction.log_compaction import NewSegment, SegmentCopier, latest_offsets
from engine.compaction.plan import CompactionPlan, LogFiles, SegmentFile, Uncleanable, grouped, plan_compaction
from engine.compaction.progress import Progress
from engine.errors import Draining, EngineError
from engine.format.batch import KEYED_PRODUCER, Header
from engine.format.keyed_batch import KeyEntry, SequenceEntry, SourceEntry, read_entries
from engine.runtime.disk import Disk
from engine.runtime.tasks import keep_running, log_failure
from engine.runtime.throttled_thread import Stopped, ThrottledThread
from engine.topic_settings import TopicSettings

log = logging.getLogger("penstock.engine")


class CompactedPartition(Protocol):
    """A partition of a compacted topic, in this process or in another one."""

    @property
    def name(self) -> str: ...
    @property
    def settings(self) -> TopicSettings: ...

    async def log_files(self) -> tuple[LogFiles, Progress]:
        """Returns its sealed segments, and how far it is compacted. Raises EngineError, OSError."""

    async def replace(self, new: NewSegment) -> bool:
        """Puts a new file in place; False: the log has changed, and the file is gone. Raises EngineError, OSError."""

    async def end_round(self, end: int, expired_below: int, generation: tuple[int, int]) -> None:
        """Saves that it is compacted below `end` by now, and has no tombstones below `expired_below`.

        No-op if it was truncated since that generation. Raises EngineError, OSError.
        """


class Compactor:
    """Compacts `partitions` whenever they are due; looks at them every `check_ms`."""

    def __init__(
        self,
        disk: Disk,
        partitions: Callable[[], Iterable[CompactedPartition]],
        thread: ThrottledThread,
        *,
        memory_bytes: int,
        check_ms: int,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._disk = disk
        self._partitions = partitions
        self._memory_bytes = memory_bytes
        self._check_ms = check_ms
        self._random_bytes = random_bytes
        self._thread = thread
        self._task: asyncio.Task[None] | None = None
        self._logged: dict[str, str] = {}  # the last reason of each partition that cannot be compacted

    def __repr__(self) -> str:
        return f"Compactor({self._thread}, every {self._check_ms} ms, stuck={len(self._logged)})"

    def start(self) -> None:
        self._task = keep_running(self._run, "compacting")

    async def stop(self) -> None:
        await self._thread.stop(self._task)

    async def compact_all(self) -> None:
        """Compact each partition that is due, once. Logs a failure of one, and goes on with the others."""
        present = list(self._partitions())
        for gone in self._logged.keys() - {partition.name for partition in present}:
            del self._logged[gone]
        for partition in present:
            try:
                while await self.compact(partition):
                    pass
            except Stopped:
                raise
            except (EngineError, OSError) as error:
                if getattr(error, "code", "") != Draining.code:
                    self._log_once(partition, str(error))
            except Exception as error:  # of any kind: a failing partition must not delay the others
                log_failure("compacting", error, of=partition.name)

    async def compact(self, partition: CompactedPartition) -> bool:
        """Compact a partition if it is due. Returns True if its memory was full, so that there is more to do now."""
        (files, progress), settings = await partition.log_files(), partition.settings
        plan = plan_compaction(files, progress, settings)
        if isinstance(plan, Uncleanable):
            self._log_once(partition, plan.value)
            return False
        self._logged.pop(partition.name, None)
        if plan is None:
            return False
        hash_key = self._random_bytes(HASH_KEY_BYTES)
        latest, end = await self._thread.run(
            latest_offsets, self._disk, plan, self._memory_bytes, hash_key, self._thread.pace
        )
        expired_below = min(plan.tombstones_expired_below, progress.cleaned_end)
        keeps = _ProducersInUse(settings, files.now_ms)
        copier = SegmentCopier(self._disk, files.directory, latest, expired_below, keeps, self._thread.pace)
        below_end = [segment for segment in plan.sealed if segment.base_offset < max(end, plan.dirty_start)]
        removed = freed = 0
        for group in grouped(below_end, settings.segment_bytes):
            new = await self._thread.run(copier.copy, group)
            if new is None:
                continue
            if not await partition.replace(new):
                return False  # the log has changed: the next round sees it as it is then
            removed, freed = removed + new.removed, freed + new.freed_bytes
        await partition.end_round(end, expired_below, files.generation)
        extra = {"partition": partition.name, "end": end, "removed_records": removed, "freed_bytes": freed}
        log.info("a partition was compacted", extra=extra)
        return end < _end(plan)

    def _log_once(self, partition: CompactedPartition, reason: str) -> None:
        if self._logged.get(partition.name) != reason:
            self._logged[partition.name] = reason
            log.warning("a partition is not compacted", extra={"partition": partition.name, "reason": reason})

    async def _run(self) -> None:
        with suppress(Stopped):
            while True:
                await asyncio.sleep(self._check_ms / 1000)
                await self.compact_all()


class _ProducersInUse:
    """Decides if a retry of a batch may still come, by the age of its segment."""

    def __init__(self, settings: TopicSettings, now_ms: int) -> None:
        self._settings = settings
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"_ProducersInUse({self._now_ms})"

    def __call__(self, segment: SegmentFile, header: Header, batch: memoryview) -> bool:
        settings, age_ms = self._settings, self._now_ms - segment.last_append_ms
        if header.producer_id != KEYED_PRODUCER:
            return age_ms < settings.producer_expiry_ms
        expiries_ms = {
            KeyEntry: settings.idempotency_window_ms,
            SourceEntry: settings.source_expiry_ms,
            SequenceEntry: settings.producer_expiry_ms,
        }
        if age_ms < min(expiries_ms.values()):
            return True
        if age_ms >= max(expiries_ms.values()):
            return False
        kept_ms = [expiries_ms[type(entry.entry)] for entry in read_entries(batch)]
        return age_ms < max(kept_ms, default=settings.idempotency_window_ms)


def _end(plan: CompactionPlan) -> int:
    return plan.sealed[-1].end_offset
