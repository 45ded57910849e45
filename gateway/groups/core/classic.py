"""The classic protocol of groups, as a pure core: calls of members in, answers out (Kafka's ClassicGroup).

A group is empty, prepares a rebalance while members join, completes it while the leader assigns, and is stable. Each
round of it is a generation. A call that has to wait is parked: its caller makes it again once it is woken, or by the
time in the answer, and then it does what it did before.
Invariants: only the leader of a generation gets the members' bytes, and only its assignment is handed out; a call of
another generation, or of an id that an instance has no more, changes nothing.
"""

from __future__ import annotations

from collections import Counter

from gateway.groups.model.classic import (
    ClassicMember,
    ClassicState,
    JoinAnswer,
    JoinCall,
    MemberCall,
    Phase,
    Refusal,
    SyncAnswer,
    SyncCall,
)

INITIAL_DELAY_MS = 3000  # an empty group waits for more members, so that a start of many is one rebalance
SESSION_MS_MIN, SESSION_MS_MAX = 6000, 30 * 60 * 1000  # Kafka's bounds
PARKED_MS = 60_000  # a parked call is made again more often than this; a member whose is not has left
LOOK_MS = 10_000  # between two looks at a rebalance that nothing else wakes


def join(state: ClassicState, call: JoinCall, now_ms: int, members_max: int) -> JoinAnswer:
    """Admits a member, or takes its part in the present rebalance."""
    advance(state, now_ms)
    if not SESSION_MS_MIN <= call.session_ms <= SESSION_MS_MAX:
        return JoinAnswer(Refusal.SESSION_TIMEOUT, call.member_id)
    if call.instance_id is not None and call.instance_id in state.instances:
        present = state.instances[call.instance_id]
        if not call.member_id:
            return _replace(state, present, call, now_ms)
        if call.member_id != present:
            return JoinAnswer(Refusal.FENCED, call.member_id)
    member = state.members.get(call.member_id)
    if member is None and call.member_id and call.member_id not in state.pending:
        return JoinAnswer(Refusal.UNKNOWN_MEMBER, call.member_id)
    if not _fits(state, call, member):
        return JoinAnswer(Refusal.INCONSISTENT, call.member_id)
    if member is not None:
        return _join_again(state, member, call, now_ms)
    if len(state.members) >= members_max:
        return JoinAnswer(Refusal.FULL, call.member_id)
    if not call.member_id and call.instance_id is None and call.must_know_id:
        if len(state.pending) >= members_max:  # the oldest asks for another id, if it comes at all
            del state.pending[next(iter(state.pending))]
        state.pending[call.new_member_id] = now_ms + call.session_ms
        return JoinAnswer(Refusal.MEMBER_ID_REQUIRED, call.new_member_id)
    return _admit(state, call, now_ms)


def sync(state: ClassicState, call: SyncCall, now_ms: int) -> SyncAnswer:
    """Takes the leader's assignment, and returns a member's own once it is there."""
    advance(state, now_ms)
    refusal = _refusal(state, call.member, now_ms)
    if refusal is not Refusal.NONE:
        return SyncAnswer(refusal)
    is_other = (call.protocol_type and call.protocol_type != state.protocol_type) or (
        call.protocol and call.protocol != state.protocol
    )
    if is_other:
        return SyncAnswer(Refusal.INCONSISTENT)
    if state.phase is Phase.PREPARING:
        return SyncAnswer(Refusal.REBALANCING)
    member = state.members[call.member.member_id]
    member.has_synced = True
    if state.phase is Phase.COMPLETING:
        if member.member_id != state.leader:
            return SyncAnswer(is_parked=True, wake_ms=min(state.deadline_ms, now_ms + LOOK_MS))
        given = dict(call.assignments)
        for one in state.members.values():
            one.assignment = given.get(one.member_id, b"")
        state.phase = Phase.STABLE
    return SyncAnswer(assignment=member.assignment, protocol_type=state.protocol_type, protocol=state.protocol)


def heartbeat(state: ClassicState, call: MemberCall, now_ms: int) -> Refusal:
    """Keeps a member alive; says whether it is to join again."""
    advance(state, now_ms)
    refusal = _refusal(state, call, now_ms)
    if refusal is Refusal.NONE and state.phase is Phase.PREPARING:
        return Refusal.REBALANCING
    return refusal


def check_commit(state: ClassicState, call: MemberCall, now_ms: int) -> Refusal:
    """Returns whether a member may commit: also while others join, and not before the leader has assigned."""
    advance(state, now_ms)
    refusal = _refusal(state, call, now_ms)
    if refusal is Refusal.NONE and state.phase is Phase.COMPLETING:
        return Refusal.REBALANCING
    return refusal


