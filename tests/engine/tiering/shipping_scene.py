"""A log to ship that the test controls, and the expected content of the store afterwards."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from random import Random

from crc32c import crc32c

from engine.errors import EngineError
from engine.runtime.clock import SystemClock
from engine.runtime.disk import RealDisk
from engine.runtime.throttled_thread import ThrottledThread
from engine.tiering.manifest.aux_object import decode_aux
from engine.tiering.manifest.chain import iter_entries, load_newest
from engine.tiering.manifest.manifest import Manifest, ManifestEntry
from engine.tiering.shipping.expiry import Holds
from engine.tiering.shipping.local_log import LocalLog, SealedSegment
from engine.tiering.shipping.merge_plan import MergeRules
from engine.tiering.shipping.merging import MergeLane
from engine.tiering.shipping.shipper import PartitionShipper, ShipperComponents, ShipperOptions
from engine.tiering.store.store import ObjectStore
from tests.engine.tiering.making import PREFIX, segment_bytes, write_segment
from tests.engine.tiering.stores import Watched

WIDTH = 12  # offsets per segment
QUICK = ShipperOptions(idle_seconds=0.01, backoff_first_seconds=0.001, backoff_max_seconds=0.002)


class Source:
    """A partition's log that the test controls; records its calls. `leader_epoch` None: another node leads."""

    def __init__(self, local: LocalLog) -> None:
        self.local = local
        self.leader_epoch: int | None = 1
        self.reported: list[int] = []

    async def local_log(self, above: int) -> LocalLog:
        return replace(self.local, leader_epoch=self.leader_epoch)

    async def on_tiered(self, end_offset: int) -> None:
        self.reported.append(end_offset)

    async def raise_log_start(self, end_offset: int) -> int:
        self.local = replace(self.local, log_start=end_offset)
        return end_offset


class Hands:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.ms = SystemClock().now_ms()

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def steady_ms(self) -> int:
        return self.ms


Make = Callable[..., PartitionShipper]


def maker(executor: Executor, new_id: Callable[[], str]) -> Make:
    """Return a factory of shippers, each as after a start of the process, without state."""
    clock = Hands()

    def made(
        store: ObjectStore,
        source: Source,
        *,
        epoch: int = 1,
        writer: str = "writer",
        options: ShipperOptions = QUICK,
        holds: Holds = tuple,
        merging: MergeLane | None = None,
    ) -> PartitionShipper:
        source.leader_epoch = epoch
        components = ShipperComponents(store, RealDisk(), clock, Random(1), new_id, executor, merging)
        shipper = PartitionShipper(PREFIX, source, writer=writer, components=components, options=options, holds=holds)
        shipper.clock = clock  # type: ignore[attr-defined]
        return shipper

    return made


def sealed(directory: Path, count: int, first: int = 0, epoch: int = 1) -> list[SealedSegment]:
    return [
        write_segment(directory, segment_bytes(at * WIDTH, epoch=epoch, size=300)) for at in range(first, first + count)
    ]


def newest(store: ObjectStore) -> Manifest:
    found = load_newest(store, PREFIX)
    assert found is not None
    return found


def check_store(store: ObjectStore, segments: list[SealedSegment]) -> None:
    """Assert that the store has exactly these segments, each once, byte for byte, with a matching aux object."""
    entries = [*iter_entries(store, newest(store))]
    assert [(one.base_offset, one.end_offset) for one in entries] == [
        (one.base_offset, one.end_offset) for one in segments
    ]
    for one, segment in zip(entries, segments, strict=True):
        assert store.get(one.key) == Path(segment.path).read_bytes()
        aux = decode_aux(store.get(one.aux_key), one.aux_key)
        assert (aux.crc32c, aux.size_bytes, aux.base_offset) == (one.crc32c, one.size_bytes, one.base_offset)


def merge_lane(count_min: int = 2, min_age_ms: int = 0, target_bytes: int = 1 << 20) -> MergeLane:
    """Return a lane in which all objects of these tests are small."""
    rules = MergeRules(1 << 20, target_bytes, min_age_ms, count_min=count_min)
    return MergeLane(rules, ThrottledThread("merge", 1 << 40))


def check_joined(store: ObjectStore, segments: list[SealedSegment]) -> list[ManifestEntry]:
    """Assert that the objects of the store have the bytes of these segments, however they are divided."""
    entries = [*iter_entries(store, newest(store))]
    data = [store.get(one.key) for one in entries]
    assert b"".join(data) == b"".join(Path(one.path).read_bytes() for one in segments)
    for one, found in zip(entries, data, strict=True):
        assert (len(found), crc32c(found)) == (one.size_bytes, one.crc32c)
        aux = decode_aux(store.get(one.aux_key), one.aux_key)
        assert (aux.crc32c, aux.size_bytes, aux.base_offset) == (one.crc32c, one.size_bytes, one.base_offset)
    return entries


async def ship_through(shipper: PartitionShipper, attempts: int = 20) -> None:
    for _ in range(attempts):
        try:
            return await shipper.ship_once()
        except EngineError as error:
            if not error.retryable:
                raise
    raise AssertionError("never done")


def iter_ids() -> Callable[[], str]:
    numbers = iter(range(10**9))
    return lambda: f"id-{next(numbers)}"


def check_reported(store: Watched, source: Source) -> None:
    """Assert that the log was never given an end above that of a committed manifest."""
    found = load_newest(store.inner, PREFIX)
    assert all(end <= (found.end_offset if found else 0) for end in source.reported)
    assert source.reported == sorted(source.reported)
