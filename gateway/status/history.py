"""The last hour of a process: a ring of samples for each series. Numbers only; survives no restart.

A sample belongs to a step of a clock that never goes back. Steps without a sample are NaN, as is a series before it
began. Processes are merged by the age of their samples, so that no clock of another node matters.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from math import isnan, nan
from typing import Any

STEP_MS = 10_000
SAMPLES = 360  # an hour
TREND_STEPS = 12  # of a trend in a list: two minutes
SERIES_MAX = 2000  # 6 MB: 20 of a node, 4 of each of 100 topics, 2 of each of 100 groups, and those that end

Series = tuple[str, str, str]  # of a node, topic or group; its name, empty for a node; the name of the number


class History:
    def __init__(self, steady_ms: int) -> None:
        self._rings: dict[Series, array[float]] = {}
        self._put_at: dict[Series, int] = {}
        self._step = steady_ms // STEP_MS
        self.samples = 0

    def __repr__(self) -> str:
        return f"History(series={len(self._rings)}, samples={self.samples})"

    def put(self, steady_ms: int, values: Mapping[Series, float]) -> None:
        """Adds a sample of each series. A series without a value for an hour is dropped."""
        step = steady_ms // STEP_MS
        passed = min(step - self._step, SAMPLES)
        self.samples = min(SAMPLES, self.samples + passed) if self.samples else 1
        for number in range(passed):
            at = (step - number) % SAMPLES
            for ring in self._rings.values():
                ring[at] = nan
        self._step = step
        for series, value in values.items():
            if series not in self._rings:
                if len(self._rings) >= SERIES_MAX:
                    continue
                self._rings[series] = array("d", [nan]) * SAMPLES
            self._rings[series][step % SAMPLES] = value
            self._put_at[series] = step
        for series in [series for series, put_at in self._put_at.items() if step - put_at >= SAMPLES]:
            del self._rings[series], self._put_at[series]

    def last(self, series: Series, samples: int, steady_ms: int) -> list[float] | None:
        """Returns the samples up to the present step, the newest last; None: there is no such series."""
        ring = self._rings.get(series)
        if ring is None:
            return None
        behind = steady_ms // STEP_MS - self._step
        steps = range(self._step + behind - samples + 1, self._step + behind + 1)
        oldest = self._step - SAMPLES
        return [ring[step % SAMPLES] if oldest < step <= self._step else nan for step in steps]

    def trends(self, kind: str, number: str) -> dict[str, list[float]]:
        """Returns, by name, a sample in each TREND_STEPS steps of an hour, the newest last."""
        places = [step % SAMPLES for step in range(self._step - SAMPLES + TREND_STEPS, self._step + 1, TREND_STEPS)]
        rings = self._rings.items()
        return {key[1]: [ring[place] for place in places] for key, ring in rings if key[0] == kind and key[2] == number}


def merge(lists: Iterable[list[float]], how: str) -> list[float]:
    """Returns one list of several of the same length: their sum, least or greatest, of those that are numbers."""
    reduce: Any = {"sum": sum, "min": min, "max": max}[how]
    merged = []
    for values in zip(*lists, strict=True):
        numbers = [value for value in values if not isnan(value)]
        merged.append(float(reduce(numbers)) if numbers else nan)
    return merged
