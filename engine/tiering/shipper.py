"""Ships one partition's sealed segments while this node leads it: the driver around the plan, the upload and the chain.

Decides nothing itself (plan.py does) and blocks nothing: store and disk are used in the executor's threads, whose
number bounds the uploads of all partitions together. One shipper per partition and leader epoch.

A cancel or a crash is safe at every await. The store is the truth: the manifest held here is dropped before each
commit and loaded again unless that commit is known to have worked, and a thread that a cancel left behind can at most
finish a commit that a later load finds. `source.tiered` is told only what a committed manifest says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import ParamSpec, Protocol, TypeVar

from engine.clock import Clock
from engine.disk import Disk
from engine.errors import EngineError
from engine.tiering.collect import remove_expired_roots, remove_orphans
from engine.tiering.expiry import StoreExpiry
from engine.tiering.manifest import Fenced, Manifest, ManifestEntry, append, raise_log_start, successor
from engine.tiering.manifest_chain import commit, fold_if_due, load_newest, take_over
from engine.tiering.plan import Halt, Plan, Upload, plan_uploads
from engine.tiering.store import ObjectStore
from engine.tiering.upload import upload_segment
from engine.tiering.values import LocalLog

_DAY_SECONDS = 24 * 3600.0
_P = ParamSpec("_P")
_T = TypeVar("_T")


class State(Enum):
    """What a shipper does now."""

    IDLE = "idle"
    SHIPPING = "shipping"
    BACKING_OFF = "backing off"  # something failed; it is tried again
    HALTED = "halted"  # nothing can be shipped until somebody acts; looked at again now and then
    FENCED = "fenced"  # another leader has taken over; this shipper is done


@dataclass(frozen=True, slots=True)
class ShipperOptions:
    """How long a shipper waits for what. `wake` ends an idle wait, never a backoff."""

    idle_seconds: float = 10.0  # a missed wake costs this much; also how often a halt is looked at again
    backoff_first_seconds: float = 0.5
    backoff_max_seconds: float = 60.0
    commits_between_cleanings: int = 256  # old roots are removed then, a page of a LIST at a time


@dataclass(frozen=True, slots=True)
class ShipperComponents:
    """What a shipper works with; the same for all partitions of a node."""

    store: ObjectStore
    disk: Disk
    clock: Clock
    random: Random
    new_id: Callable[[], str]
    executor: Executor


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
    failures: int  # in a row
    last_error: str | None  # of the last pass; None once a pass has worked


class SegmentSource(Protocol):
    """The partition that is shipped, as the shipper sees it."""

    async def local_log(self) -> LocalLog:
        """Its positions and sealed segments now."""

    async def tiered(self, end_offset: int) -> None:
        """Everything below `end_offset` is in the store, named by a committed manifest: local copies may go."""

    async def expired(self, end_offset: int) -> int:
        """The store need not keep what lies below: raise log_start, durably. Returns it."""


class PartitionShipper:
    """Ships what is sealed, committed and durable, in order, for as long as no newer leader appears."""

    def __init__(
        self,
        prefix: str,
        source: SegmentSource,
        *,
        leader_epoch: int,
        writer: str,
        components: ShipperComponents,
        options: ShipperOptions = ShipperOptions(),
    ) -> None:
        self._prefix = prefix
        self._source = source
        self._leader_epoch = leader_epoch
        self._writer = writer
        self._with = components
        self._options = options
        self._woken = asyncio.Event()
        self._expiry = StoreExpiry(components.store)
        self._state = State.IDLE
        self._has_begun: bool | None = None  # whether the store has a manifest; None until it was asked
        self._manifest: Manifest | None = None
        self._last_seen: Manifest | None = None  # for statistics only
        self._reported_end: int | None = None
        self._plan = Plan(())
        self._failures = 0
        self._last_error: str | None = None
        self._shipped_segments = 0
        self._shipped_bytes = 0
        self._commits = 0
        self._orphans_due = components.clock.monotonic() + components.random.uniform(0, _DAY_SECONDS)

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
            failures=self._failures,
            last_error=self._last_error,
        )

    @property
    def manifest(self) -> Manifest | None:
        """The newest manifest seen: what readers of this partition may start from."""
        return self._last_seen

    def wake(self) -> None:
        """A segment was sealed or committed: look now."""
        self._woken.set()

    async def run(self) -> None:
        """Ship until cancelled, or until another leader has taken over.

        Every failure is retried, the hopeless ones too: whoever mends a disk or a bucket need not restart the node.
        """
        while self._state is not State.FENCED:
            self._woken.clear()
            try:
                await self.ship_once()
            except Fenced as error:
                self._note_failure(State.FENCED, error)
            except (EngineError, OSError) as error:
                is_hopeless = isinstance(error, EngineError) and not error.retryable
                self._note_failure(State.HALTED if is_hopeless else State.BACKING_OFF, error)
                await asyncio.sleep(self._backoff_seconds())
            else:
                await self._idle()

    async def ship_once(self) -> None:
        """One pass over what is pending. Raises what stopped it; a halt is no error but a state."""
        local = await self._source.local_log()
        manifest = await self._own_manifest(local)
        if manifest is None:
            return
        self._state = State.SHIPPING
        self._plan = plan_uploads(manifest.end_offset, local)
        if self._plan.halt is not Halt.STORE_AHEAD:  # then what the store has is not this log's to delete
            await self._report(manifest)
        while self._plan.uploads:
            upload, *others = self._plan.uploads
            manifest = await self._ship(manifest, upload, local.log_start)
            self._plan = Plan(tuple(others), self._plan.halt, self._plan.reason)
        manifest = await self._give_up_below(manifest, await self._expire(manifest, local))
        await self._clean(manifest)
        self._failures = 0
        self._last_error = self._plan.reason or None
        self._state = State.HALTED if self._plan.halt else State.IDLE

    async def _own_manifest(self, local: LocalLog) -> Manifest | None:
        """The manifest to go on from; None while the store has none and there is nothing to begin one with.

        The store is asked for that once: a thousand quiet partitions must not list it every few seconds.
        """
        if self._has_begun is None:
            self._has_begun = await self._blocking(load_newest, self._with.store, self._prefix) is not None
        if self._manifest is None:
            if not self._has_begun and not plan_uploads(local.log_start, local).uploads:
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
        committed = await self._commit(manifest, log_start, entry)
        self._shipped_segments += 1
        self._shipped_bytes += entry.size_bytes
        await self._report(committed)
        return committed

    async def _expire(self, manifest: Manifest, local: LocalLog) -> int:
        """Have log_start raised above what has expired where only the store has it; returns log_start."""
        if not self._expiry.is_due(manifest, local):
            return local.log_start
        now_ms = self._with.clock.now_ms()
        end = await self._blocking(self._expiry.expired_end, manifest, local, now_ms)
        if end is None or end <= local.log_start:
            return local.log_start
        return await self._source.expired(end)

    async def _give_up_below(self, manifest: Manifest, log_start: int) -> Manifest:
        """Follow a raised log_start once it frees an object; until then it goes along with the next segment."""
        runs = manifest.folded or manifest.entries
        if runs and runs[0].end_offset <= log_start:
            return await self._commit(manifest, log_start, None)
        return manifest

    async def _commit(self, manifest: Manifest, log_start: int, entry: ManifestEntry | None) -> Manifest:
        self._manifest = None
        committed = await self._blocking(self._commit_blocking, manifest, log_start, entry)
        self._manifest = self._last_seen = committed
        self._commits += 1
        return committed

    def _commit_blocking(self, manifest: Manifest, log_start: int, entry: ManifestEntry | None) -> Manifest:
        store = self._with.store
        grown = successor(manifest, self._leader_epoch, self._writer)
        grown = raise_log_start(grown, max(grown.log_start, log_start))
        if entry is not None:
            grown = fold_if_due(store, append(grown, entry), self._with.new_id)
        commit(store, grown)
        return grown

    async def _report(self, manifest: Manifest) -> None:
        if manifest.end_offset != self._reported_end:
            await self._source.tiered(manifest.end_offset)
            self._reported_end = manifest.end_offset

    async def _clean(self, manifest: Manifest) -> None:
        """Remove what nobody needs any more, now and then."""
        store, clock = self._with.store, self._with.clock
        if self._commits >= self._options.commits_between_cleanings:
            await self._blocking(remove_expired_roots, store, self._prefix, clock.now_ms())
            self._commits = 0
        if clock.monotonic() >= self._orphans_due:
            await self._blocking(remove_expired_roots, store, self._prefix, clock.now_ms())
            await self._blocking(remove_orphans, store, manifest, clock.now_ms())
            self._orphans_due = clock.monotonic() + _DAY_SECONDS

    async def _blocking(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        assert not kwargs
        return await asyncio.get_running_loop().run_in_executor(self._with.executor, function, *args)

    async def _idle(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.idle_seconds):
                await self._woken.wait()

    def _note_failure(self, state: State, error: Exception) -> None:
        self._state = state
        self._failures += 1
        self._last_error = f"{type(error).__name__}: {error}"

    def _backoff_seconds(self) -> float:
        """Doubles up to a bound; half of it is chance, so that partitions do not come back all at once."""
        longest = self._options.backoff_first_seconds * 2.0 ** min(self._failures - 1, 30)
        return self._with.random.uniform(0.5, 1.0) * min(longest, self._options.backoff_max_seconds)
