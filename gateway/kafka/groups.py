"""Groups of Kafka's classic protocol: each call goes to the coordinator of its group, in whichever process that is."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from engine.errors import EngineError
from gateway.groups.hosting import classic
from gateway.groups.hosting.calls import DELETE
from gateway.groups.model.classic import (
    ClassicLeaveCall,
    ClassicMemberView,
    ClassicView,
    JoinAnswer,
    JoinCall,
    MemberCall,
    Refusal,
    SyncAnswer,
    SyncCall,
)
from gateway.groups.model.errors import UnknownGroup
from gateway.groups.model.settings import PUSH_PREFIX
from gateway.groups.model.values import Client, GroupRow
from gateway.http.problems import Problem
from gateway.http.rights import Operation, Resource
from gateway.kafka.audit import audited
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error, error_of
from gateway.kafka.requests import KafkaRequest

NAME_CHARS_MAX = 255
CLASSIC_TYPE, CONSUMER_TYPE, SHARE_TYPE = "classic", "consumer", "share"
DEAD = "Dead"
STATES = {"empty": "Empty", "stable": "Stable", "reconciling": "Reconciling"}

ERRORS: dict[str, Error] = {
    Refusal.NONE: Error.NONE,
    Refusal.UNKNOWN_MEMBER: Error.UNKNOWN_MEMBER_ID,
    Refusal.ILLEGAL_GENERATION: Error.ILLEGAL_GENERATION,
    Refusal.REBALANCING: Error.REBALANCE_IN_PROGRESS,
    Refusal.INCONSISTENT: Error.INCONSISTENT_GROUP_PROTOCOL,
    Refusal.MEMBER_ID_REQUIRED: Error.MEMBER_ID_REQUIRED,
    Refusal.FENCED: Error.FENCED_INSTANCE_ID,
    Refusal.SESSION_TIMEOUT: Error.INVALID_SESSION_TIMEOUT,
    Refusal.FULL: Error.GROUP_MAX_SIZE_REACHED,
    Refusal.UNRELEASED: Error.UNRELEASED_INSTANCE_ID,
    Refusal.STALE: Error.STALE_MEMBER_EPOCH,
}

Joined, JoinedMember = (types_of("JoinGroup")[path] for path in ("", "members"))
Synced, Beaten = types_of("SyncGroup")[""], types_of("Heartbeat")[""]
Left, LeftMember = (types_of("LeaveGroup")[path] for path in ("", "members"))
Described, DescribedGroup, DescribedMember = (
    types_of("DescribeGroups")[path] for path in ("", "groups", "groups.members")
)
Listed, ListedGroup = (types_of("ListGroups")[path] for path in ("", "groups"))
Deleted, DeletedGroup = (types_of("DeleteGroups")[path] for path in ("", "results"))


def refusal_of_group(
    request: KafkaRequest, context: KafkaContext, group: str, operation: Operation = Operation.READ
) -> Error:
    """Returns why a call of a group is refused before it reaches the coordinator."""
    if not 0 < len(group) <= NAME_CHARS_MAX or not group.isprintable() or group.startswith(PUSH_PREFIX):
        return Error.INVALID_GROUP_ID  # one of a subscription is not a client's
    if not request.caller.allows(operation, group, Resource.GROUP):
        return Error.GROUP_AUTHORIZATION_FAILED
    return Error.COORDINATOR_NOT_AVAILABLE if context.lifecycle.is_refusing else Error.NONE


def coordinator_error(error: EngineError | Problem) -> Error:
    """Returns the error of a call whose coordinator cannot be reached, or has refused it."""
    found = error_of(error)
    if found in (Error.NOT_LEADER_OR_FOLLOWER, Error.NOT_ENOUGH_REPLICAS, Error.REQUEST_TIMED_OUT):
        return Error.COORDINATOR_NOT_AVAILABLE  # clients look for the coordinator again
    if found is Error.TOPIC_AUTHORIZATION_FAILED:  # the right to the group, which ended before the change
        return Error.GROUP_AUTHORIZATION_FAILED
    return Error.COORDINATOR_NOT_AVAILABLE if found is Error.UNKNOWN_SERVER_ERROR else found


async def join_group(request: KafkaRequest, context: KafkaContext) -> Message:
    """Joins a group, and answers once the group is complete."""
    message = request.message
    refused = refusal_of_group(request, context, message.group_id)
    if refused is not Error.NONE:
        return Joined(error_code=request.note(refused), member_id=message.member_id)
    call = JoinCall(
        message.group_id,
        message.member_id,
        message.group_instance_id,
        message.protocol_type,
        tuple((one.name, one.metadata) for one in message.protocols),
        message.session_timeout_ms,
        max(message.rebalance_timeout_ms, 0) if request.version else message.session_timeout_ms,
        f"{request.client.client_id or 'member'}-{context.groups.new_id()}",
        request.version >= 4,
        request.version >= 9,
        Client(request.client.client_id, request.client.host),
    )
    while True:
        try:
            answer = await context.groups.coordinators.call(classic.JOIN, JoinAnswer, call.group, call, creates=True)
        except (EngineError, Problem) as error:
            return Joined(error_code=request.note(coordinator_error(error)), member_id=message.member_id)
        if not answer.is_parked:
            return _joined(request, answer)
        call = JoinCall(call.group, answer.member_id, *(getattr(call, name) for name in JoinCall.__struct_fields__[2:]))


def _joined(request: KafkaRequest, answer: JoinAnswer) -> Message:
    if answer.refusal:
        return Joined(
            error_code=request.note(ERRORS[answer.refusal]),
            generation_id=-1,
            protocol_name=None if request.version >= 7 else "",
            member_id=answer.member_id,
        )
    return Joined(
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        leader=answer.leader,
        skip_assignment=answer.skips_assignment,
        member_id=answer.member_id,
        members=[JoinedMember(*member) for member in answer.members],
    )


async def sync_group(request: KafkaRequest, context: KafkaContext) -> Message:
    """Answers the assignment of a member, once the leader has sent it."""
    message = request.message
    refused = refusal_of_group(request, context, message.group_id)
    if refused is not Error.NONE:
        return Synced(error_code=request.note(refused))
    call = SyncCall(
        _member_call(message),
        tuple((one.member_id, one.assignment) for one in message.assignments),
        message.protocol_type or "",
        message.protocol_name or "",
    )
    while True:
        try:
            answer = await context.groups.coordinators.call(classic.SYNC, SyncAnswer, message.group_id, call)
        except (EngineError, Problem) as error:
            return Synced(error_code=request.note(_member_error(error)))
        if not answer.is_parked:
            break
    if answer.refusal:
        return Synced(error_code=request.note(ERRORS[answer.refusal]))
    return Synced(protocol_type=answer.protocol_type, protocol_name=answer.protocol, assignment=answer.assignment)


async def heartbeat(request: KafkaRequest, context: KafkaContext) -> Message:
    """Keeps a member alive."""
    message = request.message
    refused = refusal_of_group(request, context, message.group_id)
    if refused is Error.NONE:
        try:
            call = _member_call(message)
            refused = ERRORS[await context.groups.coordinators.call(classic.HEARTBEAT, str, message.group_id, call)]
        except (EngineError, Problem) as error:
            refused = _member_error(error)
    return Beaten(error_code=request.note(refused))


async def leave_group(request: KafkaRequest, context: KafkaContext) -> Message:
    """Removes members."""
    message = request.message
    refused = refusal_of_group(request, context, message.group_id)
    if request.version >= 3:
        given = [(one.member_id, one.group_instance_id) for one in message.members]
    else:
        given = [(message.member_id, None)]
    rows: list[str] = []
    if refused is Error.NONE:
        try:
            call = ClassicLeaveCall(message.group_id, tuple(given))
            rows = await context.groups.coordinators.call(classic.LEAVE, None, message.group_id, call)
        except (EngineError, Problem) as error:
            refused = _member_error(error)
    if request.version < 3:
        return Left(error_code=request.note(ERRORS[rows[0]] if rows else refused))
    members = [LeftMember(*one, ERRORS[row]) for one, row in zip(given, rows, strict=False)]
    return Left(error_code=request.note(refused), members=members)


def _member_call(message: Message) -> MemberCall:
    return MemberCall(message.group_id, message.member_id, message.group_instance_id, message.generation_id)


def _member_error(error: EngineError | Problem) -> Error:
    """Returns the error of a call of a member: without the group it is not known."""
    return Error.UNKNOWN_MEMBER_ID if error.code == UnknownGroup.code else coordinator_error(error)


# Descriptions


async def describe_groups(request: KafkaRequest, context: KafkaContext) -> Message:
    """Describes groups, those with members over HTTP too."""
    return Described(groups=[await _describe(request, context, name) for name in request.message.groups])


async def _describe(request: KafkaRequest, context: KafkaContext, name: str) -> Message:
    refused = refusal_of_group(request, context, name, Operation.DESCRIBE)
    if refused is not Error.NONE:
        return DescribedGroup(error_code=request.note(refused), group_id=name)
    try:
        view = await context.groups.coordinators.call(classic.DESCRIBE, ClassicView, name, name)
    except (EngineError, Problem) as error:
        if error.code != UnknownGroup.code:
            return DescribedGroup(error_code=request.note(coordinator_error(error)), group_id=name)
        missing, text = Error.NONE, None
        if request.version >= 6:
            missing, text = Error.GROUP_ID_NOT_FOUND, f"there is no group {name!r}"
        return DescribedGroup(error_code=request.note(missing), error_message=text, group_id=name, group_state=DEAD)
    members = [
        _describe_member(request, view, member, view.slots[index] if view.slots else ())
        for index, member in enumerate(view.members)
    ]
    return DescribedGroup(
        group_id=name,
        group_state=view.state,
        protocol_type=view.protocol_type,
        protocol_data=view.protocol,
        members=members,
    )


def _describe_member(request: KafkaRequest, view: ClassicView, member: ClassicMemberView, slots: Any) -> Message:
    slots = [(request.visible(topic), number) for topic, number in slots]
    assignment = consumer_assignment(slots) if view.slots else member.assignment
    return DescribedMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=host_of(member.client_address),
        member_metadata=member.metadata,
        member_assignment=assignment,
    )


def host_of(address: str) -> str:
    """Returns the host of a member as Kafka's tools show it."""
    host = address.rpartition(":")[0] if address.count(":") == 1 or address.startswith("[") else address
    return f"/{host.strip('[]')}"


