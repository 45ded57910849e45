"""Tiering on a simulated node: the real shipper, plan, chain, upload and retention over a bucket, step by step.

PartitionShipper.run is driven without an event loop. Its threads are nested virtual time (BucketOfNode), and each of
its waits ends at the next step. At each step it gets the replica's current state. A change of leadership while it works
reaches it through the chain only.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from engine.cleaning.retention import expired_below
from engine.errors import EngineError
from engine.format import batch as record_batch
from engine.format.paths import store_partition_prefix
from engine.runtime.throttled_thread import ThrottledThread
from engine.tiering.manifest.chain import iter_entries, load_newest
from engine.tiering.shipping.garbage_collection import GRACE_MS, remove_expired_roots, remove_orphans
from engine.tiering.shipping.local_log import LocalLog
from engine.tiering.shipping.merge_plan import MergeRules
from engine.tiering.shipping.merging import MergeLane
from engine.tiering.shipping.shipper import PartitionShipper, ShipperComponents, ShipperOptions
from engine.tiering.tier import local_log
from tests.checking.tier_checkers import FinalTier
from tests.simulation.world.bucket import Bucket, BucketOfNode

if TYPE_CHECKING:
    from tests.simulation.world.hosted import Hosted

STEP_S = 0.25
RULES = MergeRules(below_bytes=1 << 20, target_bytes=1 << 20, min_age_ms=0, count_min=3)


def prefix_of(partition: str) -> str:
    topic, _, number = partition.partition("-")
    return store_partition_prefix("sim", topic, "id", int(number))


class Rest:
    """Awaitable that ends the step."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class SteppedShipper(PartitionShipper):
    """Every wait lasts until the next step; every thread call runs at once, in nested time."""

    async def _blocking(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    async def _idle(self, *, is_quiet: bool = False) -> None:
        if self._with.random.random() < 0.3:
            self._watch._polled_at = None  # its pause is longer than most runs
        await Rest()

    def _backoff_seconds(self) -> float:
        return 0.0  # asyncio.sleep(0) is a bare yield


class Tier:
    """One partition on one node: the source of its shipper, and the deletion of local segments."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted
        life = hosted.life
        self.store = BucketOfNode(life.node.bucket, life)
        self.tiered_end = 0
        self._is_stepping = False
        components = ShipperComponents(
            self.store,
            life.node.disk,
            life.clock,
            life.world.random,
            lambda: f"{life.world.random.getrandbits(128):032x}",
            None,  # type: ignore[arg-type] # nothing is done in threads
            MergeLane(RULES, ThrottledThread("merge", 1 << 40)),
        )
        self._shipper = SteppedShipper(
            prefix_of(hosted.partition),
            self,
            writer=f"{life.node.name} {life.world.now}",
            components=components,
            options=ShipperOptions(commits_between_cleanings=8),
        )
        self._steps: Coroutine[None, None, None] | None = None
        life.after(STEP_S * life.world.random.random(), self._step)

    def __repr__(self) -> str:
        return f"{self._shipper!r}"

    def _step(self) -> None:
        hosted, life = self._hosted, self._hosted.life
        life.after(STEP_S * (0.5 + life.world.random.random()), self._step)
        if self._is_stepping or hosted.log.offline:
            return
        if hosted.log.settings.is_compacted:  # engine/tiering/tier.py does not ship it
            self._expire()
            return
        self._is_stepping = True
        fenced_before, merged_before = self._shipper._fenced_epoch, self._shipper.statistics().merged_runs
        try:
            self._steps = self._steps or self._shipper.run()
            self._steps.send(None)
        finally:
            self._is_stepping = False
        life.world.counts["shippers fenced"] += self._shipper._fenced_epoch > fenced_before
        life.world.counts["objects merged"] += self._shipper.statistics().merged_runs - merged_before
        self._expire()

    def _expire(self) -> None:
        """Apply retention as the shard does periodically: expire records, and delete local segments that the store
        has.
        """
        hosted = self._hosted
        if hosted.log.offline or hosted.log.segments_lock.locked():
            return
        bounds = expired_below(
            _as_partition(hosted),
            hosted.life.clock.steady_ms(),
            self.end_that_may_go(),
            is_leader=hosted.leader is not None,
        )
        if bounds.log_start > hosted.log.log.log_start:
            hosted.life.node.deleted(hosted.partition, bounds.log_start)
        hosted.trim_to(bounds.log_start, bounds.local)

    def end_that_may_go(self) -> int:
        """Return the offset below which segments may be deleted from the disk: a committed manifest names them."""
        return self.tiered_end

    # The shipper's source.

    async def local_log(self, above: int) -> LocalLog:
        hosted = self._hosted
        return local_log(_as_partition(hosted), hosted.leader.leader_epoch if hosted.leader else None, above)

    async def on_tiered(self, end_offset: int) -> None:
        self.tiered_end = end_offset
        self._hosted.life.log("%s: the store has all below %d", self._hosted.partition, end_offset)

    async def raise_log_start(self, end_offset: int) -> int:
        hosted = self._hosted
        log = hosted.log.log
        if hosted.leader is not None and not hosted.log.offline:
            bound = min(end_offset, log.local_log_start)
            if bound > self._log_start_in_store():  # a new decision, not one that comes from the store
                hosted.life.node.deleted(hosted.partition, bound)
            hosted.trim_to(max(bound, log.log_start), max(bound, log.log_start))
        return log.log_start

    def _log_start_in_store(self) -> int:
        prefix = prefix_of(self._hosted.partition)
        roots = [root for root in self._hosted.life.node.bucket.roots if root.prefix == prefix]
        return roots[-1].log_start if roots else 0

    def read(self, offset: int, max_bytes: int) -> bytes | None:
        """Return batches from the store; None if it is unavailable or does not have them."""
        try:
            manifest = load_newest(self.store, prefix_of(self._hosted.partition))
            entry = manifest and next(iter_entries(self.store, manifest, offset), None)
            if not entry or entry.base_offset > offset:
                return None
            data = self.store.get(entry.key)
        except EngineError:
            return None
        batches = b""
        for position, header in record_batch.walk(data):
            is_committed_here = header.next_offset <= self._hosted.high_watermark
            if header.next_offset > offset and len(batches) < max_bytes and is_committed_here:
                batches += data[position : position + header.size_bytes]
        return batches


def _as_partition(hosted: Hosted) -> Any:
    """Return an object with the positions of a Partition."""
    log = hosted.log
    return SimpleNamespace(
        log=log.log,
        log_end=log.log.log_end,
        high_watermark=hosted.high_watermark,
        durable_end=log.durable_end,
        settings=log.settings,
    )


def final_tier(bucket: Bucket, partition: str) -> FinalTier:
    """Return the tiered state of a partition as any reader sees it."""
    prefix = prefix_of(partition)
    newest = load_newest(bucket, prefix)
    final = FinalTier(
        partition,
        [root for root in bucket.roots if root.prefix == prefix],
        newest,
        {info.key: bucket.get(info.key) for info in bucket.list(prefix)},
    )
    for entry in iter_entries(bucket, newest) if newest is not None else ():
        data = final.objects.get(entry.key, b"")
        final.batches += [data[at : at + header.size_bytes] for at, header in record_batch.walk(data)]
    return final


def cleaned_tier(bucket: Bucket, partition: str) -> FinalTier:
    """Return the same state two days later, after the cleaning has removed unneeded objects."""
    prefix, later_ms = prefix_of(partition), int(bucket.world.now * 1000) + 2 * GRACE_MS
    newest = load_newest(bucket, prefix)
    if newest is not None:
        remove_expired_roots(bucket, prefix, later_ms)
        remove_orphans(bucket, newest, later_ms)
    return final_tier(bucket, partition)
