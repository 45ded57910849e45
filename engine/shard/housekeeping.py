"""Timed work of a shard: rolls by age, expiry, recovery points. Schedules only; other modules decide.

Logs a full or failing disk and retries at the next tick. A stop ends the waits, not the work: that runs in the
background, and a stop waits for it before it writes the same files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from engine.directory.log_directory_manager import LogDirectoryManager
from engine.partition.committer import Committer
from engine.partition.partition import Partition
from engine.runtime.clock import Clock, is_in_seconds
from engine.runtime.tasks import BackgroundTasks

TICK_S = 1.0
EXPIRING_AT_ONCE = 4  # partitions whose files are being removed: half of the disk threads stay free for reads
PARTITIONS_AT_ONCE = 200  # per slice: two milliseconds of the loop
CHECKPOINT_TICKS = 1  # bytes beyond the last checkpoint are scanned and rewritten after an unclean stop
CHECKPOINT_SHARE = 50  # saving may take this part of the time: with very many partitions it is done less often

log = logging.getLogger("penstock.engine")

Work = Coroutine[Any, Any, None]


class Housekeeping:
    """The timed work of the given partitions."""

    def __init__(
        self,
        partitions: Callable[[], Iterable[Partition]],
        committer: Committer,
        log_manager: LogDirectoryManager,
        clock: Clock,
        expiry: Callable[[Partition], Work | None],
        background: BackgroundTasks,
    ) -> None:
        self._partitions = partitions
        self._committer = committer
        self._log_manager = log_manager
        self._clock = clock
        self._expiry = expiry
        self._background = background
        self._due: dict[Partition, Work] = {}  # queued, in this order
        self._expiring: set[Partition] = set()
        self._topics_in_seconds: set[str] = set()  # logged ones
        self._logged = ""  # the logged reason of the last failed checkpoint: a disk stays full for hours

    def __repr__(self) -> str:
        return f"Housekeeping({self._log_manager})"

    async def run(self) -> None:
        try:
            await self._tick_forever()
        finally:
            for work in self._due.values():
                work.close()
            self._due.clear()

    async def _tick_forever(self) -> None:
        tick = 0
        checkpoint_due = 0.0
        while True:
            await self._background.finish(self._try("making spare files", self._fill_spares()), "filling")
            await asyncio.sleep(TICK_S)
            tick += 1
            for index, partition in enumerate(list(self._partitions())):
                if index % PARTITIONS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                if partition.offline is None:
                    self._check(partition)
            self._expire_next()
            began = self._clock.monotonic()
            if tick % CHECKPOINT_TICKS == 0 and began >= checkpoint_due:
                await self._background.finish(self._try("checkpoint", self._checkpoint()), "checkpointing")
                checkpoint_due = began + CHECKPOINT_SHARE * (self._clock.monotonic() - began)

    def _check(self, partition: Partition) -> None:
        """Does work without disk access at once: of thousands of partitions nearly all have no other."""
        try:
            self._roll_if_due(partition)
            self._check_times(partition)
            partition.validator.expire(self._clock.steady_ms(), partition.settings)
            is_expiring = partition in self._due or partition in self._expiring
            if not is_expiring and (work := self._expiry(partition)) is not None:
                self._due[partition] = work
        except Exception:  # see below
            log.exception("retention failed")

    def _check_times(self, partition: Partition) -> None:
        """Logs each topic once whose producers send seconds. Costs appends nothing: they keep the latest timestamp."""
        index = partition.log.active.loaded_index
        if index is None or not is_in_seconds(latest := index.max_timestamp):
            return
        if partition.topic not in self._topics_in_seconds:
            self._topics_in_seconds.add(partition.topic)
            text = "records have times of 1970: their producer sends seconds, timestamps are milliseconds"
            log.warning(text, extra={"topic": partition.topic, "partition": partition.number, "timestamp": latest})

    def _expire_next(self) -> None:
        """Runs in the background, in turn: a slow removal of one partition's files delays no other partition."""
        while self._due and len(self._expiring) < EXPIRING_AT_ONCE:
            partition = next(iter(self._due))
            work = self._due.pop(partition)
            self._expiring.add(partition)
            task = self._background.start(
                self._try("retention", work, partition), "expiring records", of=partition.name
            )
            task.add_done_callback(partial(self._on_expired, partition, work))

    def _on_expired(self, partition: Partition, work: Work, _: object) -> None:
        work.close()  # a task that is cancelled before its first step has not awaited it
        self._expiring.discard(partition)
        self._expire_next()

    async def _fill_spares(self) -> None:
        self._committer.check_room = await self._log_manager.fill_spares()

    async def _checkpoint(self) -> None:
        """Logs each distinct failure once."""
        try:
            await self._log_manager.save_checkpoints()
            self._logged = ""
        except OSError as error:
            if self._logged != str(error):
                self._logged = str(error)
                raise

    async def _try(self, what: str, work: Work, of: Partition | None = None) -> None:
        try:
            await work
        except OSError as error:
            if of is not None and of.offline is not None:  # its files may have been deleted meanwhile
                return
            log.warning("%s failed", what, extra={"reason": str(error)})
        except Exception:  # a bug in one partition's housekeeping must not stop the others
            log.exception("%s failed", what)

    def _roll_if_due(self, partition: Partition) -> None:
        if partition.log.is_due_to_roll(partition.settings, self._clock.steady_ms()):
            self._committer.roll(partition).add_done_callback(lambda future: future.exception())