def consumer_assignment(slots: Any) -> bytes:
    """Returns partitions as members of type consumer encode them, for tools: ConsumerProtocolAssignment."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in slots:
        by_topic.setdefault(topic, []).append(number)

    def pieces() -> Iterator[bytes]:
        yield struct.pack(">hi", 0, len(by_topic))
        for topic, numbers in by_topic.items():
            name = topic.encode()
            yield struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers)
        yield struct.pack(">i", -1)

    return b"".join(pieces())


async def list_groups(request: KafkaRequest, context: KafkaContext) -> Message:
    """Lists the groups that the caller may describe."""
    message = request.message
    try:
        rows = await context.groups.coordinators.list()
    except (EngineError, Problem) as error:
        return Listed(error_code=request.note(coordinator_error(error)))
    states = {state.lower() for state in message.states_filter} if request.version >= 4 else set()
    kinds = {kind.lower() for kind in message.types_filter} if request.version >= 5 else set()
    groups = [
        ListedGroup(row.group, "" if row.kind == SHARE_TYPE else row.protocol_type, _state(row), row.kind)
        for row in sorted(rows, key=lambda row: row.group)
        if request.caller.allows(Operation.DESCRIBE, row.group, Resource.GROUP)
        and not row.group.startswith(PUSH_PREFIX)
        and (not states or _state(row).lower() in states)
        and (not kinds or row.kind.lower() in kinds)
    ]
    return Listed(groups=groups)


def _state(row: GroupRow) -> str:
    return row.phase or STATES.get(row.state, row.state)


async def delete_groups(request: KafkaRequest, context: KafkaContext) -> Message:
    """Deletes groups without members, and their positions."""
    results = []
    for name in request.message.groups_names:
        error = refusal_of_group(request, context, name, Operation.DELETE)
        if error is Error.NONE:
            try:
                async with audited(request, context, Operation.DELETE, name, Resource.GROUP):
                    await context.groups.coordinators.call(DELETE, None, name, name)
            except (EngineError, Problem) as failed:
                error = coordinator_error(failed)
        results.append(DeletedGroup(name, request.note(error)))
    return Deleted(results=results)
