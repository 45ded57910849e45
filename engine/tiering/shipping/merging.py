"""Merges neighbouring small objects of one partition into one object. Blocking; for the shipper of its leader.

Order: read and check each source; upload and verify the result under a new name, and the sub-manifest that names it, if
they have left the root. The shipper then commits a manifest that names the result in their place. A crash before that
leaves objects that no manifest names. The sources stay as long as everything that a manifest has dropped: a day after
it was superseded (garbage_collection.py).

Invariants: the result is the bytes of the sources one after the other, and each batch in it was checked. A source that
is gone, damaged or does not join its neighbour is logged once and never taken again by this process.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from operator import attrgetter

from crc32c import crc32c

from engine.errors import Corrupt
from engine.format.batch import read_header
from engine.runtime.clock import Clock
from engine.runtime.throttled_thread import ThrottledThread
from engine.tiering.manifest.chain import load_sub_manifest, store_sub_manifest
from engine.tiering.manifest.manifest import FOLD_ENTRIES, Manifest, ManifestEntry, SubManifest, SubManifestRef
from engine.tiering.shipping.expiry import StoreNow
from engine.tiering.shipping.local_log import LocalLog, SealedSegment
from engine.tiering.shipping.merge_plan import MergeRules, plan_merge
from engine.tiering.shipping.plan import Upload
from engine.tiering.shipping.scan import scan_bytes
from engine.tiering.shipping.upload import upload_merged
from engine.tiering.store.store import NoSuchObject, ObjectStore

log = logging.getLogger("penstock.tiering")

RETRIES_PER_AGE = 4  # looks for objects that have become old enough, in the time that makes an object old enough
_Run = ManifestEntry | SubManifestRef


class MergeLane:
    """Lets one partition of a process merge at a time, at the rate of `thread`. Used from many threads."""

    def __init__(self, rules: MergeRules, thread: ThrottledThread) -> None:
        self.rules = rules
        self.thread = thread
        self.busy = threading.Lock()
        self.merges = self.sources = self.merged_bytes = 0

    def __repr__(self) -> str:
        return f"MergeLane({self.rules}, {self.thread})"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each number for /metrics."""
        yield "penstock_tier_merges_total", "Merges of small objects of the store that a manifest has", self.merges
        text = "Small objects of the store that merges have replaced"
        yield "penstock_tier_merged_objects_total", text, self.sources
        yield "penstock_tier_merged_bytes_total", "Bytes that merges have read and written again", self.merged_bytes

    def partition(self, store: ObjectStore, prefix: str, clock: Clock, new_id: Callable[[], str]) -> PartitionMerger:
        return PartitionMerger(store, prefix, self, clock, new_id)


