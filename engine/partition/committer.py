"""Group commit: collects the pending writes of a shard's partitions and submits them to the writer, group by group.

Runs on the event loop and never waits for a sync. While one group is being written, the next one gathers. A group has
GROUP_PARTITIONS_MAX partitions at most, and topics alternate (`CommitQueue`): first records in thousands of partitions
of one topic must not delay the others. A partition's bytes are synced with the group if (1) an append in it asks for
it, (2) a produce or a poll waits for the partition's high watermark and that means fsynced bytes, or (3) its oldest
unsynced byte is `flush_ms` old. Invariants: every started group ends; an exception in one partition takes that
partition offline, and the groups of the others continue. A partition with unsynced bytes is in a group, due, held, or
has a timer. A partition waits for as many groups as its own topic needs for earlier appends, times the waiting topics.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.errors import EngineError, StorageFailed
from engine.format.batch import Buffer
from engine.log.segment import Segment
from engine.partition.follower_append import FollowerAppend
from engine.partition.partition import Partition
from engine.partition.writer import Group, PartitionWork, WriterThread
from engine.producers.appends import Append, AppendConditions, Appended, QueuedBatch
from engine.runtime.clock import Clock
from engine.runtime.histogram import Histogram
from engine.topic_settings import TopicSettings

TIMER_S_MIN = 0.001  # the resolution of the loop's timers
GROUP_PARTITIONS_MAX = 64  # their syncs take tens of milliseconds, for which every other partition may wait
RECENT_GROUPS = 64  # an append of a cluster waits for its followers, while later groups are written
PUT_OFF_S = 0.1  # pause before the retry of a sync that could not open a file

OnSealed = Callable[[Partition, list[Segment]], None]
log = logging.getLogger("penstock.engine")


@dataclass(slots=True)
class _InProgress:
    """A partition's share of the group in progress."""

    partition: Partition
    work: PartitionWork
    taken: list[Append]
    is_applied: bool = False


class CommitQueue:
    """Partitions, each with whether its bytes are to be synced. In order of arrival within a topic."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[Partition, bool]] = {}  # no inner dict is empty
        self._count = 0

    def __repr__(self) -> str:
        return f"CommitQueue({self._count} of {len(self._by_topic)} topics)"

    def __len__(self) -> int:
        return self._count

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._by_topic.get(partition.topic, ())

    def add(self, partition: Partition, *, sync: bool) -> None:
        """Adds a partition once: it keeps its place, and a requested sync."""
        of_topic = self._by_topic.get(partition.topic)
        if of_topic is None:
            of_topic = self._by_topic[partition.topic] = {}
        had = of_topic.get(partition)
        self._count += had is None
        of_topic[partition] = sync or bool(had)

    def discard(self, partition: Partition) -> None:
        of_topic = self._by_topic.get(partition.topic, {})
        if of_topic.pop(partition, None) is not None:
            self._count -= 1
            if not of_topic:
                del self._by_topic[partition.topic]

    def take(self, count: int) -> list[tuple[Partition, bool]]:
        """Removes up to `count` partitions, one of each topic in turn. The next call begins where this one ended."""
        if self._count <= count:
            taken = [item for of_topic in self._by_topic.values() for item in of_topic.items()]
            self._by_topic, self._count = {}, 0
            return taken
        taken = []
        while len(taken) < count:
            topic = next(iter(self._by_topic))
            of_topic = self._by_topic.pop(topic)
            partition = next(iter(of_topic))
            taken.append((partition, of_topic.pop(partition)))
            if of_topic:
                self._by_topic[topic] = of_topic
        self._count -= count
        return taken


# When a group began, and the seconds of its writes and of its syncs; None: it had none.
GroupTime = tuple[float, float, float | None]


class GroupTimes:
    """Times of all groups so far, in seconds. `queue` is how long the first append of a group waited for the writer."""

    def __init__(self) -> None:
        self.queue = Histogram()
        self.append = Histogram()
        self.flush = Histogram()
        self.flushes = 0
        self.recent: deque[GroupTime] | None = None  # the last groups, for who follows single appends

    def histograms(self) -> tuple[Histogram, ...]:
        return self.queue, self.append, self.flush

    def observe(self, group: Group) -> None:
        self.append.observe(group.write_s)
        files = sum(len(work.sync) for work in group.work)
        if files:
            self.flush.observe(group.sync_s)
            self.flushes += files
        if self.recent is not None:
            self.recent.append((group.began_s, group.write_s, group.sync_s if files else None))

    def keep_recent(self) -> None:
        """Keeps the times of the last groups from now on."""
        self.recent = deque(maxlen=RECENT_GROUPS)

    def group_of(self, queued_s: float) -> GroupTime | None:
        """Returns the first kept group that began after an append was queued, by the committer's clock."""
        return next((group for group in self.recent or () if group[0] >= queued_s), None)


