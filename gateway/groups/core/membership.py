"""Membership: who is in a group, and the reconciliation of each member with the target assignment (KIP-848).

A change of members, subscriptions or topics raises the group's epoch and computes a target. Each member is reconciled
by itself: a partition that it loses is `revoking` until it gives it up, and only then another member gets it; every
other partition stays with its member throughout.
Invariants: (1) a partition has at most one owner, and a new one only after the old one gave it up or was removed; (2) a
member's epoch rises with every change of its assignment, and each join begins at a new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gateway.groups.core.assignors import ASSIGN, Nearby
from gateway.groups.model.errors import GroupsFull, MemberFenced, UnknownMember
from gateway.groups.model.settings import RACK_AWARE, SHARE, CoordinatorLimits
from gateway.groups.model.state import Group, KnownTopic, Member
from gateway.groups.model.values import (
    Client,
    KafkaMember,
    Now,
    PollCall,
    Position,
    Slot,
    TopicPattern,
    TopicSize,
    TopicSource,
)

SHARED_ID = "if another client uses the same member_id, give each client its own"
LOOK_MS_MAX = 3_600_000  # until a sweep looks at a group again: the longest session


class Subscription(NamedTuple):
    """The topics that a member asks for. With a pattern: as of version `matched` of its matches; `arrived` topics."""

    topics: frozenset[str]
    pattern: TopicPattern | None = None
    matched: int = 0
    arrived: int = 0


def find_member(group: Group, member_id: str) -> Member:
    """Returns a member. Raises UnknownMember."""
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(group, member_id)
    return member


def unknown_member(group: Group, member_id: str) -> UnknownMember:
    text = f"group {group.name!r} has no member {member_id!r}: it never joined, it left or its session expired"
    return UnknownMember(text, recover={"member_epoch": 0}, hint="join again: send topics, without a token")


def check_epoch(group: Group, member: Member, epoch: int) -> None:
    """Checks the epoch that a member sends. Raises MemberFenced."""
    if not member.has_epoch(epoch):
        raise MemberFenced(
            f"member {member.member_id!r} of group {group.name!r} has epochs {member.joined_epoch} to {member.epoch}, "
            f"not {epoch}",
            hint=f"join again with member_epoch 0; {SHARED_ID}",
            recover={"member_epoch": 0},
        )


def join(
    group: Group,
    member_id: str,
    subscription: Subscription,
    client: Client,
    timeouts_ms: tuple[int | None, int | None],
    limits: CoordinatorLimits,
    now: Now,
    source: TopicSource,
    kafka: KafkaMember | None = None,
) -> Member:
    """Adds a member. Raises GroupsFull.

    `timeouts_ms` are those of the session and of a rebalance; None: the group's.
    """
    if len(group.members) >= limits.members_max:
        raise GroupsFull(f"group {group.name!r} has {limits.members_max} members", limit=limits.members_max)
    session_ms, rebalance_ms = timeouts_ms
    settings, epoch = group.settings, group.epoch + 1
    member = Member(
        member_id,
        epoch,
        epoch,
        subscription.topics,
        client,
        settings.session_timeout_ms if session_ms is None else session_ms,
        settings.rebalance_timeout_ms if rebalance_ms is None else rebalance_ms,
    )
    member.pattern, member.matched, member.arrived = subscription.pattern, subscription.matched, subscription.arrived
    member.moved_ms, member.kafka = now.steady_ms, kafka
    group.members[member_id] = member
    group.changed_members.add(member_id)
    group.history.note("joined", now, member_id, ", ".join(sorted(member.topics)))
    rebalance(group, now, source)
    return member


def subscribe(group: Group, member: Member, subscription: Subscription, now: Now, source: TopicSource) -> None:
    """Changes the topics of a member."""
    if (subscription.topics, subscription.pattern) != (member.topics, member.pattern):
        member.topics, member.pattern = subscription.topics, subscription.pattern
        member.matched, member.arrived = subscription.matched, subscription.arrived
        group.history.note("subscription_changed", now, member.member_id, ", ".join(sorted(subscription.topics)))
        group.changed_members.add(member.member_id)
        rebalance(group, now, source)


def rejoin(
    group: Group,
    member: Member,
    client: Client,
    timeouts_ms: tuple[int | None, int | None],
    now: Now,
    source: TopicSource,
) -> None:
    """Takes over what a member that joins again within its session says of itself."""
    group.history.note("joined_again", now, member.member_id)
    session_ms, rebalance_ms = timeouts_ms
    given = (client, session_ms or member.session_timeout_ms, rebalance_ms or member.rebalance_timeout_ms)
    if given != (member.client, member.session_timeout_ms, member.rebalance_timeout_ms):
        has_moved = client.rack != member.client.rack
        member.client, member.session_timeout_ms, member.rebalance_timeout_ms = given
        group.changed_members.add(member.member_id)
        if has_moved and group.assignor == RACK_AWARE:
            rebalance(group, now, source)


def rename(group: Group, member: Member, member_id: str) -> None:
    """Gives the place of a member to another one, with all that it has: the old id is not known any more."""
    former, group.epoch, group.is_changed = member.member_id, group.epoch + 1, True
    group.members = {(member_id if one is member else name): one for name, one in group.members.items()}
    for places in (group.owners, group.target):
        places |= {slot: member_id for slot, owner in places.items() if owner == former}
    member.member_id, member.joined_epoch, member.sent_version = member_id, group.epoch, -1
    member.assigned = dict.fromkeys(member.assigned, group.epoch)
    group.changed_members.add(former)
    _mark_changed(group, member)


def remove(group: Group, member_ids: Iterable[str], now: Now, source: TopicSource) -> None:
    """Removes members that left or are gone; their partitions are free at once."""
    for member_id in member_ids:
        member = group.members.pop(member_id)
        for slot in (*member.assigned, *member.revoking):
            group.owners.pop(slot, None)
        group.changed_members.add(member_id)
    rebalance(group, now, source)


def release(group: Group, member: Member, slots: Iterable[Slot], now: Now) -> None:
    """Takes revoked partitions that a member has given up, and gives them to the members that wait for them."""
    released = [slot for slot in slots if slot in member.revoking]
    for slot in released:
        del member.revoking[slot]
        member.revoked.pop(slot, None)
        group.owners.pop(slot, None)
    if released:
        group.changed_members.add(member.member_id)
        reconcile(group, now)


def rebalance(group: Group, now: Now, source: TopicSource) -> None:
    """Begins a new epoch with a new target, and reconciles all members with it."""
    group.epoch += 1
    group.is_changed = True
    group.active_ms = now.wall_ms
    aim(group, source)
    reconcile(group, now)


def aim(group: Group, source: TopicSource) -> None:
    """Computes the target. Partitions of a topic that was deleted and created again have no past in the group."""
    group.sizes = {topic: source.find(topic) for member in group.members.values() for topic in member.topics}
    for topic, size in group.sizes.items():
        if size is not None:
            know(group, topic, KnownTopic(size.topic_id, size.partitions))
    sizes = {topic: size.partitions for topic, size in group.sizes.items() if size is not None}
    members = {member.member_id: member.topics for member in group.members.values()}
    assignor = group.assignor
    is_rack_aware = assignor == RACK_AWARE
    group.racks = {topic: source.racks(topic) for topic in sizes} if is_rack_aware else {}
    nearby = Nearby({member.member_id: member.client.rack for member in group.members.values()}, group.racks)
    group.target = ASSIGN[assignor](members, sizes, group.target or group.owners, nearby)


def follow_racks(group: Group, now: Now, source: TopicSource) -> None:
    """Rebalances if partitions are in other racks than those of the target, at two looks in a row.

    Leaders move when a node restarts, and soon come back; the members need not follow that.
    """
    racks = {topic: source.racks(topic) for topic in group.racks}
    before, group.racks_seen = group.racks_seen, racks
    if racks == before and racks != group.racks:
        rebalance(group, now, source)


def know(group: Group, topic: str, known_topic: KnownTopic) -> None:
    """Notes a topic of the group. One of another id than before is new: positions and owners of the old one go.

    All partitions of such a topic were added after the group began to read it, so none of them has a past.
    """
    before = group.topics.get(topic)
    if before is not None and before.topic_id == known_topic.topic_id:
        return
    group.topics[topic] = known_topic if before is None else KnownTopic(known_topic.topic_id, 0)
    group.is_changed = True
    for slot in [slot for slot in group.offsets if slot.topic == topic]:
        del group.offsets[slot]
        group.changed_offsets.add(slot)
    for slot, member_id in list(group.owners.items()):
        if slot.topic == topic:
            del group.owners[slot]
            member = group.members[member_id]
            member.assigned.pop(slot, None)
            member.revoking.pop(slot, None)
            member.revoked.pop(slot, None)
            _mark_changed(group, member)


def fence(group: Group, slots: Iterable[Slot]) -> None:
    """Begins an epoch for the owners of some partitions, which stay: their commits of earlier epochs are fenced."""
    group.epoch += 1
    group.is_changed = True
    for slot in slots:
        if (member_id := group.owners.get(slot)) is None:
            continue
        member = group.members[member_id]
        owned = member.assigned if slot in member.assigned else member.revoking
        owned[slot] = group.epoch
        _mark_changed(group, member)
        if member.kafka is not None:  # it has its positions in memory, and reads them again only when it joins
            member.joined_epoch = group.epoch


def reconcile(group: Group, now: Now) -> None:
    """Brings every member as near to its target as the others allow."""
    moved: dict[str, Member] = {}
    for member in group.members.values():
        for slot in [slot for slot in member.assigned if group.target.get(slot) != member.member_id]:
            member.revoking[slot] = member.assigned.pop(slot)
            member.revoked[slot] = group.epoch
            moved[member.member_id] = member
    for slot, member_id in group.target.items():
        owner = group.owners.get(slot)
        member = group.members[member_id]
        if owner is None:
            group.owners[slot] = member_id
            member.assigned[slot] = group.epoch
            moved[member_id] = member
        elif owner == member_id and slot in member.revoking:
            member.assigned[slot] = member.revoking.pop(slot)
            member.revoked.pop(slot, None)
            moved[member_id] = member
    for member in moved.values():
        _mark_changed(group, member)
    for member in group.members.values():
        if not member.revoking:
            member.rebalance_ends_ms = None
        elif member.rebalance_ends_ms is None:
            member.rebalance_ends_ms = now.steady_ms + member.rebalance_timeout_ms


def _mark_changed(group: Group, member: Member) -> None:
    member.epoch = group.epoch
    member.version += 1
    group.changed_members.add(member.member_id)


def note_begun(group: Group, member: Member, call: PollCall, starts: Iterable[Position], now: Now) -> None:
    """Notes the partitions that a member begins to read: those that it got after its token, or whose start it sends."""
    if call.starts:  # the poll has noted those that had a position
        begun = [start.slot for start in starts]
    else:
        epoch = 0 if call.token is None else call.token.member_epoch
        begun = [slot for slot, since in member.assigned.items() if since > epoch and slot in group.offsets]
    if begun:
        group.history.note_begun([(slot, group.offsets[slot].offset) for slot in begun], now)


def find_expired(groups: Iterable[Group], now: Now) -> list[tuple[Group, list[str]]]:
    """Returns the members whose session is over, or that keep revoked partitions for too long, and notes why.

    Notes until when none of a group's can be. A session goes on at the end of an open poll, for its whole time.
    """
    overdue: list[tuple[Group, list[str]]] = []
    far_ms = now.steady_ms + LOOK_MS_MAX
    for group in groups:
        look_ms = far_ms
        for member in group.members.values():
            rebalance_ms = far_ms if member.rebalance_ends_ms is None else member.rebalance_ends_ms
            session_ms = now.steady_ms + member.session_timeout_ms if member.waiting else member.session_ends_ms
            look_ms = min(look_ms, rebalance_ms, session_ms)
            is_silent = session_ms <= now.steady_ms and not member.waiting
            if is_silent or rebalance_ms <= now.steady_ms:
                group.history.note("session_expired" if is_silent else "rebalance_timed_out", now, member.member_id)
                if not overdue or overdue[-1][0] is not group:
                    overdue.append((group, []))
                overdue[-1][1].append(member.member_id)
        group.look_ms = 0 if group.settings.kind == SHARE else look_ms
    return overdue


def find_resized(group: Group, sizes: dict[str, TopicSize | None], source: TopicSource) -> str | None:
    """Returns a topic that came, grew or went since the group's last rebalance. Adds what it looks up to `sizes`."""
    for topic, size in group.sizes.items():
        if topic not in sizes:
            sizes[topic] = source.find(topic)
        if sizes[topic] != size:
            return topic
    return None
