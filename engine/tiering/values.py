"""What the local log tells tiering. Small frozen values; no behaviour beyond what they say of themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment file that no longer grows. `end_offset` is the offset after its last record.

    Times, counts and leader epochs are not in here: the shipper reads the truth from the batches.
    """

    base_offset: int
    end_offset: int
    path: str
    size_bytes: int
    arrived_ms: int | None = None  # the last append, which age counts from


@dataclass(frozen=True, slots=True)
class LocalLog:
    """One partition as it is on this disk now: its positions, its sealed segments, ascending, and what its topic keeps.

    Raising `log_start` gives up what lies below it in the store as well; `local_log_start` is only where this disk
    begins. What is shipped lies below both `high_watermark` and `durable_end`: were a power loss to take back bytes
    that are in the store already, the log would give their offsets to other records.
    """

    log_start: int
    local_log_start: int
    log_end: int
    high_watermark: int
    durable_end: int
    sealed: tuple[SealedSegment, ...]
    active_bytes: int = 0
    retention_ms: int | None = None
    retention_bytes: int | None = None

    def bytes_from(self, offset: int) -> int:
        """The size of what begins at or behind an offset."""
        return self.active_bytes + sum(one.size_bytes for one in self.sealed if one.base_offset >= offset)
