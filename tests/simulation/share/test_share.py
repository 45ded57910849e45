"""Runs with a share group find nothing, and find each planted bug. More seeds: `make sim SEEDS=1000 ARGS=--share`."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.report import SHARE_MUST_HAPPEN, never_happened
from tests.simulation.share.mutants import PLANTED, found_by_seed
from tests.simulation.share.run import run_share

SEEDS = 4
TRIES = 30  # any change of the code changes every run, and with it the first seed
FIRST_SEED = {
    "an outcome is answered before it is stored": 2,
    "two callers get a record": 0,
    "deliveries are not stored": 8,
    "records are skipped": 0,
    "locks do not end": 1,
    "deliveries have no limit": 17,
    "a failed record comes again at once": 13,
    "an extension is too short": 211,
    "a coordinator does not confirm that it leads": 10,
    "a new coordinator does not read keys again": 3,
}
RARE = dict.fromkeys(["an extension is too short", "locks do not end"], pytest.mark.long)  # few seeds find it


def test_no_seed_finds_anything_and_everything_happens():
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        outcome = run_share(seed)
        assert not outcome.problems, outcome.report()
        counts += outcome.counts
    assert never_happened(counts, SEEDS, SHARE_MUST_HAPPEN) == []


@pytest.mark.parametrize("name", [pytest.param(one, marks=RARE.get(one, ())) for one in PLANTED])
def test_a_planted_bug_is_found(name: str):
    first = FIRST_SEED[name]
    assert found_by_seed(name, range(first, first + TRIES)) is not None
