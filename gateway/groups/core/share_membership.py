"""Members of share groups over Kafka's protocol: who reads which topics. Their records are in sharing.py.

Every partition of its topics is assigned to each member, since records and not partitions are shared.
"""

from __future__ import annotations

from gateway.groups.core import sharing
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.core.group_table import check_kind
from gateway.groups.core.membership import unknown_member
from gateway.groups.model.errors import GroupsFull, MemberFenced
from gateway.groups.model.settings import SHARE
from gateway.groups.model.share_members import (
    ShareAnswer,
    ShareBeat,
    ShareGroupView,
    ShareMember,
    ShareMemberView,
    Sizes,
)
from gateway.groups.model.state import Group
from gateway.groups.model.values import Now, TopicSource

JOIN, LEAVE = 0, -1


def heartbeat(core: Coordinator, call: ShareBeat, now: Now, source: TopicSource) -> ShareAnswer:
    """Joins, keeps a session alive, or leaves.

    Raises UnknownGroup, UnknownMember, MemberFenced, GroupsFull, WrongGroupKind, QuotaExhausted.
    """
    if call.member_epoch == LEAVE:
        group = core.groups.get(call.group)
        if group is not None and group.share_members.pop(call.member_id, None) is not None:
            group.history.note("left", now, call.member_id)
        return ShareAnswer(LEAVE)
    if call.member_epoch != JOIN:
        core.find(call.group)
    group, _ = core.find_or_new(call.group, SHARE, now)
    member = group.share_members.get(call.member_id)
    if member is None:
        if call.member_epoch != JOIN:
            raise unknown_member(group, call.member_id)
        member = _join(core, group, call, now)
    elif call.member_epoch > member.epoch:
        raise MemberFenced(f"member {call.member_id!r} of group {call.group!r} has epoch {member.epoch}")
    if call.topics is not None:
        member.topics = frozenset(call.topics)
    member.session_ends_ms = now.steady_ms + group.settings.session_timeout_ms
    sharing.note_activity(core, group, now)
    assigned = _sizes(member, source)
    is_known = call.member_epoch == member.epoch and assigned == member.assigned
    if assigned != member.assigned:
        member.assigned, member.epoch = assigned, member.epoch + 1
    return ShareAnswer(member.epoch, group.settings.heartbeat_ms, None if is_known else assigned)


def describe(core: Coordinator, name: str, now: Now, source: TopicSource) -> ShareGroupView:
    """Describes a share group. Raises UnknownGroup, WrongGroupKind."""
    group = core.find(name)
    check_kind(group, SHARE)
    members = tuple(
        ShareMemberView(
            member.member_id,
            member.client.rack,
            member.epoch,
            member.client.client_id,
            member.client.address,
            tuple(sorted(member.topics)),
            member.assigned or (),
        )
        for _, member in sorted(group.share_members.items())
    )
    return ShareGroupView(group.state, group.epoch, members)


def _join(core: Coordinator, group: Group, call: ShareBeat, now: Now) -> ShareMember:
    if len(group.share_members) >= core.limits.members_max:
        text = f"group {group.name!r} has {core.limits.members_max} members"
        raise GroupsFull(text, limit=core.limits.members_max)
    core.check_new_member(group)
    member = ShareMember(call.member_id, call.client, frozenset(), 0)
    core.add(group)
    core.note_change(group).share_members[call.member_id] = member
    group.history.note("joined", now, call.member_id, ", ".join(sorted(call.topics or ())))
    return member


def _sizes(member: ShareMember, source: TopicSource) -> Sizes:
    found = ((name, source.find(name)) for name in sorted(member.topics))
    return tuple((name, size.topic_id, size.partitions) for name, size in found if size is not None)
