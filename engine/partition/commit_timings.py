"""What the groups of a committer took, and how much they wrote; kept for whoever measures, read by nobody here."""

from __future__ import annotations

from engine.partition.writer import Group
from engine.runtime.histogram import Histogram


class GroupTimes:
    """Of all groups so far. `queue` is how long the first append of a group waited for the writer."""

    def __init__(self) -> None:
        self.queue = Histogram()
        self.append = Histogram()
        self.flush = Histogram()
        self.flushes = 0

    def __repr__(self) -> str:
        return f"GroupTimes(append={self.append}, flush={self.flush})"

    def histograms(self) -> tuple[Histogram, ...]:
        return self.queue, self.append, self.flush

    def done(self, group: Group) -> None:
        self.append.observe(group.write_s)
        files = sum(len(work.sync) for work in group.work)
        if files:
            self.flush.observe(group.sync_s)
            self.flushes += files
