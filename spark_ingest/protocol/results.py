"""The result of a task: its files and its counts. Values only, without Arrow: planning and committing need no more.

Importing PyArrow and NumPy takes as long as the rest of a run without new records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from spark_ingest.output.stored_file import StoredFile
from spark_ingest.source.slices import Range
from spark_ingest.types.json_types import Members

SEEN_MEMBERS_MAX = 1000
ALL_TIMES = -2  # instead of a period: records of more periods than PERIODS_MAX, so that commits stay small
PERIODS_MAX = 20_000  # 139 days


class Misfits(msgspec.Struct, frozen=True, array_like=True):
    """Values of a column that are in `_extra` because they have another type, and all values of the column."""

    count: int
    values: int


class TimeCounts(msgspec.Struct, frozen=True):
    """Counts by ten minutes since 1970 (decode/time_counts.py): records that were read, and rows by event time.

    `batches` are the records again, each under the greatest timestamp of its batch, as nodes count what they accept;
    None in commits of earlier releases.
    """

    records: dict[int, int] = {}
    events: dict[int, int] = {}
    batches: dict[int, int] | None = None


class TaskResult(msgspec.Struct, frozen=True):
    """The result of a task. rows + bad + absent is the number of offsets in its ranges.

    `bad` counts records in dead letters; `absent` counts offsets without a row or a dead letter: those of control
    batches, and the `filtered` records that a transformer left out. `seen` has the types of members without a column.
    `misfits` has the columns with any, counted in the chunks that have any.
    """

    task: int
    topic: str
    ranges: tuple[Range, ...]
    rows: int
    bad: int
    absent: int
    fallbacks: int
    reasons: dict[str, int]
    seen: Members
    files: tuple[StoredFile, ...]
    dead_letters: tuple[StoredFile, ...]
    read_bytes: int
    seconds: float
    misfits: dict[str, Misfits] = {}
    filtered: int = 0
    times: TimeCounts | None = None  # a commit has their sums by topic

    @property
    def every_file(self) -> tuple[StoredFile, ...]:
        """Returns data files and dead letters."""
        return (*self.files, *self.dead_letters)


def add_counts(counts: Mapping[int, int], more: Mapping[int, int]) -> dict[int, int]:
    """Returns the sums by period, in one number if there are more than PERIODS_MAX."""
    total = dict(Counter(counts) + Counter(more))
    return {ALL_TIMES: sum(total.values())} if len(total) > PERIODS_MAX or ALL_TIMES in total else total


def add_times(left: TimeCounts | None, other: TimeCounts | None) -> TimeCounts | None:
    """Returns the sums; None if either was not counted."""
    if left is None or other is None:
        return None
    batches = None if left.batches is None or other.batches is None else add_counts(left.batches, other.batches)
    return TimeCounts(add_counts(left.records, other.records), add_counts(left.events, other.events), batches)


def add_misfits(left: Mapping[str, Misfits], other: Mapping[str, Misfits]) -> dict[str, Misfits]:
    total = dict(left)
    for name, more in other.items():
        misfits = total.get(name, Misfits(0, 0))
        total[name] = Misfits(misfits.count + more.count, misfits.values + more.values)
    return total
