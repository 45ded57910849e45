"""Manages the data directories of a running shard: recovery points, failures, and the clean stop.

engine/directory/log_directories.py locates partitions. Directories are independent: one that fails takes its own
partitions offline and stops nothing in the others.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

from engine.directory.data_directory import DataDirectory
from engine.directory.high_watermark_checkpoint import save_high_watermarks
from engine.directory.log_directories import LogDirectories
from engine.directory.unopened_recovery_points import UnopenedRecoveryPoints
from engine.errors import EngineError, StorageFailed, StorageFull, Unreachable
from engine.format import paths
from engine.log.recovery import Checkpoint
from engine.log.segment import save_index
from engine.partition.partition import Partition
from engine.partition.writer import PARALLEL_SYNCS_MIN, SYNC_THREADS
from engine.producers.snapshots import remembers, save_state
from engine.runtime.disk import Disk

T = TypeVar("T")

# reading the headers of fewer bytes takes less time than the four syncs of index and state
WALKED_BYTES_MIN = 64 * 1024
ROOM_BYTES = 4 * 1024 * 1024  # with more, missing spare files are made within a second whatever is appended
SAVE_S = 5.0  # half of the supervisor's extra time beyond shutdown_timeout_ms

log = logging.getLogger("penstock.engine")


class LogDirectoryManager:
    """Keeps the recovery points of the given partitions, by their topics' ids, and of closed ones."""

    def __init__(
        self,
        disk: Disk,
        directories: LogDirectories,
        executor: Executor,
        partitions: Callable[[], Iterable[Partition]],
        key_of: Callable[[Partition], str],
        closed: UnopenedRecoveryPoints,
    ) -> None:
        self._disk = disk
        self._directories = directories
        self._executor = executor
        self._partitions = partitions
        self._key_of = key_of
        self._closed = closed
        self._saving = asyncio.Lock()
        self._saved_high_watermarks: dict[DataDirectory, dict[str, int]] = {}
        self._full: set[DataDirectory] = set()  # without room for their spare files
        self._logged: dict[str, str] = {}  # by directory, the logged reason of its last failed checkpoint

    def __repr__(self) -> str:
        return f"LogDirectoryManager({self._directories})"

    def add(self, partition: Partition) -> None:
        """Manage an opened partition, whose directory may have failed since it was opened."""
        if self._directories.is_several and (fault := self.directory_of(partition).fault) is not None:
            partition.go_offline(fault)

    def record_failure(self, partition: Partition, error: OSError, doing: str) -> bool:
        """Records a disk error. Returns whether it took the whole directory offline, which is then reported."""
        return self._directories.record_failure(self.directory_of(partition), error, f"{partition.name}: {doing}")

    def directory_of(self, partition: Partition) -> DataDirectory:
        return self._directories.holding(partition.log.directory)

    async def mark_recovered(self) -> None:
        """Notes that every partition has been recovered or has failed to open."""
        for directory in self._directories.usable:
            if self._is_complete(directory):
                await self._in_thread(directory.mark_recovered)

    async def save_checkpoints(self) -> None:
        """Writes the recovery points of every partition. Raises OSError only for a single directory."""
        for directory in self._directories.usable:
            try:
                await self._save_in(directory)
                self._logged.pop(directory.path, None)
            except OSError as error:
                if not self._directories.is_several:
                    raise
                is_fault = self._directories.record_failure(directory, error, "saving recovery points")
                if not is_fault and self._logged.get(directory.path) != str(error):
                    self._logged[directory.path] = str(error)
                    log.warning("checkpoint failed", extra={"directory": directory.path, "reason": str(error)})

    async def save_points(self, partition: Partition, log_start: int = 0) -> None:
        """Saves the positions of one partition, independently of other directories; its log_start rises once durable.

        Raises OSError: the log_start in memory is as before.
        """
        directory, log_ = self.directory_of(partition), partition.log
        if directory.fault is not None:
            raise OSError(errno.EIO, str(directory.fault))
        async with self._saving:
            checkpoints = await self._checkpoints(directory)
            saved = checkpoints.get(self._key_of(partition))
            if saved is not None and log_start > saved.log_start:
                checkpoints[self._key_of(partition)] = saved._replace(log_start=log_start)
            await self._in_thread(partial(directory.save_checkpoints, checkpoints))
            log_.log_start = max(log_.log_start, log_start)

    @asynccontextmanager
    async def moving(self, partition: Partition, target: DataDirectory) -> AsyncIterator[None]:
        """Saves the positions of a partition in the directory that it moves to, and each in its own one afterwards.

        No other save happens meanwhile: a power loss at any time finds the positions. Raises OSError before the move.
        """
        source = self.directory_of(partition)
        async with self._saving:
            point = {self._key_of(partition): Checkpoint(partition.durable_end, partition.log.log_start)}
            checkpoints = await self._checkpoints(target)
            await self._in_thread(partial(target.save_checkpoints, checkpoints | point))
            try:
                yield
            finally:
                for directory in (target, source):
                    if directory.fault is None:
                        with suppress(OSError):  # the next save reports it
                            checkpoints = self._checkpoints_in(directory)
                            await self._in_thread(partial(directory.save_checkpoints, checkpoints))

    async def fill_spares(self) -> Callable[[Partition], None] | None:
        """Makes the missing spare files. Returns the check of appends while a directory has no room for them.

        Raises OSError.
        """
        for directory in self._directories.usable:
            try:
                has_room = await self._in_thread(directory.fill_spares)
            except OSError as error:
                if not self._directories.is_several:
                    raise
                self._directories.record_failure(directory, error, "making spare files")
                continue
            if has_room:
                self._full.discard(directory)
            elif directory not in self._full:
                self._full.add(directory)
                log.warning("the disk is full: appends are refused until it has room", extra={"path": directory.path})
        return self._check_room if self._full else None

    def without_room(self) -> Iterator[tuple[str, int, str]]:
        """Yields the partitions, by topic and number, whose disk has no room for appends, and the directory."""
        full = {directory for directory in self._directories.usable if self._has_no_room(directory)}
        for partition in self._partitions() if full else ():
            directory = self.directory_of(partition)
            if directory in full:
                yield partition.topic, partition.number, f"{directory.path} is full"

    def _has_no_room(self, directory: DataDirectory) -> bool:
        try:
            return self._disk.free_bytes(directory.path) < ROOM_BYTES
        except OSError:  # no answer: not known
            return False

    def _check_room(self, partition: Partition) -> None:
        """Raises StorageFull if the disk has little room, and spare files are missing: they come before records."""
        directory = self.directory_of(partition)
        if directory in self._full and self._disk.free_bytes(directory.path) < ROOM_BYTES:
            raise StorageFull(f"{partition.name}: no space left to append", hint="free space or shorten retention")

    def close(self, now: Callable[[], float]) -> bool:
        """Stops each directory independently, so that a failed one does not make the others be scanned. Blocks.

        Saves index and state files, which only make the next start faster, for SAVE_S seconds at most by the clock
        `now`.
        Returns whether all are clean, except those with a fault from the start.
        """
        is_clean = True
        for directory in self._directories:
            try:
                is_clean &= self._close(directory, partial(_is_past, now, now() + SAVE_S))
            except OSError as error:
                directory.release()
                is_clean = False
                words = {"directory": directory.path, "reason": str(error)}
                log.warning("a data directory was not stopped cleanly", extra=words)
        return is_clean

    def _close(self, directory: DataDirectory, is_late: Callable[[], bool]) -> bool:
        partitions = self._partitions_in(directory)
        self._save_states(partitions, is_late)
        for partition in partitions:
            for segment in partition.log.segments:
                segment.close()
        if directory.fault is None:
            self._closed.remove(self._closed.find_deleted())
            directory.save_checkpoints(self._checkpoints_in(directory))
            self._save_high_watermarks(directory, self._high_watermarks_in(directory), is_durable=False)
        if self._is_complete(directory):
            directory.close_clean()
            return True
        directory.release()
        # otherwise it had the fault from the start
        return directory.fault is not None and not self._directories.has_failed

    def _save_states(self, partitions: list[Partition], is_late: Callable[[], bool]) -> None:
        """Saves index and state, for the partitions with the longest scan first, several at once."""
        to_save = [
            partition
            for partition in partitions
            if partition.offline is None and (_is_long(partition) or partition.validator.has_state)
        ]
        to_save.sort(key=_walked_bytes, reverse=True)

        def save(partition: Partition) -> bool:
            if is_late():
                return False
            if _is_long(partition):
                save_index(self._disk, partition.log.active)
            path, end, files = partition.log.directory, partition.log_end, partition.snapshots
            if not remembers(self._disk, path, end, end, files):
                save_state(self._disk, path, partition.validator.state(end), partition.high_watermark, files)
            return True

        if len(to_save) < PARALLEL_SYNCS_MIN:
            saved = list(map(save, to_save))
        else:
            with ThreadPoolExecutor(SYNC_THREADS, "penstock-save") as threads:
                saved = list(threads.map(save, to_save))
        if not all(saved):
            log.warning(
                "the deadline passed before all indexes and states were saved; the next start scans more",
                extra={"after_s": SAVE_S},
            )

    async def _save_in(self, directory: DataDirectory) -> None:
        """One at a time, since partitions share a file."""
        async with self._saving:
            checkpoints, hints = await self._checkpoints(directory), self._high_watermarks_in(directory)
            await self._in_thread(partial(directory.save_checkpoints, checkpoints))
            saved = self._saved_high_watermarks.get(directory)
            if hints != saved:
                is_lowered = saved is None or any(position < saved.get(name, 0) for name, position in hints.items())
                await self._in_thread(partial(self._save_high_watermarks, directory, hints, is_durable=is_lowered))
                self._saved_high_watermarks[directory] = hints

    async def _checkpoints(self, directory: DataDirectory) -> dict[str, Checkpoint]:
        if self._closed:
            self._closed.remove(await self._in_thread(self._closed.find_deleted))
        return self._checkpoints_in(directory)

    def _high_watermarks_in(self, directory: DataDirectory) -> dict[str, int]:
        having = self._partitions() if not self._directories.is_several else self._partitions_in(directory)
        return {self._key_of(partition): partition.high_watermark for partition in having if partition.is_replicated}

    def _save_high_watermarks(self, directory: DataDirectory, hints: dict[str, int], *, is_durable: bool) -> None:
        """Writes no file without replicated partitions, unless an earlier run wrote one."""
        if hints or self._disk.stat(directory.file(paths.high_watermarks_file(directory.part))) is not None:
            save_high_watermarks(self._disk, directory.path, directory.part, hints, is_durable=is_durable)

    def take_offline(self, directory: DataDirectory) -> None:
        """Takes all partitions of a failed directory offline."""
        assert directory.fault is not None
        for partition in self._partitions_in(directory):
            partition.go_offline(directory.fault)

    def mapped_error(self, partition: Partition, error: EngineError) -> EngineError:
        """Map an error to that of the directory: a broken disk fails all partitions, not only the first user."""
        if isinstance(error, StorageFailed) and error.os_error is not None:
            directory = self.directory_of(partition)
            if self._directories.record_failure(directory, error.os_error, error.detail):
                assert directory.fault is not None
                return directory.fault
        return error

    def _partitions_in(self, directory: DataDirectory) -> list[Partition]:
        return [partition for partition in self._partitions() if self.directory_of(partition) is directory]

    def _is_complete(self, directory: DataDirectory) -> bool:
        """True if all its partitions are open. Missing ones were logged, and do not require a scan of the rest."""
        return directory.fault is None and all(
            partition.offline is None or isinstance(partition.offline, Unreachable)
            for partition in self._partitions_in(directory)
        )

    def _checkpoints_in(self, directory: DataDirectory) -> dict[str, Checkpoint]:
        """Includes offline partitions: their recovery point and log_start stay valid."""
        having = self._partitions() if not self._directories.is_several else self._partitions_in(directory)
        opened = {
            self._key_of(partition): Checkpoint(partition.durable_end, partition.log.log_start) for partition in having
        }
        return self._closed.of_directory(directory) | opened

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)


def _walked_bytes(partition: Partition) -> int:
    """Returns the bytes that a start would scan without an index and a state of the log's end."""
    return partition.log.active.size_bytes


def _is_long(partition: Partition) -> bool:
    return _walked_bytes(partition) >= WALKED_BYTES_MIN


def _is_past(now: Callable[[], float], deadline: float) -> bool:
    return now() > deadline
