"""The consumer protocol of Kafka's groups (KIP-848), on the members that groups have over HTTP too.

Members of both doors share one assignment. This file adds what only Kafka's protocol says: instances that keep their
place over a restart, the assignor that a member asks for, and answers without an assignment that is known.
Invariant: an instance has one member; another one gets its place only once that member has left for a restart.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from gateway.groups.core import membership
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.core.group_table import check_kind
from gateway.groups.model.classic import MemberCall, Refusal
from gateway.groups.model.consumer_protocol import (
    AWAY,
    JOIN,
    LEAVE,
    ConsumerAnswer,
    ConsumerCall,
    ConsumerMemberView,
    ConsumerView,
    Pairs,
)
from gateway.groups.model.settings import CONSUMER
from gateway.groups.model.state import Group, Member
from gateway.groups.model.values import (
    HeartbeatCall,
    KafkaMember,
    LeaveCall,
    Now,
    Position,
    Slot,
    TopicPattern,
    TopicSource,
)


def heartbeat(core: Coordinator, call: ConsumerCall, now: Now, source: TopicSource) -> ConsumerAnswer:
    """Joins, keeps a session alive, takes what the member has given up, or lets it go.

    Raises UnknownGroup, UnknownMember, MemberFenced, GroupsFull, InvalidPattern, PatternsUnavailable, WrongGroupKind.
    """
    group = core.groups.get(call.group)
    present = None if group is None or call.instance_id is None else _member_of_instance(group, call.instance_id)
    if group is not None and present is not None and present.member_id != call.member_id:
        if call.member_epoch != JOIN:
            return ConsumerAnswer(call.member_epoch, Refusal.FENCED)
        if present.kafka is None or not present.kafka.is_away:
            return ConsumerAnswer(call.member_epoch, Refusal.UNRELEASED)
        membership.rename(core.note_change(group), present, call.member_id)
    if call.member_epoch in (LEAVE, AWAY):
        return _leave(core, group, call, now, source)
    member = None if group is None else group.members.get(call.member_id)
    topics, pattern = _interest(member, call)
    kafka = _kafka_member(None if member is None else member.kafka, call)
    answer = core.heartbeat(
        HeartbeatCall(
            call.group,
            call.member_id,
            call.member_epoch,
            topics,
            call.owned,
            None,
            call.rebalance_timeout_ms,
            call.client,
            pattern,
            kafka,
        ),
        now,
        source,
    )
    group = core.find(call.group)
    member = membership.find_member(group, call.member_id)
    if member.kafka != kafka:
        former, member.kafka = member.kafka, kafka
        core.note_change(group).changed_members.add(member.member_id)
        if former is None or former.assignor != kafka.assignor:
            membership.rebalance(group, now, source)
    assignment: Pairs | None = None
    if call.member_epoch == JOIN or call.is_whole or member.sent_version != member.version:
        assignment = tuple((group.topics[slot.topic].topic_id, slot.partition) for slot in sorted(member.assigned))
        member.sent_version = member.version
    return ConsumerAnswer(member.epoch, heartbeat_ms=answer.heartbeat_ms, assignment=assignment)


def check_commit(group: Group, call: MemberCall, committed: Iterable[Position]) -> Refusal:
    """Returns why a member may not commit these positions.

    It may commit what it has, with an epoch since it got it, and with its present epoch what no member has.
    """
    member = group.members.get(call.member_id)
    if member is None:
        return Refusal.UNKNOWN_MEMBER
    if not member.has_epoch(call.generation):
        return Refusal.STALE
    for position in committed:
        since = member.epoch_of(position.slot)
        if since is None and (position.slot in group.owners or call.generation != member.epoch):
            return Refusal.STALE
        if since is not None and call.generation < since:
            return Refusal.STALE
    return Refusal.NONE


def describe(core: Coordinator, name: str, now: Now, source: TopicSource) -> ConsumerView:
    """Describes a group. Raises UnknownGroup, WrongGroupKind."""
    group = core.find(name)
    check_kind(group, CONSUMER)
    members = tuple(_view(group, member) for _, member in sorted(group.members.items()))
    topics = {topic for view in members for topic, _ in (*view.assigned, *view.target)}
    ids = {topic: group.topics[topic].topic_id for topic in topics if topic in group.topics}
    return ConsumerView(group.state, group.epoch, group.assignor, members, ids)


def _leave(core: Coordinator, group: Group | None, call: ConsumerCall, now: Now, source: TopicSource) -> ConsumerAnswer:
    member = None if group is None else group.members.get(call.member_id)
    if group is None or member is None:
        return ConsumerAnswer(call.member_epoch)  # it has left already
    if call.member_epoch == LEAVE or member.kafka is None or member.kafka.instance_id is None:
        core.leave(LeaveCall(call.group, call.member_id), now, source)
        return ConsumerAnswer(call.member_epoch)
    member.kafka = structs.replace(member.kafka, is_away=True)
    core.note_change(group).changed_members.add(member.member_id)
    membership.release(group, member, list(member.revoking), now)
    return ConsumerAnswer(call.member_epoch)


def _member_of_instance(group: Group, instance_id: str) -> Member | None:
    return next(
        (
            member
            for member in group.members.values()
            if member.kafka is not None and member.kafka.instance_id == instance_id
        ),
        None,
    )


def _kafka_member(former: KafkaMember | None, call: ConsumerCall) -> KafkaMember:
    former = former or KafkaMember()
    instance_id = former.instance_id if call.instance_id is None else call.instance_id
    return KafkaMember(instance_id, former.assignor if call.assignor is None else call.assignor)


def _interest(member: Member | None, call: ConsumerCall) -> tuple[tuple[str, ...] | None, TopicPattern | None]:
    """Returns the topics that a member names now, and its expression; None for the topics: both are unchanged."""
    if call.topics is None and call.expression is None:
        return None, None
    pattern = None if member is None else member.pattern
    if call.topics is not None:
        topics = call.topics
    elif member is None:
        topics = ()
    else:
        topics = tuple(sorted(member.topics)) if pattern is None else pattern.named
    if call.expression is not None:
        pattern = TopicPattern(call.expression, "", call.readable) if call.expression else None
    return topics, pattern


def _view(group: Group, member: Member) -> ConsumerMemberView:
    target = [slot for slot, owner in group.target.items() if owner == member.member_id]
    pattern = member.pattern
    return ConsumerMemberView(
        member.member_id,
        None if member.kafka is None else member.kafka.instance_id,
        member.client.rack,
        member.epoch,
        member.client.client_id,
        member.client.address,
        tuple(sorted(member.topics)) if pattern is None else pattern.named,
        None if pattern is None else pattern.include,
        _pairs((*member.assigned, *member.revoking)),
        _pairs(target),
    )


def _pairs(slots: Iterable[Slot]) -> Pairs:
    return tuple((slot.topic, slot.partition) for slot in sorted(slots))