def leave(state: ClassicState, member_id: str, instance_id: str | None, now_ms: int) -> Refusal:
    """Removes a member, by its id or by its instance."""
    advance(state, now_ms)
    if instance_id is not None:
        present = state.instances.get(instance_id)
        if present is None:
            return Refusal.UNKNOWN_MEMBER
        if member_id not in ("", present):
            return Refusal.FENCED
        member_id = present
    if state.pending.pop(member_id, None) is not None:
        _complete_joins(state, now_ms)
        return Refusal.NONE
    if member_id not in state.members:
        return Refusal.UNKNOWN_MEMBER
    _remove(state, [member_id], now_ms)
    return Refusal.NONE


def advance(state: ClassicState, now_ms: int) -> None:
    """Does what is due by time: ends sessions and waits."""
    for member_id in [one for one, until_ms in state.pending.items() if until_ms <= now_ms]:
        del state.pending[member_id]
    gone = [one.member_id for one in state.members.values() if _is_gone(state, one, now_ms)]
    if state.phase is Phase.COMPLETING and now_ms >= state.deadline_ms:
        gone = [one.member_id for one in state.members.values() if not one.has_synced or one.member_id in gone]
    if gone:
        _remove(state, gone, now_ms)
    if state.phase is Phase.PREPARING:
        _complete_joins(state, now_ms)


def _is_gone(state: ClassicState, member: ClassicMember, now_ms: int) -> bool:
    """Returns whether the session of a member is over. One whose call is parked sends no heartbeats."""
    is_parked = (state.phase is Phase.PREPARING and member.has_joined) or (
        state.phase is Phase.COMPLETING and member.has_synced
    )
    return now_ms >= member.seen_ms + (max(member.session_ms, PARKED_MS) if is_parked else member.session_ms)


def _refusal(state: ClassicState, call: MemberCall, now_ms: int) -> Refusal:
    """Returns why a call is not one of a member of this generation. Keeps the session of one that is."""
    if call.instance_id is not None:
        present = state.instances.get(call.instance_id)
        if present is not None and present != call.member_id:
            return Refusal.FENCED
    member = state.members.get(call.member_id)
    if member is None or state.phase is Phase.EMPTY:
        return Refusal.UNKNOWN_MEMBER
    if call.generation != state.generation:
        return Refusal.ILLEGAL_GENERATION
    member.seen_ms = now_ms
    return Refusal.NONE


def _fits(state: ClassicState, call: JoinCall, member: ClassicMember | None) -> bool:
    """Returns whether a member has a protocol in common with all others, of the same type."""
    if not call.protocol_type or not call.protocols:
        return False
    others = [one for one in state.members.values() if one is not member]
    if not others:
        return True
    common = {name for name, _ in call.protocols}
    for one in others:
        common &= {name for name, _ in one.protocols}
    return call.protocol_type == state.protocol_type and bool(common)


def _admit(state: ClassicState, call: JoinCall, now_ms: int) -> JoinAnswer:
    member_id = call.member_id or call.new_member_id
    state.pending.pop(member_id, None)
    if not state.members:
        state.protocol_type = call.protocol_type
    member = state.members[member_id] = ClassicMember(
        member_id, call.instance_id, call.client, call.session_ms, call.rebalance_ms, call.protocols, now_ms
    )
    if call.instance_id is not None:
        state.instances[call.instance_id] = member_id
    _prepare(state, now_ms)
    if state.delay_ms is not None:  # more arrive: wait again, and not longer than members wait
        state.delay_ms = min(now_ms + INITIAL_DELAY_MS, state.deadline_ms)
    return _take_part(state, member, now_ms)


def _join_again(state: ClassicState, member: ClassicMember, call: JoinCall, now_ms: int) -> JoinAnswer:
    has_changed = member.protocols != call.protocols
    member.seen_ms, member.client = now_ms, call.client
    member.session_ms, member.rebalance_ms = call.session_ms, call.rebalance_ms
    is_of_generation = state.phase is Phase.COMPLETING or (
        state.phase is Phase.STABLE and member.member_id != state.leader
    )
    if is_of_generation and not has_changed:  # its answer was lost
        return _answer(state, member)
    member.protocols = call.protocols
    if len(state.members) == 1:
        state.protocol_type = call.protocol_type
    _prepare(state, now_ms)
    return _take_part(state, member, now_ms)


def _replace(state: ClassicState, present: str, call: JoinCall, now_ms: int) -> JoinAnswer:
    """Gives an instance that has started again a new id, and fences the old one.

    Nothing is assigned again if its protocols are the same: so an instance may restart within its session.
    """
    member = state.members[present]
    if not _fits(state, call, member):
        return JoinAnswer(Refusal.INCONSISTENT)
    former_leader = state.leader
    is_leader = former_leader == present
    has_changed = member.protocols != call.protocols
    assert call.instance_id is not None
    state.members = {
        (call.new_member_id if member_id == present else member_id): one for member_id, one in state.members.items()
    }
    member.member_id = state.instances[call.instance_id] = call.new_member_id
    state.gone.append(present)
    member.seen_ms, member.client, member.protocols = now_ms, call.client, call.protocols
    member.session_ms, member.rebalance_ms = call.session_ms, call.rebalance_ms
    if is_leader:
        state.leader = member.member_id
    if state.phase is Phase.STABLE and not has_changed:
        answer = _answer(state, member)
        if is_leader and not call.may_skip:  # it must not assign, and cannot be asked not to
            return JoinAnswer(
                "", member.member_id, False, 0, state.generation, state.protocol_type, state.protocol, former_leader
            )
        return _skipping(answer) if is_leader else answer
    _prepare(state, now_ms)
    return _take_part(state, member, now_ms)


