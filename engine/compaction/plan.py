"""Decides which part of a log to compact, and which segments become one file. Pure.

Kafka's rules: a log has a compacted part, a dirty part that may be compacted, and a rest that may not:
the active segment, what is not committed and durable, and what is younger than `min_compaction_lag_ms`. It is compacted
when the dirty part is large enough beside the compacted one, when a dirty record is older than `max_compaction_lag_ms`,
or when tombstones have expired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from engine.compaction.progress import Progress
from engine.topic_settings import TopicSettings

_SPAN_MAX = 2**31 - 1  # of offsets in a segment: an index has 32 bits for each


class SegmentFile(NamedTuple):
    """A sealed segment, as its owner lists it. `crc32c` is None while its checksum is not made."""

    base_offset: int
    end_offset: int
    path: str
    size_bytes: int
    last_append_ms: int
    crc32c: int | None
    is_damaged: bool


class LogFiles(NamedTuple):
    """A partition's sealed segments on this disk, oldest first, as far as they are committed and durable."""

    directory: str
    log_start: int
    sealed: tuple[SegmentFile, ...]
    now_ms: int  # of the owner's clock that never steps
    generation: tuple[int, int] = (0, 0)  # changes when the log is truncated


class Uncleanable(Enum):
    """Why an operator must act before a partition can be compacted. The value is the text for the log."""

    DAMAGED = "it has damaged records: restore them or delete them"
    IN_STORE = "its first records are in the store only: delete them, or use compact,delete"


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Copy the `sealed` segments, and read the keys of those from `dirty_start` on, which are dirty."""

    sealed: tuple[SegmentFile, ...]
    dirty_start: int
    tombstones_expired_below: int

    @property
    def dirty(self) -> tuple[SegmentFile, ...]:
        return tuple(segment for segment in self.sealed if segment.end_offset > self.dirty_start)


def plan_compaction(
    files: LogFiles, progress: Progress, settings: TopicSettings
) -> CompactionPlan | Uncleanable | None:
    """Returns what is to be compacted now; None if nothing is due."""
    ready = [
        segment for segment in files.sealed if files.now_ms - segment.last_append_ms >= settings.min_compaction_lag_ms
    ]
    sealed = files.sealed[: _contiguous(files.sealed, ready)]
    expired_below = progress.tombstones_expired_below(files.now_ms, settings.delete_retention_ms)
    dirty = [segment for segment in sealed if segment.end_offset > progress.cleaned_end]
    if not sealed or not _is_due(sealed, dirty, files.now_ms, expired_below, settings):
        return None
    if any(segment.is_damaged for segment in sealed):
        return Uncleanable.DAMAGED
    if files.log_start < sealed[0].base_offset:
        return Uncleanable.IN_STORE
    if any(segment.crc32c is None for segment in sealed):
        return None  # the check of a newly sealed segment is still in progress
    return CompactionPlan(sealed, progress.cleaned_end, expired_below)


def _contiguous(sealed: Sequence[SegmentFile], ready: Sequence[SegmentFile]) -> int:
    """Returns how many of the first segments are ready: a later one must not be compacted before an earlier one."""
    return next((at for at, segment in enumerate(sealed) if segment not in ready), len(sealed))


def _is_due(
    sealed: Sequence[SegmentFile],
    dirty: Sequence[SegmentFile],
    now_ms: int,
    expired_below: int,
    settings: TopicSettings,
) -> bool:
    if expired_below:
        return True
    if not dirty:
        return False
    dirty_bytes, all_bytes = sum(segment.size_bytes for segment in dirty), sum(segment.size_bytes for segment in sealed)
    oldest_ms = now_ms - dirty[0].last_append_ms
    is_old = settings.max_compaction_lag_ms is not None and oldest_ms >= settings.max_compaction_lag_ms
    return is_old or 100 * dirty_bytes >= settings.min_cleanable_dirty_percent * all_bytes


def grouped(sealed: Sequence[SegmentFile], segment_bytes: int) -> list[tuple[SegmentFile, ...]]:
    """Returns runs of neighbouring segments, each no larger together than one segment may be (Kafka's grouping)."""
    groups: list[list[SegmentFile]] = []
    size_bytes = 0
    for segment in sealed:
        fits = groups and size_bytes + segment.size_bytes <= segment_bytes
        if fits and segment.end_offset - groups[-1][0].base_offset <= _SPAN_MAX:
            groups[-1].append(segment)
            size_bytes += segment.size_bytes
        else:
            groups.append([segment])
            size_bytes = segment.size_bytes
    return [tuple(group) for group in groups]
