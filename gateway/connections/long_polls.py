"""Bounds the long polls of a process and the partitions that they wait on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.http.problems import Problem


class LongPolls:
    """Counts open long polls; an event stream is one."""

    def __init__(self, polls_max: int, partitions_max: int) -> None:
        self.open = 0
        self.partitions = 0
        self._polls_max = polls_max
        self._partitions_max = partitions_max

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each gauge."""
        yield "penstock_long_polls", "Open long polls: fetches that wait for records", self.open
        yield "penstock_long_poll_partitions", "Partitions that all open long polls wait on", self.partitions

    @property
    def has_room(self) -> bool:
        """Returns whether one more poll of one partition may wait."""
        return self.open < self._polls_max

    @contextmanager
    def waiting(self, partitions: int = 1) -> Iterator[None]:
        """Counts a long poll on `partitions` partitions until the block ends. Raises Problem too_many_long_polls."""
        self.begin(partitions)
        try:
            yield
        finally:
            self.end(partitions)

    def begin(self, partitions: int = 1) -> None:
        """Counts a long poll until its `end`. Raises Problem too_many_long_polls."""
        if self.open >= self._polls_max:
            raise Problem("too_many_long_polls", f"{self.open} long polls are open", limit=self._polls_max)
        if partitions > 1 and self.partitions + partitions > self._partitions_max:
            text = f"open long polls wait on {self.partitions} partitions, and this one would add {partitions}"
            raise Problem("too_many_long_polls", text, limit=self._partitions_max)
        self.open += 1
        self.partitions += partitions

    def end(self, partitions: int = 1) -> None:
        self.open -= 1
        self.partitions -= partitions
