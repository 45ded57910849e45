"""Planted bugs of share groups and of their coordinators, which runs must find.

tests/gateway/groups/share/test_share_state_machine.py has those of the core alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gateway.groups.share import partition, stored
from gateway.groups.share.backoff import Backoff
from gateway.groups.share.key_order import KeyOrder
from gateway.groups.share.partition import SharePartition
from gateway.groups.share.state import ShareState
from gateway.groups.share.values import Acquired
from gateway.groups.share.window import State, Window
from tests.checking.mutants import Mutant, patched
from tests.simulation.groups import hosting
from tests.simulation.groups.run import group_options
from tests.simulation.mutants.groups import answer_at_once
from tests.simulation.run import Options, findings_of
from tests.simulation.share.run import run_share

_lock, _settle, _stored_runs = SharePartition._lock, Window.settle, stored._stored_runs


def _lock_without_state(self: SharePartition, run: Any, lock: str, until_ms: int) -> None:
    """Lock records and leave them available."""
    _lock(self, run, lock, until_ms)
    run.state = State.AVAILABLE
    self._available += run.size


def _uncounted(window: Window, begin: int) -> Any:
    """Store no deliveries."""
    for run in _stored_runs(window, begin):
        yield stored.StoredRun(run.first, run.size, run.state, 0, run.ready_ms, run.error)


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


def _without_limit(self: SharePartition, run: Any, request: Any, steady_ms: int, wall_ms: int, rules: Any) -> None:
    _decide(self, run, request, steady_ms, wall_ms, _unlimited(rules))


def _short_extension(self: SharePartition, run: Any, request: Any, steady_ms: int, wall_ms: int, rules: Any) -> None:
    """An extension begins in the past."""
    _decide(self, run, request, steady_ms - (request.time_ms or 0), wall_ms, rules)


def _at_once(self: Backoff, failures: int, address: str) -> int:
    return 0


def _order_of_new_ones(self: SharePartition) -> KeyOrder:
    """After a failover, the keys of what was delivered before it are not read again."""
    if self._keys is None:
        self._keys = KeyOrder(self.window.end)
    return self._keys


def _unconfirmed(self: hosting.Coordinating, answer: Any, sequence: int) -> int:
    """Hand out records before the replicas have accepted anything that shows who leads."""
    return 0 if isinstance(answer, Acquired) else sequence


def _paused(seed: int) -> Options:
    """Return the options of a run with paused coordinators; other faults would hide what they do."""
    return replace(group_options(seed), kinds=("pause",), fault_every_s=8.0)


IN_RUNS = findings_of(run_share, group_options)
IN_PAUSED_RUNS = findings_of(run_share, _paused)

MUTANTS = {
    "an outcome is answered before it is stored": Mutant(
        patched(hosting.Coordinating, "answer_when_stored", answer_at_once),
        IN_RUNS,
        "S",
        first_seed=2,
    ),
    "two callers get a record": Mutant(patched(SharePartition, "_lock", _lock_without_state), IN_RUNS, "S"),
    "deliveries are not stored": Mutant(patched(stored, "_stored_runs", _uncounted), IN_RUNS, "S5", first_seed=8),
    "records are skipped": Mutant(patched(Window, "settle", _skipping), IN_RUNS, "S1", is_rare=True),
    "locks do not end": Mutant(patched(ShareState, "expire", _unending), IN_RUNS, "S7", first_seed=1, is_rare=True),
    "deliveries have no limit": Mutant(
        patched(SharePartition, "_decide", _without_limit), IN_RUNS, "S5", first_seed=17
    ),
    "a failed record comes again at once": Mutant(
        patched(Backoff, "after", _at_once), IN_RUNS, "S8", first_seed=13, is_rare=True
    ),
    "an extension is too short": Mutant(
        patched(SharePartition, "_decide", _short_extension),
        IN_RUNS,
        "S4",
        first_seed=211,
        is_rare=True,
    ),
    "a coordinator does not confirm that it leads": Mutant(
        patched(hosting.Coordinating, "prove_lead", _unconfirmed),
        IN_PAUSED_RUNS,
        "S3",
        first_seed=10,
    ),
    "a new coordinator does not read keys again": Mutant(
        patched(SharePartition, "_order", _order_of_new_ones),
        IN_RUNS,
        "S6",
        first_seed=3,
        is_rare=True,
    ),
}
