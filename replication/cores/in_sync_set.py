"""The in-sync set as its leader sees it: the committed set in the store, and the one change in flight.

The leader core decides the members. This is AlterPartition (KIP-497) with a maximal ISR: a growing set counts at once,
a shrinking one only once it is confirmed, so the high watermark has waited for every member that the store may have.
Invariants: at most one change in flight; `maximal` contains the committed and the proposed set.
"""

from __future__ import annotations

from dataclasses import replace

from replication.cores.partition_state import (
    Member,
    PartitionState,
    TopicRules,
    VersionedState,
    node_ids,
    sorted_members,
)


def with_in_sync(state: PartitionState, in_sync: tuple[Member, ...], rules: TopicRules) -> PartitionState:
    """Returns the state with another in-sync set. Members that leave stay eligible below min_in_sync (KIP-966)."""
    minimum = rules.min_in_sync(state.counted_replicas)
    eligible: tuple[Member, ...] = ()
    if len(in_sync) < minimum:
        ids = node_ids(in_sync)
        members = {member.node_id: member for member in (*state.eligible, *state.in_sync)}
        eligible = sorted_members(member for node, member in members.items() if node not in ids)
    return replace(state, in_sync=sorted_members(in_sync), eligible=eligible)


def maximal(committed: tuple[Member, ...], proposed: tuple[Member, ...]) -> set[int]:
    """Returns every node that may be in the set in the store."""
    return node_ids(committed) | node_ids(proposed)


class InSyncSet:
    """The committed state and at most one proposal."""

    def __init__(self, committed: VersionedState) -> None:
        self.committed = committed
        self.proposed: PartitionState | None = None

    def __repr__(self) -> str:
        proposed = f" -> {sorted(node_ids(self.proposed.in_sync))}" if self.proposed else ""
        return f"InSyncSet({sorted(node_ids(self.committed.state.in_sync))}{proposed})"

    @property
    def size(self) -> int:
        """The size that min_in_sync is compared with: only committed members count."""
        return len(self.committed.state.in_sync)

    @property
    def maximal(self) -> set[int]:
        committed = self.committed.state.in_sync
        return maximal(committed, self.proposed.in_sync) if self.proposed else node_ids(committed)

    def propose(self, state: PartitionState) -> None:
        assert self.proposed is None, "one change at a time"
        self.proposed = state

    def confirm(self, partition_epoch: int) -> None:
        """Takes the proposal as committed, unless a newer state arrived first."""
        if self.proposed is not None and partition_epoch > self.committed.partition_epoch:
            self.committed = VersionedState(self.proposed, partition_epoch)
            self.proposed = None

    def apply(self, versioned: VersionedState) -> bool:
        """Applies a state from the store. A newer one ends the proposal, whether it was committed or lost.

        Returns whether the state was newer.
        """
        if versioned.partition_epoch <= self.committed.partition_epoch:
            return False
        self.committed, self.proposed = versioned, None
        return True

    def reject_proposal(self) -> None:
        """Drops a proposal that certainly never reached the store: a later read returned the committed state.

        Not for a rejected compare-and-set: then the store has a newer state, which `apply` takes.
        """
        self.proposed = None
