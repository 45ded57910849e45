"""The activity of a group, from which findings.py explains it."""

from __future__ import annotations

from msgspec import Struct

from gateway.groups.core.history import Event
from gateway.groups.core.state import Group, Member
from gateway.groups.core.values import GroupView, Now


class MemberActivity(Struct, frozen=True, array_like=True):
    """A member's last call, last commit and revocation, as times ago. `revoking_ms` is 0 if nothing is revoked."""

    member_id: str
    is_polling: bool
    silent_ms: int
    unmoved_ms: int
    revoking_ms: int
    session_timeout_ms: int


class BegunView(Struct, frozen=True, array_like=True):
    """How often reading of a partition began at its committed position, and when the last three of these were."""

    topic: str
    partition: int
    offset: int
    count: int
    times_ms: tuple[int, ...]


class Activity(Struct, frozen=True, array_like=True):
    """A group with its history. `missing` are subscribed topics that do not exist."""

    view: GroupView
    now_ms: int
    events: tuple[Event, ...]
    members: tuple[MemberActivity, ...]
    begun: tuple[BegunView, ...]
    missing: tuple[str, ...]


def activity(group: Group, view: GroupView, now: Now) -> Activity:
    """Describes what happens in a group."""
    return Activity(
        view,
        now.wall_ms,
        tuple(group.history.events),
        tuple(_member_activity(member, now) for _, member in sorted(group.members.items())),
        tuple(
            BegunView(slot.topic, slot.partition, begun.offset, begun.begins, begun.times_ms)
            for slot, begun in sorted(group.history.begun.items())
        ),
        tuple(sorted(topic for topic, size in group.sizes.items() if size is None)) if group.members else (),
    )


def _member_activity(member: Member, now: Now) -> MemberActivity:
    revoking_ms = 0
    if member.rebalance_ends_ms is not None:
        revoking_ms = max(1, now.steady_ms - member.rebalance_ends_ms + member.rebalance_timeout_ms)
    return MemberActivity(
        member.member_id,
        member.waiting > 0,
        0 if member.waiting else now.steady_ms - member.called_ms,
        now.steady_ms - member.moved_ms,
        revoking_ms,
        member.session_timeout_ms,
    )
