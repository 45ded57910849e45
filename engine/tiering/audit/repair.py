"""Repairs what one partition has in the store, as far as the right result is certain. Blocking.

The order makes every step safe to repeat after a crash: first objects that nothing names yet, then one new manifest by
the rules of the chain, and removals only from a partition without damage, since an object that no manifest names may be
the only copy of lost records. It never overwrites a segment or a manifest, and never removes an object whose name
tiering does not give. A running node may commit at any time: then the commit fails with Conflict, and the repair is
called once more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum

from crc32c import crc32c

from engine.errors import Corrupt
from engine.tiering.audit.candidates import Candidates
from engine.tiering.audit.examination import Examiner
from engine.tiering.audit.findings import Finding, Kind, PartitionReport
from engine.tiering.audit.inventory import listing_of
from engine.tiering.audit.object_check import agrees, scan_object
from engine.tiering.manifest.aux_object import encode_aux
from engine.tiering.manifest.chain import commit, fold_if_due, load_sub_manifest, write_hint
from engine.tiering.manifest.encoding import encode_sub_manifest
from engine.tiering.manifest.json_reading import UnsupportedFormat
from engine.tiering.manifest.keys import is_own, sub_manifest_key
from engine.tiering.manifest.manifest import (
    Manifest,
    ManifestEntry,
    SubManifest,
    SubManifestRef,
    first_manifest,
    problem_of,
    reference_to,
)
from engine.tiering.shipping.garbage_collection import remove_expired_roots, remove_orphans
from engine.tiering.store.store import NoSuchObject

_EPOCH_MAX = 2**31 - 1


class Action(Enum):
    """The steps of a repair."""

    REBUILD_AUX = "rebuild_aux"
    REPLACE_OBJECT = "replace_object"
    REBUILD_SUB_MANIFEST = "rebuild_sub_manifest"
    REBUILD_MANIFEST = "rebuild_manifest"
    NAME_ORPHAN = "name_orphan"
    FOLD = "fold"
    WRITE_HINT = "write_hint"
    REMOVE_OLD_MANIFEST = "remove_old_manifest"
    REMOVE_ORPHAN = "remove_orphan"
    ABORT_UPLOAD = "abort_upload"


@dataclass(frozen=True, slots=True)
class Mend:
    """One step of a repair."""

    action: Action
    key: str
    detail: str


@dataclass(frozen=True, slots=True)
class Repairer:
    """Repairs partitions, or with `is_dry` only returns the steps. With `names_orphans` it also names orphans."""

    examiner: Examiner
    new_id: Callable[[], str]
    writer: str
    is_dry: bool = True
    names_orphans: bool = False

    def repair(self, report: PartitionReport) -> list[Mend]:
        """Repair an examined partition and return the steps.

        Raises Conflict if a node has committed meanwhile: examine the partition again. Raises StoreUnavailable.
        """
        mends = _Repair(self, report).run()
        if mends and not self.is_dry:
            report = self.examiner.examine(report.partition)
        return [*mends, *self._remove(report), *self._abort_uploads(report)]

    def _remove(self, report: PartitionReport) -> list[Mend]:
        if report.damage or report.manifest is None:
            return []
        actions = {Kind.OLD_MANIFEST: Action.REMOVE_OLD_MANIFEST, Kind.ORPHAN: Action.REMOVE_ORPHAN}
        mends = [
            Mend(actions[finding.kind], finding.key, finding.detail)
            for finding in report.findings
            if finding.kind in actions
        ]
        if mends and not self.is_dry:
            store, now_ms, grace_ms = self.examiner.store, self.examiner.now_ms, self.examiner.grace_ms
            remove_orphans(store, report.manifest, now_ms, grace_ms)
            remove_expired_roots(store, report.manifest.prefix, now_ms, grace_ms=grace_ms)
        return mends

    def _abort_uploads(self, report: PartitionReport) -> list[Mend]:
        """Abort old uploads in parts. They are never the only copy: a leader uploads from its own disk."""
        if report.damage:
            return []
        store, now_ms, grace_ms = self.examiner.store, self.examiner.now_ms, self.examiner.grace_ms
        uploads = store.unfinished(report.partition.prefix)
        old = [
            upload
            for upload in uploads
            if now_ms - upload.began_ms > grace_ms and is_own(report.partition.prefix, upload.key)
        ]
        if not self.is_dry:
            for upload in old:
                store.abort(upload)
        return [
            Mend(Action.ABORT_UPLOAD, upload.key, f"an upload in parts, begun {_day(upload.began_ms)}")
            for upload in old
        ]


def _day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")


class _Repair:
    """The repair of one partition: collects the changes of its manifest, and commits them together."""

    def __init__(self, using: Repairer, report: PartitionReport) -> None:
        self._using = using
        self._store = using.examiner.store
        self._report = report
        self._prefix = report.partition.prefix
        self._mends: list[Mend] = []
        self._damage = {finding.key: finding for finding in report.findings if finding.kind.is_damage}

    def run(self) -> list[Mend]:
        manifest = self._report.manifest
        if not self._is_needed():
            return []
        kinds = {finding.kind for finding in self._report.findings}
        listing = listing_of(self._prefix, self._store.list(self._prefix))
        named = {entry.key for entry in manifest.entries} if manifest is not None else set()
        self._candidates = Candidates(self._store, self._prefix, listing, named)
        if manifest is None:
            repaired = (
                self._rebuilt_from_nothing() if self._using.names_orphans and not self._report.generation else None
            )
        else:
            repaired = replace(
                manifest,
                folded=tuple(self._mend_reference(ref) for ref in manifest.folded),
                entries=tuple(self._mend(entry) for entry in manifest.entries),
            )
            if Kind.MANIFEST_UNREADABLE in kinds:
                repaired = self._continued(repaired, Action.REBUILD_MANIFEST, _EPOCH_MAX)
            elif self._using.names_orphans:
                repaired = self._continued(repaired, Action.NAME_ORPHAN, repaired.leader_epoch)
        if repaired is not None:
            self._commit(manifest, repaired, Kind.HINT_WRONG in kinds)
        return self._mends

    def _is_needed(self) -> bool:
        kinds = {finding.kind for finding in self._report.findings}
        return bool(self._damage) or not kinds.isdisjoint(
            {Kind.HINT_WRONG, Kind.LONG_MANIFEST, *([Kind.ORPHAN_AHEAD] if self._using.names_orphans else [])}
        )

    def _commit(self, manifest: Manifest | None, repaired: Manifest, is_hint_wrong: bool) -> None:
        if repaired.is_due_to_fold:
            self._note(Action.FOLD, self._prefix, f"{len(repaired.entries)} entries in the root")
        is_changed = manifest != repaired or repaired.is_due_to_fold
        is_rebuilt = any(mend.action is Action.REBUILD_MANIFEST for mend in self._mends)
        if is_changed or is_rebuilt:
            repaired = replace(repaired, generation=self._report.generation + 1, writer=self._using.writer)
            assert (problem := problem_of(repaired)) is None, problem
            while repaired.is_due_to_fold and not self._using.is_dry:
                repaired = fold_if_due(self._store, repaired, self._using.new_id)
            if not self._using.is_dry:
                commit(self._store, repaired)
        elif is_hint_wrong:
            self._note(Action.WRITE_HINT, self._prefix, f"generation {repaired.generation}")
            if not self._using.is_dry:
                write_hint(self._store, self._prefix, repaired.generation)

    def _note(self, action: Action, key: str, detail: str) -> None:
        self._mends.append(Mend(action, key, detail))

    def _mend(self, entry: ManifestEntry) -> ManifestEntry:
        """Returns the entry, or one that names another object with the same bytes."""
        problem = self._damage.get(entry.key)
        if problem is not None:
            substitute = self._candidates.substitute(entry)
            if substitute is None:
                return entry
            self._note(Action.REPLACE_OBJECT, entry.key, f"{substitute.key} has the same bytes")
            entry = substitute
        self._mend_aux(entry, is_new=problem is not None)
        return entry

    def _mend_aux(self, entry: ManifestEntry, *, is_new: bool) -> None:
        problem = self._damage.get(entry.aux_key)
        if problem is None and (not is_new or self._store.head(entry.aux_key) is not None):
            return
        try:
            aux = scan_object(self._store, entry.key, entry.base_offset, entry.end_offset, entry.size_bytes)
        except (Corrupt, NoSuchObject):
            return
        if agrees(aux, entry):
            self._note(Action.REBUILD_AUX, entry.aux_key, f"from {entry.key}")
            if not self._using.is_dry:
                self._store.put(entry.aux_key, encode_aux(aux))

    def _mend_reference(self, ref: SubManifestRef) -> SubManifestRef:
        """Returns the reference, or one to a new sub-manifest that has lost or replaced entries."""
        problem = self._damage.get(ref.key)
        if problem is not None:
            folded = self._candidates.folded(ref, self._prefix)
            if folded is None:
                return ref
            self._note(Action.REBUILD_SUB_MANIFEST, ref.key, f"{ref.entry_count} entries, by their aux objects")
            return self._store_sub_manifest(folded)
        if not any(_is_within(damage, ref) for damage in self._damage.values()):
            return ref
        try:
            entries = load_sub_manifest(self._store, ref).entries
        except (NoSuchObject, Corrupt, UnsupportedFormat):
            return ref
        mended = tuple(self._mend(entry) for entry in entries)
        return ref if mended == entries else self._store_sub_manifest(SubManifest(self._prefix, mended))

    def _store_sub_manifest(self, sub: SubManifest) -> SubManifestRef:
        key = sub_manifest_key(self._prefix, sub.entries[0].base_offset, self._using.new_id())
        data = encode_sub_manifest(sub)
        if not self._using.is_dry:
            self._store.put(key, data, if_absent=True)
        return reference_to(sub, key, crc32c(data))

    def _continued(self, manifest: Manifest, action: Action, epoch_max: int) -> Manifest:
        """Appends the objects that continue the manifest. Only committed and durable records are ever uploaded."""
        if action is Action.REBUILD_MANIFEST:
            self._note(action, self._prefix, f"from generation {manifest.generation}")
        first_epoch = manifest.end_epoch or 0
        for entry in self._candidates.following(manifest.end_offset, first_epoch, epoch_max):
            self._note(Action.NAME_ORPHAN, entry.key, f"offsets {entry.base_offset} to {entry.end_offset}")
            epoch = max(manifest.leader_epoch, entry.last_leader_epoch)
            manifest = replace(manifest, entries=(*manifest.entries, entry), leader_epoch=epoch)
        return manifest

    def _rebuilt_from_nothing(self) -> Manifest | None:
        """Returns a first manifest of objects that are contiguous; None if an object would be left out."""
        offsets = self._candidates.base_offsets
        if not offsets:
            return None
        entries = [*self._candidates.following(offsets[0], 0, _EPOCH_MAX)]
        if not entries or entries[-1].end_offset <= offsets[-1]:
            return None
        self._note(Action.REBUILD_MANIFEST, self._prefix, f"offsets {offsets[0]} to {entries[-1].end_offset}")
        empty = first_manifest(self._prefix, entries[-1].last_leader_epoch, self._using.writer, offsets[0])
        return replace(empty, entries=tuple(entries))


def _is_within(finding: Finding, ref: SubManifestRef) -> bool:
    return finding.offset is not None and ref.base_offset <= finding.offset < ref.end_offset
