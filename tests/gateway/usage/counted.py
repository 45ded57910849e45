"""A process that counts usage in a directory, by a clock that the test moves."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.directory.data_directory import Identity
from engine.runtime.clock import SystemClock
from engine.runtime.disk import Disk, RealDisk
from engine.tiering.store.file_store import FileStore
from engine.tiering.store.store import ObjectStore
from gateway.usage.counting import UsageCounting
from gateway.usage.keeper import CountedHere, UsageKeeper
from gateway.usage.meters import HOUR_MS, Usage, total_of

HOUR = 490_000  # since 1970: in 2025
IDENTITY = Identity("c1", 1)
ALL = (0, 10**9)
_ids = itertools.count(1)


class MovedClock(SystemClock):
    """`at` moves it; `seconds` is what time.perf_counter would say."""

    def __init__(self) -> None:
        self._ms = HOUR * HOUR_MS
        super().__init__()

    def now_ms(self) -> int:
        return self._ms

    @property
    def seconds(self) -> float:
        return self._ms / 1000

    def at(self, hour: float) -> None:
        self._ms = round(hour * HOUR_MS)


class Process:
    """One process of a node. A killed one leaves its files as they are."""

    def __init__(
        self,
        directory: Path,
        clock: MovedClock,
        *,
        disk: Disk | None = None,
        store: ObjectStore | None = None,
        shard: int = 0,
        identity: Identity = IDENTITY,
    ) -> None:
        self.clock = clock
        self.directory = directory / "usage"
        self.store = store or FileStore(str(directory / "store"), new_id=lambda: f"{next(_ids):032x}")
        self.counting = UsageCounting(
            disk or RealDisk(), str(self.directory), identity, shard, clock, lambda: f"{next(_ids):032x}"
        )
        self.executor = ThreadPoolExecutor(2)
        self.keeper = UsageKeeper(
            self.counting, disk or RealDisk(), self.executor, self.store, self.executor, clock, shards=2
        )

    def request(self, tenant: str, operation: str = "produce", status: int = 200, size: int = 10, stored: int = 1):
        self.counting.count_request(tenant, operation, status, size, 2 * size, stored, self.clock.seconds)

    async def here(self, tenant: str) -> CountedHere:
        return await self.keeper.counted_here(tenant, *ALL)

    async def total(self, tenant: str) -> Usage:
        """Return all that a query would find: an id counts once."""
        here, sealed = await self.here(tenant), await self.keeper.sealed(tenant, *ALL)
        distinct = {(one.id, one.hour): one.usage for one in (*here.counted, *sealed.counted)}
        return total_of(distinct.values())

    def files(self) -> list[str]:
        return sorted(path.name for path in self.directory.glob("*"))

    def objects(self) -> dict[str, bytes]:
        return {info.key: self.store.get(info.key) for info in self.store.list("")}
