"""Ships one partition's sealed segments while this node leads it: the driver of the plan, the upload and the chain.

Decides nothing itself (plan.py does) and blocks nothing: store and disk are used in the executor's threads, whose
number bounds the uploads of all partitions together. Each pass reads from the log whether this node leads, and in which
epoch: no state is carried into another epoch. While another node leads, it only checks how far that one has shipped
(following.py), so that local copies may be deleted here too.

A cancel or a crash is safe at every await. The store is the truth: the manifest held here is dropped before each commit
and loaded again unless that commit is known to have worked, and a thread that a cancel left behind can at most finish a
commit that a later load finds. `source.on_tiered` gets only the ends of committed manifests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from random import Random
from typing import ParamSpec, TypeVar

from engine.errors import EngineError
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk
from engine.runtime.tasks import log_failure
from engine.tiering.manifest.chain import commit, fold_if_due, load_newest, take_over
from engine.tiering.manifest.manifest import Fenced, Manifest, append, raise_log_start, replace_runs, successor
from engine.tiering.manifest.store_time import StoreTime
from engine.tiering.manifest.stored_topic import TopicDescription
from engine.tiering.shipping.expiry import Holds, StoreExpiry
from engine.tiering.shipping.garbage_collection import DAY_SECONDS, StoreUpkeep
from engine.tiering.shipping.local_log import LocalLog, SegmentSource
from engine.tiering.shipping.manifest_watch import ManifestWatch
from engine.tiering.shipping.merging import MergeLane
from engine.tiering.shipping.plan import Halt, Plan, Upload, has_same_history, plan_uploads
from engine.tiering.shipping.upload import upload_segment
from engine.tiering.store.store import ObjectStore

log = logging.getLogger("penstock.tiering")

_P = ParamSpec("_P")
_T = TypeVar("_T")


class State(Enum):
    """The state of a shipper."""

    IDLE = "idle"
    SHIPPING = "shipping"
    BACKING_OFF = "backing off"  # a failure; retried
    HALTED = "halted"  # stopped until an operator acts; checked again now and then
    FENCED = "fenced"  # another leader has taken over, as this node will learn; nothing more is shipped in this epoch
    FOLLOWING = "following"  # another node leads and ships


@dataclass(frozen=True, slots=True)
class ShipperOptions:
    """The waits of a shipper. `wake` ends an idle wait, never a backoff.

    A pass that finds nothing new doubles the next wait, up to `quiet_factor_max` times the first: thousands of quiet
    partitions must cost next to nothing.
    """

    idle_seconds: float = 10.0  # how often a halt, or a sealed but uncommitted segment, is checked again
    quiet_factor_max: int = 12  # a missed wake, or the store's retention, may come this much later
    backoff_first_seconds: float = 0.5
    backoff_max_seconds: float = 60.0
    commits_between_cleanings: int = 256  # old roots are removed then, a page of a LIST at a time


@dataclass(frozen=True, slots=True)
class ShipperComponents:
    """The components of a shipper; the same for all partitions of a node. `merging` None: nothing is merged."""

    store: ObjectStore
    disk: Disk
    clock: Clock
    random: Random
    new_id: Callable[[], str]
    executor: Executor
    merging: MergeLane | None = None


@dataclass(frozen=True, slots=True)
class ShipperStatistics:
    state: str
    tiered_end: int | None  # None until the manifest was seen
    generation: int
    objects: int
    tiered_bytes: int
    pending_segments: int
    pending_bytes: int
    shipped_segments: int
    shipped_bytes: int
    merged_runs: int
    failures: int  # in a row
    last_error: str | None  # of the last pass; None after a successful pass


class PartitionShipper:
    """Ships sealed, committed and durable segments, in order, until a newer leader appears."""

    def __init__(
        self,
        prefix: str,
        source: SegmentSource,
        *,
        writer: str,
        components: ShipperComponents,
        options: ShipperOptions = ShipperOptions(),
        holds: Holds = tuple,
        description: TopicDescription | None = None,
    ) -> None:
        self._prefix, self._source = prefix, source
        self._holds, self._description = holds, description
        self._leader_epoch = -1  # of the current or last shipping
        self._fenced_epoch = -1
        self._writer = writer
        self._with = components
        self._options = options
        self._woken = asyncio.Event()
        self._expiry = StoreExpiry(components.store)
        self._store_time = StoreTime(components.store, components.clock)
        self._watch = ManifestWatch(components.store, prefix, components.clock)
        lane = components.merging
        self._merger = lane.partition(components.store, prefix, components.clock, components.new_id) if lane else None
        self._state = State.IDLE
        self._has_begun: bool | None = None  # whether the store has a manifest; None before the first check
        self._manifest: Manifest | None = None
        self._last_seen: Manifest | None = None  # for statistics only
        self._reported_end: int | None = None
        self.log_range: tuple[int, int] | None = None  # the log_start and the high watermark seen last
        self._plan = Plan(())
        self._is_awaiting = False  # a sealed segment could not be shipped yet
        self._failures = 0
        self._quiet_factor = 1
        self._last_error: str | None = None
        self._shipped_segments = 0
        self._shipped_bytes = 0
        self._merged_runs = 0
        first_s = components.random.uniform(0, DAY_SECONDS)
        self._upkeep = StoreUpkeep(
            components.store, prefix, components.clock, options.commits_between_cleanings, first_s
        )

    def __repr__(self) -> str:
        return f"<PartitionShipper {self._prefix} epoch {self._leader_epoch}: {self.statistics()}>"

    def statistics(self) -> ShipperStatistics:
        seen = self._last_seen
        return ShipperStatistics(
            state=self._state.value,
            tiered_end=seen.end_offset if seen else None,
            generation=seen.generation if seen else 0,
            objects=seen.entry_count if seen else 0,
            tiered_bytes=seen.data_bytes if seen else 0,
            pending_segments=len(self._plan.uploads),
            pending_bytes=self._plan.pending_bytes,
            shipped_segments=self._shipped_segments,
            shipped_bytes=self._shipped_bytes,
            merged_runs=self._merged_runs,
            failures=self._failures,
            last_error=self._last_error,
        )

    @property
    def manifest(self) -> Manifest | None:
        """The newest manifest seen, for readers of this partition."""
        return self._last_seen

    def wake(self) -> None:
        """Wakes the shipper: a segment was sealed or committed, or the leadership has moved."""
        self._woken.set()

    async def run(self) -> None:
        """Ships until cancelled, whenever this node leads.

        Retries every failure, permanent ones too: the repair of a disk or a bucket needs no restart of the node.
        """
        while True:
            self._woken.clear()
            seen = self._last_seen
            try:
                await self.ship_once()
            except Fenced as error:
                self._fenced_epoch = self._leader_epoch
                self._record_failure(State.FENCED, error)
                await self._idle()
            except (EngineError, OSError) as error:
                is_hopeless = isinstance(error, EngineError) and not error.retryable
                self._record_failure(State.HALTED if is_hopeless else State.BACKING_OFF, error)
                await asyncio.sleep(self._backoff_seconds())
            except Exception as error:  # a bug; another pass may not meet it
                log_failure("shipping", error, of=self._prefix)
                self._record_failure(State.BACKING_OFF, error)
                await asyncio.sleep(self._backoff_seconds())
            else:
                is_quiet = self._last_seen is seen and self._state is not State.HALTED
                await self._idle(is_quiet=is_quiet and not self._is_awaiting)

    async def ship_once(self) -> None:
        """Ships pending segments in one pass. Raises the error that stopped it; a halt is a state, not an error."""
        local = await self._local_log()
        self.log_range = (local.log_start, local.high_watermark)
        if local.leader_epoch is None or local.leader_epoch <= self._fenced_epoch:
            await self._follow(local)
            return
        self._begin(local.leader_epoch)
        manifest = await self._own_manifest(local)
        self._is_awaiting = local.sealed_end > (manifest.end_offset if manifest else local.local_log_start)
        if manifest is None:
            self._note_halt()
            return
        self._state = State.SHIPPING
        if self._description is not None and self._description.is_due():
            await self._blocking(self._description.write)
        local = await self._with_log_start_of(manifest, local)
        self._plan = plan_uploads(manifest.end_offset, local, manifest.end_epoch)
        is_other_log = self._plan.halt in (Halt.STORE_AHEAD, Halt.DIVERGED)  # then nothing may be deleted here
        await (self._withdraw_report if is_other_log else self._report)(manifest)
        while self._plan.uploads:
            manifest = await self._ship(manifest, self._plan.uploads[0], local.log_start)
        manifest = await self._drop_below(manifest, await self._expire(manifest, local))
        if self._upkeep.is_due():
            await self._blocking(self._upkeep.clean, manifest)
        await self._merge(manifest, local)
        self._failures = 0
        self._note_halt()

    def _note_halt(self) -> None:
        """Ends a pass: halted or idle, as its plan has it. Logs each reason once."""
        if self._plan.reason and self._plan.reason != self._last_error:
            extra = {"prefix": self._prefix, "reason": self._plan.reason}
            log.error("a partition is not shipped until an operator acts", extra=extra)
        self._last_error = self._plan.reason or None
        self._state = State.HALTED if self._plan.halt else State.IDLE

    async def _local_log(self) -> LocalLog:
        """Returns the log without the segments that the manifest seen last names: a roll costs no pass over them.

        With all of them before a load of the manifest: it may not be the one seen last.
        """
        seen = self._last_seen.end_offset if self._last_seen else 0
        local = await self._source.local_log(seen)
        is_known = self._manifest is not None and self._leader_epoch == local.leader_epoch
        if not seen or local.leader_epoch is None or (is_known and self._state is not State.FOLLOWING):
            return local
        return await self._source.local_log(0)

    def _begin(self, leader_epoch: int) -> None:
        """Drops the state of a follower or an earlier epoch: other nodes have written meanwhile."""
        if leader_epoch != self._leader_epoch or self._state is State.FOLLOWING:
            self._leader_epoch = leader_epoch
            self._manifest = self._has_begun = None
            self._expiry = StoreExpiry(self._with.store)

    async def _follow(self, local: LocalLog) -> None:
        """Another node ships; its committed segments may be deleted here. A diverged log is truncated elsewhere."""
        is_fenced = local.leader_epoch is not None
        self._state = State.FENCED if is_fenced else State.FOLLOWING
        self._plan = Plan(())
        self._is_awaiting = False
        if self._watch.is_due(self._last_seen, local):
            self._last_seen = await self._blocking(self._watch.poll) or self._last_seen
        if self._last_seen is not None and self._last_seen.end_offset <= local.log_end:
            seen = self._last_seen
            is_copy = has_same_history(seen.end_offset, seen.end_epoch, local)
            await (self._report if is_copy else self._withdraw_report)(seen)
        self._failures = 0
        self._last_error = self._last_error if is_fenced else None

    async def _with_log_start_of(self, manifest: Manifest, local: LocalLog) -> LocalLog:
        """Raises log_start to the manifest's: the last leader may have advanced it further than known here."""
        if manifest.log_start <= local.log_start:
            return local
        return replace(local, log_start=await self._source.raise_log_start(manifest.log_start))

    async def _own_manifest(self, local: LocalLog) -> Manifest | None:
        """The manifest to continue; None while the store has none and no segment begins one.

        Checks the store for that once: a thousand quiet partitions must not list it every few seconds.
        """
        if self._has_begun is None:
            self._has_begun = await self._blocking(load_newest, self._with.store, self._prefix) is not None
        if self._manifest is None:
            if not self._has_begun:
                self._plan = plan_uploads(local.log_start, local)
                if not self._plan.uploads:
                    return None
            self._manifest = await self._blocking(
                take_over, self._with.store, self._prefix, self._leader_epoch, self._writer, local.log_start
            )
            self._last_seen, self._has_begun = self._manifest, True
        return self._manifest

    async def _ship(self, manifest: Manifest, upload: Upload, log_start: int) -> Manifest:
        entry = await self._blocking(
            upload_segment,
            self._with.store,
            self._with.disk,
            self._prefix,
            upload,
            self._leader_epoch,
            self._with.new_id,
        )
        committed = await self._commit(
            manifest, log_start, lambda grown: fold_if_due(self._with.store, append(grown, entry), self._with.new_id)
        )
        # before the next wait: a status has the end of the store and what is pending of the same moment
        self._plan = replace(self._plan, uploads=self._plan.uploads[1:])
        self._shipped_segments += 1
        self._shipped_bytes += entry.size_bytes
        await self._report(committed)
        return committed

    async def _expire(self, manifest: Manifest, local: LocalLog) -> int:
        """Raises log_start above expired records that only the store has; returns log_start."""
        if not self._expiry.is_due(manifest, local):
            return local.log_start
        store_now = partial(self._store_time.now_ms, self._prefix, manifest.generation)
        end = await self._blocking(self._expiry.expired_end, manifest, local, store_now, self._holds)
        if end is None or end <= local.log_start:
            return local.log_start
        return await self._source.raise_log_start(end)

    async def _drop_below(self, manifest: Manifest, log_start: int) -> Manifest:
        """Follows a raised log_start once it frees an object; until then the next segment's commit includes it."""
        runs = manifest.folded or manifest.entries
        if runs and runs[0].end_offset <= log_start:
            return await self._commit(manifest, log_start, lambda grown: grown)
        return manifest

    async def _merge(self, manifest: Manifest, local: LocalLog) -> None:
        """Puts one object in the place of small ones, if they are due. Readers here get the new manifest at once."""
        if self._merger is None or not self._merger.is_due(manifest):
            return
        store_now = partial(self._store_time.now_ms, self._prefix, manifest.generation)
        run = await self._blocking(self._merger.merge, manifest, local, self._leader_epoch, store_now)
        if run is not None:
            committed = await self._commit(manifest, manifest.log_start, lambda grown: replace_runs(grown, run))
            self._merged_runs += 1
            self._reported_end = None
            await self._report(committed)

    async def _commit(self, manifest: Manifest, log_start: int, change: Callable[[Manifest], Manifest]) -> Manifest:
        self._manifest = None
        committed = await self._blocking(self._commit_blocking, manifest, log_start, change)
        self._manifest = self._last_seen = committed
        self._upkeep.note_commit()
        return committed

    def _commit_blocking(self, manifest: Manifest, log_start: int, change: Callable[[Manifest], Manifest]) -> Manifest:
        grown = successor(manifest, self._leader_epoch, self._writer)
        grown = change(raise_log_start(grown, max(grown.log_start, log_start)))
        commit(self._with.store, grown)
        return grown

    async def _report(self, manifest: Manifest) -> None:
        if manifest.end_offset != self._reported_end:
            await self._source.on_tiered(manifest.end_offset)
            self._reported_end = manifest.end_offset

    async def _withdraw_report(self, _: Manifest) -> None:
        """The log has lost shipped records, and has other records there now: the store is not its copy."""
        if self._reported_end:
            await self._source.on_tiered(0)
        self._reported_end = None

    async def _blocking(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        assert not kwargs
        return await asyncio.get_running_loop().run_in_executor(self._with.executor, function, *args)

    async def _idle(self, *, is_quiet: bool = False) -> None:
        self._quiet_factor = min(2 * self._quiet_factor, self._options.quiet_factor_max) if is_quiet else 1
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.idle_seconds * self._quiet_factor):
                await self._woken.wait()

    def _record_failure(self, state: State, error: Exception) -> None:
        kind = type(error).__name__
        is_repeat = self._failures > 0 and (self._last_error or "").startswith(f"{kind}:")
        is_restart = isinstance(error, EngineError) and error.code in ("overloaded", "ack_timeout")
        if not is_repeat and not is_restart:  # a process that starts or stops would log each of its partitions
            extra = {"prefix": self._prefix, "state": state.value, "reason": str(error)}
            log.warning("shipping a partition failed and is retried", extra=extra)
        self._state = state
        self._failures += 1
        self._last_error = f"{kind}: {error}"

    def _backoff_seconds(self) -> float:
        """Doubles up to a bound; half of it is random, so that partitions do not retry all at once."""
        longest = self._options.backoff_first_seconds * 2.0 ** min(self._failures - 1, 30)
        return self._with.random.uniform(0.5, 1.0) * min(longest, self._options.backoff_max_seconds)
