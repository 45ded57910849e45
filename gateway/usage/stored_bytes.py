"""Counts the stored byte-seconds of tenants: each minute, of the partitions that this process leads.

Bytes are logical: those of the leader's log from its start, also where they are in the store alone; copies on other
nodes do not count. The mark is written before the counters, so a kill between them loses a minute and repeats none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple, Protocol

from engine.directory.ceilings import owner_of
from engine.errors import Corrupt, EngineError
from engine.format.paths import usage_marks_file
from engine.partition.partition import Partition
from engine.runtime.clock import Clock
from engine.runtime.disk import read_file, write_atomically
from engine.runtime.tasks import keep_running
from engine.shard.shard import Shard
from engine.tiering.manifest.json_reading import UnsupportedFormat
from engine.tiering.shipping.shippers import TierStatistics
from gateway.usage.keeper import UsageKeeper
from gateway.usage.stored_marks import MARK_MS, StoredMarks, decode_marks
from replication.cluster.keys import partition_name

log = logging.getLogger("penstock.usage")


# The most time that a restart bills. More is a mark by a clock that was not set yet: at worst since 1970, which with
# some 20 GB is more than a counter takes.
DOWN_MS_MAX = 31 * 24 * 3_600_000


class TieredBytes(Protocol):
    """The part of a partition that is in the store."""

    async def statistics(self, partition: Partition) -> TierStatistics: ...


class _Lead(NamedTuple):
    tenant: str
    epoch: int
    partition: Partition


class StoredBytes:
    """The stored bytes that one process counts. `tenants` are the ids of all tenants."""

    def __init__(
        self,
        shard: Shard,
        tier: TieredBytes,
        tenants: Callable[[], Collection[str]],
        usage: UsageKeeper,
        executor: Executor,
        clock: Clock,
    ) -> None:
        self._shard = shard
        self._tier = tier
        self._tenants = tenants
        self._counting = usage.counting
        self._disk = usage.disk
        self._executor = executor
        self._clock = clock
        self._path = f"{self._counting.directory}/{usage_marks_file(self._counting.shard)}"
        self._marks: StoredMarks | None = None  # until the first tenant
        self._marked_at_ms = 0  # by the steady clock
        self._rest_ms: dict[str, int] = {}  # byte-milliseconds of less than a byte-second
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"StoredBytes({self._path})"

    def start(self) -> None:
        self._task = keep_running(self._run, "counting stored bytes")

    async def stop(self) -> None:
        """Makes a last mark."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            await self.mark()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep((MARK_MS - self._clock.now_ms() % MARK_MS) / 1000)
            await self.mark()

    async def mark(self) -> None:
        """Counts the time since the mark before."""
        leads = dict(self._leads())
        if not leads and self._marks is None:
            return
        now_ms, steady_ms = self._clock.now_ms(), self._clock.steady_ms()
        is_first = self._marks is None
        if self._marks is None:
            self._marks = await asyncio.get_running_loop().run_in_executor(self._executor, self._read, now_ms)
            elapsed_ms = min(max(0, now_ms - self._marks.mark_ms), DOWN_MS_MAX)  # the process was not there
        else:
            elapsed_ms = steady_ms - self._marked_at_ms
        self._marked_at_ms = steady_ms
        intervals = self._marks.take(now_ms, elapsed_ms, {name: lead.epoch for name, lead in leads.items()})
        counted: dict[str, int] = {}
        for name, interval_ms in intervals.items():
            lead = leads[name]
            if not is_first and lead.partition.is_replicated:  # a process that was stopped may not know who led since
                interval_ms = min(interval_ms, 2 * MARK_MS)
            if interval_ms:
                byte_ms = interval_ms * await logical_bytes(lead.partition, self._tier)
                counted[lead.tenant] = counted.get(lead.tenant, 0) + byte_ms
        write = partial(write_atomically, self._disk, self._path, self._marks.encode())
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, write)
        except OSError as error:  # the next start would count the time since the mark on the disk again
            log.error("stored bytes are not counted: their mark cannot be written", extra={"reason": str(error)})
            return
        now = time.perf_counter()
        for tenant, byte_ms in counted.items():
            byte_seconds, self._rest_ms[tenant] = divmod(byte_ms + self._rest_ms.get(tenant, 0), 1000)
            self._counting.count_stored(tenant, byte_seconds, now)

    def _leads(self) -> Iterator[tuple[str, _Lead]]:
        tenants = self._tenants()
        if not tenants:
            return
        for topic in self._shard.topics.values():
            tenant = owner_of(topic.record.name)
            if tenant is None or tenant not in tenants:
                continue
            for number, partition in topic.partitions.items():
                if partition.offline is None and (epoch := self._shard.leading_epoch(partition)) is not None:
                    yield partition_name(topic.record.topic_id, number), _Lead(tenant, epoch, partition)

    def _read(self, now_ms: int) -> StoredMarks:
        """Returns the last mark; without one that can be read, a new one. Leaves what is not understood beside it."""
        try:
            self._disk.mkdir(self._counting.directory)
            data = read_file(self._disk, self._path)
            return StoredMarks(now_ms, {}) if data is None else decode_marks(data, self._path)
        except (OSError, Corrupt, UnsupportedFormat) as error:
            log.error("the mark of stored bytes cannot be read", extra={"file": self._path, "reason": str(error)})
            if not isinstance(error, OSError):
                self._disk.rename(self._path, f"{self._path}.unreadable-{now_ms}")
            return StoredMarks(now_ms, {})


async def logical_bytes(partition: Partition, tier: TieredBytes) -> int:
    """Returns the bytes of a log from its start. Where the local log begins later, the store has the rest."""
    log_start, local_start = partition.log.log_start, partition.log.local_log_start
    local_bytes = partition.log.bytes_from(log_start)
    if log_start >= local_start:
        return local_bytes
    try:
        tiered = await tier.statistics(partition)
    except EngineError:  # the process that ships is away: rather too little than too much
        return local_bytes
    both_bytes = local_bytes - partition.log.bytes_from(tiered.tiered_end)
    return local_bytes + max(0, tiered.tiered_bytes - both_bytes)
