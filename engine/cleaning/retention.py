"""What of a partition has expired: a decision over whole sealed segments, oldest first (engine.md 1.17).

Two bounds: below `log_start` records are gone for everybody; below `local` they are gone from this disk only, and the
store still has them. What only the store has expires there (engine/tiering/shipping/expiry.py), by the same settings.
Age counts from a segment's last append, not from the records' own timestamps: a backfill of old events is kept as long
as fresh ones, and a record from the future blocks nothing.
Age is steady time (engine/runtime/clock.py) while the node runs: no clock that is wrong, stepped or set makes a segment
older.
Invariants: never the active segment, never at or above the high watermark or what is not fsynced yet (or a power loss
could leave a log that ends before it starts), locally never what the store does not have. A follower expires nothing
for everybody: its log_start is what its leader tells it.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.log.segment import Segment
from engine.partition.partition import Partition


class Bounds(NamedTuple):
    """The new bounds; each is at least the old one."""

    log_start: int
    local: int


def expired_below(partition: Partition, now_ms: int, tiered_end: int | None, *, is_leader: bool = True) -> Bounds:
    """Where log_start and the local log may begin now. `tiered_end` is None when nothing is ever tiered."""
    settings, log = partition.settings, partition.log
    if len(log.segments) == 1:  # nothing is sealed: the usual case of many quiet partitions
        return Bounds(log.log_start, log.log_start)
    limit = min(partition.high_watermark, partition.durable_end)
    sealed = [s for s in log.segments[:-1] if s.next_offset <= limit]
    log_start = log.log_start
    if is_leader:
        end = _end_of_expired(sealed, log.size_bytes, now_ms, settings.retention_ms, settings.retention_bytes)
        log_start = max(log_start, end or 0)
    if tiered_end is None:
        return Bounds(log_start, log_start)
    tiered = [s for s in sealed if s.next_offset <= tiered_end]
    local = _end_of_expired(tiered, log.size_bytes, now_ms, settings.local_retention_ms, settings.local_retention_bytes)
    return Bounds(log_start, max(log_start, local or 0))


def _end_of_expired(
    sealed: list[Segment], size_bytes: int, now_ms: int, keep_ms: int | None, keep_bytes: int | None
) -> int | None:
    """The end of the last segment that is too old or too much, going from the oldest; None when none is."""
    end = None
    for segment in sealed:
        age_ms = now_ms - segment.last_append_ms
        is_too_old = keep_ms is not None and age_ms > keep_ms
        is_too_much = keep_bytes is not None and size_bytes - segment.size_bytes >= keep_bytes
        if not (is_too_old or is_too_much):
            break
        size_bytes -= segment.size_bytes
        end = segment.next_offset
    return end
