"""Assignors: which member reads which partition. Pure functions of members, topics and the previous assignment.

Every result gives each partition to exactly one member that subscribes to its topic, if there is one, and is the same
for the same arguments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gateway.groups.model.values import PartitionRacks, Slot

Subscriptions = Mapping[str, frozenset[str]]  # topics by member
Sizes = Mapping[str, int]  # partitions by topic
Assignment = dict[Slot, str]  # the member of each partition

LEADER_NEAR, REPLICA_NEAR = 2, 1  # what a partition in the member's rack is worth


class Nearby(NamedTuple):
    """The racks of members that have one, and of the partitions of each topic."""

    members: Mapping[str, str]
    partitions: Mapping[str, Sequence[PartitionRacks]]

    def racks(self, slot: Slot) -> PartitionRacks:
        by_number = self.partitions.get(slot.topic, ())
        return by_number[slot.partition] if slot.partition < len(by_number) else _UNKNOWN

    def worth(self, slot: Slot, member: str) -> int:
        rack, racks = self.members.get(member), self.racks(slot)
        if not rack:
            return 0
        return LEADER_NEAR if rack == racks.leader else REPLICA_NEAR if rack in racks.replicas else 0

    def worth_of(self, assignment: Assignment) -> int:
        return sum(self.worth(slot, member) for slot, member in assignment.items())


_UNKNOWN = PartitionRacks("", frozenset())
NOWHERE = Nearby({}, {})


def sticky(members: Subscriptions, sizes: Sizes, previous: Mapping[Slot, str], nearby: Nearby = NOWHERE) -> Assignment:
    """Returns a balanced assignment with as few moves as possible.

    No member has two partitions more than another that could take one of them.
    """
    assignment: Assignment = {}
    loads: dict[str, dict[Slot, None]] = {member: {} for member in sorted(members)}  # in the order of their arrival
    orphans: list[Slot] = []
    for slot in _slots(sizes):
        member = previous.get(slot)
        if member in loads and slot.topic in members[member]:
            assignment[slot] = member
            loads[member][slot] = None
        else:
            orphans.append(slot)
    candidates = {topic: _subscribers(members, topic) for topic in sizes}
    for slot in orphans:
        if candidates[slot.topic]:
            member = min(candidates[slot.topic], key=lambda candidate: len(loads[candidate]))
            assignment[slot] = member
            loads[member][slot] = None
    while (move := _better_move(loads, candidates)) is not None:
        slot, source, member = move
        del loads[source][slot]
        loads[member][slot] = None
        assignment[slot] = member
    return assignment


def rack_aware(members: Subscriptions, sizes: Sizes, previous: Mapping[Slot, str], nearby: Nearby) -> Assignment:
    """Returns an assignment as balanced as that of `sticky`, with more partitions in the racks of their members.

    It moves partitions only if more of them are near afterwards, so it moves none without a change.
    """
    assignment = sticky(members, sizes, previous)
    while True:
        better = sticky(members, sizes, _nearest(members, sizes, assignment, nearby))
        if nearby.worth_of(better) <= nearby.worth_of(assignment):
            return assignment
        assignment = better


def _nearest(members: Subscriptions, sizes: Sizes, before: Assignment, nearby: Nearby) -> Assignment:
    """Gives partitions to members in the racks of their leaders, then of their replicas, then of their owners.

    No member gets more than an even share. Partitions with few near members are placed first.
    """
    in_rack: defaultdict[str, list[str]] = defaultdict(list)
    for member in sorted(members):
        in_rack[nearby.members.get(member, "")].append(member)
    share = -(-len(before) // max(1, len(members)))
    loads = dict.fromkeys(members, 0)
    assignment: Assignment = {}

    def place(slot: Slot, racks: Sequence[str]) -> None:
        takers = [
            candidate for rack in racks for candidate in in_rack.get(rack, ()) if slot.topic in members[candidate]
        ]
        if before[slot] in takers and loads[before[slot]] < share:
            takers = [before[slot]]
        if takers and loads[member := min(takers, key=lambda candidate: loads[candidate])] < share:
            assignment[slot] = member
            loads[member] += 1

    slots = sorted(
        before, key=lambda slot: (sum(len(in_rack.get(rack, ())) for rack in nearby.racks(slot).replicas), slot)
    )
    for slot in slots:
        place(slot, [nearby.racks(slot).leader] if nearby.racks(slot).leader else ())
    for slot in slots:
        if slot not in assignment:
            place(slot, sorted(nearby.racks(slot).replicas - {""}))
    for slot in slots:
        if slot not in assignment and loads[before[slot]] < share:
            assignment[slot] = before[slot]
            loads[before[slot]] += 1
    return assignment


def _better_move(
    loads: Mapping[str, dict[Slot, None]], candidates: Mapping[str, Sequence[str]]
) -> tuple[Slot, str, str] | None:
    """Returns a partition of a busy member, and a member with at least two fewer that can take it."""
    least = min(map(len, loads.values()), default=0)
    for source in sorted(loads, key=lambda member_id: -len(loads[member_id])):
        if len(loads[source]) < least + 2:
            return None
        seen: set[str] = set()
        for slot in reversed(loads[source]):
            if slot.topic in seen:
                continue
            seen.add(slot.topic)
            member = min(candidates[slot.topic], key=lambda candidate: len(loads[candidate]))
            if len(loads[member]) + 2 <= len(loads[source]):
                return slot, source, member
    return None


def range_(members: Subscriptions, sizes: Sizes, previous: Mapping[Slot, str], nearby: Nearby = NOWHERE) -> Assignment:
    """Gives each member a run of neighbouring partitions of each topic, so that equal topics go together."""
    assignment: Assignment = {}
    for topic, size in sorted(sizes.items()):
        takers = _subscribers(members, topic)
        if not takers:
            continue
        share, extra = divmod(size, len(takers))
        partition = 0
        for index, member in enumerate(takers):
            for _ in range(share + (index < extra)):
                assignment[Slot(topic, partition)] = member
                partition += 1
    return assignment


def round_robin(
    members: Subscriptions, sizes: Sizes, previous: Mapping[Slot, str], nearby: Nearby = NOWHERE
) -> Assignment:
    """Deals all partitions out to the members in turn."""
    assignment: Assignment = {}
    dealt: defaultdict[tuple[str, ...], int] = defaultdict(int)
    subscribers = {topic: tuple(_subscribers(members, topic)) for topic in sizes}
    for slot in _slots(sizes):
        takers = subscribers[slot.topic]
        if takers:
            assignment[slot] = takers[dealt[takers] % len(takers)]
            dealt[takers] += 1
    return assignment


def _slots(sizes: Sizes) -> list[Slot]:
    return [Slot(topic, partition) for topic, size in sorted(sizes.items()) for partition in range(size)]


def _subscribers(members: Subscriptions, topic: str) -> list[str]:
    return sorted(member for member, topics in members.items() if topic in topics)


ASSIGN: dict[str, Callable[[Subscriptions, Sizes, Mapping[Slot, str], Nearby], Assignment]] = {
    "sticky": sticky,
    "range": range_,
    "round_robin": round_robin,
    "rack_aware": rack_aware,
}
