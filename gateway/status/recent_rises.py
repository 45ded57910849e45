"""Counters that rose lately, by name: a finding about an event stays for some minutes, as the alert for it does.

Not a rate. A counter that begins again lower, after its partition or group came back to the process, rises from 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class RecentRises(Generic[K]):
    """`window_ms`: how long a counter is named after it last rose."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._before: Mapping[K, int] = {}
        self._rises: dict[K, tuple[int, int]] = {}  # by how much, and when last

    def __repr__(self) -> str:
        return f"RecentRises({len(self._rises)} of {len(self._before)} counters)"

    def follow(self, counts: Mapping[K, int], steady_ms: int) -> Sequence[tuple[K, int]]:
        """Takes the counters as they are now. Returns those that rose within the window, and by how much."""
        self._rises = {name: row for name, row in self._rises.items() if steady_ms - row[1] < self._window_ms}
        for name, count in counts.items():
            before = self._before.get(name, 0)
            rise = count - before if count >= before else count
            if rise:
                self._rises[name] = self._rises.get(name, (0, 0))[0] + rise, steady_ms
        self._before = dict(counts)
        return [(name, rise) for name, (rise, _) in self._rises.items()]
