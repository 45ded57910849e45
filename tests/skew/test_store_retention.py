"""Records that only the store has are kept for `retention_ms`, independent of the shipping nodes' clocks.

Real shippers of three nodes share one store with a correct clock. They lead in turn and restart, and their wall clocks
are wrong and step. `PENSTOCK_TEST_SCALE` sets the number of runs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from engine.runtime.disk import RealDisk
from engine.testing.memory_store import MemoryStore
from engine.tiering.manifest.store_time import StoreTime
from engine.tiering.shipping.local_log import LocalLog, SealedSegment
from engine.tiering.shipping.shipper import PartitionShipper, ShipperComponents
from tests.engine.conftest import HandClock
from tests.engine.tiering.making import PREFIX, local_log
from tests.engine.tiering.shipping_scene import WIDTH, iter_ids, sealed
from tests.scale.count import SCALE

HOUR_MS = 3_600_000
RETENTION_MS = 7 * 24 * HOUR_MS
RUNS = max(SCALE // 10, 20)
SEGMENTS = 8


class Stepped(PartitionShipper):
    """Runs thread calls at once."""

    async def _blocking(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


class World:
    """A partition whose local copies are deleted as soon as they are shipped. Its own time and the store's are
    correct.
    """

    def __init__(self, random: Random, segments: list[SealedSegment]) -> None:
        self.random = random
        self.store = MemoryStore(1_700_000_000_000)
        self.clocks = [HandClock() for _ in range(3)]
        self.leader, self.epoch = 0, 1
        self.waiting = segments
        self.local: LocalLog = replace(local_log([]), retention_ms=RETENTION_MS)
        self.appended_ms: list[int] = []  # correct time, by segment
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        for clock in self.clocks:
            self.step(clock)
        self.start()

    # The interface of a shipper's source.

    async def local_log(self, above: int) -> LocalLog:
        return replace(self.local, leader_epoch=self.epoch)

    async def on_tiered(self, end_offset: int) -> None:
        self.local = replace(self.local, sealed=(), local_log_start=end_offset)

    async def raise_log_start(self, end_offset: int) -> int:
        self.local = replace(self.local, log_start=max(self.local.log_start, end_offset))
        self.counts["expired"] += 1
        youngest_ms = self.store.now_ms - self.appended_ms[end_offset // WIDTH - 1]
        if youngest_ms <= RETENTION_MS:
            self.problems.append(f"records below {end_offset} were kept for {youngest_ms / HOUR_MS:.1f} hours")
        return self.local.log_start

    # Events.

    def start(self) -> None:
        """Start a leader process on one of the nodes; its steady time begins at its wall clock."""
        clock = self.clocks[self.leader]
        clock.restart()
        clock.seconds = self.random.random() * 1e6
        components = ShipperComponents(self.store, RealDisk(), clock, Random(1), iter_ids(), ThreadPoolExecutor(1))
        self.shipper = Stepped(PREFIX, self, writer=f"{self.leader}", components=components)

    def elect(self) -> None:
        self.leader, self.epoch = self.random.randrange(3), self.epoch + 1
        self.start()

    def step(self, clock: HandClock) -> None:
        clock.ms = self.store.now_ms + self.random.choice((-1, 0, 0, 1)) * self.random.randrange(60 * 24 * HOUR_MS)

    def append(self) -> None:
        if self.waiting:
            segment = replace(self.waiting.pop(0), arrived_ms=self.clocks[self.leader].steady_ms())
            ends = dict.fromkeys(("log_end", "high_watermark", "durable_end"), segment.end_offset)
            self.local = replace(self.local, sealed=(*self.local.sealed, segment), **ends)  # type: ignore[arg-type]
            self.appended_ms.append(self.store.now_ms)

    def pass_ms(self, ms: int) -> None:
        self.store.now_ms += ms
        for clock in self.clocks:
            clock.pass_ms(ms)

    async def run(self) -> None:
        for _ in range(40):
            happening = self.random.choice(("append", "step", "elect", "start", "pass", "pass"))
            if happening == "append":
                self.append()
            elif happening == "step":
                self.step(self.random.choice(self.clocks))
            elif happening == "pass":
                self.pass_ms(self.random.randrange(24 * HOUR_MS))
            else:
                getattr(self, happening)()
            await self.shipper.ship_once()
        self.pass_ms(RETENTION_MS + 1)
        await self.shipper.ship_once()
        if self.local.log_start != self.local.log_end:
            self.problems.append(f"nothing above {self.local.log_start} has expired")


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> list[SealedSegment]:
    return sealed(tmp_path_factory.mktemp("segments"), SEGMENTS)


def ran(seed: int, segments: list[SealedSegment]) -> World:
    world = World(Random(f"retention in the store, {seed}"), [*segments])
    asyncio.run(world.run())
    return world


def test_no_clock_of_a_node_makes_the_store_forget_early(segments: list[SealedSegment]) -> None:
    counts: Counter[str] = Counter()
    for seed in range(RUNS):
        world = ran(seed, segments)
        assert not world.problems, (seed, world.problems)
        counts += world.counts
    assert counts["expired"] > RUNS, "some went while others were kept"


@pytest.mark.parametrize("clock", ["now_ms", "steady_ms"])
def test_an_age_by_a_clock_of_the_node_is_found(
    segments: list[SealedSegment], monkeypatch: pytest.MonkeyPatch, clock: str
) -> None:
    """Planted: the shipping node's clock is used as the current time."""
    monkeypatch.setattr(StoreTime, "now_ms", lambda self, *_: getattr(self._clock, clock)())
    assert any(ran(seed, segments).problems for seed in range(RUNS))
