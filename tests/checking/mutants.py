"""Planted bugs of a server, and the one search for a run that finds them.

A mutant that no run finds means that a harness misses bugs, or that the rule is not needed. A harness in this process
plants a bug by a patch; nodes that are processes run a copy of the code with a changed text.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

ROOT = Path(__file__).parents[2]
Planted = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Mutant:
    """`run` makes the run of a seed and returns its findings; one of them begins with `finds`.

    `first_seed`: where the search began to find it. Any change of the code changes every run, and with it this seed.
    `is_rare`: few seeds find it, so only `make test-long` searches.
    """

    plant: Planted
    run: Callable[[int], Sequence[str]]
    finds: str = ""
    first_seed: int = 0
    is_rare: bool = False

    def found_by_seed(self, seeds: Iterable[int]) -> tuple[int, str] | None:
        """Return the first seed whose run finds the bug, and the finding; None if no run finds it."""
        with self.plant():
            for seed in seeds:
                for finding in self.run(seed):
                    if finding.startswith(self.finds):
                        return seed, finding
        return None


def patched(target: object, name: str, value: object) -> Planted:
    return lambda: patch.object(target, name, value)


class Edit(NamedTuple):
    """A change of the text of a file of the product, whose old text is there once."""

    file: str
    text: str
    planted: str


def plant_edits(edits: Sequence[Edit], packages: Iterable[str], directory: Path) -> Path:
    """Copy the packages into a directory with these edits; return it. Fails if the product has changed there."""
    for package in packages:
        shutil.copytree(ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in edits:
        path = directory / edit.file
        text = path.read_text()
        assert text.count(edit.text) == 1, f"{edit.file} has changed: plant {edit.text!r} elsewhere"
        path.write_text(text.replace(edit.text, edit.planted))
    return directory
