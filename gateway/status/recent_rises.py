"""Counters that rose lately, by name: a finding about an event stays for some minutes, as the alert for it does.

Each rise counts for the window and no longer. A counter that begins again lower, after its partition or group came
back to the process, rises from 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class RecentRises(Generic[K]):
    """`window_ms`: how long a rise counts."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._before: Mapping[K, int] = {}
        self._rises: dict[K, list[tuple[int, int]]] = {}  # when and by how much, at most one for each call

    def __repr__(self) -> str:
        return f"RecentRises({len(self._rises)} of {len(self._before)} counters)"

    def follow(self, counts: Mapping[K, int], steady_ms: int) -> Sequence[tuple[K, int]]:
        """Takes the counters as they are now. Returns those that rose within the window, and by how much in it."""
        first_ms = steady_ms - self._window_ms
        recent = {name: [rise for rise in rises if rise[0] > first_ms] for name, rises in self._rises.items()}
        self._rises = {name: rises for name, rises in recent.items() if rises}
        for name, count in counts.items():
            before = self._before.get(name, 0)
            rise = count - before if count >= before else count
            if rise:
                self._rises.setdefault(name, []).append((steady_ms, rise))
        self._before = dict(counts)
        return [(name, sum(rise for _, rise in rises)) for name, rises in self._rises.items()]
