"""What time alone brings about in a shard: rolls by age, expiry, recovery points. Decides nothing about any of it.

A full or failing disk is told and tried again at the next tick. A stop ends the waiting, not the work: that is in the
background, and a stop waits for it before it writes the same files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from engine.clock import Clock
from engine.committer import Committer
from engine.directory_keeper import DirectoryKeeper
from engine.partition import Partition

TICK_S = 1.0
PARTITIONS_AT_ONCE = 200  # looked at in one go: two milliseconds of the loop
CHECKPOINT_TICKS = 1  # what lies beyond the last checkpoint is scanned and written again after an unclean stop
CHECKPOINT_SHARE = 50  # saving may take this part of the time: with very many partitions it is done less often

log = logging.getLogger("penstock.engine")

Work = Coroutine[Any, Any, None]


class Housekeeping:
    """Of the partitions given."""

    def __init__(
        self,
        partitions: Callable[[], Iterable[Partition]],
        committer: Committer,
        keeper: DirectoryKeeper,
        clock: Clock,
        expiry: Callable[[Partition], Work | None],
        in_background: Callable[[Work], asyncio.Task[None]],
    ) -> None:
        self._partitions = partitions
        self._committer = committer
        self._keeper = keeper
        self._clock = clock
        self._expiry = expiry
        self._in_background = in_background
        self._told = ""  # why the last checkpoint failed: a disk that is full is so for hours

    def __repr__(self) -> str:
        return f"Housekeeping({self._keeper})"

    async def tick_for_ever(self) -> None:
        tick = 0
        checkpoint_due = 0.0
        while True:
            await asyncio.sleep(TICK_S)
            tick += 1
            for place, partition in enumerate(list(self._partitions())):
                if place % PARTITIONS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                if partition.offline is None and (work := self._look_at(partition)) is not None:
                    await asyncio.shield(self._in_background(self._tried("expire", work)))
            began = self._clock.monotonic()
            if tick % CHECKPOINT_TICKS == 0 and began >= checkpoint_due:
                await asyncio.shield(self._in_background(self._tried("checkpoint", self._checkpoint())))
                checkpoint_due = began + CHECKPOINT_SHARE * (self._clock.monotonic() - began)

    def _look_at(self, partition: Partition) -> Work | None:
        """What takes no disk is done at once: of thousands of partitions nearly all have nothing else."""
        try:
            self._roll_if_due(partition)
            partition.admission.expire(self._clock.now_ms(), partition.settings)
            return self._expiry(partition)
        except Exception:  # see below
            log.exception("expire failed")
            return None

    async def _checkpoint(self) -> None:
        """Told once for each reason."""
        try:
            await self._keeper.save_checkpoints()
            self._told = ""
        except OSError as error:
            if self._told != str(error):
                self._told = str(error)
                raise

    async def _tried(self, what: str, work: Work) -> None:
        try:
            await work
        except OSError as error:
            log.warning("%s failed", what, extra={"reason": str(error)})
        except Exception:  # a bug in one partition's housekeeping must not end everybody's
            log.exception("%s failed", what)

    def _roll_if_due(self, partition: Partition) -> None:
        if partition.log.is_due_to_roll(partition.settings, self._clock.now_ms()):
            self._committer.roll(partition).add_done_callback(lambda future: future.exception())
