"""The one thread of a shard that writes: it carries out groups of planned writes, one group at a time.

The event loop itself writes a small group whose appends wait for the page cache only, while the disk is quick: a write
into the page cache takes microseconds, and a hop to the thread and back tens of them (docs/decisions/0026).
Decides nothing: the group has the writes, and the files to sync. `carry_out` is plain and synchronous, so the
simulation runs it without the thread. The syncs of a group of many partitions are done by several threads; the group
ends when all have ended.
Invariants: a failed write leaves the file as it was or takes the partition offline; a failed fsync is never repeated,
because the kernel marks the pages clean and the next one would succeed without writing (PostgreSQL's fsync lesson,
2018). A sync that could not begin, because no file can be opened now, has not failed: it is postponed. Every submitted
group is answered, whatever is raised: a group without an answer would stop the shard permanently.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Protocol

from engine.errors import (
    NO_SPACE,
    TOO_MANY_FILES,
    EngineError,
    StorageFailed,
    StorageFull,
    too_many_open_files,
)
from engine.log.log import Roll, Write
from engine.log.segment import Segment
from engine.runtime.disk import Disk

SYNC_THREADS = 8  # a disk does several syncs in the time of one: four times as many a second with eight threads
IN_LOOP_BYTES_MAX, IN_LOOP_PARTITIONS_MAX = 64 * 1024, 16  # of a group that the event loop writes: less than 1 ms
QUICK_WRITE_S, QUICK_SYNC_S = 0.01, 0.1  # of a group; the thread may wait 5 ms of it for the interpreter lock
QUICK_GROUPS_MIN = 64  # in a row, before the event loop writes
QUICK_FOR_S = 1.0  # the disk may have changed since a group that ended longer ago
PARALLEL_SYNCS_MIN = 16  # starting threads for fewer takes time that other groups need

log = logging.getLogger("penstock.engine")


@dataclass(slots=True)
class PartitionWork:
    """One partition's work in a group: steps in order, then perhaps a sync of the named segments.

    `wants_early_ack`: followers or acks=1 producers can proceed before the fsync. `notes` make durable what must be so
    before the first step.
    """

    name: str
    directory: str
    steps: list[Write | Roll]
    wants_early_ack: bool = False
    notes: list[Callable[[], None]] = field(default_factory=list)
    are_noted: bool = False
    sync: list[Segment] = field(default_factory=list)
    sync_directory: bool = False
    sync_directory_first: bool = False  # before a roll: no later segment may outlive the entry of an earlier one
    is_written: bool = False  # by the event loop
    write_error: EngineError | None = None
    sync_error: EngineError | None = None
    is_sync_put_off: bool = False  # it could not begin: the bytes are still unsynced


class Parallel(Protocol):
    """`map` of an executor."""

    def __call__(
        self, sync: Callable[[PartitionWork], EngineError | None], syncs: list[PartitionWork], /
    ) -> Iterable[EngineError | None]: ...


def _no_time() -> float:
    return 0.0


@dataclass(slots=True)
class Group:
    """The writes of many partitions, then their syncs; the durations are noted here by the clock `now`."""

    work: list[PartitionWork]
    on_written: Callable[[Group], object] | None = None
    now: Callable[[], float] = _no_time
    write_s: float = 0.0
    sync_s: float = 0.0
    began_s: float = 0.0


def carry_out(disk: Disk, group: Group, in_parallel: Parallel | None = None) -> None:
    """Do all writes, call back, then do all syncs. Stores errors of any kind in the work that they belong to."""
    group.began_s = began = group.now()
    for work in group.work:
        if not work.is_written:
            work.write_error = _write(disk, work)
    written = group.now()
    group.write_s += written - began
    if group.on_written is not None:
        _notify_loop(group.on_written, group)
    syncs = [work for work in group.work if work.write_error is None and (work.sync or work.sync_directory)]
    over = map if in_parallel is None or len(syncs) < PARALLEL_SYNCS_MIN else in_parallel
    for work, error in zip(syncs, over(partial(_sync, disk), syncs), strict=True):
        work.sync_error = error
    group.sync_s = group.now() - written


def _write(disk: Disk, work: PartitionWork) -> EngineError | None:
    done: list[Write] = []
    try:
        for note in work.notes:
            note()
        work.are_noted = True
        for step in work.steps:
            if isinstance(step, Roll):
                if work.sync_directory_first:
                    _sync_before_roll(disk, work)
                handle = disk.open(step.segment.path, create=True, writable=True)
                step.segment.use_append_handle(handle)
                disk.truncate(handle, 0)
                continue
            expected, handle = step.size_bytes, step.segment.handle  # which may make the file
            done.append(step)
            try:
                written = disk.pwritev(handle, step.buffers, step.position)
            except OSError as error:
                if error.errno in TOO_MANY_FILES:  # the write has not begun: nothing to undo
                    done.pop()
                raise
            if written != expected:
                raise OSError(errno.ENOSPC, f"short write: {written} of {expected} bytes")
    except Exception as error:
        return _undo(disk, work, done, error)
    return None


def _sync_before_roll(disk: Disk, work: PartitionWork) -> None:
    """A failed sync is final even if the disk is full, so this raises no OSError."""
    try:
        disk.fsync_dir(work.directory)
    except OSError as error:
        if error.errno in TOO_MANY_FILES:
            raise
        raise RuntimeError(f"fsync failed: {error!r}") from error


def _undo(disk: Disk, work: PartitionWork, done: list[Write], error: Exception) -> EngineError:
    """Truncates the bytes of the failed plan, durably, so that they can never be read or recovered."""
    try:
        for write in reversed(done):
            disk.truncate(write.segment.handle, write.position)
            disk.fdatasync(write.segment.handle)
        for step in work.steps:
            if isinstance(step, Roll):
                step.segment.close()
                if disk.stat(step.segment.path) is not None:
                    disk.unlink(step.segment.path)
                    disk.fsync_dir(work.directory)
    except Exception as second:
        text = f"{work.name}: a write failed ({error!r}) and could not be undone ({second!r})"
        return _failure(text, error if isinstance(error, OSError) else second)
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        return StorageFull(f"{work.name}: no space left to append", hint="free space or shorten retention")
    if isinstance(error, OSError) and error.errno in TOO_MANY_FILES:
        return too_many_open_files(f"{work.name}: append")
    failure = _failure(f"{work.name}: append failed: {error!r}", error)
    failure.no_side_effects = True  # type: ignore[misc] # undone, so nothing was stored
    return failure


def _sync(disk: Disk, work: PartitionWork) -> EngineError | None:
    try:
        for segment in work.sync:
            disk.fdatasync(segment.handle)
        if work.sync_directory:
            disk.fsync_dir(work.directory)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in TOO_MANY_FILES:  # fsync never fails with it, but opening does
            work.is_sync_put_off = True
            return None
        text = f"{work.name}: fsync failed: {error!r}"
        return _failure(text, error, hint="the partition is offline until a restart")
    return None


def _failure(text: str, error: Exception, *, hint: str = "") -> StorageFailed:
    failure = StorageFailed(text, hint=hint)
    failure.os_error = error if isinstance(error, OSError) else None
    return failure


def _notify_loop(callback: Callable[[Group], object], group: Group) -> None:
    """Fails only if the event loop is closed already; the writer has others to serve."""
    try:
        callback(group)
    except Exception:
        log.exception("completing a group commit failed")


class DiskPace:
    """The last groups: whether each was quick, and came soon after the one before."""

    def __init__(self) -> None:
        self._quick_groups = 0
        self._last_end = 0.0

    def __repr__(self) -> str:
        return f"DiskPace({self._quick_groups} quick groups)"

    def observe(self, group: Group, now: float) -> None:
        is_quick = group.write_s <= QUICK_WRITE_S and group.sync_s <= QUICK_SYNC_S
        self._quick_groups = self._quick_groups + 1 if is_quick and now - self._last_end <= QUICK_FOR_S else 0
        self._last_end = now

    def is_quick(self, now: float) -> bool:
        return self._quick_groups >= QUICK_GROUPS_MIN and now - self._last_end <= QUICK_FOR_S


def _is_for_loop(group: Group) -> bool:
    """Returns whether the group is small, opens no file, and is not to be synced."""
    size_bytes = 0
    for work in group.work:
        if work.notes or work.sync or work.sync_directory:
            return False
        for step in work.steps:
            if isinstance(step, Roll) or not step.segment.is_open:
                return False
            size_bytes += step.size_bytes
    return 0 < size_bytes <= IN_LOOP_BYTES_MAX and len(group.work) <= IN_LOOP_PARTITIONS_MAX


class WriterThread:
    """Carries out one group after another in a thread of its own."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self._pace = DiskPace()
        self._queue: SimpleQueue[tuple[Group, Callable[[Group], object]] | None] = SimpleQueue()
        self._syncing = ThreadPoolExecutor(SYNC_THREADS, f"{name}-sync")  # starts its threads at first need
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def write_now(self, group: Group) -> bool:
        """Carry out a small group without syncs on the event loop, if the disk is quick. Returns whether it is done.

        `submit` repeats a write that has failed here, with the same bytes at the same place. Call it while no group is
        in progress.
        """
        group.began_s = began = group.now()
        if not self._pace.is_quick(began) or not _is_for_loop(group):
            return False
        try:
            for work in group.work:
                for write in work.steps:
                    assert isinstance(write, Write)
                    if self._disk.pwritev(write.segment.handle, write.buffers, write.position) != write.size_bytes:
                        return False
                work.is_written = work.are_noted = True
        except Exception:  # the thread meets it too, and answers the group with it
            return False
        ended = group.now()
        group.write_s = ended - began
        self._pace.observe(group, ended)
        return True

    def submit(self, group: Group, on_done: Callable[[Group], object]) -> None:
        """Carry out a group; calls `on_done` in the writer thread."""
        self._queue.put((group, on_done))

    def stop(self) -> None:
        """Finish the submitted groups, then end the thread."""
        self._queue.put(None)
        self._thread.join()
        self._syncing.shutdown()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            group, on_done = item
            try:
                carry_out(self._disk, group, self._syncing.map)
            except Exception as error:
                log.exception("the writer failed")
                _fail_group(group, error)
            self._pace.observe(group, group.now())
            _notify_loop(on_done, group)


def _fail_group(group: Group, error: Exception) -> None:
    """The state of this work is unknown, and earlier results may be wrong, so both answers are errors."""
    for work in group.work:
        work.sync_error = StorageFailed(f"{work.name}: the writer failed: {error!r}")
        work.write_error = work.write_error or work.sync_error
