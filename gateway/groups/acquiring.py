"""A call for records of a share group, through either door: the bounds of logs, a lock, and the wait for records.

It reads no records, and knows no protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from engine.errors import OffsetAboveHighWatermark
from engine.runtime.tasks import start_task
from gateway.connections.single_waiter import SingleWaiter
from gateway.fetch.multi_fetch import MultiFetch
from gateway.fetch.reader import Limits, PartitionRead
from gateway.groups.context import GroupContext
from gateway.groups.hosting.calls import ACQUIRE, SETTLE, SHORTEN, ChangedCall
from gateway.groups.model.errors import CoordinatorMoved, LockUnknown
from gateway.groups.share.values import (
    AcquireCall,
    Acquired,
    Bound,
    KeyRun,
    Place,
    SettleCall,
    Settled,
    Settlement,
    ShortenCall,
)
from gateway.groups.share_reads import SHARE_BOUNDS, SHARE_KEYS, KeysFound, KeysRead

BOUNDS_S = 5.0  # for a process to report its partitions; those of a silent one are left out
KEY_READS_MAX = 20  # rounds of 1000 records each in one look for a record whose key is free
PAUSE_S_MAX = 0.05  # between looks that found nothing though something had changed


class Acquiring:
    """One call. `_places`: how far the group had looked at each partition before the present look.

    The callers of this process who find nothing take turns to watch, so that a record wakes one of them. `is_asked`
    says which partitions the call is for; without it, all of the topics.
    """

    def __init__(
        self,
        context: GroupContext,
        group: str,
        member_id: str,
        topics: tuple[str, ...],
        waiter: SingleWaiter,
        *,
        max_records: int,
        lock_ms: int | None = None,
        wait_ms: int = 0,
        is_asked: Callable[[str, int], bool] | None = None,
    ) -> None:
        self._context = context
        self._group = group
        self._member_id = member_id
        self._topics = topics
        self._waiter = waiter
        self._max_records = max_records
        self._lock_ms = lock_ms
        self._is_asked = is_asked
        self.budget = context.budgets.begin(wait_ms)
        self._places: Sequence[Place] = ()
        self._resets = 0
        self._pause_s = 0.0

    async def collect_bounds(self) -> tuple[Bound, ...]:
        """Returns the bounds of the partitions whose leaders report, and reports logs that have become shorter."""
        records = [topic.record for name in self._topics if (topic := self._context.topics.get(name)) is not None]
        router = self._context.router
        rows = await asyncio.gather(*(router.collect_rows(SHARE_BOUNDS, record, BOUNDS_S) for record in records))
        bounds = tuple(
            Bound(record.name, record.topic_id, number, *bound)
            for record, by_number in zip(records, rows, strict=True)
            for number, bound in sorted(by_number.items())
            if bound is not None and (self._is_asked is None or self._is_asked(record.name, number))
        )
        ends = {(bound.topic_id, bound.partition): bound.high_watermark for bound in bounds}
        for position in self._places:
            if ends.get((position.topic_id, position.partition), position.offset) < position.offset:
                await self._shorten(position)
        return bounds

    async def _shorten(self, position: Place) -> None:
        """Reports a log that an unclean election has cut, if a read finds the same: a replaced leader may be wrong."""
        entry = PartitionRead(position.topic, position.topic_id, position.partition, position.offset)
        [part] = await MultiFetch(self._context.fetch, [entry]).read(Limits(1, 1, None, 0, as_lines=False))
        if part.problem is not None and part.problem.code == OffsetAboveHighWatermark.code:
            end = msgspec.convert(part.problem.members["high_watermark"], int)
            call = ShortenCall(self._group, position.topic, position.partition, end, self._resets)
            await self._context.coordinators.call(SHORTEN, None, self._group, call)

    async def acquire(self, lock: str, bounds: tuple[Bound, ...]) -> Acquired:
        """Locks records. With order by key it reads keys until some are free."""
        call = AcquireCall(self._group, lock, self._topics, bounds, self._max_records, self._lock_ms, self._member_id)
        for _ in range(KEY_READS_MAX):
            acquired = await self._context.coordinators.call(ACQUIRE, Acquired, self._group, call, creates=True)
            if not acquired.keys_to_learn:
                break
            runs = await asyncio.gather(*map(self._read_run, acquired.keys_to_learn))
            keys = [run for run in runs if run.end > run.first]
            if not keys:
                break
            call = msgspec.structs.replace(call, keys=tuple(keys))
        return acquired

    async def _read_run(self, position: Place) -> KeyRun:
        call = KeysRead(position.offset, position.limit)
        reply, _ = await self._context.router.call(SHARE_KEYS, position.topic, position.partition, call)
        keys = KeysFound(*reply)
        return KeyRun(position.topic, position.partition, position.offset, keys.end, keys.offsets, keys.hashes)

    async def settle(self, lock: str, settlements: Sequence[Settlement]) -> None:
        """Gives back what was not read, and reports offsets without a record. Raises CoordinatorMoved."""
        call = SettleCall(self._group, lock, tuple(settlements))
        try:
            await self._context.coordinators.call(SETTLE, Settled, self._group, call)
        except LockUnknown as error:
            raise CoordinatorMoved(f"group {self._group!r}: its coordinator was replaced during the call") from error

    async def wait(self, acquired: Acquired) -> bool:
        """Waits until something may be available. False: the time is over, or the node stops."""
        self._places, self._resets = acquired.places, acquired.resets
        left_ms = self.budget.wait_left_ms
        lifecycle = self._context.lifecycle
        if left_ms <= 0 or lifecycle.is_draining:
            return False
        if not self._waiter.has_turn:  # with the turn it looks once more: what came meanwhile woke another caller
            with self._context.fetch.long_polls.waiting():
                return await self._waiter.begin(left_ms / 1000) and not lifecycle.is_draining
        wait_ms = left_ms if acquired.due_ms is None else min(left_ms, acquired.due_ms + 1)
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s + 0.001, PAUSE_S_MAX)
        entries = [
            PartitionRead(position.topic, position.topic_id, position.partition, position.offset)
            for position in acquired.places
            if position.offset < position.limit
        ]
        changed = ChangedCall(self._group, "", acquired.version, acquired.hosting, wait_ms)
        with self._context.fetch.long_polls.waiting(max(1, len(entries))):
            waiting = self._context.coordinators.wait_changed(self._group, changed)
            tasks: list[asyncio.Task[object]] = [start_task(waiting)]
            if entries:
                tasks.append(start_task(MultiFetch(self._context.fetch, entries).wait(1, wait_ms / 1000)))
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
        return not lifecycle.is_draining
