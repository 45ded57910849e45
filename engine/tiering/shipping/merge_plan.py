"""Decides which neighbouring small objects of a partition become one object. Pure: no store, no clock.

A topic that is sealed by time leaves many tiny objects: a request for each, at every read of a long range. A merge
copies bytes, so a run is merged only if it has several objects and none of them is larger than half of the result: each
merge that copies a byte at least doubles its object, and a byte is copied at most log2(target / its object) times.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from engine.tiering.manifest.manifest import ManifestEntry
from engine.tiering.shipping.local_log import LocalLog

COUNT_MIN = 8  # a merge costs a GET for each object and two PUTs: fewer objects would not repay them
COUNT_MAX = 256  # at 20 ms a GET a merge takes 5 s, in which its partition ships nothing
_RETENTION_SHARE = 8  # an object expires as a whole: its oldest record stays at most an eighth longer


@dataclass(frozen=True, slots=True)
class MergeRules:
    """The objects to merge: those below `below_bytes`, 0 for none, to at most `target_bytes`.

    They are older than `min_age_ms` by the store's clock. `span_ms` bounds the time from the first record's arrival to
    the last one's; None: no bound.
    """

    below_bytes: int
    target_bytes: int
    min_age_ms: int
    span_ms: int | None = None
    count_min: int = COUNT_MIN

    def within_retention(self, local: LocalLog) -> MergeRules:
        """Returns the rules for a partition whose topic bounds the age or the size of its records."""
        target_bytes, span_ms = self.target_bytes, self.span_ms
        if local.retention_bytes is not None:
            target_bytes = min(target_bytes, local.retention_bytes // _RETENTION_SHARE)
        if local.retention_ms is not None:
            span_ms = local.retention_ms // _RETENTION_SHARE
        return replace(self, target_bytes=target_bytes, span_ms=span_ms)


def plan_merge(
    entries: Sequence[ManifestEntry], rules: MergeRules, log_start: int = 0, avoided: Collection[str] = ()
) -> Sequence[ManifestEntry]:
    """Returns the oldest run to merge; empty without one.

    Never takes objects whose keys are in `avoided`, nor those below `log_start`, which expire unread.
    """
    for start, first in enumerate(entries):
        if first.end_offset <= log_start or not _is_small(first, rules, avoided):
            continue
        began_ms = entries[start - 1].arrived_ms if start else first.arrived_ms
        count = _longest(entries[start : start + COUNT_MAX], began_ms, rules, avoided)
        if count:
            return entries[start : start + count]
    return ()


def _longest(
    entries: Sequence[ManifestEntry], began_ms: int | None, rules: MergeRules, avoided: Collection[str]
) -> int:
    """Returns how many of the first entries to merge; 0 if they are too few or one of them is too large."""
    total_bytes = largest_bytes = longest = 0
    for count, entry in enumerate(entries, 1):
        total_bytes += entry.size_bytes
        largest_bytes = max(largest_bytes, entry.size_bytes)
        if total_bytes > rules.target_bytes or not _is_small(entry, rules, avoided):
            break
        is_timed = rules.span_ms is not None and began_ms is not None and entry.arrived_ms is not None
        if is_timed and entry.arrived_ms - began_ms > rules.span_ms:  # type: ignore[operator]
            break
        if count >= rules.count_min and 2 * largest_bytes <= total_bytes:
            longest = count
    return longest


def _is_small(entry: ManifestEntry, rules: MergeRules, avoided: Collection[str]) -> bool:
    return entry.size_bytes < rules.below_bytes and entry.key not in avoided
