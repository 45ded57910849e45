"""The role of a node for a partition by its state: leader, follower or neither.

A pure function. A node leads only if it was elected in its current broker epoch: a restart loses the leader state, so
the node waits until the controller has processed its new registration.
"""

from __future__ import annotations

from dataclasses import dataclass

from replication.cores.partition_state import Member, PartitionState


@dataclass(frozen=True, slots=True)
class Lead:
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Follow:
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Wait:
    """No leader, or one that will be replaced: keep the log and do nothing."""

    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Leave:
    """The partition was reassigned to other nodes: its files may be deleted."""


Role = Lead | Follow | Wait | Leave


def role_of(member: Member, state: PartitionState) -> Role:
    if member.node_id not in state.replicas:
        return Leave()
    if state.leader is None:
        return Wait(state.leader_epoch)
    if state.leader.node_id != member.node_id:
        return Follow(state.leader.node_id, state.leader_epoch)
    return Lead(state.leader_epoch) if state.leader == member else Wait(state.leader_epoch)
