"""Runs of each variant find nothing. More seeds: `make sim SEEDS=1000 ARGS=--groups`, or another option."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.report import never_happened
from tests.simulation.variants import VARIANTS


@pytest.mark.parametrize("name", VARIANTS)
def test_no_seed_finds_anything_and_everything_happens(name: str):
    variant, counts = VARIANTS[name], Counter[str]()
    for seed in range(variant.seeds):
        outcome = variant.run(seed)
        assert not outcome.problems, outcome.report()
        counts += outcome.counts
    assert never_happened(counts, variant.seeds, variant.must_happen) == []
