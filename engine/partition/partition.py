"""One partition on this node: its log, its named positions and its waits.

Lives on one event loop. Does no disk I/O itself: the committer writes, the reader reads. The only replica of its log
commits by itself: with durability=group what is fsynced, with durability=os what is written. A partition that
`is_replicated` does not know the other replicas; replication/replica/replica.py moves its high watermark.
Invariant: log_start <= high_watermark <= log_end, durable_end <= log_end, and none of these decreases, except by a
truncation after divergence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from engine.errors import (
    AckTruncated,
    EngineError,
    OffsetAboveHighWatermark,
    OffsetBelowLogStart,
    StorageFailed,
    Unreachable,
)
from engine.format.batch_header import PRODUCER_ID_AT
from engine.log.log import BytePosition, Log, Roll, Write
from engine.log.segment import Segment
from engine.partition.accepted_counts import WRITTEN_MAX, AcceptedCounts
from engine.partition.follower_append import FollowerAppendQueue, PlannedAppends
from engine.partition.high_watermark import HighWatermark
from engine.partition.writer import PartitionWork
from engine.producers.append_validator import AppendValidator
from engine.producers.appends import Append, Appended, resolve_appends, resolve_failed
from engine.producers.snapshots import SnapshotFiles
from engine.topic_settings import TopicSettings

log = logging.getLogger("penstock.engine")

LAST_WRITE_BYTES_MAX = 4 * 1024  # of each of 10,000 partitions

_wants_sync = attrgetter("wants_sync")  # no frame for each append


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    log_start: int
    local_log_start: int
    log_end: int
    durable_end: int
    high_watermark: int
    sealed_end: int
    size_bytes: int
    segments: int
    leader_epoch: int
    waiting: int


def _nothing(_: Partition) -> None:
    """No-op: nothing follows the event."""


def _as_it_is(_: Partition, error: EngineError) -> EngineError:
    return error


@dataclass(frozen=True, slots=True)
class PartitionEvents:
    """The calls that partitions make, each with the partition. One object serves all partitions of a shard."""

    positions_moved: Callable[[Partition], None] = _nothing  # log_end or durable_end, of a replicated partition
    sync_awaited: Callable[[Partition], None] = _nothing  # a wait has begun, and the last bytes are not fsynced
    went_offline: Callable[[Partition], None] = _nothing
    # the high watermark's byte position must be read from the disk
    byte_position_unknown: Callable[[Partition], None] = _nothing
    mapped_error: Callable[[Partition, EngineError], EngineError] = _as_it_is  # that of the directory, if that failed


NO_EVENTS = PartitionEvents()


class Partition:
    """Takes batches, keeps the positions, and wakes the waits for them."""

    def __init__(
        self,
        topic: str,
        number: int,
        log: Log,
        settings: TopicSettings,
        validator: AppendValidator | None = None,
        events: PartitionEvents = NO_EVENTS,
    ) -> None:
        self.topic = topic
        self.number = number
        self.log = log
        self.settings = settings
        self.validator = validator or AppendValidator(f"{topic}/{number}")
        self.snapshots = SnapshotFiles()
        self.offline: EngineError | None = None
        self.durable_end = log.log_end
        self.queue: list[Append] = []
        self.copies = FollowerAppendQueue()
        self.unsynced_since: float | None = None
        self.is_sync_put_off = False  # the last sync could not begin; retried after a pause
        self.cuts = 0  # truncations and resets: what was computed from the log before one does not hold
        self.compacted_end = self.compacted_by_all = 0  # of this log, and of every replica's; 0 until they are known
        self.segments_lock = asyncio.Lock()  # held while segments leave the log, are truncated or are replaced
        self.is_replicated = False  # others may have replicas, whose ends are between any two batches
        self.last_write = LastWrite()
        self.accepted = AcceptedCounts()
        self.opened_at = log.log_end  # records appended since: log_end less this
        self.bytes_in = 0
        self.batches_in = 0
        self.bytes_out = 0
        self._roll_waiters: list[asyncio.Future[int]] = []  # for the next group
        self._rolling: list[asyncio.Future[int]] = []  # for the group in progress
        self.watermark = HighWatermark(log, self._request_sync, partial(events.byte_position_unknown, self))
        self._events = events
        self._unsynced: list[Segment] = []
        self._sealed: list[Segment] = []  # to be closed once they are durable
        self._directory_unsynced = log.active.size_bytes == 0  # the file may be new, or is not made yet

    def __repr__(self) -> str:
        return f"Partition({self.name}, {self.statistics()})"

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.number}"

    @property
    def log_end(self) -> int:
        return self.log.segments[-1].next_offset  # of each produce and poll, many times: no call of the log

    @property
    def high_watermark(self) -> int:
        return self.watermark.position

    def statistics(self) -> PartitionStatistics:
        return PartitionStatistics(
            log_start=self.log.log_start,
            local_log_start=self.log.local_log_start,
            log_end=self.log_end,
            durable_end=self.durable_end,
            high_watermark=self.high_watermark,
            sealed_end=self.log.sealed_end,
            size_bytes=self.log.size_bytes,
            segments=len(self.log.segments),
            leader_epoch=self.log.leader_epoch,
            waiting=self.watermark.waiting,
        )

    def check_readable(self, offset: int) -> None:
        """Raises OffsetBelowLogStart or OffsetAboveHighWatermark; not at the watermark, where the caller waits."""
        if self.log.log_start <= offset <= self.watermark.position:
            return
        log_start, high_watermark = self.log.log_start, self.high_watermark
        if offset < log_start:
            text = f"{self.name}: offset {offset} is below log_start {log_start}"
            raise OffsetBelowLogStart(text, log_start=log_start, high_watermark=high_watermark)
        text = f"{self.name}: offset {offset} is above high_watermark {high_watermark}"
        raise OffsetAboveHighWatermark(text, log_start=log_start, high_watermark=high_watermark)

    def _request_sync(self) -> None:
        """Ask for a sync if a long poll or an acknowledgement waits for it: bytes are written and not fsynced."""
        if self.unsynced_since is not None and self.settings.durability == "group":
            self._events.sync_awaited(self)

    def wake_all(self) -> None:
        """Ends all long polls now, as at a drain or a change of role: they answer with the available records."""
        self.watermark.polls.wake_all()

    def begin_standalone(self) -> None:
        """Begins as the only replica: the whole log is committed."""
        self.is_replicated = False
        self._publish_ends()

    def begin_replicated(self, committed_end: int, byte_position: BytePosition) -> None:
        """Begins as one of several replicas: records above `committed_end` may not be committed yet."""
        self.is_replicated = True
        self.watermark.set_back(committed_end, byte_position)

    def request_roll(self) -> asyncio.Future[int]:
        """Seals the active segment before the next append; done with sealed_end."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._roll_waiters.append(future)
        return future

    @property
    def has_work(self) -> bool:
        return bool(self.queue or self._roll_waiters or self.copies.queue)

    @property
    def is_sync_wanted(self) -> bool:
        """True if an append waits for queued bytes to be fsynced."""
        return any(map(_wants_sync, self.queue)) or (bool(self.copies.queue) and self.copies.wants_sync)

    @property
    def has_conditions(self) -> bool:
        """True if the validator must judge the queue: for a token to carry, conditions, or a producer id."""
        if self.validator.fencing.present.token:
            return True
        for append in self.queue:  # the first bit of a producer id is its sign
            if append.conditions is not None or append.requests is not None or append.batch[PRODUCER_ID_AT] < 0x80:
                return True
        return False

    # The committer calls the following, in this order for each group.

    def take_work(self, *, sync: bool, now_ms: int) -> tuple[PartitionWork, list[Append]]:
        """Plan a roll alone when one is requested, or follower appends, or the queue.

        `sync` requests that all bytes be durable afterwards.
        """
        taken: list[Append] = []
        copied: PlannedAppends | None = None
        if self._roll_waiters:
            steps = self.log.plan_roll(now_ms)
            self._rolling, self._roll_waiters = self._rolling + self._roll_waiters, []
        elif self.copies.queue:
            copied = self.copies.take(self.log, self.validator.fencing, self.settings, now_ms)
            steps = copied.steps
        else:
            admitted = self.validator.admit(self.queue, self.log_end, now_ms) if self.has_conditions else self.queue
            steps = self.log.plan([append.batch for append in admitted], self.settings, now_ms)
            taken, self.queue = self.queue, []
        work = PartitionWork(self.name, self.log.directory, steps)
        work.wants_early_ack = any(self.is_replicated or not append.wants_sync for append in taken)
        work.sync_directory_first = self._directory_unsynced and _rolls(steps)
        if copied is not None:
            work.notes, work.wants_early_ack = copied.notes, copied.wants_early_ack
        if sync:
            work.sync = list(dict.fromkeys([*self._unsynced, *(step.segment for step in steps)]))
            work.sync_directory = self._directory_unsynced or _rolls(steps)
        return work, taken

    def apply_writes(self, work: PartitionWork, taken: list[Append], now: float) -> list[Segment]:
        """Applies the group's writes, which are in the page cache or failed. Returns the segments that this sealed."""
        if work.write_error is not None:
            self._fail_write(work, work.write_error, taken)
            return []
        steps = work.steps
        rolled = [step.segment for step in steps if isinstance(step, Roll)]
        sealed = [self.log.active, *rolled[:-1]] if rolled else []
        self.log.apply(steps)
        for step in steps:
            if step.segment not in self._unsynced:
                self._unsynced.append(step.segment)
        self._sealed += sealed
        self._directory_unsynced |= bool(rolled)
        if steps and self.unsynced_since is None:
            self.unsynced_since = now
        if steps and self.is_replicated:
            self.watermark.boundaries.add(self.log_end, self.log.end_position, steps)
        rolled_at = [segment.base_offset for segment in rolled]
        if self.copies.under_way is not None:
            self._apply_copied(work, self.copies.under_way, rolled_at)
        else:
            self._apply_appended(_writes(steps), taken, rolled_at)
        self.last_write.put(steps, has_polls=self.watermark.polls.count > 0)  # `boundaries` keeps the rest
        if self.is_replicated or self.settings.durability != "group":  # else nothing is committed before its sync
            self._publish_ends()
        return sealed

    def apply_syncs(self, work: PartitionWork) -> None:
        """Applies the group's syncs, which are done or failed."""
        if self.offline is not None:
            return
        if work.sync_error is not None:
            self.go_offline(work.sync_error)
            return
        if work.write_error is None and work.sync:
            self.is_sync_put_off = work.is_sync_put_off
        if work.is_sync_put_off:
            return
        if work.write_error is None and work.sync:
            for segment in self._sealed:
                if segment is not self.log.active:  # a truncation may have made it active again
                    segment.seal()
            self._sealed = []
            self.durable_end = self.log_end
            self._unsynced = []
            self._directory_unsynced = False
            self.unsynced_since = None
            self._publish_ends()
        if self.copies.syncing and self.durable_end == self.log_end:
            self.copies.complete_synced(self.log_end)
        self._resolve_rolls()

    def go_offline(self, error: EngineError) -> None:
        """Take the partition offline after a disk failure or a deletion: fail its waits, reject new appends.

        Queued appends have their error, and stay until the committer, which counts them, discards them.
        """
        if self.offline is None:
            error = self._events.mapped_error(self, error)
        if self.offline is not None:  # perhaps with its whole directory, by the line before
            return
        self.offline = error
        if error.code == StorageFailed.code and not isinstance(error, Unreachable):  # reported for its directory
            log.error("partition is offline", extra={"partition": self.name, "reason": str(error)})
        self.fail_appends(self.queue, error)
        self._rolling = _fail_waits(self._rolling, error)
        self._roll_waiters = _fail_waits(self._roll_waiters, error)
        self.copies.end(error)
        self.watermark.fail(error)
        self._events.went_offline(self)

    def cut(self, old_end: int) -> None:
        """Applies a truncation or a reset of the log, done while no group was in progress. Acknowledges nothing."""
        self.watermark.acks.fail_present(AckTruncated(f"{self.name}: the end of the log was cut off"))
        self.snapshots.invalidate()
        self.accepted.cut(self.log_end)
        self.cuts += 1
        self.opened_at += self.log_end - old_end
        self.durable_end = min(self.durable_end, self.log_end)
        self._unsynced = [segment for segment in self._unsynced if segment in self.log.segments]
        if not self._unsynced:
            self.unsynced_since = None
        first, watermark = self.log.segments[0], self.watermark
        if self.high_watermark > self.log_end or watermark.byte_position.base_offset < first.base_offset:
            self.watermark.set_back(self.log_end, self.log.end_position)
        else:
            self.watermark.cut()

    def move_to(self, directory: str, handle: int | None) -> None:
        """Uses the equal files of another directory; the handle appends to the last one. The partition is paused."""
        self.log.directory = directory
        for segment in self.log.segments:
            segment.move_to(directory, handle if segment is self.log.active else None)
        self.snapshots.invalidate()
        self.cuts += 1  # a compaction in progress has the old paths

    def discard_queue(self) -> int:
        """Drops the queue, whose appends have failed; returns its bytes."""
        discarded, self.queue = self.queue, []
        return self.validator.drop(discarded)

    def fail_appends(self, appends: list[Append], error: EngineError) -> None:
        for append in appends:
            if not append.written.done():
                append.written.set_exception(error)

    def _publish_ends(self) -> None:
        """Commit everything as the only replica, or report the new ends to replication."""
        if self.is_replicated:
            self._events.positions_moved(self)
        else:
            self.watermark.advance_to(self.log_end, self.log.end_position)

    def _apply_appended(self, writes: list[Write], taken: list[Append], rolled_at: list[int]) -> None:
        headers = [header for write in writes for header in write.headers]
        self.bytes_in += sum([len(buffer) for write in writes for buffer in write.buffers])
        self.batches_in += len(headers)
        self.accepted.written.append(headers)
        if len(self.accepted.written) >= WRITTEN_MAX:
            self.accepted.settle(self.watermark.position)
        if (is_judged := self.validator.is_judged) or rolled_at:
            self.validator.commit_staged(self.settings, rolled_at)
        if is_judged:
            resolve_appends(headers, taken)
            return
        for append, header in zip(taken, headers, strict=True):
            if not append.written.done():
                append.written.set_result(Appended(header.base_offset, header.last_offset_delta + 1))

    def _apply_copied(self, work: PartitionWork, taken: PlannedAppends, rolled_at: list[int]) -> None:
        now_ms = next((write.now_ms for write in _writes(work.steps)), 0)
        self.validator.apply_copied(taken.notable, self.settings, now_ms, rolled_at)
        self.opened_at += sum(s.headers[-1].next_offset - s.headers[0].base_offset for s in _writes(work.steps))
        self._record_changes(work, taken)
        self.copies.apply_written(self.log)

    def _record_changes(self, work: PartitionWork, taken: PlannedAppends) -> None:
        """Records what became durable before the follower appends, also if they failed."""
        if work.are_noted:
            self.log.epochs = self.log.epochs if taken.epochs is None else taken.epochs
            self.validator.fencing.is_noted |= taken.notes_token

    def _resolve_rolls(self) -> None:
        """Only now: a roll promises that the sealed segment is durable."""
        waiters, self._rolling = self._rolling, []
        for future in waiters:
            if not future.done():
                future.set_result(self.log.sealed_end)

    def _fail_write(self, work: PartitionWork, error: EngineError, taken: list[Append]) -> None:
        """Fails also the appends judged by the failed plan; duplicates of stored batches succeed."""
        self.validator.discard_staged()
        if self.copies.under_way is not None:
            self._record_changes(work, self.copies.under_way)
            self.copies.drop_failed(error)
        resolve_failed(taken, self.log_end, error)
        self._rolling = _fail_waits(self._rolling, error)
        if not error.retryable:
            self.go_offline(error)


