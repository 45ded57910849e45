"""Which data files of tables are retired by age: one object that `penstock ingest retain` replaces by its successor.

It is the commit of that step: from its creation verify misses none of the files that it covers, and retain removes
them. Rows that later commits add to an old day are not covered.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from engine.tiering.store.store import ObjectStore
from spark_ingest.layout import DAY, Layout
from spark_ingest.output import names
from spark_ingest.output.directories import day_end_of
from spark_ingest.plan import FORMAT, decode

_DEAD_LETTERS = Layout(period=DAY)


class Cut(NamedTuple):
    """Files of periods that ended before `day`, of plans up to `last`. `layout` is the table's; None by hour or day."""

    day: str
    last: int
    layout: Layout | None = None


class Retained(msgspec.Struct, frozen=True):
    """State `number` of a job, with a cut for each topic."""

    job: str
    number: int
    cuts: dict[str, Cut]
    format: int = FORMAT

    def covers(self, key: str) -> bool:
        """True if a data file, a file of dead letters or a marker is retired. One without a day never is."""
        cut, plan = self.cuts.get(names.topic_of(key)), names.plan_number_of(key)
        if cut is None or (plan is None and not names.is_marker(key)):
            return False
        is_table = key.startswith(names.table_prefix(names.topic_of(key)))
        end = day_end_of((cut.layout if is_table else None) or _DEAD_LETTERS, key)
        return end is not None and (plan or 0) <= cut.last and end <= cut.day


def load_retained(output: ObjectStore, job: str) -> Retained:
    """Returns the newest state; an empty one before the first. Raises UnreadablePlan."""
    states = [(names.number_of(info.key) or 0, info.key) for info in output.list(names.retained_prefix(job))]
    number, key = max(states, default=(0, ""))
    return decode(output.get(key), key, Retained) if number else Retained(job, 0, {})
