"""Assignors: which member reads which partition. Pure functions of members, topics and the previous assignment.

Every result gives each partition to exactly one member that subscribes to its topic, if there is one, and is the same
for the same arguments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from gateway.groups.model.values import Slot

Subscriptions = Mapping[str, frozenset[str]]  # topics by member
Sizes = Mapping[str, int]  # partitions by topic
Assignment = dict[Slot, str]  # the member of each partition


def sticky(members: Subscriptions, sizes: Sizes, previous: Mapping[Slot, str]) -> Assignment:
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
            member = min(candidates[slot.topic], key=lambda one: len(loads[one]))
            assignment[slot] = member
            loads[member][slot] = None
    while (move := _better_move(loads, candidates)) is not None:
        slot, source, member = move
        del loads[source][slot]
        loads[member][slot] = None
        assignment[slot] = member
    return assignment


def _better_move(
    loads: Mapping[str, dict[Slot, None]], candidates: Mapping[str, Sequence[str]]
) -> tuple[Slot, str, str] | None:
    """Returns a partition of a busy member, and a member with at least two fewer that can take it."""
    least = min(map(len, loads.values()), default=0)
    for source in sorted(loads, key=lambda one: -len(loads[one])):
        if len(loads[source]) < least + 2:
            return None
        seen: set[str] = set()
        for slot in reversed(loads[source]):
            if slot.topic in seen:
                continue
            seen.add(slot.topic)
            member = min(candidates[slot.topic], key=lambda one: len(loads[one]))
            if len(loads[member]) + 2 <= len(loads[source]):
                return slot, source, member
    return None


def range_(members: Subscriptions, sizes: Sizes, previous: Mapping[Slot, str]) -> Assignment:
    """Gives each member a run of neighbouring partitions of each topic, so that equal topics go together."""
    assignment: Assignment = {}
    for topic, size in sorted(sizes.items()):
        takers = _subscribers(members, topic)
        if not takers:
            continue
        share, extra = divmod(size, len(takers))
        partition = 0
        for place, member in enumerate(takers):
            for _ in range(share + (place < extra)):
                assignment[Slot(topic, partition)] = member
                partition += 1
    return assignment


def round_robin(members: Subscriptions, sizes: Sizes, previous: Mapping[Slot, str]) -> Assignment:
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


ASSIGN: dict[str, Callable[[Subscriptions, Sizes, Mapping[Slot, str]], Assignment]] = {
    "sticky": sticky,
    "range": range_,
    "round_robin": round_robin,
}
