"""Histograms of durations: counts in buckets, for measurements that are too frequent for more.

To observe is to append to a list (30 ns); `fold` counts the appended values, and is called a few times a second by the
owner of the histogram, and by reads. Does not format metrics.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

# Seconds. From a write into the page cache to a disk that hangs.
STAGE_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Histogram:
    """Counts of values up to each bound, and of all of them."""

    __slots__ = ("_cumulative", "_gathered", "_total", "bounds", "observe")

    observe: Callable[[float], None]

    def __init__(self, bounds: Sequence[float] = STAGE_BOUNDS) -> None:
        self.bounds = bounds
        self._cumulative = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._gathered: list[float] = []
        self.observe = self._gathered.append

    def __repr__(self) -> str:
        return f"Histogram(count={self.cumulative()[-1]}, total={self.total})"

    @property
    def total(self) -> float:
        self.fold()
        return self._total

    def cumulative(self) -> list[int]:
        """Returns how many values were at most each bound; the last number is the total."""
        self.fold()
        return list(self._cumulative)

    def fold(self) -> None:
        """Counts the appended values: sorted once, they need a bisection per bound and not per value."""
        values = self._gathered
        if not values:
            return
        values.sort()
        for index, bound in enumerate(self.bounds):
            self._cumulative[index] += bisect_right(values, bound)
        self._cumulative[-1] += len(values)
        self._total += sum(values)
        values.clear()
