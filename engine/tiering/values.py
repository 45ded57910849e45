"""What the local log tells tiering. Small frozen values; no behaviour beyond what they say of themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment file that no longer grows. `end_offset` is the offset after its last record.

    `record_count` and `leader_epochs` (epoch, first offset of that epoch in here) are what the log believes; the
    shipper reads the truth from the batches.
    """

    base_offset: int
    end_offset: int
    path: str
    size_bytes: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    leader_epochs: tuple[tuple[int, int], ...] = ()
    record_count: int | None = None


@dataclass(frozen=True, slots=True)
class LocalLog:
    """One partition as it is on this disk now: its positions and its sealed segments, ascending."""

    log_start: int
    log_end: int
    high_watermark: int
    sealed: tuple[SealedSegment, ...]
