"""How many records the groups of this process are behind, for /metrics: measured now and then, not for each scrape.

Bounded: groups beyond the first GROUPS_MAX are added up as "other". Partitions whose leader is silent are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from gateway.groups.model.state import Group
from gateway.groups.share.window import State
from gateway.groups.share_reads import SHARE_BOUNDS
from gateway.metrics.metrics import Numbers
from gateway.routing.partitions import Topics
from gateway.routing.router import Router

GROUPS_MAX = 100  # series of one metric: as many as of topics
BOUNDS_S = 5.0  # for a process to report its partitions
OTHER = "other"

Bounds = Mapping[tuple[str, int], tuple[int, int]]


class GroupLags:
    """The lag of each group when it was measured last."""

    def __init__(self, topics: Topics, router: Router) -> None:
        self._topics, self._router = topics, router
        self._lags: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"GroupLags(groups={len(self._lags)})"

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
        self._lags = sum_by_name((group.name, lag_of(group, bounds)) for group in asked)

    def family(self) -> Numbers:
        text = "Records that a group has not committed or acknowledged, measured every few seconds by its coordinator"
        return Numbers("penstock_group_lag_records", text, "group", self._lags)


def lag_of(group: Group, bounds: Bounds) -> int:
    """Returns the records between the positions of a group and the high watermarks, without those that are done."""
    return sum(
        max(0, bounds[slot][1] - max(offset, bounds[slot][0])) - done
        for slot, offset, done in _positions(group)
        if slot in bounds
    )


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
