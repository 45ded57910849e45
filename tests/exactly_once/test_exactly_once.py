"""The judge finds planted faults, and each recipe keeps its promise while parts of it are killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.exactly_once.__main__ import summary
from tests.exactly_once.run import KINDS, RECIPES, Report, breaks, check_outputs, run


@pytest.mark.parametrize(
    ("outputs", "broken"),
    [
        ({0: [0, 2, 4], 1: [1, 3, 5]}, set()),
        ({0: [3, 2, 0, 4], 1: [1, 5]}, {"exactly_once"}),  # 0 and 3 are of one input partition
        ({0: [0, 4], 1: [1, 3, 5]}, {"at_least_once", "exactly_once"}),  # lost
        ({0: [0, 2, 4], 1: [1, 3, 3, 5]}, {"at_most_once", "exactly_once"}),  # repeated
        ({0: [0, 2, 4], 1: [1, 2, 3, 5]}, {"at_most_once", "exactly_once"}),  # repeated in another partition
        ({0: [0, 2, 4, 6], 1: [1, 3, 5]}, {"at_most_once", "exactly_once"}),  # of no input
        ({0: [], 1: []}, {"at_least_once", "exactly_once"}),
    ],
)
def test_a_planted_fault_breaks_the_recipes_that_exclude_it(outputs, broken):
    findings = check_outputs(6, outputs)
    assert {recipe for recipe in RECIPES if breaks(recipe, findings)} == broken


def test_the_summary_names_what_breaks_the_promise():
    report = Report(6, Counter(worker=1), {"out": check_outputs(6, {0: [0, 2, 4], 1: [1, 3, 3]})})
    assert summary("at_most_once", report).endswith(
        "(lost, repeated) {'out': (1, 1)}: ['out C4 duplicate: 3 at 1 1 and 1 2']"
    )


@pytest.mark.e2e
@pytest.mark.parametrize(
    "recipe", [pytest.param(one, marks=[] if one == "exactly_once" else [pytest.mark.long]) for one in sorted(RECIPES)]
)
def test_a_recipe_keeps_its_promise_under_kills(recipe: str, tmp_path: Path) -> None:
    kills = len(KINDS) if recipe == "exactly_once" else 1
    report = run(tmp_path, recipe, kills, seed=1)
    assert not report.failures(recipe)
