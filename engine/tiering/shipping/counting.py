"""Writes what the partitions of a shard have accepted into the store, each minute: audit counts for ingestion.

Runs in each process with partitions. While the store does not answer, the counts wait and are written under the hour in
which it does. Objects older than KEPT_HOURS are removed. A kill loses what was counted since the last write, so the
counts in the store may be too small, and never too large.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from itertools import islice

from engine.errors import EngineError
from engine.format.paths import accepted_hour_of, store_accepted_key, store_accepted_prefix
from engine.runtime.clock import Clock
from engine.runtime.tasks import keep_running
from engine.shard.shard import Shard
from engine.tiering.manifest.accepted_object import HOUR_MS, Accepted, CountedTopic, bounded_counts, encode_accepted
from engine.tiering.store.store import ObjectStore

log = logging.getLogger("penstock.tiering")

KEPT_HOURS = 35 * 24
REMOVED_MAX = 1000  # objects at a time
LAST_WRITE_S = 2.0  # for the counts since the last write, while the process stops


class AcceptedCounting:
    """The counts of one process. `name` is unique for each start of it."""

    def __init__(
        self, store: ObjectStore, executor: Executor, clock: Clock, shard: Shard, cluster_id: str, name: str
    ) -> None:
        self._store = store
        self._executor = executor
        self._clock = clock
        self._shard = shard
        self._cluster_id = cluster_id
        self._name = name
        self._hour = -1
        self._counts: dict[CountedTopic, dict[int, int]] = {}
        self._is_written = True
        self._is_failing = False
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"AcceptedCounting({self._name}, hour {self._hour}, {len(self._counts)} topics)"

    def start(self, interval_ms: int) -> None:
        """Writes at this interval; 0: never."""

        async def run() -> None:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                await self.write()

        if interval_ms:
            self._task = keep_running(run, "counting accepted records")

    async def stop(self) -> None:
        """Writes the last counts, unless the store did not answer the last time."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._is_failing:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.write(), LAST_WRITE_S)

    async def write(self) -> None:
        """Take the counts of all partitions, and replace the object of this hour if it has grown."""
        hour = self._clock.now_ms() // HOUR_MS
        if hour != self._hour and self._is_written:
            self._hour, self._counts = hour, {}
            await self._in_thread(self._remove_old, hour)
        self._take()
        if self._is_written:
            return
        counts = {topic: bounded_counts(counts_of_topic) for topic, counts_of_topic in self._counts.items()}
        if await self._in_thread(self._put, store_accepted_key(self._cluster_id, self._hour, self._name), counts):
            self._is_written = True

    def _take(self) -> None:
        for topic in self._shard.topics.values():
            if topic.settings.is_compacted:
                continue  # its segments are not in the store
            key = CountedTopic(topic.record.name, topic.record.topic_id)
            for partition in topic.partitions.values():
                for period, records in partition.accepted.take(partition.high_watermark).items():
                    counts = self._counts.setdefault(key, {})
                    counts[period] = counts.get(period, 0) + records
                    self._is_written = False

    async def _in_thread(self, work: Callable[..., None], *arguments: object) -> bool:
        """Returns whether the store did it."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)
        except EngineError as error:
            if not self._is_failing:
                log.warning("the counts of accepted records wait for the store", extra={"reason": str(error)})
            self._is_failing = True
            return False
        self._is_failing = False
        return True

    def _put(self, key: str, counts: Accepted) -> None:
        self._store.put(key, encode_accepted(counts))

    def _remove_old(self, hour: int) -> None:
        prefix = store_accepted_prefix(self._cluster_id)
        for info in islice(self._store.list(prefix), REMOVED_MAX):
            of_hour = accepted_hour_of(info.key.removeprefix(prefix))
            if of_hour is None:
                continue
            if of_hour > hour - KEPT_HOURS:
                return
            self._store.delete(info.key)
