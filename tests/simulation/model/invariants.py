"""The invariants of every state of the model: TypeOk, LeaderInIsr, WeakIsr, StrongIsr, AckedDurable.

They look at facts that no node knows: the content of every disk, and every record that was ever committed.
"""

from __future__ import annotations

from replication.cores import election
from replication.cores.partition_state import Member, Registration
from tests.simulation.model.protocol import NODES, Replica, Rules, State, is_leading


def broken(state: State, rules: Rules) -> str | None:
    """Return the first broken invariant. LeaderInIsr and most of TypeOk are assertions of PartitionState."""
    for replica in state.replicas:
        if not 0 <= replica.synced <= len(replica.log) or replica.hw > len(replica.log):
            return "TypeOk"
    store = state.store.state
    if store.leader is not None and not store.is_in_sync(store.leader.node_id):
        return "LeaderInIsr"
    nodes = _truth(state)
    for member in (*store.in_sync, *store.eligible):
        replica = state.replicas[member.node_id - 1]
        counts = election.is_log_intact("", member, nodes, rules.topic)
        if counts and replica.log[: len(state.committed)] != state.committed:
            return "AckedDurable"
    for node, replica in zip(NODES, state.replicas, strict=True):
        if is_leading(node, replica):
            assert replica.view is not None
            is_current = replica.view.state.leader_epoch == store.leader_epoch
            if is_current and not _agree(state, replica, store.in_sync, rules):
                return "StrongIsr"
            if not is_current and not _agree_as_followers(state, replica, rules):
                return "WeakIsr"
            if replica.log[: replica.hw] != state.committed[: replica.hw]:
                return "AckedDurable"
    return None


def _truth(state: State) -> dict[int, Registration]:
    """Return what every node has lost, also if it has not reported it yet: it reports it before it may be elected."""
    return {
        node: Registration(replica.broker_epoch, state.broker_epochs + 1 if lost == -1 else lost)
        for node, replica in zip(NODES, state.replicas, strict=True)
        for lost in (replica.survives_from,)
    }


def _agree(state: State, leading: Replica, members: tuple[Member, ...], rules: Rules) -> bool:
    nodes = _truth(state)
    return all(
        state.replicas[m.node_id - 1].log[: leading.hw] == leading.log[: leading.hw]
        for m in members
        if election.is_log_intact("", m, nodes, rules.topic)
    )


def _agree_as_followers(state: State, leading: Replica, rules: Rules) -> bool:
    """A past leader agrees with the members of its set that do not follow a later leader yet."""
    assert leading.view is not None
    epoch = leading.view.state.leader_epoch
    members = tuple(
        m
        for m in leading.view.state.in_sync
        if (view := state.replicas[m.node_id - 1].view) is not None and view.state.leader_epoch == epoch
    )
    return _agree(state, leading, members, rules)
