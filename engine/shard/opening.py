"""Opens the partitions of a shard at its start, several at once, and reports the progress.

engine/log/recovery.py interprets the files of a partition. A partition that fails to open is offline with its error;
the others serve.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from engine.compaction.progress import lower_progress
from engine.directory.log_directories import LogDirectories
from engine.directory.topics import TopicRecord
from engine.errors import TOO_MANY_FILES, Corrupt, EngineError
from engine.format import paths
from engine.log.batch_boundaries import boundary_above, boundary_below
from engine.log.log import BytePosition, Log
from engine.log.recovery import Checkpoint, LastShutdown, RecoveryReport, open_log
from engine.log.segment import Segment
from engine.partition.partition import Partition, PartitionEvents
from engine.producers.append_validator import AppendValidator
from engine.producers.state_loader import load_validator
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk
from engine.runtime.file_retries import retry_until_files_free
from engine.runtime.tasks import in_background
from engine.topic_settings import TopicSettings

log = logging.getLogger("penstock.engine")

_Committed = tuple[int, BytePosition] | None

PARALLEL_OPENINGS = 4  # a scan is disk and CRC, both outside the interpreter's lock; more would only seek more
BATCH = 64  # partitions in one call of a thread; taking them over costs the event loop about 1 ms
PROGRESS_LOG_S = 1.0


class OpenRequest(NamedTuple):
    """A partition to open."""

    record: TopicRecord
    settings: TopicSettings
    number: int
    checkpoint: Checkpoint
    checkpointed_high_watermark: int = 0

    @property
    def name(self) -> str:
        return f"{self.record.name}/{self.number}"


class _Opened(NamedTuple):
    log: Log
    validator: AppendValidator
    committed: _Committed
    report: RecoveryReport
    last_shutdown: LastShutdown


class _Failed(NamedTuple):
    directory: str
    error: Exception


_Waiting = deque[tuple[int, OpenRequest]]  # each with its place in the answer
_Outcome = tuple[int, OpenRequest, _Opened | _Failed]


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
    """Returns the partitions of a topic with what the last run has saved of them."""
    settings, nothing = record.settings, Checkpoint()
    keys = ((number, f"{record.topic_id}/{number}") for number in numbers)
    return [
        OpenRequest(record, settings, number, checkpoints.get(key, nothing), hints.get(key, 0)) for number, key in keys
    ]


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
        self, requests: Sequence[OpenRequest], last_shutdown: LastShutdown | None = None
    ) -> list[Partition]:
        """Opens the partitions, in the given order; `last_shutdown` overrides that of their directories."""
        self.progress.partitions += len(requests)
        waiting = deque(enumerate(requests))
        partitions: dict[int, Partition] = {}
        began = time.perf_counter()
        telling = in_background(self._log_progress(), "reporting the progress of a start")
        threads = range(min(PARALLEL_OPENINGS, len(requests)))
        try:
            await asyncio.gather(*(self._open_waiting(waiting, partitions, last_shutdown) for _ in threads))
        finally:
            waiting.clear()  # so that the threads of a cancelled start end
            telling.cancel()
            self.progress.seconds += time.perf_counter() - began
        return [partitions[index] for index in range(len(requests))]

    async def _open_waiting(
        self, waiting: _Waiting, partitions: dict[int, Partition], last_shutdown: LastShutdown | None
    ) -> None:
        """Opens what waits, a batch in each call of a thread: a call for each partition took most of the time."""
        loop = asyncio.get_running_loop()
        while waiting:
            outcomes = await retry_until_files_free(
                "opening partitions",
                lambda: loop.run_in_executor(self._executor, self._open_batch, waiting, last_shutdown),
            )
            for index, request, outcome in outcomes:
                partitions[index] = self._partition(request, outcome)

    def _open_batch(self, waiting: _Waiting, last_shutdown: LastShutdown | None) -> list[_Outcome]:
        """Raises OSError for too many open files, with nothing opened; one that fails later waits again."""
        outcomes: list[_Outcome] = []
        while waiting and len(outcomes) < BATCH:
            try:
                index, request = waiting.popleft()
            except IndexError:  # another thread has taken the last one
                break
            try:
                outcomes.append((index, request, self._attempt(request, last_shutdown)))
            except OSError:
                waiting.appendleft((index, request))
                if not outcomes:
                    raise
                break
        return outcomes

    def _attempt(self, request: OpenRequest, last_shutdown: LastShutdown | None) -> _Opened | _Failed:
        """Raises OSError for too many open files."""
        located = self._directories.locate(request.record, request.number)
        record = request.record
        directory = paths.partition_dir(located.directory.path, record.name, record.topic_id, request.number)
        outcome: _Opened | _Failed
        try:
            if located.error is not None:
                raise located.error
            outcome = self._open(directory, request, last_shutdown or located.directory.last_shutdown)
        except (EngineError, OSError) as error:
            if isinstance(error, OSError) and error.errno in TOO_MANY_FILES:
                raise
            outcome = _Failed(directory, error)
        with self._counting:
            self.progress.opened += 1
        return outcome

    def _open(self, directory: str, request: OpenRequest, last_shutdown: LastShutdown) -> _Opened:
        now_ms = self._clock.steady_ms()
        opened, report = open_log(
            self._disk, directory, request.checkpoint, last_shutdown, now_ms=now_ms, on_scanned=self._count_scanned
        )
        if report.truncated_bytes or report.dropped_segments:
            lower_progress(self._disk, directory, opened.log_end)
        is_replicated = request.record.hosted is not None
        validator = load_validator(
            self._disk,
            request.name,
            opened,
            request.settings,
            now_ms,
            is_replicated=is_replicated,
            is_new=bool(report.new_logs),
        )
        return _Opened(opened, validator, self._committed(opened, request), report, last_shutdown)

    def _partition(self, request: OpenRequest, outcome: _Opened | _Failed) -> Partition:
        if isinstance(outcome, _Failed):
            return self._offline_partition(request, outcome.directory, outcome.error)
        self.report += outcome.report
        if outcome.report.truncated_bytes:
            _log_truncation(request, outcome.last_shutdown, outcome.report, outcome.log)
        partition = Partition(
            request.record.name, request.number, outcome.log, request.settings, outcome.validator, self._events
        )
        if outcome.committed is not None:
            partition.begin_replicated(*outcome.committed)
        return partition

    def _committed(self, opened: Log, request: OpenRequest) -> _Committed:
        """On a standalone node the whole log is committed. Else the last known high watermark, at least log_start."""
        if request.record.hosted is None:
            return None
        read, first = Segment.pread, opened.segments[0].base_offset
        try:
            below = boundary_above(opened, opened.local_log_start, read)
            return max(below, boundary_below(opened, max(request.checkpointed_high_watermark, below[0]), read))
        except Corrupt:  # a damaged sealed segment; the leader sends the high watermark
            return first, BytePosition(first, 0)

    def _count_scanned(self, size_bytes: int) -> None:
        with self._counting:
            self.progress.scanned_bytes += size_bytes

    def _offline_partition(self, request: OpenRequest, directory: str, error: Exception) -> Partition:
        """Returns an offline partition with its old checkpoint."""
        if error is not self._directories.holding(directory).fault:  # which has been logged
            log.error("partition is offline", extra={"partition": request.name, "reason": str(error)})
        recovery_point, log_start = request.checkpoint
        nothing = Segment(self._disk, directory, max(recovery_point, log_start))
        empty = Log(self._disk, directory, [nothing], log_start=log_start, leader_epoch=0)
        partition = Partition(request.record.name, request.number, empty, request.settings, events=self._events)
        partition.durable_end = recovery_point
        partition.offline = error if isinstance(error, EngineError) else Corrupt(f"{request.name}: {error}")
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


def _log_truncation(request: OpenRequest, last_shutdown: LastShutdown, report: RecoveryReport, opened: Log) -> None:
    text = (
        "records that were not fsynced were lost in the power loss"
        if report.mid_log_truncations
        else "incomplete tail truncated"
    )
    log.warning(
        text,
        extra={
            "partition": request.name,
            "last_shutdown": last_shutdown.value,
            "truncated_bytes": report.truncated_bytes,
            "dropped_segments": report.dropped_segments,
            "log_end": opened.log_end,
        },
    )


class OpeningPartitions:
    """Opened partitions that are not all served yet, with the keys of their points: their topic need not be known.

    A shard adds many in slices, and saves recovery points in between. Invariant: each save has the point of a partition
    from its opening on, before it is served. Without it, fsynced records would count as a torn tail after a power loss,
    and deleted records would come back.
    """

    def __init__(self) -> None:
        self._keys: dict[Partition, str] = {}

    def __repr__(self) -> str:
        return f"OpeningPartitions({len(self._keys)})"

    @contextmanager
    def including(self, requests: Sequence[OpenRequest], partitions: Sequence[Partition]) -> Iterator[None]:
        """Includes these partitions in each save within this context."""
        self._keys |= {
            partition: f"{request.record.topic_id}/{request.number}"
            for request, partition in zip(requests, partitions, strict=True)
        }
        try:
            yield
        finally:
            for partition in partitions:
                self._keys.pop(partition, None)

    def and_served(self, served: Iterable[Partition]) -> Iterable[Partition]:
        """Yields these and the served partitions, each once."""
        return dict.fromkeys([*served, *self._keys]) if self._keys else served

    def key_of(self, partition: Partition) -> str | None:
        """Returns the key of a partition's point; None if it is not among them."""
        return self._keys.get(partition)
