"""Copies of the nodes' code with a bug planted, to be run as processes: what the harness must find.

Nothing in the product knows of them: the text of a copy is changed, and who changes the code that is planted into
is told by the assertion that the place is gone.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from tests.chaos.hosts import ROOT
from tests.chaos.results import PACKAGES


class Mutant(NamedTuple):
    file: str
    text: str
    planted: str


MUTANTS = {
    "ack before replication": Mutant(
        "replication/acknowledging.py", "if partition.high_watermark < appended.end:", "if False:"
    ),
    "a high watermark that ignores the in-sync set": Mutant(
        "replication/cores/leader.py",
        "ends = [self._progress[node].end for node in self._waited_for(now)] if self._progress else []",
        "ends: list[int] = []",
    ),
}


def planted(name: str, directory: Path) -> Path:
    """Where the mutant's code is."""
    mutant = MUTANTS[name]
    for package in PACKAGES:
        shutil.copytree(ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    path = directory / mutant.file
    text = path.read_text()
    assert text.count(mutant.text) == 1, f"{mutant.file} has changed: plant {name} elsewhere"
    path.write_text(text.replace(mutant.text, mutant.planted))
    return directory