class Committer:
    """Takes appends for many partitions; at most one group is in progress."""

    def __init__(self, writer: WriterThread, clock: Clock, on_sealed: OnSealed) -> None:
        self._writer = writer
        self._clock = clock
        self._on_sealed = on_sealed
        self.check_room: Callable[[Partition], None] | None = None  # while a disk is full
        self._loop = asyncio.get_running_loop()
        self._on_carried_out = self._in_loop(self._on_done)
        self._due = CommitQueue()  # for the next group
        self._in_progress: list[_InProgress] = []
        self._held: dict[Partition, bool | None] = {}  # kept out of groups; their pending work
        self._awaiting: list[asyncio.Future[None]] = []
        self._armed: dict[Partition, asyncio.TimerHandle] = {}  # running flush timers
        self._put_off: set[Partition] = set()  # running timers for the next attempt to sync
        self._is_scheduled = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.queued_bytes = 0
        self.groups = 0
        self.times = GroupTimes()
        self._oldest: float | None = None  # when the first append outside of any group was queued

    def __repr__(self) -> str:
        return f"Committer(queued_bytes={self.queued_bytes}, under_way={len(self._in_progress)}, groups={self.groups})"

    def append(
        self,
        partition: Partition,
        batch: bytes | bytearray,
        conditions: AppendConditions | None = None,
        *,
        wants_sync: bool,
    ) -> asyncio.Future[Appended]:
        """Queue a batch; done with its positions once in the page cache. Raises StorageFull, an offline one's error."""
        return self.append_all(partition, [(batch, conditions, None)], wants_sync=wants_sync)[0]

    def append_all(
        self, partition: Partition, batches: Iterable[QueuedBatch], *, wants_sync: bool
    ) -> list[asyncio.Future[Any]]:
        """Queues batches side by side. The futures end together, with Appended or AppendedApart. Raises as `append`."""
        if partition.offline is not None:
            raise partition.offline
        if self.check_room is not None:
            self.check_room(partition)
        create_future, queue, futures = self._loop.create_future, partition.queue, []
        for batch, conditions, requests in batches:
            future: asyncio.Future[Any] = create_future()
            queue.append(append := Append(batch, future, wants_sync, conditions, requests))
            if conditions is not None or requests is not None:
                partition.validator.expect(append)
            futures.append(future)
            self.queued_bytes += len(batch)
        self._oldest = self._clock.monotonic() if self._oldest is None else self._oldest
        self.include(partition)
        return futures

    def append_as_follower(
        self, partition: Partition, data: Buffer, *, wants_sync: bool, starts_segment: bool = False
    ) -> asyncio.Future[int]:
        """Queues whole batches as another replica has stored them; done with log_end in the page cache, or fsynced.

        `starts_segment`: the leader has a segment begin with the first one, so this log starts a segment there too.
        Skips batches below log_end. One across it belongs to a log that is reset to that offset (Shard.reset_log).
        Fails with UnexpectedOffset, InvalidBatch or CorruptBatch if this or an earlier queued batch does not join, and
        with the errors of the disk. A cancel ends the wait, not the append.
        Raises the error of an offline partition, and StorageFull.
        """
        if partition.offline is not None:
            raise partition.offline
        if self.check_room is not None:
            self.check_room(partition)
        done: asyncio.Future[int] = self._loop.create_future()
        partition.copies.add(FollowerAppend(memoryview(data), done, wants_sync, starts_segment))
        self.queued_bytes += len(data)
        done.add_done_callback(partial(self._on_copied, len(data)))
        self.include(partition)
        return asyncio.shield(done)  # its buffers are in use until it is written

    def _on_copied(self, size_bytes: int, _: asyncio.Future[int]) -> None:
        self.queued_bytes -= size_bytes

    def roll(self, partition: Partition) -> asyncio.Future[int]:
        """Seals the active segment; done with sealed_end once durable. Raises the error of an offline partition."""
        if partition.offline is not None:
            raise partition.offline
        future = partition.request_roll()
        self.include(partition, sync=True)
        return future

    def include(self, partition: Partition, *, sync: bool = False) -> None:
        """Includes a partition in the next group."""
        self._due.add(partition, sync=sync)
        self._schedule()

    def use_settings(self, partition: Partition, settings: TopicSettings) -> None:
        """Uses settings from now on. Cancels a timer for another `flush_ms`."""
        partition.settings = settings
        if (timer := self._armed.pop(partition, None)) is not None:
            timer.cancel()
            self.include(partition)

    def fail_queued(self, partition: Partition, error: EngineError) -> None:
        """Fails the appends that no group has taken yet."""
        partition.fail_appends(partition.queue, error)
        self.queued_bytes -= partition.discard_queue()
        partition.copies.fail(error)

    @asynccontextmanager
    async def pause(self, partition: Partition) -> AsyncIterator[None]:
        """Keeps a partition out of all groups; its queue stays until afterwards."""
        while partition in self._held:
            await self._change()
        self._held[partition] = None
        try:
            while any(share.partition is partition for share in self._in_progress):
                await self._change()
            yield
        finally:
            sync = self._held.pop(partition)
            if sync is not None or partition.has_work:
                self.include(partition, sync=bool(sync))
            self._start_due()

    async def wait_drained(self) -> None:
        """Waits until the queue is empty and no group is in progress."""
        while self._due or self._in_progress or self._held:
            self._idle.clear()
            await self._idle.wait()

    async def sync_all(self, partitions: Callable[[], Iterable[Partition]]) -> None:
        """Waits until all bytes are durable or their partition is offline, and the queue is empty."""
        while unsynced := [
            partition
            for partition in partitions()
            if partition.unsynced_since is not None and partition.offline is None
        ]:
            for partition in unsynced:
                self.include(partition, sync=True)
            await self.wait_drained()
            if any(partition.is_sync_put_off for partition in unsynced):
                await asyncio.sleep(PUT_OFF_S)
        await self.wait_drained()

    def drop(self, partition: Partition) -> None:
        """Drops a deleted partition: no group takes it again."""
        self._due.discard(partition)
        self.queued_bytes -= partition.discard_queue()

    def _schedule(self) -> None:
        """Starts at the end of this iteration of the loop, so that all requests that arrived together share a group."""
        if not self._is_scheduled and not self._in_progress:
            self._is_scheduled = True
            self._loop.call_soon(self._start_group)

    def _start_group(self) -> None:
        self._is_scheduled = False
        due = self._due.take(GROUP_PARTITIONS_MAX)
        now, now_ms = self._clock.monotonic(), self._clock.steady_ms()
        if self._oldest is not None:
            self.times.queue.observe(now - self._oldest)
            self._oldest = now if self._due else None
        for partition, sync in due:
            if partition in self._held:
                self._held[partition] = sync or bool(self._held[partition])
                continue
            if partition.offline is not None:
                self.queued_bytes -= partition.discard_queue()
                continue
            try:
                sync = sync or _needs_sync(partition, now)
                if not sync and not partition.has_work:
                    self._arm_flush(partition)  # the sync came with the group before, or is not due yet
                    continue
                work, taken = partition.take_work(sync=sync, now_ms=now_ms)
            except Exception as error:
                _fail_partition(partition, [], error)
                self.queued_bytes -= partition.discard_queue()
                continue
            self._in_progress.append(_InProgress(partition, work, taken))
            if partition.has_work:
                self._due.add(partition, sync=False)
        if not self._in_progress:
            self._start_due()
            return
        self.groups += 1
        is_early = any(share.work.sync and share.work.wants_early_ack for share in self._in_progress)
        on_written = self._in_loop(self._on_written) if is_early else None
        group = Group([share.work for share in self._in_progress], on_written, self._clock.monotonic)
        if self._writer.write_now(group):
            self._on_done(group)
            return
        self._writer.submit(group, self._on_carried_out)

    def _in_loop(self, callback: Callable[[Group], object]) -> Callable[[Group], object]:
        """The writer calls from its own thread."""
        return lambda group: self._loop.call_soon_threadsafe(callback, group)

    def _on_written(self, _: Group) -> None:
        now = self._clock.monotonic()
        for share in self._in_progress:
            if not share.is_applied:
                share.is_applied = True
                self.queued_bytes -= sum([len(append.batch) for append in share.taken])
                try:
                    if sealed := share.partition.apply_writes(share.work, share.taken, now):
                        self._on_sealed(share.partition, sealed)
                except Exception as error:
                    _fail_partition(share.partition, share.taken, error)

    def _on_done(self, group: Group) -> None:
        self._on_written(group)
        under_way, self._in_progress = self._in_progress, []
        for share in under_way:
            try:
                share.partition.apply_syncs(share.work)
                self._arm_flush(share.partition)
            except Exception as error:
                _fail_partition(share.partition, share.taken, error)
        self.times.observe(group)
        self._start_due()

    def _start_due(self) -> None:
        """Start due work; wake waits for the end of a group or of a hold."""
        awaiting, self._awaiting = self._awaiting, []
        for future in (waiting for waiting in awaiting if not waiting.done()):
            future.set_result(None)
        if self._due:
            self._schedule()
        elif not self._held:
            self._idle.set()

    async def _change(self) -> None:
        """Waits until a group has ended or a hold is released."""
        future = self._loop.create_future()
        self._awaiting.append(future)
        await future

    def _arm_flush(self, partition: Partition) -> None:
        """Sets a timer to sync bytes that no request waits for. It may fire a little early: then another one is set."""
        if partition.unsynced_since is not None and partition.offline is None and partition not in self._due:
            if partition.is_sync_put_off:
                if partition not in self._put_off:
                    self._put_off.add(partition)
                    self._loop.call_later(PUT_OFF_S, self._sync_again, partition)
            elif _waits_for_sync(partition):
                self._due.add(partition, sync=True)
            elif partition not in self._armed:
                age = self._clock.monotonic() - partition.unsynced_since
                delay = max(TIMER_S_MIN, partition.settings.flush_ms / 1000 - age)
                self._armed[partition] = self._loop.call_later(delay, self._flush_if_due, partition)

    def _flush_if_due(self, partition: Partition) -> None:
        self._armed.pop(partition, None)
        if partition.unsynced_since is not None and partition.offline is None:
            self.include(partition)

    def _sync_again(self, partition: Partition) -> None:
        self._put_off.discard(partition)
        if partition.unsynced_since is not None and partition.offline is None:
            self.include(partition, sync=True)


def _fail_partition(partition: Partition, taken: list[Append], error: Exception) -> None:
    """After a bug: this partition's state in memory cannot be trusted any more."""
    log.error("a group commit failed", extra={"partition": partition.name}, exc_info=error)
    failure = StorageFailed(f"{partition.name}: {error!r}", hint="the partition is offline until a restart")
    partition.go_offline(failure)
    partition.fail_appends(taken, failure)


def _needs_sync(partition: Partition, now: float) -> bool:
    """The three reasons of the file's head."""
    since = partition.unsynced_since
    return (
        (since is not None and now - since >= partition.settings.flush_ms / 1000)
        or _waits_for_sync(partition)
        or partition.is_sync_wanted
    )


def _waits_for_sync(partition: Partition) -> bool:
    watermark = partition.watermark
    return partition.settings.durability == "group" and (watermark.polls.count or watermark.acks.count) > 0
