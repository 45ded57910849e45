"""The local log as tiering sees it: small frozen values, and the interface that returns them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from engine.log.epochs import EpochStart


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment file that no longer grows. `end_offset` is the offset after its last record.

    Has no times, counts or leader epochs: the shipper reads them from the batches.
    """

    base_offset: int
    end_offset: int
    path: str
    size_bytes: int
    arrived_ms: int | None = None  # the last append, from which age counts


@dataclass(frozen=True, slots=True)
class LocalLog:
    """One partition on this disk: its positions, its sealed segments, ascending, and its topic's retention.

    `wait_max_ms` is how long the store keeps expired records for jobs that have not read them; None: it does not.
    `sealed` may leave out segments that end at or below the end of the manifest.
    Raising `log_start` deletes the records below it in the store as well; `local_log_start` is only where this disk
    begins. Shipped segments are below both `high_watermark` and `durable_end`: were a power loss to take back bytes
    that are in the store already, the log would give their offsets to other records. `leader_epoch` is the one in which
    this node leads the partition, None while it does not; `epochs` are the starts of all that the log knows.
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
    wait_max_ms: int | None = None
    leader_epoch: int | None = None
    epochs: tuple[EpochStart, ...] = ()

    @property
    def sealed_end(self) -> int:
        """The end of the last sealed segment."""
        return self.sealed[-1].end_offset if self.sealed else self.local_log_start

    def epoch_before(self, offset: int) -> int | None:
        """Returns the epoch of the record before an offset; None if this disk does not know it."""
        at = bisect_left(self.epochs, offset, key=attrgetter("start_offset"))
        return self.epochs[at - 1].epoch if at and offset <= self.log_end else None

    def bytes_from(self, offset: int) -> int:
        """Returns the bytes of the segments that begin at or behind an offset."""
        return self.active_bytes + sum(segment.size_bytes for segment in self.sealed if segment.base_offset >= offset)


class SegmentSource(Protocol):
    """The shipped partition, as the shipper sees it."""

    async def local_log(self, above: int) -> LocalLog:
        """Returns its positions now, and its sealed segments that end above an offset."""

    async def on_tiered(self, end_offset: int) -> None:
        """Reports that a committed manifest names everything below `end_offset`: local copies may be deleted."""

    async def raise_log_start(self, end_offset: int) -> int:
        """Raises log_start durably, because the store need not keep the records below. Returns log_start."""
