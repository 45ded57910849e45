"""Planted bugs of groups and of their coordinators, which runs must find.

tests/gateway/groups/core/test_state_machine.py has those of the core alone, which need many calls of one group.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from gateway.groups.model import records
from gateway.groups.model.values import Position
from tests.simulation.groups import hosting, members
from tests.simulation.groups.run import run_groups


def _stored_at_once(self: hosting.Coordinating, sequence: int, reply: Any) -> None:
    reply("ok", None)


_at = members._at


def _one_beyond(position: Position, offset: int) -> Position:
    return _at(position, offset + (offset > 0))


PLANTED: dict[str, tuple[tuple[object, str, object], str]] = {
    "an answer leaves before its commit is stored": ((hosting.Coordinating, "stored", _stored_at_once), "G3"),
    "revoked partitions are not stored": ((records, "_nested", lambda epochs: {}), "G4"),
    "a token has one offset too many": ((members, "_at", _one_beyond), "G"),
}


def plant(name: str) -> AbstractContextManager[object]:
    (where, what, mutant), _ = PLANTED[name]
    return patch.object(where, what, mutant)


def found_by_seed(name: str, seeds: range) -> tuple[int, str] | None:
    """Return the first seed whose run finds the planted bug, and the finding; None if no run finds it."""
    _, kind = PLANTED[name]
    with plant(name):
        for seed in seeds:
            for problem in run_groups(seed).problems:
                if problem.startswith(kind):
                    return seed, problem
    return None
