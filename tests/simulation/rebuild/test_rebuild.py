"""Runs with an emptied store find nothing, and find each planted bug.

More seeds: `make sim SEEDS=1000 ARGS=--rebuild`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.rebuild.mutants import PLANTED, found_by_seed
from tests.simulation.rebuild.run import run_rebuild
from tests.simulation.report import REBUILD_MUST_HAPPEN, never_happened

SEEDS = 12
TRIES = 30  # any change of the code changes every run, and with it the first seed
FIRST_SEED = {
    "a vanished topic counts as deleted": 2,
    "broker epochs of the lost store count": 13,
    "leader epochs begin again": 0,
    "the log of the oldest epoch is elected": 3,
}


def test_no_seed_finds_anything_and_everything_happens():
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        outcome = run_rebuild(seed)
        assert not outcome.problems, outcome.report()
        counts += outcome.counts
    assert never_happened(counts, SEEDS, REBUILD_MUST_HAPPEN) == []


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str):
    first = FIRST_SEED[name]
    assert found_by_seed(name, range(first, first + TRIES)) is not None
