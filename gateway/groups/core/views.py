"""Members and committed positions, as `describe` shows them."""

from __future__ import annotations

from gateway.groups.core import sharing
from gateway.groups.model.state import Group, Member
from gateway.groups.model.values import GroupRow, GroupView, MemberView, Now, OffsetView, Slot


def group_view(group: Group, now: Now) -> GroupView:
    """Describes a group for people."""
    slots = sorted({*group.offsets, *group.target, *group.owners})
    return GroupView(
        group.name,
        group.state,
        group.epoch,
        group.config,
        tuple(member_view(member, now) for _, member in sorted(group.members.items())) or _other_members(group, now),
        tuple(offset_view(group, slot) for slot in slots) or sharing.offsets(group),
        *sharing.views(group, now),
    )


def group_row(group: Group) -> GroupRow:
    """Returns the line of a group in a list."""
    classic = group.classic
    if classic is None or group.members:
        return GroupRow(group.name, group.state, group.member_count, group.settings.kind)
    return GroupRow(
        group.name, group.state, group.member_count, group.kind, classic.protocol_type or "consumer", classic.phase
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


def _other_members(group: Group, now: Now) -> tuple[MemberView, ...]:
    """Describes members of Kafka's classic protocol, whose assignments are their own bytes, or of a share group."""
    if group.share_members:
        return tuple(
            MemberView(
                member.member_id,
                member.epoch,
                member.client.client_id,
                member.client.address,
                tuple(sorted(member.topics)),
                (),
                (),
                max(0, member.session_ends_ms - now.steady_ms),
                None,
                member.client.rack,
            )
            for _, member in sorted(group.share_members.items())
        )
    state = group.classic
    if state is None:
        return ()
    return tuple(
        MemberView(
            member.member_id,
            state.generation,
            member.client.client_id,
            member.client.address,
            (),
            (),
            (),
            max(0, member.seen_ms + member.session_ms - now.steady_ms),
        )
        for _, member in sorted(state.members.items())
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
        -1 if committed is None else committed.leader_epoch,
    )
