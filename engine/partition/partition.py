"""One partition on this node: its log, its named positions and who waits for them.

Lives on one event loop. Does no disk I/O itself: the committer writes, the reader reads. It does not know who the
other replicas are; replication/replica/replica.py moves the high watermark.
Invariant: log_start <= high_watermark <= log_end, durable_end <= log_end, and none of these but a truncation after
divergence ever goes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.errors import (
    EndCutOff,
    EngineError,
    OffsetAboveHighWatermark,
    OffsetBelowLogStart,
    StorageFailed,
    Unreachable,
)
from engine.log.log import BytePosition, Log, Roll, Write
from engine.log.segment import Segment
from engine.partition.follower_append import CopyQueue, Taken
from engine.partition.high_watermark import HighWatermark
from engine.partition.position_waiters import PositionWaiters
from engine.partition.writer import PartitionWork
from engine.producers.append_validator import Append, AppendValidator, is_repeat_of_stored, tell_appended, tell_verdicts
from engine.settings import TopicSettings

log = logging.getLogger("penstock.engine")


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


class Partition:
    """Takes batches in, keeps the positions, and wakes those who wait for them."""

    def __init__(
        self, topic: str, number: int, log: Log, settings: TopicSettings, validator: AppendValidator | None = None
    ) -> None:
        self.topic = topic
        self.number = number
        self.log = log
        self.settings = settings
        self.validator = validator or AppendValidator(f"{topic}/{number}")
        self.offline: EngineError | None = None
        self.durable_end = log.log_end
        self.queue: list[Append] = []
        self.copies = CopyQueue()
        self.unsynced_since: float | None = None
        self.is_sync_put_off = False  # the last sync could not begin; to be tried again after a pause
        self.segments_lock = asyncio.Lock()  # held while segments leave the log, are cut or are exchanged
        self.when_positions_move: Callable[[], None] = _nothing
        self.when_waited_for: Callable[[], None] = _nothing
        self.when_offline: Callable[[], None] = _nothing
        self.is_replicated = False  # there are other replicas, whose ends lie between any two batches
        self.mapped_error: Callable[[EngineError], EngineError] = _as_it_is  # it may be one of the whole directory
        self.opened_at = log.log_end  # records taken in since: log_end less this
        self.bytes_in = 0
        self.batches_in = 0
        self.bytes_out = 0
        self._roll_waiters: list[asyncio.Future[int]] = []  # for the next group
        self._rolling: list[asyncio.Future[int]] = []  # for the group under way
        self.watermark = HighWatermark(log)
        self._unsynced: list[Segment] = []
        self._sealed: list[Segment] = []  # to be closed once they are durable
        self._directory_unsynced = log.active.size_bytes == 0  # the file may be new: engine/log/recovery.py

    def __repr__(self) -> str:
        return f"Partition({self.name}, {self.statistics()})"

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.number}"

    @property
    def log_end(self) -> int:
        return self.log.log_end

    @property
    def high_watermark(self) -> int:
        return self.watermark.position

    @property
    def is_waited_for(self) -> bool:
        """Somebody waits for the high watermark: an acks=all produce or a long poll."""
        return self.watermark.is_waited_for

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
        """Raise unless `offset` is in [log_start, high_watermark]; the watermark itself means waiting."""
        bounds: dict[str, Any] = {"log_start": self.log.log_start, "high_watermark": self.high_watermark}
        if offset < self.log.log_start:
            raise OffsetBelowLogStart(f"{self.name}: offset {offset} is below log_start {self.log.log_start}", **bounds)
        if offset > self.high_watermark:
            text = f"{self.name}: offset {offset} is above high_watermark {self.high_watermark}"
            raise OffsetAboveHighWatermark(text, **bounds)

    @property
    def read_limit(self) -> tuple[int, BytePosition]:
        """The high watermark and its place: what readers may not pass."""
        return self.watermark.position, self.watermark.place

    def wait_for_high_watermark(self, end: int) -> asyncio.Future[int]:
        """Done once everything below `end` is committed, or with an error when the partition goes offline.

        Done earlier when whoever waits shall look for himself (wake_all): it is no acknowledgement.
        """
        return self._wait(self.watermark.polls, end)

    def wait_for_ack(self, end: int) -> asyncio.Future[int]:
        """Done once everything below `end` is committed, and never earlier; else with an error."""
        return self._wait(self.watermark.acks, end)

    def give_up_high_watermark(self, end: int, future: asyncio.Future[int]) -> None:
        """To be called for a wait that is no longer wanted; without it the wait stays until `end` is committed."""
        self.watermark.polls.give_up(end, future)

    async def high_watermark_by(self, deadline: float, end: int) -> int:
        """As `wait_for_high_watermark`, until a moment of the loop's clock. Raises TimeoutError."""
        return await self.watermark.polls.outcome(end, self.wait_for_high_watermark(end), deadline)

    async def acknowledged_by(self, deadline: float, end: int) -> int:
        """As `wait_for_ack`, until a moment of the loop's clock. Raises TimeoutError."""
        return await self.watermark.acks.outcome(end, self.wait_for_ack(end), deadline)

    def _wait(self, waiters: PositionWaiters, end: int) -> asyncio.Future[int]:
        future = waiters.wait_for(end)
        if not future.done():
            self.when_waited_for()
        return future

    def fail_acks(self, error: EngineError) -> None:
        """Whoever waits for an acknowledgement now will not get it, as when another leads."""
        self.watermark.acks.fail_present(error)

    def wake_all(self) -> None:
        """End all long polls now, as at a drain or a change of role: they answer with what there is."""
        self.watermark.polls.wake_all()

    def advance_high_watermark(self, position: int) -> None:
        """Commit everything below a position between two batches."""
        self.watermark.advance(position)

    def begin_replicated(self, committed_end: int, place: BytePosition) -> None:
        """One of several replicas: what it has may not be committed yet."""
        self.is_replicated = True
        self.watermark.set_back(committed_end, place)

    def request_roll(self) -> asyncio.Future[int]:
        """Seal what is there before anything else is appended; done with sealed_end."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._roll_waiters.append(future)
        return future

    @property
    def has_work(self) -> bool:
        return bool(self.queue or self._roll_waiters or self.copies)

    @property
    def is_sync_wanted(self) -> bool:
        """Somebody waits for what is queued to be fsynced."""
        return any(append.wants_sync for append in self.queue) or self.copies.wants_sync

    # What follows is called by the committer, in this order for each group.

    def take_work(self, *, sync: bool, now_ms: int) -> tuple[PartitionWork, list[Append]]:
        """Plan a roll alone when one is asked for, or copies, or what is queued.

        `sync` asks that all be durable afterwards.
        """
        taken: list[Append] = []
        copied: Taken | None = None
        if self._roll_waiters:
            steps = self.log.plan_roll(now_ms)
            self._rolling, self._roll_waiters = self._rolling + self._roll_waiters, []
        elif self.copies:
            copied = self.copies.take(self.log, self.validator.fencing, self.settings, now_ms)
            steps = copied.steps
        else:
            admitted = self.validator.admit(self.queue, self.log_end, now_ms)
            steps = self.log.plan([append.batch for append in admitted], self.settings, now_ms)
            taken, self.queue = self.queue, []
        work = PartitionWork(self.name, self.log.directory, steps)
        work.sync_directory_first = self._directory_unsynced and _rolls(steps)
        if copied is not None:
            work.notes = copied.notes
        if sync:
            work.sync = list(dict.fromkeys([*self._unsynced, *(step.segment for step in steps)]))
            work.sync_directory = self._directory_unsynced or _rolls(steps)
        return work, taken

    def written(self, work: PartitionWork, taken: list[Append], now: float) -> list[Segment]:
        """The group's writes are in the page cache, or failed. Returns the segments that this sealed."""
        if work.write_error is not None:
            self._failed_write(work, work.write_error, taken)
            return []
        sealed = [self.log.active] if _rolls(work.steps) else []
        self.log.applied(work.steps)
        sealed += [
            step.segment for step in work.steps if isinstance(step, Roll) and step.segment is not self.log.active
        ]
        for step in work.steps:
            if step.segment not in self._unsynced:
                self._unsynced.append(step.segment)
        self._sealed += sealed
        self._directory_unsynced |= _rolls(work.steps)
        if work.steps and self.unsynced_since is None:
            self.unsynced_since = now
        if work.steps:
            steps = work.steps if self.is_replicated else ()
            self.watermark.boundaries.add(self.log_end, self.log.end_position, steps)
        rolled_at = [s.segment.base_offset for s in work.steps if isinstance(s, Roll)]
        if self.copies.under_way is not None:
            self._copied(work, self.copies.under_way, rolled_at)
        else:
            self.validator.written(self.settings, rolled_at)
            headers = [header for step in work.steps if isinstance(step, Write) for header in step.headers]
            self.bytes_in += sum(sum(map(len, step.buffers)) for step in work.steps if isinstance(step, Write))
            self.batches_in += len(headers)
            tell_appended(headers, taken)
        for write in _writes(work.steps):
            write.buffers = []  # they are in the page cache; `boundaries` keeps the rest until it is committed
        self.when_positions_move()
        return sealed

    def synced(self, work: PartitionWork) -> None:
        """The group's syncs are done, or failed."""
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
                if segment is not self.log.active:  # a cut may have made it active again
                    segment.sealed()
            self._sealed = []
            self.durable_end = self.log_end
            self._unsynced = []
            self._directory_unsynced = False
            self.unsynced_since = None
            self.when_positions_move()
        if self.durable_end == self.log_end:
            self.copies.synced(self.log_end)
        self._tell_rolled()

    def go_offline(self, error: EngineError) -> None:
        """The disk cannot be trusted for this partition any more, or it is deleted: end what waits, refuse what comes.

        What is queued has its answer but stays until the committer, which counts it, discards it.
        """
        if self.offline is not None:
            return
        self._end(self.mapped_error(error))

    def _end(self, error: EngineError) -> None:
        if self.offline is not None:  # with its whole directory, by now
            return
        self.offline = error
        if error.code == StorageFailed.code and not isinstance(error, Unreachable):  # that is told of its directory
            log.error("partition is offline", extra={"partition": self.name, "reason": str(error)})
        self.fail_appends(self.queue, error)
        self._rolling = _failed(self._rolling, error)
        self._roll_waiters = _failed(self._roll_waiters, error)
        self.copies.end(error)
        self.watermark.fail(error)
        self.when_offline()

    def cut(self, old_end: int) -> None:
        """The log has lost its end, or all that it had, while no group was under way. It gives no acknowledgements."""
        self.fail_acks(EndCutOff(f"{self.name}: the end of the log was cut off"))
        self.opened_at += self.log_end - old_end
        self.durable_end = min(self.durable_end, self.log_end)
        self._unsynced = [segment for segment in self._unsynced if segment in self.log.segments]
        if not self._unsynced:
            self.unsynced_since = None
        if self.high_watermark > self.log_end or self.watermark.place.base_offset < self.log.segments[0].base_offset:
            self.watermark.set_back(self.log_end, self.log.end_position)
        else:
            self.watermark.cut()

    def discard_queue(self) -> int:
        """Forget what was queued when the partition went offline; returns its bytes."""
        discarded, self.queue = self.queue, []
        return sum(len(append.batch) for append in discarded)

    def fail_appends(self, appends: list[Append], error: EngineError) -> None:
        for append in appends:
            if not append.written.done():
                append.written.set_exception(error)

    def _copied(self, work: PartitionWork, taken: Taken, rolled_at: list[int]) -> None:
        now_ms = next((write.now_ms for write in _writes(work.steps)), 0)
        self.validator.copied(taken.notable, self.settings, now_ms, rolled_at)
        self.opened_at += sum(s.headers[-1].next_offset - s.headers[0].base_offset for s in _writes(work.steps))
        self._note(work, taken)
        self.copies.written(self.log)

    def _note(self, work: PartitionWork, taken: Taken) -> None:
        """What was made durable before the copies is known from now on, whatever became of them."""
        if work.are_noted:
            self.log.epochs = self.log.epochs if taken.epochs is None else taken.epochs
            self.validator.fencing.is_noted |= taken.notes_token

    def _tell_rolled(self) -> None:
        """Only now: a roll promises that what it sealed is durable."""
        waiters, self._rolling = self._rolling, []
        for future in waiters:
            if not future.done():
                future.set_result(self.log.sealed_end)

    def _failed_write(self, work: PartitionWork, error: EngineError, taken: list[Append]) -> None:
        """What was refused for what the plan would have written fails with it; what has long been stored does not."""
        self.validator.failed()
        if self.copies.under_way is not None:
            self._note(work, self.copies.under_way)
            self.copies.failed(error)
        tell_verdicts([append for append in taken if is_repeat_of_stored(append, self.log_end)])
        self.fail_appends(taken, error)
        self._rolling = _failed(self._rolling, error)
        if not error.retryable:
            self.go_offline(error)


def _nothing() -> None:
    """Nobody is interested yet."""


def _as_it_is(error: EngineError) -> EngineError:
    return error


def _failed(waiters: list[asyncio.Future[int]], error: EngineError) -> list[asyncio.Future[int]]:
    """End these waits with an error; returns the list of those that still wait."""
    for future in waiters:
        if not future.done():
            future.set_exception(error)
    return []


def _writes(steps: list[Write | Roll]) -> list[Write]:
    return [step for step in steps if isinstance(step, Write)]


def _rolls(steps: list[Write | Roll]) -> bool:
    return any(isinstance(step, Roll) for step in steps)
