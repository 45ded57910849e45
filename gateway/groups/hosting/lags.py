"""How far the groups of this process are behind, in records and seconds: measured now and then, not for each scrape.

Bounded: groups beyond the first GROUPS_MAX are added up as "other". Partitions whose leader is silent are left out.
The seconds are the age of the first record behind a position. With more than AGES_MAX partitions behind, only the one
of each group that lacks the most records is asked for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from typing import NamedTuple

from engine.runtime.slices import in_slices
from gateway.groups.group_lag import measure_lags
from gateway.groups.model.state import Group
from gateway.groups.model.values import LagRow
from gateway.groups.share.window import State
from gateway.groups.share_reads import SHARE_BOUNDS
from gateway.metrics.metrics import Numbers
from gateway.routing.partitions import Topics
from gateway.routing.router import Router

GROUPS_MAX = 100  # series of one metric: as many as of topics
BOUNDS_S = 5.0  # for a process to report its partitions
LAG_ROWS_MAX = 100  # topics of one group in a list of groups
AGES_MAX = 200  # partitions whose first record is read in one measurement, some 0.2 ms each
OTHER = "other"

Bounds = Mapping[tuple[str, int], tuple[int, int]]


class Behind(NamedTuple):
    """A partition that a group has not read to its end."""

    group: str
    topic: str
    number: int
    offset: int
    records: int


class TopicLag(NamedTuple):
    """The lag of one group in one topic. `seconds` is the age of the oldest record that it lacks; 0: not known."""

    group: str
    records: int
    seconds: float


class GroupLags:
    """The lag of each group when it was measured last.

    `by_group` has the records and the seconds of each group, `rows` the same by topic, the greatest first; `worst` the
    group of each topic that lacks the most.
    """

    def __init__(self, topics: Topics, router: Router) -> None:
        self._topics, self._router = topics, router
        self.by_group: dict[str, tuple[int, float]] = {}
        self.rows: dict[str, tuple[LagRow, ...]] = {}
        self.worst: dict[str, TopicLag] = {}

    def __repr__(self) -> str:
        return f"GroupLags(groups={len(self.by_group)})"

    async def measure(self, groups: Iterable[Group]) -> None:
        """Asks the leaders of all topics of the groups for the bounds of their partitions."""
        asked = list(groups)
        names = sorted({name for group in asked for name in group.topics})
        records = [topic.record for name in names if (topic := self._topics.get(name)) is not None]
        rows = await asyncio.gather(*(self._router.collect_rows(SHARE_BOUNDS, record, BOUNDS_S) for record in records))
        bounds = {
            (record.name, number): bound
            for record, by_number in zip(records, rows, strict=True)
            for number, bound in by_number.items()
            if bound is not None
        }
        behind: list[Behind] = []
        for group in asked:
            behind += behind_of(group, bounds)
            await asyncio.sleep(0)  # a group may have thousands of partitions
        seconds = await self._measure_ages(behind)
        by_group = {group.name: (0, 0.0) for group in asked}
        topics = {(name, group.name): TopicLag(group.name, 0, 0.0) for group in asked for name in group.topics}
        async for row in in_slices(behind):
            lacking, longest = by_group[row.group]
            age = seconds.get(row, 0.0)
            by_group[row.group] = lacking + row.records, max(longest, age)
            before = topics.get((row.topic, row.group), TopicLag(row.group, 0, 0.0))  # a topic may end meanwhile
            topics[row.topic, row.group] = TopicLag(row.group, before.records + row.records, max(before.seconds, age))
        worst: dict[str, TopicLag] = {}
        by_topic: dict[str, list[LagRow]] = {group.name: [] for group in asked}
        async for (name, group_name), lag in in_slices(list(topics.items())):
            by_topic[group_name].append(LagRow(name, lag.records, lag.seconds))
            if lag.records and (name not in worst or worst[name].records < lag.records):
                worst[name] = lag
        self.rows = {name: tuple(nlargest(LAG_ROWS_MAX, rows, key=_records)) for name, rows in by_topic.items()}
        self.by_group, self.worst = by_group, worst

    async def _measure_ages(self, behind: list[Behind]) -> dict[Behind, float]:
        """Returns the age of the first record that is lacked, in seconds, of the partitions that are asked."""
        if len(behind) > AGES_MAX:
            most: dict[str, Behind] = {}
            for row in behind:
                if row.group not in most or most[row.group].records < row.records:
                    most[row.group] = row
            behind = list(most.values())[:AGES_MAX]
        try:
            async with asyncio.timeout(BOUNDS_S):
                lags = await measure_lags(self._router, [(row.topic, row.number, row.offset) for row in behind])
        except TimeoutError:
            return {}
        return {row: lag.age_ms / 1000 for row, lag in zip(behind, lags, strict=True) if lag is not None}

    def families(self) -> Iterator[Numbers]:
        """Yields the metrics of the groups' lags."""
        text = "Records that a group has not committed or acknowledged, measured every few seconds by its coordinator"
        lags = sum_by_name((name, records) for name, (records, _) in self.by_group.items())
        yield Numbers("penstock_group_lag_records", text, "group", lags)
        text = "Age of the oldest record that a group has not committed or acknowledged, as far as it is measured"
        rows = list(self.by_group.items())
        ages = {name: seconds for name, (_, seconds) in rows[:GROUPS_MAX]}
        if len(rows) > GROUPS_MAX:
            ages[OTHER] = max(seconds for _, (_, seconds) in rows[GROUPS_MAX:])
        yield Numbers("penstock_group_lag_seconds", text, "group", ages)


def _records(row: LagRow) -> int:
    return row.records


def behind_of(group: Group, bounds: Bounds) -> Iterator[Behind]:
    """Yields the partitions with records between the position of a group and the high watermark that are not done."""
    for slot, offset, done in _positions(group):
        if slot in bounds:
            first = max(offset, bounds[slot][0])
            records = max(0, bounds[slot][1] - first) - done
            if records > 0:
                yield Behind(group.name, *slot, first, records)


def _positions(group: Group) -> Iterator[tuple[tuple[str, int], int, int]]:
    for slot, committed in group.offsets.items():
        yield slot, committed.offset, 0
    for key, partition in ({} if group.share is None else group.share.partitions).items():
        runs = partition.window.runs
        yield key, partition.window.start, sum(run.size for run in runs if run.state is State.DONE)


def sum_by_name(numbers: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Returns the number of each group; those beyond GROUPS_MAX are one."""
    totals: dict[str, int] = {}
    for rank, (name, number) in enumerate(numbers):
        key = name if rank < GROUPS_MAX else OTHER
        totals[key] = totals.get(key, 0) + number
    return totals
