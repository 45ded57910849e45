"""Members and committed positions, as `describe` shows them."""

from __future__ import annotations

from gateway.groups.core import sharing
from gateway.groups.model.state import Group, Member
from gateway.groups.model.values import GroupView, MemberView, Now, OffsetView, Slot


def group_view(group: Group, now: Now) -> GroupView:
    """Describes a group for people."""
    slots = sorted({*group.offsets, *group.target, *group.owners})
    return GroupView(
        group.name,
        group.state,
        group.epoch,
        group.config,
        tuple(member_view(member, now) for _, member in sorted(group.members.items())),
        tuple(offset_view(group, slot) for slot in slots) or sharing.offsets(group),
        *sharing.views(group, now),
    )


def member_view(member: Member, now: Now) -> MemberView:
    """Describes a member for people."""
    return MemberView(
        member.member_id,
        member.epoch,
        member.client.client_id,
        member.client.address,
        tuple(sorted(member.topics)),
        tuple(sorted(member.assigned)),
        tuple(sorted(member.revoking)),
        max(0, member.session_ends_ms - now.steady_ms),
        member.pattern,
        member.client.rack,
    )


def offset_view(group: Group, slot: Slot) -> OffsetView:
    """Describes a committed position for people."""
    committed = group.offsets.get(slot)
    return OffsetView(
        slot.topic,
        group.topics[slot.topic].topic_id,
        slot.partition,
        None if committed is None else committed.offset,
        "" if committed is None else committed.metadata,
        0 if committed is None else committed.committed_ms,
        group.owners.get(slot, ""),
    )
