"""Planted bugs of share groups and of their coordinators, which runs must find.

tests/gateway/groups/share/test_share_state_machine.py has those of the core alone.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from gateway.groups.share import partition, stored
from gateway.groups.share.backoff import Backoff
from gateway.groups.share.key_order import KeyOrder
from gateway.groups.share.partition import SharePartition
from gateway.groups.share.state import ShareState
from gateway.groups.share.values import Acquired
from gateway.groups.share.window import State, Window
from tests.simulation.groups import hosting
from tests.simulation.groups.mutants import stored_at_once
from tests.simulation.groups.run import group_options
from tests.simulation.run import Options
from tests.simulation.share.run import run_share

_lock, _settle, _stored_runs = SharePartition._lock, Window.settle, stored._stored_runs


def _shared(self: SharePartition, run: Any, lock: str, until_ms: int) -> None:
    """Lock records and leave them available."""
    _lock(self, run, lock, until_ms)
    run.state = State.AVAILABLE
    self._available += run.size


def _uncounted(window: Window, begin: int) -> Any:
    """Store no deliveries."""
    for one in _stored_runs(window, begin):
        yield stored.StoredRun(one.first, one.size, one.state, 0, one.ready_ms, one.error)


def _skipping(self: Window, first: int, last: int) -> None:
    """Move the start over everything below a settled range."""
    _settle(self, first, last)
    while self.runs and self.runs[0].last < first:
        self.start = self.runs.pop(0).last + 1


def _unending(self: ShareState, steady_ms: int, wall_ms: int, rules: Any) -> list[str]:
    return []


def _unlimited(self: partition.Rules) -> partition.Rules:
    return self._replace(deliveries_max=1000)


_decide = SharePartition._decide


def _without_limit(self: SharePartition, run: Any, wish: Any, steady_ms: int, wall_ms: int, rules: Any) -> None:
    _decide(self, run, wish, steady_ms, wall_ms, _unlimited(rules))


def _short_extension(self: SharePartition, run: Any, wish: Any, steady_ms: int, wall_ms: int, rules: Any) -> None:
    """An extension begins in the past."""
    _decide(self, run, wish, steady_ms - (wish.time_ms or 0), wall_ms, rules)


def _at_once(self: Backoff, failures: int, place: str) -> int:
    return 0


def _order_of_new_ones(self: SharePartition) -> KeyOrder:
    """After a failover, the keys of what was delivered before it are not read again."""
    if self._keys is None:
        self._keys = KeyOrder(self.window.end)
    return self._keys


def _unconfirmed(self: hosting.Coordinating, answer: Any, sequence: int) -> int:
    """Hand out records before the replicas have accepted anything that shows who leads."""
    return 0 if isinstance(answer, Acquired) else sequence


PLANTED: dict[str, tuple[tuple[object, str, object], str]] = {
    "an outcome is answered before it is stored": ((hosting.Coordinating, "stored", stored_at_once), "S"),
    "two callers get a record": ((SharePartition, "_lock", _shared), "S"),
    "deliveries are not stored": ((stored, "_stored_runs", _uncounted), "S5"),
    "records are skipped": ((Window, "settle", _skipping), "S1"),
    "locks do not end": ((ShareState, "expire", _unending), "S7"),
    "deliveries have no limit": ((SharePartition, "_decide", _without_limit), "S5"),
    "a failed record comes again at once": ((Backoff, "after", _at_once), "S8"),
    "an extension is too short": ((SharePartition, "_decide", _short_extension), "S4"),
    "a coordinator does not confirm that it leads": ((hosting.Coordinating, "prove_lead", _unconfirmed), "S3"),
    "a new coordinator does not read keys again": ((SharePartition, "_order", _order_of_new_ones), "S6"),
}
UNCONFIRMED = "a coordinator does not confirm that it leads"  # paused coordinators show it, other faults hide it


def _options(name: str, seed: int) -> Options:
    found = group_options(seed)
    return replace(found, kinds=("pause",), fault_every_s=8.0) if name == UNCONFIRMED else found


def plant(name: str) -> AbstractContextManager[object]:
    (where, what, mutant), _ = PLANTED[name]
    return patch.object(where, what, mutant)


def found_by_seed(name: str, seeds: range) -> tuple[int, str] | None:
    """Return the first seed whose run finds the planted bug, and the finding; None if no run finds it."""
    _, kind = PLANTED[name]
    with plant(name):
        for seed in seeds:
            for problem in run_share(seed, options=_options(name, seed)).problems:
                if problem.startswith(kind):
                    return seed, problem
    return None
