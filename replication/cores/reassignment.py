"""Starts and cancels the reassignment of a partition (Kafka: AlterPartitionReassignments). election.reconciled
completes it.

Meanwhile the partition has the old and the new replicas. No replica is removed before every new one is in sync, so
neither a crash nor a cancel leaves anything to repair.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from replication.cores.partition_state import PartitionState


class UnknownNodes(ValueError):
    """The target has unregistered or repeated nodes. Choose others."""


def with_reassignment(state: PartitionState, target: tuple[int, ...], node_ids: Collection[int]) -> PartitionState:
    """Returns the state with a reassignment to `target` in progress, replacing one that was. Raises UnknownNodes."""
    strangers = [node for node in target if node not in node_ids]
    if strangers or not target or len(set(target)) != len(target):
        wrong = f"unknown {strangers}" if strangers else "each at most once, and at least one"
        raise UnknownNodes(f"replicas {list(target)}: {wrong}")
    before = tuple(node for node in state.replicas if node not in state.adding)
    adding = tuple(node for node in target if node not in before)
    removing = tuple(node for node in state.replicas if node not in target)
    return replace(state, replicas=(*target, *removing), adding=adding, removing=removing)


def cancelled(state: PartitionState) -> PartitionState:
    """Returns the state with the replicas from before; a leader that was new is removed too."""
    replicas = tuple(node for node in state.replicas if node not in state.adding)
    in_sync = tuple(member for member in state.in_sync if member.node_id in replicas)
    if not in_sync:
        return state  # only new replicas are in sync: reverting would lose records that no other replica has
    is_led_by_new = state.leader is not None and state.leader.node_id not in replicas
    return replace(
        state,
        replicas=replicas,
        in_sync=in_sync,
        eligible=tuple(member for member in state.eligible if member.node_id in replicas),
        adding=(),
        removing=(),
        leader=None if is_led_by_new else state.leader,
        leader_epoch=state.leader_epoch + is_led_by_new,
    )
