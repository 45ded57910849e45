"""Opens the partitions of a shard at its start, several at once, and reports the progress.

engine/log/recovery.py interprets the files of a partition. A partition that fails to open is offline with its error;
the others serve.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

from engine.compaction.progress import lower_progress
from engine.directory.log_directories import LogDirectories
from engine.directory.topics import TopicRecord
from engine.errors import Corrupt, EngineError
from engine.format import paths
from engine.log.batch_boundaries import boundary_above, boundary_below
from engine.log.log import BytePosition, Log
from engine.log.recovery import Checkpoint, LastShutdown, RecoveryReport, open_log
from engine.log.segment import Segment
from engine.partition.partition import Partition, PartitionEvents
from engine.producers.append_validator import AppendValidator
from engine.producers.state_loader import loaded_validator
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk
from engine.runtime.file_retries import retry_until_files_free
from engine.runtime.tasks import in_background

log = logging.getLogger("penstock.engine")

_Committed = tuple[int, BytePosition] | None

PARALLEL_OPENINGS = 4  # a scan is disk and CRC, both outside the interpreter's lock; more would only seek more
PROGRESS_LOG_S = 1.0


class OpenRequest(NamedTuple):
    """A partition to open."""

    record: TopicRecord
    number: int
    checkpoint: Checkpoint
    checkpointed_high_watermark: int = 0

    @property
    def name(self) -> str:
        return f"{self.record.name}/{self.number}"


@dataclass(slots=True)
class Progress:
    """The progress of opening partitions. Changes while it runs, stays afterwards."""

    partitions: int = 0
    opened: int = 0
    scanned_bytes: int = 0
    seconds: float = 0.0


def open_requests(
    record: TopicRecord, numbers: Iterable[int], checkpoints: Mapping[str, Checkpoint], hints: Mapping[str, int]
) -> list[OpenRequest]:
    """Return the partitions of a topic with what the last run has saved of them."""
    keys = ((number, f"{record.topic_id}/{number}") for number in numbers)
    return [OpenRequest(record, number, checkpoints.get(key, Checkpoint()), hints.get(key, 0)) for number, key in keys]


class Opener:
    """Opens partitions in the executor's threads. `report` sums up the results of recovery so far."""

    def __init__(
        self, disk: Disk, directories: LogDirectories, executor: Executor, clock: Clock, events: PartitionEvents
    ) -> None:
        self.report = RecoveryReport()
        self.progress = Progress()
        self._disk = disk
        self._directories = directories
        self._executor = executor
        self._clock = clock
        self._events = events
        self._counting = threading.Lock()

    def __repr__(self) -> str:
        return f"Opener({self.progress}, {self.report})"

    async def open_all(
        self, wanted: Sequence[OpenRequest], last_shutdown: LastShutdown | None = None
    ) -> list[Partition]:
        """Open the partitions, in the given order; `last_shutdown` overrides that of their directories."""
        self.progress.partitions += len(wanted)
        slots = asyncio.Semaphore(PARALLEL_OPENINGS)

        async def opened(one: OpenRequest) -> Partition:
            async with slots:
                return await self.open(one, last_shutdown)

        began = time.perf_counter()
        telling = in_background(self._log_progress(), "reporting the progress of a start")
        try:
            return await asyncio.gather(*map(opened, wanted))
        finally:
            telling.cancel()
            self.progress.seconds += time.perf_counter() - began

    async def open(self, wanted: OpenRequest, last_shutdown: LastShutdown | None = None) -> Partition:
        record, number = wanted.record, wanted.number
        loop = asyncio.get_running_loop()
        if self._directories.is_several:
            located = await retry_until_files_free(
                wanted.name, lambda: loop.run_in_executor(self._executor, self._directories.located, record, number)
            )
        else:
            located = self._directories.located(record, number)
        directory = paths.partition_dir(located.directory.path, record.name, record.topic_id, number)
        last_shutdown = last_shutdown or located.directory.last_shutdown
        if located.error is not None:
            self.progress.opened += 1
            return self._closed(wanted, directory, located.error)
        try:
            opened, validator, committed, report = await retry_until_files_free(
                wanted.name, lambda: loop.run_in_executor(self._executor, self._open, directory, wanted, last_shutdown)
            )
        except (EngineError, OSError) as error:
            self.progress.opened += 1
            return self._closed(wanted, directory, error)
        self.progress.opened += 1
        self.report += report
        if report.truncated_bytes:
            _log_truncation(wanted, last_shutdown, report, opened)
        partition = Partition(record.name, number, opened, record.settings, validator, self._events)
        if committed is not None:
            partition.begin_replicated(*committed)
        return partition

    def _open(
        self, directory: str, wanted: OpenRequest, last_shutdown: LastShutdown
    ) -> tuple[Log, AppendValidator, _Committed, RecoveryReport]:
        now_ms = self._clock.steady_ms()
        opened, report = open_log(
            self._disk, directory, wanted.checkpoint, last_shutdown, now_ms=now_ms, on_scanned=self._scanned
        )
        if report.truncated_bytes or report.dropped_segments:
            lower_progress(self._disk, directory, opened.log_end)
        is_replicated = wanted.record.hosted is not None
        validator = loaded_validator(
            self._disk, wanted.name, opened, wanted.record.settings, now_ms, is_replicated=is_replicated
        )
        return opened, validator, self._committed(opened, wanted), report

    def _committed(self, opened: Log, wanted: OpenRequest) -> _Committed:
        """On a standalone node the whole log is committed. Else the last known high watermark, at least log_start."""
        if wanted.record.hosted is None:
            return None
        read, first = Segment.pread, opened.segments[0].base_offset
        try:
            below = boundary_above(opened, opened.local_log_start, read)
            return max(below, boundary_below(opened, max(wanted.checkpointed_high_watermark, below[0]), read))
        except Corrupt:  # a damaged sealed segment; the leader sends the high watermark
            return first, BytePosition(first, 0)

    def _scanned(self, size_bytes: int) -> None:
        with self._counting:
            self.progress.scanned_bytes += size_bytes

    def _closed(self, wanted: OpenRequest, directory: str, error: Exception) -> Partition:
        """Returns an offline partition with its old checkpoint."""
        if error is not self._directories.holding(directory).fault:  # which has been logged
            log.error("partition is offline", extra={"partition": wanted.name, "reason": str(error)})
        recovery_point, log_start = wanted.checkpoint
        nothing = Segment(self._disk, directory, max(recovery_point, log_start))
        empty = Log(self._disk, directory, [nothing], log_start=log_start, leader_epoch=0)
        partition = Partition(wanted.record.name, wanted.number, empty, wanted.record.settings, events=self._events)
        partition.durable_end = recovery_point
        partition.offline = error if isinstance(error, EngineError) else Corrupt(f"{wanted.name}: {error}")
        return partition

    async def _log_progress(self) -> None:
        """Logs the progress of a long start, so that an operator does not take it for a hang."""
        while True:
            await asyncio.sleep(PROGRESS_LOG_S)
            progress = self.progress
            log.info(
                "opening partitions",
                extra={
                    "opened": progress.opened,
                    "partitions": progress.partitions,
                    "scanned_bytes": progress.scanned_bytes,
                },
            )


def _log_truncation(wanted: OpenRequest, last_shutdown: LastShutdown, report: RecoveryReport, opened: Log) -> None:
    text = (
        "records that were not fsynced were lost in the power loss"
        if report.mid_log_truncations
        else "incomplete tail truncated"
    )
    log.warning(
        text,
        extra={
            "partition": wanted.name,
            "last_shutdown": last_shutdown.value,
            "truncated_bytes": report.truncated_bytes,
            "dropped_segments": report.dropped_segments,
            "log_end": opened.log_end,
        },
    )
