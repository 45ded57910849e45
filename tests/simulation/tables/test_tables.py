"""Runs with compacted topics find nothing, and find each planted bug. More: `make sim SEEDS=1000 ARGS=--tables`."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.report import TABLES_MUST_HAPPEN, never_happened
from tests.simulation.tables.mutants import PLANTED, found_by_seed
from tests.simulation.tables.run import run_tables

SEEDS = 6
TRIES = 20  # any change of the code changes every run, and with it the first seed
FIRST_SEED = dict.fromkeys(PLANTED, 0) | {
    "a tombstone does not wait for a replica that is away": 8,
    "a tombstone does not wait for another replica's compaction": 18,
}


def test_no_seed_finds_anything_and_everything_happens():
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        outcome = run_tables(seed)
        assert not outcome.problems, outcome.report()
        counts += outcome.counts
    assert never_happened(counts, SEEDS, TABLES_MUST_HAPPEN) == []


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str):
    first = FIRST_SEED[name]
    assert found_by_seed(name, range(first, first + TRIES)) is not None
