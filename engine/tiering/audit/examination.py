"""Examines what one partition has in the store. Blocking; changes nothing.

Lists the objects before it reads the newest manifest: an object that a node commits meanwhile is not an orphan.
An examination with damage is repeated if a newer manifest exists afterwards: a node may have removed what the one that
was examined named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from itertools import chain

from engine.errors import Corrupt
from engine.tiering.audit.findings import Finding, Kind, PartitionReport
from engine.tiering.audit.inventory import Listing, StoredPartition, listing_of
from engine.tiering.audit.object_check import check_aux, check_bytes, check_size
from engine.tiering.manifest.chain import hinted_generation, load_generation, load_newest, load_sub_manifest
from engine.tiering.manifest.json_reading import UnsupportedFormat
from engine.tiering.manifest.keys import base_offset_of, latest_key
from engine.tiering.manifest.manifest import Manifest, ManifestEntry
from engine.tiering.shipping.garbage_collection import GRACE_MS, expired_roots, kept_generations
from engine.tiering.store.store import NoSuchObject, ObjectInfo, ObjectStore

_ATTEMPTS_MAX = 3
_BATCH_ENTRIES = 64  # entries in flight at a time: bounds the queue of the executor


class Depth(IntEnum):
    """How much is read: manifests; also aux objects; also every byte of the segments."""

    MANIFESTS = 0
    AUX = 1
    BYTES = 2


@dataclass(frozen=True, slots=True)
class Examiner:
    """The store, the threads and the time of an examination. `on_checked` is called with the bytes of each segment."""

    store: ObjectStore
    executor: Executor
    now_ms: int
    depth: Depth = Depth.MANIFESTS
    grace_ms: int = GRACE_MS
    on_checked: Callable[[int], None] = lambda _: None

    def examine(self, partition: StoredPartition, objects: Iterable[ObjectInfo] | None = None) -> PartitionReport:
        """Examines a partition; `objects` is a fresh listing of its prefix. Raises StoreUnavailable."""
        for _ in range(_ATTEMPTS_MAX):
            listed = self.store.list(partition.prefix) if objects is None else objects
            report = _Examination(self, partition, listing_of(partition.prefix, listed)).report()
            objects = None
            if not report.damage or not self._has_newer(report):
                break
        return report

    def _has_newer(self, report: PartitionReport) -> bool:
        try:
            newest = load_newest(self.store, report.partition.prefix)
        except (Corrupt, UnsupportedFormat):
            return False
        return newest is not None and newest != report.manifest


class _Examination:
    """One look at one partition."""

    def __init__(self, using: Examiner, partition: StoredPartition, listing: Listing) -> None:
        self._using = using
        self._store = using.store
        self._partition = partition
        self._listing = listing
        self._named: set[str] = set()
        self._held_keys: set[str] = set()  # of the oldest root, which readers may still hold
        self._findings: list[Finding] = []

    def report(self) -> PartitionReport:
        manifest = self._newest()
        self._check_hint(manifest)
        if manifest is not None:
            for _ in self._checked(manifest):
                pass
        self._check_old_roots(manifest)
        orphans = self._check_unnamed(manifest)
        self._findings += [Finding(Kind.FOREIGN, info.key, "left alone") for info in self._listing.foreign]
        listing = self._listing
        manifests = [*listing.roots.values(), *listing.sub_manifests.values()]
        return PartitionReport(
            partition=self._partition,
            manifest=manifest,
            generation=max([*listing.roots, 0 if manifest is None else manifest.generation]),
            findings=tuple(self._findings),
            roots=len(listing.roots),
            sub_manifests=len(manifest.folded) if manifest is not None else 0,
            manifest_bytes=sum(manifest.size_bytes for manifest in manifests),
            orphans=len(orphans),
            orphan_bytes=sum(orphan.size_bytes for orphan in orphans),
            newest_object_ms=max((info.modified_ms for info in listing.segments.values()), default=None),
        )

    def _newest(self) -> Manifest | None:
        """Returns the newest manifest that can be read; notes each newer one that cannot."""
        prefix = self._partition.prefix
        try:
            manifest = load_newest(self._store, prefix)
        except (Corrupt, UnsupportedFormat):
            pass
        else:
            if manifest is None and (self._listing.segments or self._listing.sub_manifests):
                self._findings.append(Finding(Kind.MANIFEST_MISSING, prefix, "segments without any manifest"))
            return manifest
        for generation in reversed([*self._listing.roots]):
            key = self._listing.roots[generation].key
            try:
                return load_generation(self._store, prefix, generation)
            except (Corrupt, UnsupportedFormat) as error:
                self._findings.append(Finding(Kind.MANIFEST_UNREADABLE, key, error.detail))
            except NoSuchObject:
                continue
        return None

    def _check_hint(self, manifest: Manifest | None) -> None:
        """A hint behind the newest manifest is usual; one ahead of it, or none, costs readers a longer LIST."""
        if manifest is None or manifest.generation == 1:  # a node may be about to write the first one
            return
        hinted = hinted_generation(self._store, manifest.prefix)
        if hinted == 0 or (hinted > manifest.generation and not self._is_newer_than(manifest)):
            detail = f"it names generation {hinted}, the newest is {manifest.generation}" if hinted else "it names none"
            self._findings.append(Finding(Kind.HINT_WRONG, latest_key(manifest.prefix), detail))

    def _is_newer_than(self, manifest: Manifest) -> bool:
        try:
            newest = load_newest(self._store, self._partition.prefix)
        except (Corrupt, UnsupportedFormat):
            return True
        return newest is not None and newest.generation > manifest.generation

    def _checked(self, manifest: Manifest) -> Iterator[ManifestEntry]:
        """Yields every entry of the newest manifest after its check."""
        if manifest.is_due_to_fold:
            detail = f"{len(manifest.entries)} entries in the root"
            self._findings.append(Finding(Kind.LONG_MANIFEST, manifest.prefix, detail))
        for entries in chain((self._entries(manifest, at) for at in range(len(manifest.folded))), [manifest.entries]):
            for start in range(0, len(entries), _BATCH_ENTRIES):
                some = entries[start : start + _BATCH_ENTRIES]
                for entry, findings in zip(some, self._using.executor.map(self._check, some), strict=True):
                    self._named |= {entry.key, entry.aux_key}
                    self._findings += findings
                    self._using.on_checked(entry.size_bytes)
                    yield entry

    def _entries(self, manifest: Manifest, at: int) -> tuple[ManifestEntry, ...]:
        ref = manifest.folded[at]
        self._named.add(ref.key)
        note = partial(Finding, key=ref.key, offset=ref.base_offset)
        try:
            return load_sub_manifest(self._store, ref).entries
        except NoSuchObject:
            detail = f"offsets {ref.base_offset} to {ref.end_offset}: {ref.entry_count} entries are not in the store"
            self._findings.append(note(Kind.SUB_MANIFEST_MISSING, detail=detail))
        except (Corrupt, UnsupportedFormat) as error:
            self._findings.append(note(Kind.SUB_MANIFEST_DAMAGED, detail=error.detail))
        return ()

    def _check(self, entry: ManifestEntry) -> list[Finding]:
        info = self._listing.segments.get(entry.key) or self._store.head(entry.key)  # it may be newer than the listing
        problem = check_size(entry, info)
        if problem is None and self._using.depth is Depth.BYTES:
            problem = check_bytes(self._store, entry)
        problems = [] if problem is None else [problem]
        if self._using.depth >= Depth.AUX:
            problem = check_aux(self._store, entry)
            return problems if problem is None else [*problems, problem]
        if entry.aux_key not in self._listing.aux and self._store.head(entry.aux_key) is None:
            problems.append(
                Finding(Kind.AUX_MISSING, entry.aux_key, "the aux object is not in the store", entry.base_offset)
            )
        return problems

    def _check_old_roots(self, manifest: Manifest | None) -> None:
        """Compares each kept root with the one after it. The deepest examination reads all, others the last two."""
        if manifest is None:
            return
        older = [generation for generation in self._listing.roots if generation < manifest.generation]
        is_deep = self._using.depth is Depth.BYTES
        after = manifest
        listed = [*self._listing.roots.values()]
        expired = {*expired_roots(manifest.prefix, listed, self._using.now_ms, self._using.grace_ms)}
        kept_roots = kept_generations(manifest.prefix, listed, self._using.now_ms, self._using.grace_ms)
        for generation in reversed(older if is_deep else sorted({*older[-1:], *kept_roots} & {*older})):
            key = self._listing.roots[generation].key
            try:
                before = load_generation(self._store, manifest.prefix, generation)
                self._keep(before) if generation in kept_roots else None
            except NoSuchObject:
                continue
            except (Corrupt, UnsupportedFormat) as error:
                self._findings.append(Finding(Kind.OLD_MANIFEST_UNREADABLE, key, error.detail))
                continue
            if problem := disagreement(before, after):
                self._findings.append(Finding(Kind.MANIFESTS_DISAGREE, key, problem))
            after = before
        self._findings += [Finding(Kind.OLD_MANIFEST, key, "superseded more than a day ago") for key in sorted(expired)]

    def _keep(self, root: Manifest) -> None:
        self._held_keys |= {ref.key for ref in root.folded}
        for entry in root.entries:
            self._held_keys |= {entry.key, entry.aux_key}
        for ref in root.folded:
            if ref.key not in self._named:
                for entry in load_sub_manifest(self._store, ref).entries:
                    self._held_keys |= {entry.key, entry.aux_key}

    def _check_unnamed(self, manifest: Manifest | None) -> list[ObjectInfo]:
        """Notes the objects that no kept manifest names, and returns them."""
        if manifest is None:
            return []
        listing, unnamed = self._listing, []
        is_complete = not any(finding.kind in _HIDES_NAMES for finding in self._findings)
        for info in (*listing.segments.values(), *listing.aux.values(), *listing.sub_manifests.values()):
            if info.key in self._named or info.key in self._held_keys:
                continue
            offset = base_offset_of(manifest.prefix, info.key)
            assert offset is not None
            unnamed.append(info)
            if offset >= manifest.end_offset or not is_complete:
                detail = "not named; kept, because a lost manifest may have named it"
                self._findings.append(Finding(Kind.ORPHAN_AHEAD, info.key, detail, offset))
            elif self._using.now_ms - info.modified_ms > self._using.grace_ms:
                self._findings.append(Finding(Kind.ORPHAN, info.key, "not named", offset))
            else:
                self._findings.append(Finding(Kind.ORPHAN_YOUNG, info.key, "not named yet", offset))
        return unnamed


# Findings behind which entries may be that are not known.
_HIDES_NAMES = (Kind.MANIFEST_UNREADABLE, Kind.SUB_MANIFEST_MISSING, Kind.SUB_MANIFEST_DAMAGED)


def disagreement(before: Manifest, after: Manifest) -> str | None:
    """Describes what a later manifest has against an earlier one of its chain; None if one can follow the other."""
    if after.leader_epoch < before.leader_epoch:
        return f"leader epoch {before.leader_epoch}, later {after.leader_epoch}"
    if after.log_start < before.log_start:
        return f"log_start {before.log_start}, later {after.log_start}"
    if after.end_offset < before.end_offset:
        return f"it ends at {before.end_offset}, a later one at {after.end_offset}"
    later = {entry.base_offset: entry for entry in after.entries}
    for at, entry in enumerate(before.entries):
        other = later.get(entry.base_offset)
        if other is not None and not _continues(other, before.entries[at:]):
            return f"another object at offset {entry.base_offset} in a later one"
    return None


def _continues(later: ManifestEntry, entries: Sequence[ManifestEntry]) -> bool:
    """True if an object is the first of the entries, or a merge of the first ones, by its bytes and records."""
    if (later.end_offset, later.crc32c) == (entries[0].end_offset, entries[0].crc32c):
        return True
    sources = [entry for entry in entries if entry.base_offset < later.end_offset]
    facts = (sum(source.size_bytes for source in sources), sum(source.record_count for source in sources))
    is_whole = sources[-1].end_offset == later.end_offset
    is_part = len(sources) == len(entries) and sources[-1].end_offset < later.end_offset
    same = is_whole and facts == (later.size_bytes, later.record_count)
    return later.stored_ms is not None and (same or (is_part and facts[0] < later.size_bytes))
