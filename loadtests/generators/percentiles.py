"""Percentiles of measured durations, by the nearest-rank rule: each one is a value that was measured.

Not a histogram: a bench run is bounded, so every sample is kept and nothing is rounded into buckets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latency:
    """The durations of requests, in milliseconds. None where there are too few samples."""

    count: int
    p50_ms: float | None
    p99_ms: float | None
    p99_9_ms: float | None
    max_ms: float | None


def percentile(ascending: Sequence[float], percent: float) -> float | None:
    """Returns the smallest sample that at least `percent` of all samples do not exceed.

    None with too few samples above it, where it would equal the maximum: p99.9 needs 1000 samples.
    """
    assert 0 < percent < 100
    count = len(ascending)
    if round(count * (100 - percent) / 100, 9) < 1:
        return None
    # Rounded first: 1000 * 99.9 / 100 is 999.0000000000001 in floating point, but the rank is 999, not 1000.
    return ascending[math.ceil(round(count * percent / 100, 9)) - 1]


def latency_of(durations_us: Iterable[float]) -> Latency:
    """Sums up durations in microseconds."""
    ascending = sorted(durations_us)
    return Latency(
        count=len(ascending),
        p50_ms=_ms(percentile(ascending, 50)),
        p99_ms=_ms(percentile(ascending, 99)),
        p99_9_ms=_ms(percentile(ascending, 99.9)),
        max_ms=_ms(ascending[-1] if ascending else None),
    )


def median(values: Sequence[float]) -> float:
    """Returns the middle value; for an even count the mean of the two in the middle."""
    ascending = sorted(values)
    middle = len(ascending) // 2
    return ascending[middle] if len(ascending) % 2 else (ascending[middle - 1] + ascending[middle]) / 2


def _ms(duration_us: float | None) -> float | None:
    return None if duration_us is None else duration_us / 1000
