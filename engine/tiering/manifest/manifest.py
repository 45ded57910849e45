"""One partition's objects in the store: an ordered, gapless list. Pure values and their rules.

Does no I/O, knows no JSON (engine/tiering/manifest/encoding.py) and decides no upload. The root lists the newest
entries itself and refers to immutable sub-manifests for older ones, so that a commit stays small for a log of any
length.

Invariants, asserted before a write and checked after a read (`problem_of`): every run begins where the one before it
ends; leader epochs never decrease along the log, and none is above the manifest's own; log_start is in the first run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from engine.errors import EngineError

ENTRIES_MAX = 500  # about 150 kB of JSON, written once per shipped segment
FOLD_ENTRIES = 250  # folding half keeps the newest in the root, and folds seldom


class Fenced(EngineError):
    """A newer leader owns the manifest. Stop tiering this partition; retrying cannot help."""


class NotContiguous(EngineError):
    """An object does not continue the manifest. Retrying cannot help; find out which of the two logs is right."""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One segment object: the batches from `base_offset` to before `end_offset`, byte for byte as they were on disk.

    `leader_epochs` are pairs of epoch and the first offset in here that it wrote. `max_timestamp_ms` bounds every
    record; `min_timestamp_ms` is the least first timestamp of a batch, and a record within may be older. `arrived_ms`
    is when the last of it was appended, by the clock of the node that led; None where format 1 did not say.
    `stored_ms` is the store's time of the last object that a merge has put into this one; None for an object that was
    not merged, whose own time counts. Keys are full keys in the store.
    """

    base_offset: int
    end_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    min_timestamp_ms: int
    max_timestamp_ms: int
    size_bytes: int
    crc32c: int
    record_count: int
    key: str
    aux_key: str
    arrived_ms: int | None = None
    stored_ms: int | None = None

    @property
    def first_leader_epoch(self) -> int:
        return self.leader_epochs[0][0]

    @property
    def last_leader_epoch(self) -> int:
        return self.leader_epochs[-1][0]


@dataclass(frozen=True, slots=True)
class SubManifestRef:
    """A folded run of entries, with the facts that decide whether to load it."""

    base_offset: int
    end_offset: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    first_leader_epoch: int
    last_leader_epoch: int
    entry_count: int
    record_count: int
    data_bytes: int  # of all segment objects in it
    crc32c: int  # of the sub-manifest object
    key: str


Run = TypeVar("Run", ManifestEntry, SubManifestRef)


@dataclass(frozen=True, slots=True)
class SubManifest:
    """The entries of a reference. Written once, never changed."""

    prefix: str
    entries: tuple[ManifestEntry, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The root at one generation. `prefix` is the partition's place in the store; `writer` names the process."""

    prefix: str
    generation: int
    leader_epoch: int
    writer: str
    log_start: int
    folded: tuple[SubManifestRef, ...] = ()
    entries: tuple[ManifestEntry, ...] = ()

    @property
    def end_offset(self) -> int:
        """The end of the stored records, which begin at log_start."""
        runs = self.entries or self.folded
        return runs[-1].end_offset if runs else self.log_start

    @property
    def end_epoch(self) -> int | None:
        """The epoch of the leader that wrote the last stored record; None without one."""
        runs = self.entries or self.folded
        return runs[-1].last_leader_epoch if runs else None

    @property
    def base_offset(self) -> int:
        """The first stored offset; may be below log_start, which can point into an object."""
        runs = self.folded or self.entries
        return runs[0].base_offset if runs else self.log_start

    @property
    def entry_count(self) -> int:
        return len(self.entries) + sum(ref.entry_count for ref in self.folded)

    @property
    def record_count(self) -> int:
        return sum(entry.record_count for entry in self.entries) + sum(ref.record_count for ref in self.folded)

    @property
    def data_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.entries) + sum(ref.data_bytes for ref in self.folded)

    @property
    def is_due_to_fold(self) -> bool:
        return len(self.entries) > ENTRIES_MAX

    def find(self, offset: int) -> ManifestEntry | SubManifestRef | None:
        """Finds the run of an offset: an entry, or a reference to load. None if it is not in the store."""
        return find_run(self.entries, offset) or find_run(self.folded, offset)


