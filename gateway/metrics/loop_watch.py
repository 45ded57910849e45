"""Measures four times a second how late timers of the event loop fire, and triggers the counting of measurements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from engine.runtime.clock import Clock
from engine.runtime.histogram import Histogram

EVERY_S = 0.25


class LoopWatch:
    """`lag`: how much later than due a timer fired, which includes the time of slow callbacks."""

    def __init__(self, clock: Clock, histograms: Callable[[], Iterable[Histogram]]) -> None:
        self.lag = Histogram()
        self._histograms = histograms
        self._clock = clock

    async def run(self) -> None:
        """Watches until cancelled."""
        while True:
            due = self._clock.monotonic() + EVERY_S
            await asyncio.sleep(EVERY_S)
            self.lag.observe(max(0.0, self._clock.monotonic() - due))
            for histogram in (self.lag, *self._histograms()):
                histogram.fold()