def _fail_waits(waiters: list[asyncio.Future[int]], error: EngineError) -> list[asyncio.Future[int]]:
    """Fails these waits; returns a new list for later ones."""
    for future in waiters:
        if not future.done():
            future.set_exception(error)
    return []


def _writes(steps: list[Write | Roll]) -> list[Write]:
    return [step for step in steps if isinstance(step, Write)]


def _rolls(steps: list[Write | Roll]) -> bool:
    return any(isinstance(step, Roll) for step in steps)


class LastWrite:
    """The bytes of the last group that was written, for long polls that wait for them; empty if there are none.

    They need not be read from the disk and checked: the writer has just written them. Kept only while a poll waits, and
    only if they are few. They may not be committed yet, or be cut off: a reader asks for those up to the high
    watermark, and every write replaces them.
    """

    __slots__ = ("base_offset", "data", "next_offset")

    def __init__(self) -> None:
        self.base_offset = self.next_offset = 0
        self.data = b""

    def __repr__(self) -> str:
        return f"LastWrite({self.base_offset} to {self.next_offset}, {len(self.data)} bytes)"

    def put(self, steps: Sequence[Write | Roll], *, has_polls: bool) -> None:
        """Takes the buffers of steps that were written: the page cache has their bytes now."""
        self.data = b""
        for step in steps:
            if isinstance(step, Write):
                if has_polls and len(steps) == 1 and step.size_bytes <= LAST_WRITE_BYTES_MAX:
                    self.data = b"".join(step.buffers)
                    self.base_offset, self.next_offset = step.headers[0].base_offset, step.headers[-1].next_offset
                step.buffers = []

    def between(self, offset: int, end: int) -> bytes:
        """Returns the batches from one offset to another, if it has just these; else nothing."""
        return self.data if self.base_offset == offset and self.next_offset == end else b""
