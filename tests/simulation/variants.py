"""The kinds of runs beside the plain one, by the option of `python -m tests.simulation`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.simulation.groups.run import run_groups
from tests.simulation.large import run_large
from tests.simulation.rebuild.run import run_rebuild
from tests.simulation.recreated.run import run_recreated
from tests.simulation.run import Outcome
from tests.simulation.share.callers import WORKS
from tests.simulation.share.run import run_share
from tests.simulation.tables.run import run_tables


class Variant(NamedTuple):
    """`must_happen`: the counters that are not zero after `seeds` runs."""

    run: Callable[..., Outcome]
    seeds: int
    help: str
    must_happen: Sequence[str]


VARIANTS = {
    "groups": Variant(
        run_groups,
        8,
        "runs with members of a consumer group",
        (
            "coordinators begun",
            "records of groups info",
            "stale tokens",
            "polls without an answer",
            "members hang",
            "members die",
            "members leave",
        ),
    ),
    "share": Variant(
        run_share,
        4,
        "runs with callers of a share group",
        (
            "coordinators begun",
            "coordinators paused",
            "acquires without an answer",
            "outcomes refused",
            *(f"callers {work}" for work in WORKS),
        ),
    ),
    "tables": Variant(
        run_tables,
        6,
        "runs with compacted topics",
        (
            "segments swapped",
            "records compacted away",
            "nodes ended within a swap",
            "swaps completed at a start",
            "truncations that wait for a swap",
            "batches copied without records",
            "reads that go on at another replica",
            "rounds without expired tombstones",
            "tombstones kept for other replicas",
        ),
    ),
    "large": Variant(
        run_large,
        2,
        "runs of 9 and of 20 nodes",
        ("elections", "truncations"),
    ),
    "rebuild": Variant(
        run_rebuild,
        12,
        "runs whose coordination store is emptied and rebuilt",
        (
            "stores emptied",
            "stores rebuilt",
            "sessions ended for an emptied store",
            "truncations",
            "power losses",
        ),
    ),
    "recreated": Variant(
        run_recreated,
        8,
        "runs whose topic is deleted and created again",
        (
            "topics created again",
            "partitions deleted",
            "readers notified of another topic",
            "elections",
        ),
    ),
}
