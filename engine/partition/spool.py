"""The spool of a shard: the bytes of sealed segments that the object store does not have yet, and their bound.

Knows how far the store has each partition, as its shipper reports it. Does not know the store, and deletes no files.
Counts partitions that this node leads, because a follower learns late how far its leader has shipped. Compacted topics
are never shipped, so that they neither count nor have their appends refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.errors import SpoolFull
from engine.log.segment import Segment
from engine.partition.partition import Partition


class Spool:
    """Counts what waits for the store. With `bytes_max` 0 it only counts. Used from one event loop."""

    def __init__(self, bytes_max: int = 0) -> None:
        self.bytes_max = bytes_max
        self.size_bytes = 0
        self.is_full = False  # an attribute, which costs an append no call
        self.refused_appends = 0
        self._tiered_ends: dict[Partition, int] = {}
        self._pending_bytes: dict[Partition, int] = {}

    def __repr__(self) -> str:
        return f"Spool({self.size_bytes} of {self.bytes_max or 'any number of'} bytes)"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each number for /metrics."""
        yield (
            "penstock_tier_spool_bytes",
            "Bytes of closed segments of led partitions that wait for the store",
            (self.size_bytes),
        )
        text = "Appends refused because tier_spool_bytes_max was reached"
        yield "penstock_tier_spool_refused_appends_total", text, self.refused_appends

    def check(self, partition: Partition) -> None:
        """Checks that a record may be appended. Raises SpoolFull."""
        if self.is_full and not partition.settings.is_compacted:
            self.refused_appends += 1
            raise SpoolFull(
                f"{partition.name}: {self.size_bytes} bytes of sealed segments wait for the object store, and "
                f"tier_spool_bytes_max allows {self.bytes_max}",
                hint="repair the store or the way to it; appends resume by themselves",
            )

    def tiered_end(self, partition: Partition) -> int:
        """Returns the end up to which a committed manifest names everything; 0 before the first report."""
        return self._tiered_ends.get(partition, 0)

    def note_tiered(self, partition: Partition, end_offset: int, *, is_led: bool) -> None:
        """Notes how far the store has a partition."""
        self._tiered_ends[partition] = end_offset
        self.count(partition, is_led=is_led)

    def count(self, partition: Partition, *, is_led: bool) -> None:
        """Counts a partition again: a segment was sealed, or the leadership may have moved."""
        pending_bytes = 0
        if is_led and not partition.settings.is_compacted:
            pending_bytes = sum(segment.size_bytes for segment in self._pending(partition))
        self._add(pending_bytes - self._pending_bytes.pop(partition, 0))
        if pending_bytes:
            self._pending_bytes[partition] = pending_bytes

    def drop(self, partition: Partition) -> None:
        """Forgets a partition that is no longer served."""
        self._tiered_ends.pop(partition, None)
        self._add(-self._pending_bytes.pop(partition, 0))

    def _add(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self.is_full = 0 < self.bytes_max <= self.size_bytes

    def _pending(self, partition: Partition) -> Iterator[Segment]:
        """Yields the sealed segments that wait, newest first; usually few of all.

        Before the first report only what was sealed since the start counts: the store may have all before it.
        """
        end = self._tiered_ends.get(partition, partition.opened_at)
        segments = partition.log.segments
        for at in range(len(segments) - 2, -1, -1):
            if segments[at].next_offset <= end:
                return
            yield segments[at]
