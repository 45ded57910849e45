"""The in-sync set as its leader sees it: what is committed in the store, and the one change that is under way.

Not who belongs in it: the leader core decides that. This is AsyncIsr (KIP-497): a set that grows counts at once and a
set that shrinks only once that is confirmed, so that whatever the store holds, the high watermark has waited for it.
Invariants: at most one change under way; `maximal` contains both the committed and the proposed set.
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
    """The state with another in-sync set. Who leaves stays eligible while fewer than min_in_sync remain (KIP-966)."""
    minimum = rules.min_in_sync(state.counted_replicas)
    eligible: tuple[Member, ...] = ()
    if len(in_sync) < minimum:
        ids = node_ids(in_sync)
        known = {member.node_id: member for member in (*state.eligible, *state.in_sync)}
        eligible = sorted_members(member for node, member in known.items() if node not in ids)
    return replace(state, in_sync=sorted_members(in_sync), eligible=eligible)


def maximal(committed: tuple[Member, ...], proposed: tuple[Member, ...]) -> set[int]:
    """Whoever may be in the set that the store holds."""
    return node_ids(committed) | node_ids(proposed)


class InSyncSet:
    """Committed state plus at most one proposal."""

    def __init__(self, committed: VersionedState) -> None:
        self.committed = committed
        self.proposed: PartitionState | None = None

    def __repr__(self) -> str:
        proposed = f" -> {sorted(node_ids(self.proposed.in_sync))}" if self.proposed else ""
        return f"InSyncSet({sorted(node_ids(self.committed.state.in_sync))}{proposed})"

    @property
    def size(self) -> int:
        """What min_in_sync is held against: only what is committed counts."""
        return len(self.committed.state.in_sync)

    @property
    def maximal(self) -> set[int]:
        committed = self.committed.state.in_sync
        return maximal(committed, self.proposed.in_sync) if self.proposed else node_ids(committed)

    def propose(self, state: PartitionState) -> None:
        assert self.proposed is None, "one change at a time"
        self.proposed = state

    def confirmed(self, partition_epoch: int) -> None:
        """The store has taken the proposal, unless a newer state was heard of first."""
        if self.proposed is not None and partition_epoch > self.committed.partition_epoch:
            self.committed = VersionedState(self.proposed, partition_epoch)
            self.proposed = None

    def adopt(self, found: VersionedState) -> bool:
        """A state from the store. A newer one settles the proposal, whether it was taken or came too late."""
        if found.partition_epoch <= self.committed.partition_epoch:
            return False
        self.committed, self.proposed = found, None
        return True

    def not_taken(self) -> None:
        """The proposal never reached the store, and will not: a read that came behind it found the committed state.

        A refusal for its version is no such thing: then the store has a newer state, and `adopt` settles it.
        """
        self.proposed = None
