"""Findings about the objects of a partition: their kinds, and whether a kind is damage. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from engine.tiering.audit.inventory import StoredPartition
from engine.tiering.manifest.manifest import Manifest


class Kind(Enum):
    """Names what is found. Damage fails a verification; the other kinds do not."""

    MANIFEST_UNREADABLE = "manifest_unreadable"
    MANIFEST_MISSING = "manifest_missing"
    MANIFESTS_DISAGREE = "manifests_disagree"
    SUB_MANIFEST_MISSING = "sub_manifest_missing"
    SUB_MANIFEST_DAMAGED = "sub_manifest_damaged"
    OBJECT_MISSING = "object_missing"
    OBJECT_DAMAGED = "object_damaged"
    AUX_MISSING = "aux_missing"
    AUX_DAMAGED = "aux_damaged"
    HINT_WRONG = "hint_wrong"
    OLD_MANIFEST_UNREADABLE = "old_manifest_unreadable"
    OLD_MANIFEST = "old_manifest"
    LONG_MANIFEST = "long_manifest"
    ORPHAN = "orphan"
    ORPHAN_YOUNG = "orphan_young"
    ORPHAN_AHEAD = "orphan_ahead"
    FOREIGN = "foreign"

    @property
    def is_damage(self) -> bool:
        return self in _DAMAGE


_DAMAGE = frozenset(list(Kind)[: list(Kind).index(Kind.HINT_WRONG)])


@dataclass(frozen=True, slots=True)
class Finding:
    """One object with something to say about it. `offset` is the first offset concerned, if the object is about one."""

    kind: Kind
    key: str
    detail: str
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """Describes the objects of a partition. `manifest` is the newest one that can be read, None without one.

    `generation` is the newest one that exists. `sub_manifests` and `roots` are counts.
    """

    partition: StoredPartition
    manifest: Manifest | None
    generation: int
    findings: tuple[Finding, ...]
    roots: int
    sub_manifests: int
    manifest_bytes: int
    orphans: int
    orphan_bytes: int
    newest_object_ms: int | None = None

    @property
    def damage(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind.is_damage]

    @property
    def newest_record_ms(self) -> int | None:
        """The bound of the times of the newest object's records."""
        runs = (self.manifest.entries or self.manifest.folded) if self.manifest is not None else ()
        return runs[-1].max_timestamp_ms if runs else None
