"""Judges the outputs of a recipe: which inputs have none, and which have several. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

RECIPES = {
    "at_most_once": ("repeated",),
    "at_least_once": ("lost",),
    "exactly_once": ("lost", "repeated", "disordered"),
}


class Verdict(NamedTuple):
    """The faults in one output topic. An input is a number; those of a partition are stored in ascending order."""

    lost: Sequence[int]
    repeated: Sequence[int]
    disordered: Sequence[tuple[int, int]]

    def breaks(self, recipe: str) -> list[str]:
        """Return the faults that the recipe excludes."""
        return [f"{name}: {getattr(self, name)[:10]}" for name in RECIPES[recipe] if getattr(self, name)]


def judge(inputs: Iterable[int], input_partitions: int, outputs: Mapping[int, Sequence[int]]) -> Verdict:
    """Judge the inputs of the outputs in each partition. Input n is in partition n modulo `input_partitions`."""
    wanted = set(inputs)
    counts = Counter(n for found in outputs.values() for n in found)
    disordered = []
    for found in outputs.values():
        for partition in range(input_partitions):
            mine = [n for n in found if n % input_partitions == partition]
            disordered += [(n, after) for n, after in pairwise(mine) if after < n]
    repeated = sorted(n for n, count in counts.items() if count > 1 or n not in wanted)
    return Verdict(sorted(wanted - counts.keys()), repeated, disordered)