def _skipping(answer: JoinAnswer) -> JoinAnswer:
    return JoinAnswer(
        "",
        answer.member_id,
        False,
        0,
        answer.generation,
        answer.protocol_type,
        answer.protocol,
        answer.leader,
        answer.members,
        skips_assignment=True,
    )


def _take_part(state: ClassicState, member: ClassicMember, now_ms: int) -> JoinAnswer:
    """Counts a member among those that have joined, and returns its answer if it was the last."""
    member.has_joined = True
    _complete_joins(state, now_ms)
    if state.phase is not Phase.PREPARING:
        return _answer(state, member)
    wake_ms = state.deadline_ms if state.delay_ms is None else state.delay_ms
    return JoinAnswer(Refusal.NONE, member.member_id, is_parked=True, wake_ms=min(wake_ms, now_ms + LOOK_MS))


def _answer(state: ClassicState, member: ClassicMember) -> JoinAnswer:
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    if member.member_id == state.leader:
        members = tuple(
            (one.member_id, one.instance_id, one.metadata(state.protocol)) for one in state.members.values()
        )
    return JoinAnswer(
        Refusal.NONE,
        member.member_id,
        generation=state.generation,
        protocol_type=state.protocol_type,
        protocol=state.protocol,
        leader=state.leader,
        members=members,
    )


def _prepare(state: ClassicState, now_ms: int) -> None:
    """Begins a rebalance, if none has begun. Parked calls for an assignment end."""
    if state.phase is Phase.PREPARING:
        return
    was_empty, was_completing = state.phase is Phase.EMPTY, state.phase is Phase.COMPLETING
    state.phase = Phase.PREPARING
    state.deadline_ms = now_ms + max((one.rebalance_ms for one in state.members.values()), default=0)
    state.delay_ms = min(now_ms + INITIAL_DELAY_MS, state.deadline_ms) if was_empty else None
    for member in state.members.values():
        if was_completing and member.has_synced:  # its call was parked, and ends now
            member.seen_ms = now_ms
        member.has_joined = member.has_synced = False


def _complete_joins(state: ClassicState, now_ms: int) -> None:
    """Ends the joining once all members have joined, or it takes too long."""
    if state.phase is not Phase.PREPARING:
        return
    joined = [one for one in state.members.values() if one.has_joined]
    is_late = now_ms >= state.deadline_ms
    if state.members and not is_late:
        if state.delay_ms is not None and now_ms < state.delay_ms:
            return
        if len(joined) < len(state.members) or state.pending:
            return
    for member_id in [
        one.member_id for one in state.members.values() if not one.has_joined and one.instance_id is None
    ]:
        del state.members[member_id]
        state.gone.append(member_id)
    if state.members and not joined:  # instances that are away: they may come back
        state.deadline_ms = now_ms + max(one.rebalance_ms for one in state.members.values())
        return
    state.generation += 1
    state.delay_ms = None
    if not state.members:
        state.phase, state.protocol, state.leader = Phase.EMPTY, "", ""
        return
    if state.leader not in {one.member_id for one in joined}:
        state.leader = joined[0].member_id
    state.protocol = _elected(state)
    state.phase = Phase.COMPLETING
    state.deadline_ms = now_ms + max(one.rebalance_ms for one in state.members.values())
    for member in state.members.values():
        member.assignment, member.has_synced = b"", not member.has_joined  # an instance that is away is not waited for
        if member.has_joined:
            member.seen_ms = now_ms


def _elected(state: ClassicState) -> str:
    """Returns the protocol that most members prefer, of those that all of them have."""
    common = set.intersection(*({name for name, _ in one.protocols} for one in state.members.values()))
    votes = Counter(next(name for name, _ in one.protocols if name in common) for one in state.members.values())
    return votes.most_common(1)[0][0]


def _remove(state: ClassicState, member_ids: list[str], now_ms: int) -> None:
    for member_id in member_ids:
        member = state.members.pop(member_id)
        state.gone.append(member_id)
        if member.instance_id is not None:
            state.instances.pop(member.instance_id, None)
    if state.phase in (Phase.STABLE, Phase.COMPLETING):
        _prepare(state, now_ms)
    _complete_joins(state, now_ms)
