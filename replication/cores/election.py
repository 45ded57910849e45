"""What the state of a partition should be, given who is alive: the whole of the controller's judgement.

A pure function of the state and the registrations, asked again whenever either changes. So it does not matter which
events a controller has missed, nor whether a new one takes over in the middle: what is right is written, or is there.
Kafka's PartitionChangeBuilder with KIP-966, in this order (`reconciled`):
1. who cannot vouch any more (a disk lost; unsynced bytes lost where they count) leaves the sets;
2. a reassignment whose replicas are all in sync is finished;
3. in_sync keeps who is alive; who leaves is eligible as long as fewer than min_in_sync remain;
4. a leader that is gone, or has been born again, is replaced: from in_sync, else from eligible, else, where the topic
   allows it, by any replica that is alive (unclean, counted), else by nobody.
Invariants: the leader epoch grows with every change of the leader; nobody enters in_sync here but by election.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from replication.cores.partition_state import (
    Member,
    PartitionState,
    Registrations,
    TopicRules,
    node_ids,
    sorted_members,
    vouches,
)

IsLive = Callable[[int], bool]


def reconciled(
    partition: str, state: PartitionState, rules: TopicRules, registrations: Registrations
) -> PartitionState:
    """The state as it should be; the same value when nothing is to be done."""

    def is_live(node: int) -> bool:
        found = registrations.get(node)
        return found is not None and partition not in found.offline

    vouching = [member for member in state.in_sync if vouches(member, registrations, rules)]
    eligible = [member for member in state.eligible if vouches(member, registrations, rules)]
    replicas, adding, removing = _replicas(state, node_ids(vouching))
    vouching = [member for member in vouching if member.node_id in replicas]
    in_sync = [member for member in vouching if is_live(member.node_id)]
    minimum = rules.min_in_sync(len(replicas) - len(adding))
    eligible = _eligible(in_sync, (*eligible, *vouching), replicas, minimum)
    leader, epoch, unclean = state.leader, state.leader_epoch, state.unclean_elections
    if not _may_stay(leader, in_sync, registrations):
        leader, is_unclean = _elected(state, replicas, in_sync, eligible, rules, registrations, is_live)
        epoch += leader != state.leader
        unclean += is_unclean
        if leader is not None and leader.node_id not in node_ids(in_sync):
            in_sync = [leader]
            eligible = [] if is_unclean else _eligible(in_sync, eligible, replicas, minimum)
    return PartitionState(
        replicas, leader, epoch, sorted_members(in_sync), sorted_members(eligible), adding, removing, unclean
    )


def with_preferred_leader(
    partition: str, state: PartitionState, rules: TopicRules, registrations: Registrations
) -> PartitionState:
    """Led by the first replica again, if that is in sync and staying."""
    preferred = state.replicas[0]
    found = registrations.get(preferred)
    is_led_by_it = state.leader is not None and state.leader.node_id == preferred
    if found is None or is_led_by_it or found.is_leaving or partition in found.offline:
        return state
    if not any(m.node_id == preferred and vouches(m, registrations, rules) for m in state.in_sync):
        return state
    return replace(state, leader=Member(preferred, found.incarnation), leader_epoch=state.leader_epoch + 1)


def _replicas(state: PartitionState, in_sync: set[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The replicas, and what of a reassignment is left to do."""
    target = tuple(node for node in state.replicas if node not in state.removing)
    if (state.adding or state.removing) and set(target) <= in_sync:
        return target, (), ()
    return state.replicas, state.adding, state.removing


def _eligible(
    in_sync: list[Member], candidates: Iterable[Member], replicas: tuple[int, ...], minimum: int
) -> list[Member]:
    """KIP-966: who was in a set before and is not in sync now, while the high watermark stands still."""
    if len(in_sync) >= minimum:
        return []
    kept = {member.node_id: member for member in candidates if member.node_id in replicas}
    return [member for node, member in kept.items() if node not in node_ids(in_sync)]


def _may_stay(leader: Member | None, in_sync: list[Member], registrations: Registrations) -> bool:
    """1. None, or not in sync. 2. Registered anew: it has forgotten that it led. 3. Leaving, and another can."""
    if leader is None or leader.node_id not in node_ids(in_sync):
        return False
    if registrations[leader.node_id].incarnation != leader.incarnation:
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
    """The new leader, in its present incarnation, and whether the election was unclean."""
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
    return Member(node, registrations[node].incarnation)
