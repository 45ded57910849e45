"""Virtual time: the queue of events, and a seed that decides everything.

There is no thread, no clock and no event loop, only a heap of calls. Two runs with the same seed and options do the
same, so nothing here may iterate over a set or depend on the machine.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any

LOGGED_EVENTS = 40  # of each node, printed at a failure unless more are requested


class World:
    """The scheduler, the randomness of a run, and its event log."""

    def __init__(self, seed: int, logged_events: int = LOGGED_EVENTS) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 0.0
        self.depth = 0  # of nested waits
        self._logged_events = logged_events
        self.counts: Counter[str] = Counter()
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._log: dict[str, deque[tuple[float, str, tuple[Any, ...]]]] = {}

    def after(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now + delay_s, self._sequence, call, args))

    def run_until(self, end: float, is_done: Callable[[], bool] | None = None) -> None:
        """Run events until a time, or until `is_done`, which is checked after every event that may have changed it."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= end:
            self.now, _, call, args = pop(heap)
            call(*args)
            if is_done is not None and is_done():
                return
        self.now = max(self.now, end)

    def run_nested(self, seconds: float) -> None:
        """Run events for a while from within an event: a thread waits."""
        self.depth += 1
        try:
            self.run_until(self.now + seconds)
        finally:
            self.depth -= 1

    def log(self, source: str, text: str, *args: Any) -> None:
        """Remember a line for the event log. It is formatted only if the run fails."""
        lines = self._log.get(source)
        if lines is None:
            lines = self._log[source] = deque(maxlen=self._logged_events)
        lines.append((self.now, text, args))

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def story(self) -> str:
        """Return the last events of every node, each with its time."""
        parts = []
        for source in sorted(self._log):
            parts.append(f"--- {source}")
            parts += [f"{at:9.4f} {text % args if args else text}" for at, text, args in self._log[source]]
        return "\n".join(parts)
