"""Examines all sealed segments in the background, round after round, and has damage repaired.

Decides the pace and the order only: engine/cleaning/segment_check.py examines, the partition's owner quarantines,
`restore` makes a good copy where it can. Reads in a thread of its own at `bytes_per_second` at most, in the worker
process if there is one. A stop ends it within one read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from engine.cleaning.segment_check import Finding, SealedFile, examine
from engine.errors import EngineError
from engine.runtime.disk import Disk
from engine.runtime.tasks import keep_running, log_failure
from engine.runtime.throttled_thread import Stopped, ThrottledThread

log = logging.getLogger("penstock.engine")


class ScrubbedPartition(Protocol):
    """A partition as the scrubber sees it, in this process or in another one."""

    @property
    def topic_id(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def number(self) -> int: ...

    async def list_sealed_files(self) -> list[SealedFile]:
        """Returns its sealed segments. Raises EngineError if the owner does not answer."""

    async def report(self, file: SealedFile, finding: Finding) -> bool:
        """Reports a finding; its damage is quarantined when this returns. Returns False if the segment was removed."""

    async def repair(self, file: SealedFile, path: str) -> bool:
        """Replaces a segment's file by the good copy at `path`. Returns False if the segment was removed."""


Restore = Callable[[ScrubbedPartition, SealedFile], str | None]


class Scrubber:
    """Examines the segments of `partitions`. `restore`, which blocks, returns a good copy's path, or None."""

    def __init__(
        self,
        disk: Disk,
        partitions: Callable[[], Iterable[ScrubbedPartition]],
        restore: Restore,
        *,
        bytes_per_second: int,
        interval_ms: int,
    ) -> None:
        self._disk = disk
        self._partitions = partitions
        self._restore = restore
        self._interval_ms = interval_ms
        self._is_enabled = bytes_per_second > 0
        self._thread = ThrottledThread("penstock-scrub", bytes_per_second)
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"Scrubber({self._thread}, every {self._interval_ms} ms)"

    def start(self) -> None:
        """Starts the first round. A rate of 0 disables scrubbing."""
        if self._is_enabled:
            self._task = keep_running(self._run, "scrubbing")

    async def stop(self) -> None:
        await self._thread.stop(self._task)

    async def scrub_all(self) -> None:
        """Scrub one round: segments with known damage first, then all others.

        Logs a failure of one partition, of any kind, and continues with the others.
        """
        done: set[tuple[str, int, int, int]] = set()
        for only_damaged in (True, False):
            for partition in list(self._partitions()):
                try:
                    await self._scrub_partition(partition, done, only_damaged=only_damaged)
                except Stopped:
                    raise
                except Exception as error:  # of any kind: a failing partition must not delay the others
                    name = f"{partition.topic}/{partition.number}"
                    if isinstance(error, EngineError | OSError):
                        level = logging.INFO if isinstance(error, EngineError) else logging.WARNING
                        log.log(level, "partition not scrubbed", extra={"partition": name, "reason": str(error)})
                    else:
                        log_failure("scrubbing", error, of=name)

    async def _scrub_partition(
        self, partition: ScrubbedPartition, done: set[tuple[str, int, int, int]], *, only_damaged: bool
    ) -> None:
        """Lists the files again at the end: an examination may reveal a missing segment."""
        while True:
            files = {
                (partition.topic_id, partition.number, file.base_offset, file.end_offset): file
                for file in await partition.list_sealed_files()
                if file.is_damaged or not only_damaged
            }
            if not (files.keys() - done):
                return
            for key, file in files.items():
                if key not in done:
                    done.add(key)
                    await self._scrub(partition, file)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(Stopped):
            while True:
                began = loop.time()
                await self.scrub_all()
                await asyncio.sleep(max(0.0, self._interval_ms / 1000 - (loop.time() - began)))

    async def _scrub(self, partition: ScrubbedPartition, file: SealedFile) -> None:
        finding = await self._thread.run(examine, self._disk, file, self._thread.pace)
        if await partition.report(file, finding) and finding.damage:
            await self._repair(partition, file)

    async def _repair(self, partition: ScrubbedPartition, file: SealedFile) -> None:
        try:
            path = await self._thread.run(self._restore, partition, file)
        except (EngineError, OSError) as error:
            log.error(
                "the repair of a segment failed; the scrubber retries it",
                extra={"segment": file.path, "reason": str(error)},
            )
            return
        if path is None:
            log.error("damage cannot be repaired: the store has no such range", extra={"segment": file.path})
        elif await partition.repair(file, path):
            log.warning("a damaged segment was repaired from the store", extra={"segment": file.path})
