"""How long something took, many times over, in bounded memory: counts in buckets that grow by a fifth.

Pure: takes durations, reads no clock. A quantile is the upper bound of its bucket, so it is too large by a fifth at
most and never too small.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

_BUCKETS_PER_OCTAVE = 4
_SMALLEST_MS = 0.01
_BUCKETS = 120  # 30 octaves: from 10 us to three hours


@dataclass(frozen=True)
class Durations:
    """What Timings have seen. All zero when there was nothing to see."""

    count: int = 0
    mean_ms: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0


class Timings:
    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self._count = 0
        self._total_ms = 0.0
        self._max_ms = 0.0

    def __repr__(self) -> str:
        return f"<Timings {self.durations()}>"

    def add(self, duration_ms: float) -> None:
        octaves = log2(max(duration_ms, _SMALLEST_MS) / _SMALLEST_MS)
        self._counts[min(int(octaves * _BUCKETS_PER_OCTAVE), _BUCKETS - 1)] += 1
        self._count += 1
        self._total_ms += duration_ms
        self._max_ms = max(self._max_ms, duration_ms)

    def durations(self) -> Durations:
        if self._count == 0:
            return Durations()
        mean_ms = self._total_ms / self._count
        return Durations(self._count, mean_ms, self._quantile_ms(0.5), self._quantile_ms(0.99), self._max_ms)

    def _quantile_ms(self, quantile: float) -> float:
        wanted, seen = quantile * self._count, 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if seen >= wanted:
                return min(_SMALLEST_MS * 2 ** ((bucket + 1) / _BUCKETS_PER_OCTAVE), self._max_ms)
        raise AssertionError("the buckets hold fewer than were counted")