class PartitionMerger:
    """Merges one partition in repeated calls, one run in each; remembers where there is nothing to merge."""

    def __init__(
        self, store: ObjectStore, prefix: str, lane: MergeLane, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._lane = lane
        self._clock = clock
        self._new_id = new_id
        self._avoided: set[str] = set()  # keys of objects that cannot be merged
        self._settled: set[str] = set()  # keys of sub-manifests without anything to merge
        self._examined = 0  # the generation in which there is nothing to merge
        # Not in the first minutes: in a rolling upgrade, other nodes still have a version that cannot read the result.
        self._due_at = clock.monotonic() + lane.rules.min_age_ms / 1000

    def is_due(self, manifest: Manifest) -> bool:
        """True if `merge` could find anything; no request to the store."""
        rules = self._lane.rules
        is_new = manifest.generation != self._examined and self._clock.monotonic() >= self._due_at
        return bool(rules.below_bytes) and is_new and manifest.entry_count >= rules.count_min

    def merge(self, manifest: Manifest, local: LocalLog, leader_epoch: int, store_now: StoreNow) -> _Run | None:
        """Merge one run of objects, and return the run to put in their place; None without any, or while another
        partition merges.

        Raises errors of the store; Stopped at the end of the process.
        """
        if not self._lane.busy.acquire(blocking=False):
            return None
        try:
            return self._merge(manifest, self._lane.rules.within_retention(local), leader_epoch, store_now)
        finally:
            self._lane.busy.release()

    def _merge(self, manifest: Manifest, rules: MergeRules, leader_epoch: int, store_now: StoreNow) -> _Run | None:
        for at, entries in self._places(manifest, rules):
            if plan_merge(entries, rules, manifest.log_start, self._avoided):
                old = self._old_enough(entries, rules.min_age_ms, store_now())
                sources = plan_merge(old, rules, manifest.log_start, self._avoided)
                if not sources:
                    self._due_at = self._clock.monotonic() + rules.min_age_ms / 1000 / RETRIES_PER_AGE
                    return None
                merged = self._merge_sources(sources, leader_epoch)
                if merged is None or at is None:
                    return merged
                return self._with_neighbour(manifest, at, _replaced(entries, merged))
            if at is not None:
                self._settled.add(manifest.folded[at].key)
        self._examined = manifest.generation
        return None

    def _places(self, manifest: Manifest, rules: MergeRules) -> Iterator[tuple[int | None, Sequence[ManifestEntry]]]:
        """Yields the entries of each sub-manifest that may have small objects, by its place, and those of the root."""
        self._settled &= {ref.key for ref in manifest.folded}
        for at, ref in enumerate(manifest.folded):
            is_small = ref.entry_count >= rules.count_min and ref.data_bytes < ref.entry_count * rules.below_bytes
            if is_small and ref.key not in self._settled and ref.end_offset > manifest.log_start:
                yield at, load_sub_manifest(self._store, ref).entries
        yield None, manifest.entries

    def _old_enough(
        self, entries: Sequence[ManifestEntry], min_age_ms: int, now_ms: int | None
    ) -> Sequence[ManifestEntry]:
        """Returns the entries that have been in the store for the least age; none without the store's time."""
        if now_ms is None:
            return ()
        return entries[: bisect_right(entries, now_ms - min_age_ms, key=lambda entry: self._stored_ms(entry) or 0)]

    def _stored_ms(self, entry: ManifestEntry) -> int | None:
        """Returns the time of an object by the store's clock; None if it is gone."""
        if entry.stored_ms is not None:
            return entry.stored_ms
        info = self._store.head(entry.key)
        return None if info is None else info.modified_ms

    def _merge_sources(self, sources: Sequence[ManifestEntry], leader_epoch: int) -> ManifestEntry | None:
        first, last = sources[0], sources[-1]
        stored_ms, data = self._stored_ms(last), self._read_joined(sources)
        if data is None or stored_ms is None:
            return None
        whole = SealedSegment(first.base_offset, last.end_offset, f"merged below {self._prefix}", len(data))
        try:
            scan = scan_bytes(
                lambda length, at: data[at : at + length],
                Upload(whole, first.base_offset),
                with_crc32=self._store.checks_uploads,
            )
        except Corrupt as error:
            self._avoid(sources, str(error))
            return None
        entry = upload_merged(self._store, self._prefix, data, scan, leader_epoch, self._new_id)
        self._lane.merges += 1
        self._lane.sources += len(sources)
        self._lane.merged_bytes += len(data)
        extra = {"prefix": self._prefix, "objects": len(sources), "bytes": len(data), "object": entry.key}
        log.info("small objects of the store were merged", extra=extra)
        return replace(entry, arrived_ms=last.arrived_ms, stored_ms=stored_ms)

    def _read_joined(self, sources: Sequence[ManifestEntry]) -> bytes | None:
        """Returns the bytes of the objects, each as its manifest says; None after one that is not."""
        joined = BytesIO()
        for entry in sources:
            try:
                data = self._store.get(entry.key)
            except NoSuchObject:
                data = b""
            if problem := _problem_of(entry, data):
                self._avoid([entry], problem)
                return None
            joined.write(data)
            self._lane.thread.pace(len(data))
        return joined.getvalue()

    def _avoid(self, entries: Sequence[ManifestEntry], why: str) -> None:
        self._avoided |= {entry.key for entry in entries}
        extra = {"object": entries[0].key, "objects": len(entries), "reason": why}
        log.warning("an object of the store cannot be merged", extra=extra)

    def _with_neighbour(self, manifest: Manifest, at: int, entries: Sequence[ManifestEntry]) -> SubManifestRef:
        """Stores the entries of a sub-manifest, together with those of the one before it if both fit into one."""
        if at and manifest.folded[at - 1].entry_count + len(entries) <= FOLD_ENTRIES:
            entries = (*load_sub_manifest(self._store, manifest.folded[at - 1]).entries, *entries)
        return store_sub_manifest(self._store, SubManifest(manifest.prefix, tuple(entries)), self._new_id)


def _problem_of(entry: ManifestEntry, data: bytes) -> str:
    if not data:
        return "it is not in the store"
    if (len(data), crc32c(data)) != (entry.size_bytes, entry.crc32c):
        return "it is not as its manifest says"
    if read_header(data).base_offset != entry.base_offset:
        return "it begins with an empty batch of a compaction, which may reach into the object before it"
    return ""


def _replaced(entries: Sequence[ManifestEntry], merged: ManifestEntry) -> Sequence[ManifestEntry]:
    start = bisect_right(entries, merged.base_offset, key=attrgetter("end_offset"))
    end = bisect_right(entries, merged.end_offset, key=attrgetter("end_offset"))
    return (*entries[:start], merged, *entries[end:])
