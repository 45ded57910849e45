"""The calls of the classic protocol on the groups of a coordinator: which groups they may be of, and their positions.

gateway/groups/core/classic.py decides about members. Positions are those of any group: the same records, the same
retention, the same descriptions. Members over HTTP and members of this protocol are never in one group at once.
"""

from __future__ import annotations

from gateway.groups.core import classic, consumer_protocol, positions
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.core.group_table import check_kind
from gateway.groups.model.classic import (
    ClassicCommitCall,
    ClassicLeaveCall,
    ClassicMemberView,
    ClassicState,
    ClassicView,
    JoinAnswer,
    JoinCall,
    MemberCall,
    Phase,
    Refusal,
    SyncAnswer,
    SyncCall,
)
from gateway.groups.model.errors import UnknownGroup
from gateway.groups.model.settings import CONSUMER, SHARE
from gateway.groups.model.state import Group
from gateway.groups.model.values import Now, TopicSource

CONSUMER_TYPE = "consumer"


def join(core: Coordinator, call: JoinCall, now: Now, source: TopicSource) -> JoinAnswer:
    """Joins, or joins again. Raises GroupsFull, QuotaExhausted."""
    group, _ = core.find_or_new(call.group, None, now)
    if group.settings.kind == SHARE or group.members or group.definition is not None:
        return JoinAnswer(Refusal.INCONSISTENT, call.member_id)
    state = group.classic or ClassicState()
    if call.member_id not in state.members and call.instance_id not in state.instances:
        core.check_new_member(group)
    group.classic = state
    before = _stamp(state)
    answer = classic.join(state, call, now.steady_ms, core.limits.members_max)
    if state.members or state.pending:
        core.add(group)
    if len(state.members) > before[2]:
        group.history.note("joined", now, answer.member_id, call.protocol_type)
    _note(core, group, state, before, now)
    return answer


def sync(core: Coordinator, call: SyncCall, now: Now, source: TopicSource) -> SyncAnswer:
    """Returns the assignment of a member."""
    found = _find(core, call.member.group)
    if found is None:
        return SyncAnswer(Refusal.UNKNOWN_MEMBER)
    group, state = found
    before = _stamp(state)
    answer = classic.sync(state, call, now.steady_ms)
    _note(core, group, state, before, now)
    return answer


def heartbeat(core: Coordinator, call: MemberCall, now: Now, source: TopicSource) -> str:
    """Keeps a member alive."""
    found = _find(core, call.group)
    if found is None:
        return Refusal.UNKNOWN_MEMBER
    group, state = found
    before = _stamp(state)
    refusal = classic.heartbeat(state, call, now.steady_ms)
    _note(core, group, state, before, now)
    return refusal


def leave(core: Coordinator, call: ClassicLeaveCall, now: Now, source: TopicSource) -> list[str]:
    """Removes members. Returns the refusal of each."""
    found = _find(core, call.group)
    if found is None:
        return [Refusal.UNKNOWN_MEMBER] * len(call.members)
    group, state = found
    before = _stamp(state)
    errors: list[str] = []
    for member_id, instance_id in call.members:
        errors.append(classic.leave(state, member_id, instance_id, now.steady_ms))
        if not errors[-1]:
            group.history.note("left", now, member_id or instance_id or "")
    _note(core, group, state, before, now)
    return errors


def commit(core: Coordinator, call: ClassicCommitCall, now: Now, source: TopicSource) -> str:
    """Sets positions, in any direction. Raises GroupsFull, CoordinatorMoved, WrongGroupKind."""
    member = call.member
    group, _ = core.find_or_new(member.group, None, now)
    if group.settings.kind == SHARE:
        check_kind(group, CONSUMER)
    state = group.classic
    if member.generation < 0 and not member.member_id:
        if group.member_count:
            return Refusal.UNKNOWN_MEMBER
    elif group.members:
        refusal = consumer_protocol.check_commit(group, member, call.positions)
        if refusal is not Refusal.NONE:
            return refusal
    elif state is None:
        return Refusal.ILLEGAL_GENERATION
    else:
        refusal = classic.check_commit(state, member, now.steady_ms)
        if refusal is not Refusal.NONE:
            return refusal
    positions.check_topics(call.positions, source)
    positions.check_room(group, call.positions, core.limits, source)
    core.note_change(group)
    core.know(group, call.positions, now, source)
    positions.store(group, call.positions, now)
    core.add(group)
    return Refusal.NONE


def describe(core: Coordinator, name: str, now: Now, source: TopicSource) -> ClassicView:
    """Describes a group as tools of Kafka show it. Raises UnknownGroup."""
    group = core.find(name)
    state = group.classic
    if state is not None and (state.members or state.phase is not Phase.EMPTY):
        views = tuple(
            ClassicMemberView(
                one.member_id,
                one.instance_id,
                one.client.client_id,
                one.client.address,
                one.metadata(state.protocol),
                one.assignment,
            )
            for one in state.members.values()
        )
        return ClassicView(state.phase, state.protocol_type, state.protocol, views)
    others = [one for _, one in sorted(group.members.items())]
    return ClassicView(
        Phase.STABLE if others else Phase.EMPTY,
        CONSUMER_TYPE,
        "",
        tuple(
            ClassicMemberView(
                one.member_id,
                None if one.kafka is None else one.kafka.instance_id,
                one.client.client_id,
                one.client.address,
                b"",
                b"",
            )
            for one in others
        ),
        tuple(tuple((slot.topic, slot.partition) for slot in sorted(one.assigned)) for one in others),
    )


def _find(core: Coordinator, name: str) -> tuple[Group, ClassicState] | None:
    try:
        group = core.find(name)
    except UnknownGroup:
        return None
    return None if group.classic is None else (group, group.classic)


def _stamp(state: ClassicState) -> tuple[Phase, int, int]:
    return state.phase, state.generation, len(state.members)


def _note(core: Coordinator, group: Group, state: ClassicState, before: tuple[Phase, int, int], now: Now) -> None:
    """Wakes the parked calls of a group whose phase has changed, and those of members that are gone."""
    core.woken.update((group.name, member_id) for member_id in state.gone)
    state.gone.clear()
    if _stamp(state) == before:
        return
    if not state.members and before[2]:
        core.note_change(group).is_changed = True
        group.active_ms = now.wall_ms  # its positions are kept from now on
    core.woken.update((group.name, member_id) for member_id in state.members)


def delete(core: Coordinator, name: str, now: Now, source: TopicSource) -> None:
    """Deletes a group and its positions. Members whose sessions are over since the last sweep do not count.

    Raises UnknownGroup, GroupNotEmpty.
    """
    _advance(core, core.find(name), now)
    core.delete(name, now, source)


def sweep(core: Coordinator, now: Now, source: TopicSource) -> None:
    """Ends sessions and waits that are over."""
    for group in list(core.groups.values()):
        _advance(core, group, now)


def _advance(core: Coordinator, group: Group, now: Now) -> None:
    state = group.classic
    if state is None:
        return
    before, members = _stamp(state), set(state.members)
    classic.advance(state, now.steady_ms)
    for member_id in members - set(state.members):
        group.history.note("session_expired", now, member_id)
    _note(core, group, state, before, now)
