"""Runs with a group find nothing, and find each planted bug. More seeds: `make sim SEEDS=1000 ARGS=--groups`."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.groups.mutants import PLANTED, found_by_seed
from tests.simulation.groups.run import run_groups
from tests.simulation.report import GROUPS_MUST_HAPPEN, never_happened

SEEDS = 8
TRIES = 20  # any change of the code changes every run, and with it the first seed
FIRST_SEED = {
    "an answer leaves before its commit is stored": 1,
    "revoked partitions are not stored": 12,
    "a token has one offset too many": 0,
    "a partition has two owners": 0,
    "a position goes back at a failover": 1,
    "a coordinator outlives its leadership": 0,
    "records of a former leader are stored": 0,
}
RARE = dict.fromkeys(["revoked partitions are not stored"], pytest.mark.long)  # few seeds find it


def test_no_seed_finds_anything_and_everything_happens():
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        outcome = run_groups(seed)
        assert not outcome.problems, outcome.report()
        counts += outcome.counts
    assert never_happened(counts, SEEDS, GROUPS_MUST_HAPPEN) == []


@pytest.mark.parametrize("name", [pytest.param(one, marks=RARE.get(one, ())) for one in PLANTED])
def test_a_planted_bug_is_found(name: str):
    first = FIRST_SEED[name]
    assert found_by_seed(name, range(first, first + TRIES)) is not None