def first_manifest(prefix: str, leader_epoch: int, writer: str, log_start: int) -> Manifest:
    """Returns generation 1 of a partition without objects in the store; its first segment will hold log_start."""
    return Manifest(prefix, generation=1, leader_epoch=leader_epoch, writer=writer, log_start=log_start)


def successor(manifest: Manifest, leader_epoch: int, writer: str) -> Manifest:
    """Returns the next generation with a new writer: unchanged, it is the fencing manifest of a new leader.

    Raises Fenced if a newer leader has written already.
    """
    check_leadership(manifest, leader_epoch)
    return replace(manifest, generation=manifest.generation + 1, leader_epoch=leader_epoch, writer=writer)


def check_leadership(manifest: Manifest, leader_epoch: int) -> None:
    """Raises Fenced if a leader of this epoch may no longer write."""
    if leader_epoch < manifest.leader_epoch:
        raise Fenced(
            f"{manifest.prefix}: leader epoch {leader_epoch} is over, generation {manifest.generation} has "
            f"epoch {manifest.leader_epoch}"
        )


def append(manifest: Manifest, entry: ManifestEntry) -> Manifest:
    """Returns the manifest with one more entry, in the same generation, which the caller made by `successor`.

    Raises NotContiguous if the entry does not continue the manifest.
    """
    grown = replace(manifest, entries=(*manifest.entries, entry))
    if problem := problem_of(grown):
        raise NotContiguous(
            f"{manifest.prefix}: {problem}", hint="the local log does not continue the log in the store"
        )
    return grown


def oldest_run(manifest: Manifest) -> SubManifest:
    """Returns the run that the next fold takes out of the root."""
    return SubManifest(manifest.prefix, manifest.entries[:FOLD_ENTRIES])


def fold(manifest: Manifest, sub: SubManifest, key: str, crc32c: int) -> Manifest:
    """Replaces the oldest run of a root by a reference to its object, which is already stored."""
    assert sub == oldest_run(manifest)
    folded = replace(
        manifest,
        folded=(*manifest.folded, reference_to(sub, key, crc32c)),
        entries=manifest.entries[len(sub.entries) :],
    )
    assert (problem := problem_of(folded)) is None, problem
    return folded


def raise_log_start(manifest: Manifest, log_start: int) -> Manifest:
    """Deletes everything below an offset: objects and folded ranges entirely below it leave the manifest.

    An offset beyond the end is allowed: then the manifest is empty, and continues from there.
    """
    assert log_start >= manifest.log_start
    return replace(
        manifest,
        log_start=log_start,
        folded=tuple(ref for ref in manifest.folded if ref.end_offset > log_start),
        entries=tuple(entry for entry in manifest.entries if entry.end_offset > log_start),
    )


def replace_runs(manifest: Manifest, run: ManifestEntry | SubManifestRef) -> Manifest:
    """Puts one run in the place of those of its kind that it covers: a merged object, or the list that names it.

    Raises NotContiguous if the manifest has not exactly its records there.
    """
    if isinstance(run, SubManifestRef):
        changed = replace(manifest, folded=_with_run(manifest.folded, run))
    else:
        changed = replace(manifest, entries=_with_run(manifest.entries, run))
    problem = problem_of(changed)
    if _facts(changed) != _facts(manifest):
        problem = problem or f"{run.key} has not the records of {run.base_offset}..{run.end_offset}"
    if problem:
        raise NotContiguous(f"{manifest.prefix}: {problem}", hint="the merged object is not used")
    return changed


def _facts(manifest: Manifest) -> tuple[int, int, int, int]:
    return manifest.base_offset, manifest.end_offset, manifest.record_count, manifest.data_bytes


