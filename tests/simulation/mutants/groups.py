"""Planted bugs of groups and of their coordinators, which runs must find.

tests/gateway/groups/core/test_state_machine.py has those of the core alone, which need many calls of one group.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from gateway.groups.core import coordinator, membership
from gateway.groups.model import records
from gateway.groups.model.state import Group
from gateway.groups.model.values import Now, Position, Row, Slot
from tests.checking.mutants import Mutant, patched
from tests.simulation.groups import hosting, members
from tests.simulation.groups.run import group_options, run_groups
from tests.simulation.run import Options, findings_of

if TYPE_CHECKING:
    from tests.simulation.world.hosted import Hosted


def answer_at_once(self: hosting.Coordinating, sequence: int, reply: Any) -> None:
    reply("ok", None)


_at = members._at


_coordinator_at = hosting.Coordinators._at


def _kept(self: hosting.Coordinators, partition: Hosted) -> hosting.Coordinating | None:
    """Return the coordinator of an earlier leadership, which does not know what others have decided since."""
    if self._now is None or self._now.is_over:
        return _coordinator_at(self, partition)
    self._now.leader = partition.leader
    return self._now if self._now.is_leading() else None


def _goes_on(self: hosting.Coordinating) -> bool:
    """Lead on when another node leads the partition of the groups: only a failed append ends it."""
    return not self.is_over


_write = hosting.Coordinating._write


def _write_without_fence(self: hosting.Coordinating) -> None:
    """Append to the log of the present leader, as if no epoch fenced a coordinator of an earlier one."""
    partition, peers = self._partition, self._life.node.peers.values()
    others = [
        hosted
        for node in peers
        if (hosted := node.hosted(partition.partition)) is not None and hosted.leader is not None
    ]
    self._partition = others[0] if others else partition
    try:
        _write(self)
    finally:
        self._partition = partition


def _one_beyond(position: Position, offset: int) -> Position:
    return _at(position, offset + (offset > 0))


_reconcile = membership.reconcile


def _take_at_once(group: Group, now: Now) -> None:
    """Take partitions away from members that still work on their records."""
    _reconcile(group, now)
    for member in group.members.values():
        for slot in list(member.revoking):
            del member.revoking[slot]
            del group.owners[slot]
            group.changed_members.add(member.member_id)
    _reconcile(group, now)


_replay = records.replay


def _first_position(groups: dict[str, Group], row: Row) -> None:
    """Let the first committed position of a partition count, in place of the last."""
    kind, name, *rest = json.loads(row.key)
    if kind != "offset" or name not in groups or Slot(*rest) not in groups[name].offsets:
        _replay(groups, row)


@contextmanager
def _without_fence() -> Iterator[None]:
    with (
        patch.object(hosting.Coordinating, "_write", _write_without_fence),
        patch.object(hosting.Coordinating, "is_leading", _goes_on),
    ):
        yield


def _moving_leaders(seed: int) -> Options:
    """Return the options of a run in which leaders move about and back to where they were."""
    return replace(group_options(seed), kinds=("expire_session",), fault_every_s=0.4)


IN_RUNS = findings_of(run_groups, group_options)
IN_MOVING_RUNS = findings_of(run_groups, _moving_leaders)

MUTANTS = {
    "an answer leaves before its commit is stored": Mutant(
        patched(hosting.Coordinating, "answer_when_stored", answer_at_once),
        IN_RUNS,
        "G3",
        first_seed=1,
    ),
    "revoked partitions are not stored": Mutant(
        patched(records, "_nest", lambda epochs: {}),
        IN_RUNS,
        "G4",
        first_seed=12,
        is_rare=True,
    ),
    "a token has one offset too many": Mutant(patched(members, "_at", _one_beyond), IN_RUNS, "G"),
    "a partition has two owners": Mutant(patched(membership, "reconcile", _take_at_once), IN_RUNS, "G4"),
    "a position goes back at a failover": Mutant(
        patched(coordinator, "replay", _first_position), IN_RUNS, "G", first_seed=1
    ),
    "a coordinator outlives its leadership": Mutant(
        patched(hosting.Coordinators, "_at", _kept), IN_MOVING_RUNS, "G", first_seed=1
    ),
    "records of a former leader are stored": Mutant(_without_fence, IN_MOVING_RUNS, "G"),
}
