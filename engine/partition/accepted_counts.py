"""Counts the records that a partition has accepted as leader: of committed batches, by ten minutes.

A batch counts whole, under its greatest timestamp, once the high watermark has passed it: a batch that a change of
leaders cuts off was never acknowledged and never counts. A reader of the same batch finds the same period. The counts
are in memory until `take`; a kill loses them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from engine.format.batch_header import CONTROL, Header

PERIOD_MS = 600_000
PENDING_MAX = 10_000  # batches; then those of a period share an entry, and count together
WRITTEN_MAX = 100  # groups, before their headers are looked at


class AcceptedCounts:
    """`written` has the headers of groups that were not looked at yet: an append only adds to it.

    Call `settle` when it has WRITTEN_MAX. Invariant: pending entries are in the order of their ends.
    """

    __slots__ = ("_counts", "_pending", "written")

    def __init__(self) -> None:
        self.written: list[Iterable[Header]] = []
        self._pending: deque[tuple[int, int, int]] = deque()  # end offset, period, records
        self._counts: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"AcceptedCounts({len(self._pending)} batches pending, {sum(self._counts.values())} records counted)"

    def settle(self, high_watermark: int) -> None:
        """Take the batches of `written`, and count those that are committed."""
        pending = self._pending
        for headers in self.written:
            for base_offset, _, _, _, _, attributes, delta, _, timestamp, _, _, _, records in headers:
                if not attributes & CONTROL:
                    pending.append((base_offset + delta + 1, timestamp // PERIOD_MS, records))
        self.written = []
        self._count(high_watermark)
        if len(pending) > PENDING_MAX:
            self._share_entries()

    def cut(self, log_end: int) -> None:
        """Drops batches above the end of a truncated log."""
        self.settle(0)
        while self._pending and self._pending[-1][0] > log_end:
            self._pending.pop()

    def take(self, high_watermark: int) -> dict[int, int]:
        """Returns the counts by period since the last call."""
        self.settle(high_watermark)
        taken, self._counts = self._counts, {}
        return taken

    def _share_entries(self) -> None:
        """Makes one entry of neighbours of a period."""
        pending, shared = self._pending, deque[tuple[int, int, int]]()
        for end, period, records in pending:
            before = shared.pop()[2] if shared and shared[-1][1] == period else 0
            shared.append((end, period, before + records))
        self._pending = shared

    def _count(self, high_watermark: int) -> None:
        pending, counts = self._pending, self._counts
        while pending and pending[0][0] <= high_watermark:
            _, period, records = pending.popleft()
            counts[period] = counts.get(period, 0) + records