def _with_run(runs: Sequence[Run], run: Run) -> tuple[Run, ...]:
    changed: list[Run] = [earlier for earlier in runs if earlier.end_offset <= run.base_offset]
    changed.append(run)
    changed += [later for later in runs if later.base_offset >= run.end_offset]
    return tuple(changed)


def find_run(runs: Sequence[Run], offset: int) -> Run | None:
    """Finds the run that holds an offset, among contiguous runs; None without one."""
    at = bisect_right(runs, offset, key=lambda run: run.end_offset)
    return runs[at] if at < len(runs) and runs[at].base_offset <= offset else None


def problem_of(manifest: Manifest) -> str | None:
    """Describes a broken invariant, as a sentence; None for a valid manifest."""
    if manifest.generation < 1 or manifest.leader_epoch < 0:
        return f"generation {manifest.generation} of epoch {manifest.leader_epoch} cannot be"
    if not manifest.prefix.endswith("/"):
        return f"prefix {manifest.prefix!r} does not end in a slash"
    runs: tuple[ManifestEntry | SubManifestRef, ...] = (*manifest.folded, *manifest.entries)
    if runs and not runs[0].base_offset <= manifest.log_start < runs[0].end_offset:
        return f"log_start {manifest.log_start} is not in the first run, {runs[0].base_offset}..{runs[0].end_offset}"
    if runs and runs[-1].last_leader_epoch > manifest.leader_epoch:
        return f"epoch {runs[-1].last_leader_epoch} of the last run is above the manifest's {manifest.leader_epoch}"
    return problem_of_runs(manifest.prefix, runs)


def problem_of_runs(prefix: str, runs: Sequence[ManifestEntry | SubManifestRef]) -> str | None:
    """Describes a broken order of runs, or a broken run; None if they are valid."""
    for run in runs:
        if not 0 <= run.base_offset < run.end_offset or run.min_timestamp_ms > run.max_timestamp_ms:
            return f"{run} has invalid bounds"
        if not run.key.startswith(prefix):
            return f"key {run.key!r} lies outside {prefix!r}"
        if isinstance(run, ManifestEntry) and (problem := _problem_of_epochs(run)):
            return problem
    for earlier, other in pairwise(runs):
        if earlier.end_offset != other.base_offset:
            return f"a run ends at {earlier.end_offset}, the next begins at {other.base_offset}"
        if other.first_leader_epoch < earlier.last_leader_epoch:
            return f"epoch {other.first_leader_epoch} at {other.base_offset} follows epoch {earlier.last_leader_epoch}"
    return None


def _problem_of_epochs(entry: ManifestEntry) -> str | None:
    epochs = entry.leader_epochs
    is_sound = (
        bool(epochs)
        and epochs[0][0] >= 0
        and epochs[0][1] == entry.base_offset
        and epochs[-1][1] < entry.end_offset
        and all(epoch[0] < other[0] and epoch[1] < other[1] for epoch, other in pairwise(epochs))
    )
    return None if is_sound else f"leader epochs {epochs} of {entry.base_offset}..{entry.end_offset} cannot be"


def reference_to(sub: SubManifest, key: str, crc32c: int) -> SubManifestRef:
    """Returns the reference of a root to a stored sub-manifest."""
    entries = sub.entries
    return SubManifestRef(
        base_offset=entries[0].base_offset,
        end_offset=entries[-1].end_offset,
        first_leader_epoch=entries[0].first_leader_epoch,
        last_leader_epoch=entries[-1].last_leader_epoch,
        min_timestamp_ms=min(entry.min_timestamp_ms for entry in entries),
        max_timestamp_ms=max(entry.max_timestamp_ms for entry in entries),
        entry_count=len(entries),
        record_count=sum(entry.record_count for entry in entries),
        data_bytes=sum(entry.size_bytes for entry in entries),
        crc32c=crc32c,
        key=key,
    )
