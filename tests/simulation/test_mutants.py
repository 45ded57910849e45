"""Runs find each planted bug, with the seed that its mutant names or one soon after it."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS

TRIES = 40  # any change of the code changes every run, and with it the first seed


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if mutant.is_rare else ()) for name, mutant in MUTANTS.items()]
)
def test_a_planted_bug_is_found(name):
    first = MUTANTS[name].first_seed
    seed = MUTANTS[name].found_by_seed(range(first, first + TRIES))
    assert seed is not None, f"no seed from {first} on finds it: `python -m tests.simulation --mutants` searches again"


def test_every_planted_bug_is_found_soon():
    assert max(mutant.first_seed for mutant in MUTANTS.values()) < 400
