"""Keeps what one process has counted: syncs its files, seals hours that are over, and answers what was counted.

An hour is sealed ten minutes after its end: the counters of each of its files become an object of the store, and the
file is removed once the object is there. Files of earlier starts of the same shard are sealed too. A file that is not
understood is logged, counted and left alone.
Invariant: a count is in a file or in the object of that file, whose ids are equal, or in both for a while.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from typing import TypeVar

from msgspec import Struct

from engine.errors import Corrupt, EngineError
from engine.format.paths import (
    UsageFile,
    store_usage_file_of,
    store_usage_hour,
    store_usage_key,
    store_usage_prefix,
    usage_file_of,
)
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk, FileKind, read_file
from engine.runtime.tasks import keep_running
from engine.tiering.manifest.json_reading import UnsupportedFormat
from engine.tiering.store.store import NoSuchObject, ObjectExists, ObjectStore
from gateway.usage.counter_file import CounterFile, Origin, read_counters
from gateway.usage.counting import UsageCounting
from gateway.usage.meters import HOUR_MS, NOTHING_USED, Usage, hour_of
from gateway.usage.sealed_hour import decode_hour, encode_hour

log = logging.getLogger("penstock.usage")

SYNC_S = 1.0
SEAL_AFTER_MS = 600_000  # requests and clocks of other nodes may be this late
SEAL_EACH_MS = 60_000
KEPT_HOURS = 400 * 24  # objects in the store
REMOVED_MAX = 1000  # objects at a time
READS_AT_ONCE = 4  # of objects
UNSAVED = ""  # instead of an id: what is in no file

T = TypeVar("T")


class Counted(Struct, array_like=True, frozen=True):
    """The usage of one tenant and hour, of the file of counters, or of its object, with this id."""

    id: str
    hour: int
    usage: Usage


class CountedHere(Struct, array_like=True, frozen=True):
    """The usage that one process has in files. `open_hours` are not sealed; `unreadable` files are not in it.

    Also of what the store has: there, all hours are sealed.
    """

    counted: list[Counted]
    open_hours: list[int]
    unreadable: int


class UsageKeeper:
    """The keeper of one process. `shards` is how many the node has: the first one seals the files of others."""

    def __init__(
        self,
        counting: UsageCounting,
        disk: Disk,
        executor: Executor,
        store: ObjectStore,
        store_executor: Executor,
        clock: Clock,
        shards: int = 1,
    ) -> None:
        self.counting = counting
        self.disk = disk
        self._executor = executor
        self.store = store
        self._store_executor = store_executor
        self._clock = clock
        self._shards = shards
        self._unreadable: set[str] = set()
        self._differing: set[str] = set()  # files whose objects have other counts
        self._named: set[str] = set()  # files whose names are durable
        self._sealed_ms = 0
        self._removed_hour = -1
        self._is_failing = False
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"UsageKeeper({self.counting})"

    async def in_store_thread(self, work: Callable[[], T]) -> T:
        """Runs work that waits for the store. Raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._store_executor, work)

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each gauge."""
        text = "Files of usage that are damaged or foreign: they are left alone, and not in any sum"
        yield "penstock_usage_unreadable_files", text, len(self._unreadable | self._differing)

    def start(self) -> None:
        self._task = keep_running(self._run, "keeping usage")

    async def stop(self) -> None:
        """Makes all counts durable."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._in_thread(self._sync, [], self.counting.end())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SYNC_S)
            await self.tick()
            if (now_ms := self._clock.now_ms()) - self._sealed_ms >= SEAL_EACH_MS or now_ms < self._sealed_ms:
                self._sealed_ms = now_ms
                await self.seal()

    async def tick(self) -> None:
        """Follows the clock, and makes durable what was counted so far."""
        counting = self.counting
        if counting.present_files():
            counting.follow_clock(time.perf_counter())
        counting.place_unsaved()
        if counting.must_prepare():
            with suppress(OSError):  # the first count of the hour tries again, and logs it
                counting.take_next(await self._in_thread(counting.prepare))
        present, ended = counting.present_files(), counting.take_ended()
        if present or ended:
            await self._in_thread(self._sync, present, ended)

    async def seal(self) -> None:
        """Writes the hours that are over to the store. Stops at the first that the store does not take."""
        names = await self._in_thread(self._own_files)
        now_ms = self._clock.now_ms()
        open_paths = {file.path for file in self.counting.present_files()}
        for name, file in names:
            if (file.hour + 1) * HOUR_MS + SEAL_AFTER_MS > now_ms or self._path(name) in open_paths:
                continue
            try:
                await self._in_thread(self._seal, name, file, on=self._store_executor)
            except Corrupt as error:
                self._note_unreadable(name, error, self._differing)
            except (EngineError, OSError) as error:
                if not self._is_failing:
                    log.warning("the usage of an hour waits to be sealed", extra={"file": name, "reason": str(error)})
                self._is_failing = True
                return
        self._is_failing = False
        if (hour := hour_of(now_ms)) != self._removed_hour and self.counting.shard == 0:
            self._removed_hour = hour
            with suppress(EngineError):  # it tries again in the next hour
                await self._in_thread(self._remove_old, hour, on=self._store_executor)

    async def counted_here(self, tenant: str, first: int, last: int) -> CountedHere:
        """Returns what this process has counted for a tenant, in the hours from `first` to `last`."""
        here = await self._in_thread(self._read_files, tenant, first, last)
        unsaved = [
            Counted(UNSAVED, hour, usage)
            for hour, of_tenant, usage in self.counting.unsaved()
            if of_tenant == tenant and first <= hour <= last
        ]
        return CountedHere(here.counted + unsaved, here.open_hours, here.unreadable)

    async def sealed(self, tenant: str, first: int, last: int) -> CountedHere:
        """Returns what the store has for a tenant. Raises EngineError of the store."""
        keys = await self._in_thread(self._sealed_keys, first, last, on=self._store_executor)
        parts = [keys[number::READS_AT_ONCE] for number in range(READS_AT_ONCE)]
        reads = [self._in_thread(self._read_objects, part, tenant, on=self._store_executor) for part in parts if part]
        read = await asyncio.gather(*reads)
        return CountedHere([one for counted, _ in read for one in counted], [], sum(unread for _, unread in read))

    async def _in_thread(self, work: Callable[..., T], *arguments: object, on: Executor | None = None) -> T:
        return await asyncio.get_running_loop().run_in_executor(on or self._executor, work, *arguments)

    # In a thread

    def _sync(self, present: list[CounterFile], ended: list[CounterFile]) -> None:
        try:
            for file in (*present, *ended):
                file.sync()
            if (names := {file.path for file in present}) - self._named:
                self.disk.fsync_dir(self.counting.directory)
                self._named = names
        except OSError as error:
            log.error("usage may be lost in a power loss: its sync failed", extra={"reason": str(error)})
        for file in ended:
            file.close()

    def _own_files(self) -> list[tuple[str, UsageFile]]:
        """Returns the files of this shard, and to the first one those of shards that the node has no more."""
        own = self.counting.shard
        files = {name: usage_file_of(name) for name in self.disk.listdir(self.counting.directory)}
        for noted in (self._unreadable, self._differing):
            noted.intersection_update(files)  # others were taken away
        return [
            (name, file)
            for name, file in files.items()
            if file is not None and (file.shard == own or (own == 0 and file.shard >= self._shards))
        ]

    def _path(self, name: str) -> str:
        return os.path.join(self.counting.directory, name)

    def _origin_of(self, file: UsageFile) -> Origin:
        identity = self.counting.identity
        return Origin(file.hour, identity.cluster_id, identity.node_id, file.shard)

    def _read(self, name: str, file: UsageFile) -> dict[str, Usage] | None:
        """Returns the counts of a file; None if it is gone, or cannot be read."""
        path = self._path(name)
        try:
            if self.disk.kind(path) is not FileKind.FILE:
                return None
            data = read_file(self.disk, path)
            counted = None if data is None else read_counters(data, self._origin_of(file), path)
            self._unreadable.discard(name)  # the disk has failed once
            return counted
        except (OSError, Corrupt) as error:
            self._note_unreadable(name, error)
            return None

    def _note_unreadable(self, name: str, error: Exception, among: set[str] | None = None) -> None:
        among = self._unreadable if among is None else among
        if name not in among:
            among.add(name)
            log.error("a file of usage is left alone", extra={"file": self._path(name), "reason": str(error)})

    def _read_files(self, tenant: str, first: int, last: int) -> CountedHere:
        counted, open_hours = [], set()
        for name, file in self._own_files():
            if not first <= file.hour <= last:
                continue
            by_tenant = self._read(name, file)
            if by_tenant is None:
                continue
            open_hours.add(file.hour)
            if tenant in by_tenant:
                counted.append(Counted(file.id, file.hour, by_tenant[tenant]))
        return CountedHere(counted, sorted(open_hours), len(self._unreadable | self._differing))

    def _seal(self, name: str, file: UsageFile) -> None:
        """Raises EngineError of the store, OSError."""
        counted = self._read(name, file)
        if counted is None:
            return
        used = {tenant: usage for tenant, usage in counted.items() if usage != NOTHING_USED}
        if used:
            key = store_usage_key(self.counting.identity.cluster_id, self.counting.identity.node_id, file)
            data = encode_hour(self._origin_of(file), used)
            try:
                self.store.put(key, data, if_absent=True)
            except ObjectExists:
                if self.store.get(key) != data:
                    raise Corrupt(f"{key} differs from the counts of {name}") from None
        self.disk.unlink(self._path(name))

    def _sealed_keys(self, first: int, last: int) -> list[tuple[str, UsageFile]]:
        cluster_id = self.counting.identity.cluster_id
        prefix, found = store_usage_prefix(cluster_id), []
        for info in self.store.list(prefix, store_usage_hour(cluster_id, first)):
            if (file := store_usage_file_of(info.key.removeprefix(prefix))) is None:
                continue
            if file.hour > last:
                break
            found.append((info.key, file))
        return found

    def _read_objects(self, keys: list[tuple[str, UsageFile]], tenant: str) -> tuple[list[Counted], int]:
        """Returns what objects have for a tenant, and how many of them are not understood."""
        found, unread = [], 0
        for key, file in keys:
            try:
                usage = decode_hour(self.store.get(key), key).get(tenant)
            except NoSuchObject:  # it was removed a moment ago
                continue
            except (Corrupt, UnsupportedFormat) as error:
                log.error("an object of usage is not understood", extra={"reason": str(error)})
                unread += 1
            else:
                if usage is not None:
                    found.append(Counted(file.id, file.hour, usage))
        return found, unread

    def _remove_old(self, hour: int) -> None:
        last = hour - KEPT_HOURS
        for key, _ in self._sealed_keys(0, last)[:REMOVED_MAX]:
            self.store.delete(key)
