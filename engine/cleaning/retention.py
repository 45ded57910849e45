"""Decides which whole sealed segments of a partition have expired, oldest first.

Two bounds: records below `log_start` are deleted everywhere; records below `local` are deleted from this disk only, and
the store keeps them. engine/tiering/shipping/expiry.py expires the store's segments by the same settings. With
`retention_waits_for_jobs`, only the store's expiry raises log_start until the longest wait is over: jobs read the
store.
Age counts from a segment's last append, not from the records' own timestamps: a backfill of old events is kept as long
as fresh ones, and a record from the future blocks nothing.
Age is steady time (engine/runtime/clock.py) while the node runs: a wrong or stepped clock makes no segment older.
Invariants:
- never expires the active segment;
- never at or above the high watermark, nor above durable_end: a power loss could leave a log that ends before it
  starts;
- locally never expires segments that the store lacks;
- a follower never advances log_start by itself: it takes log_start from its leader.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from engine.log.log import Log
from engine.partition.partition import Partition


class Bounds(NamedTuple):
    """The new bounds, as offsets; each is at least the old one."""

    log_start: int
    local: int


def expired_below(partition: Partition, now_ms: int, tiered_end: int | None, *, is_leader: bool = True) -> Bounds:
    """Returns the new log_start and local log start. `tiered_end` is None without tiering."""
    settings, log = partition.settings, partition.log
    if len(log.segments) == 1:  # without sealed segments: the usual case of many quiet partitions
        return Bounds(log.log_start, log.log_start)
    limit = min(partition.high_watermark, partition.durable_end)
    log_start = log.log_start
    is_tiered = tiered_end is not None and not settings.is_compacted  # what was tiered earlier is not compacted
    wait_ms = settings.retention_wait_max_ms if is_tiered and settings.retention_waits_for_jobs else None
    if is_leader and settings.is_expiring:
        end = _end_of_expired(log, limit, now_ms, settings.retention_ms, settings.retention_bytes, wait_ms)
        log_start = max(log_start, end or 0)
    if not is_tiered:
        return Bounds(log_start, log_start)
    assert tiered_end is not None
    tiered = min(limit, tiered_end)
    local = _end_of_expired(log, tiered, now_ms, settings.local_retention_ms, settings.local_retention_bytes)
    if wait_ms is not None:
        expired = _end_of_expired(log, tiered, now_ms, settings.retention_ms, settings.retention_bytes)
        local = max(local or 0, expired or 0)
    return Bounds(log_start, max(log_start, local or 0))


def _end_of_expired(
    log: Log, limit: int, now_ms: int, keep_ms: int | None, keep_bytes: int | None, wait_ms: int | None = None
) -> int | None:
    """Returns the end of the last sealed segment up to `limit` that is too old or too much; None without one.

    With `wait_ms`, a segment stays that much longer, and one beyond `keep_bytes` for that time.

    Walks from the oldest to the first that stays, and counts bytes only where they are bounded: this runs for each
    partition every second.
    """
    end, size_bytes = None, 0 if keep_bytes is None else log.size_bytes
    for segment in islice(log.segments, len(log.segments) - 1):
        if segment.next_offset > limit:
            break
        age_ms = now_ms - segment.last_append_ms
        is_too_old = keep_ms is not None and age_ms > keep_ms + (wait_ms or 0)
        is_too_much = keep_bytes is not None and size_bytes - segment.size_bytes >= keep_bytes
        is_too_much = is_too_much and (wait_ms is None or age_ms > wait_ms)
        if not (is_too_old or is_too_much):
            break
        size_bytes -= segment.size_bytes
        end = segment.next_offset
    return end
