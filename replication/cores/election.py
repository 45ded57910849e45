"""Decides what the state of a partition should be, given the registered nodes.

A pure function of the state and the registrations, evaluated whenever either changes. Missed events and controller
failovers therefore do not matter: the right state is written, or is there already. Kafka's PartitionChangeBuilder with
KIP-966, in this order (`reconciled`):

1. members that lost committed records (a lost disk; lost unsynced bytes where those count) leave the sets;
2. a reassignment whose new replicas are all in sync is completed;
3. in_sync keeps live members; those that leave stay eligible while fewer than min_in_sync remain;
4. a leader that is gone or has a newer broker epoch is replaced: from in_sync, else from eligible, else, if the topic
   allows it, by any live replica (unclean, counted); else the partition has no leader.

Invariants: the leader epoch grows with every change of the leader; only an election adds a member to in_sync here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from replication.cores.partition_state import (
    Member,
    PartitionState,
    Registrations,
    TopicRules,
    is_log_intact,
    node_ids,
    sorted_members,
)

IsLive = Callable[[int], bool]


def reconciled(
    partition: str, state: PartitionState, rules: TopicRules, registrations: Registrations
) -> PartitionState:
    """Returns the state that should be; an equal value if nothing changes."""

    def is_live(node: int) -> bool:
        registration = registrations.get(node)
        return registration is not None and partition not in registration.offline

    intact = [member for member in state.in_sync if is_log_intact(partition, member, registrations, rules)]
    eligible = [member for member in state.eligible if is_log_intact(partition, member, registrations, rules)]
    replicas, adding, removing = _replicas(state, node_ids(intact))
    intact = [member for member in intact if member.node_id in replicas]
    in_sync = [member for member in intact if is_live(member.node_id)]
    minimum = rules.min_in_sync(len(replicas) - len(adding))
    eligible = _eligible(in_sync, (*eligible, *intact), replicas, minimum)
    leader, epoch, unclean = state.leader, state.leader_epoch, state.unclean_elections
    unclean_epoch = state.unclean_epoch
    if not _may_stay(leader, in_sync, registrations):
        leader, is_unclean = _elected(state, replicas, in_sync, eligible, rules, registrations, is_live)
        epoch += leader != state.leader
        unclean += is_unclean
        unclean_epoch = epoch if is_unclean else unclean_epoch
        if leader is not None and leader.node_id not in node_ids(in_sync):
            in_sync = [leader]
            eligible = [] if is_unclean else _eligible(in_sync, eligible, replicas, minimum)
    return PartitionState(
        replicas,
        leader,
        epoch,
        sorted_members(in_sync),
        sorted_members(eligible),
        adding,
        removing,
        unclean,
        unclean_epoch,
    )


def with_preferred_leader(
    partition: str, state: PartitionState, rules: TopicRules, registrations: Registrations
) -> PartitionState:
    """Returns the state led by its first replica, if that one is in sync and its node stays; else the same state."""
    preferred = state.replicas[0]
    registration = registrations.get(preferred)
    is_led_by_it = state.leader is not None and state.leader.node_id == preferred
    if registration is None or is_led_by_it or registration.is_leaving or partition in registration.offline:
        return state
    if not any(m.node_id == preferred and is_log_intact(partition, m, registrations, rules) for m in state.in_sync):
        return state
    return replace(state, leader=Member(preferred, registration.broker_epoch), leader_epoch=state.leader_epoch + 1)


def _replicas(state: PartitionState, in_sync: set[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The replicas, adding and removing, with a completed reassignment applied."""
    target = tuple(node for node in state.replicas if node not in state.removing)
    if (state.adding or state.removing) and set(target) <= in_sync:
        return target, (), ()
    return state.replicas, state.adding, state.removing


def _eligible(
    in_sync: list[Member], candidates: Iterable[Member], replicas: tuple[int, ...], minimum: int
) -> list[Member]:
    """The eligible leader replicas of KIP-966: members that left in_sync while the high watermark cannot advance."""
    if len(in_sync) >= minimum:
        return []
    eligible = {member.node_id: member for member in candidates if member.node_id in replicas}
    return [member for node, member in eligible.items() if node not in node_ids(in_sync)]


def _may_stay(leader: Member | None, in_sync: list[Member], registrations: Registrations) -> bool:
    """False if the leader 1. is not in sync, 2. has registered again and lost its leader state, 3. leaves and can be
    replaced.
    """
    if leader is None or leader.node_id not in node_ids(in_sync):
        return False
    if registrations[leader.node_id].broker_epoch != leader.broker_epoch:
        return False
    is_leaving = registrations[leader.node_id].is_leaving
    return not is_leaving or all(registrations[m.node_id].is_leaving for m in in_sync)


def _elected(
    state: PartitionState,
    replicas: tuple[int, ...],
    in_sync: list[Member],
    eligible: list[Member],
    rules: TopicRules,
    registrations: Registrations,
    is_live: IsLive,
) -> tuple[Member | None, bool]:
    """The new leader with its current broker epoch, and whether the election was unclean."""
    for candidates in (node_ids(in_sync), node_ids(eligible)):
        live = [node for node in replicas if node in candidates and is_live(node)]
        if live:
            staying = [node for node in live if not registrations[node].is_leaving]
            return _as_leader((staying or live)[0], registrations), False
    anybody = [node for node in replicas if is_live(node)]
    if rules.is_unclean_allowed and anybody:
        return _as_leader(anybody[0], registrations), True
    return None, False


def _as_leader(node: int, registrations: Registrations) -> Member:
    return Member(node, registrations[node].broker_epoch)
