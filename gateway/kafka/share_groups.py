"""Share groups over Kafka's protocol (KIP-932): their members, their descriptions, and where they are in each topic."""

from __future__ import annotations

from collections.abc import Iterable

from engine.errors import EngineError
from gateway.groups.group_lag import measure_lags
from gateway.groups.hosting import classic
from gateway.groups.hosting.calls import DESCRIBE, RESET
from gateway.groups.model.errors import UnknownGroup, WrongGroupKind
from gateway.groups.model.settings import SHARE
from gateway.groups.model.share_members import ShareAnswer, ShareBeat, ShareGroupView, ShareMemberView, Sizes
from gateway.groups.model.values import Client, ForgetCall, GroupView, OffsetView, Position, ResetCall
from gateway.http.problems import Problem
from gateway.http.rights import Operation, Resource
from gateway.kafka.audit import audited
from gateway.kafka.cluster import find_topic, id_bytes
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.consumer_groups import TOPICS_MAX, error_of_member, is_member_id, refusal_of_topics
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error
from gateway.kafka.groups import NAME_CHARS_MAX, STATES, coordinator_error, host_of, refusal_of_group
from gateway.kafka.requests import KafkaRequest

JOIN, LEAVE = 0, -1
ASSIGNOR = "simple"  # Kafka's name of the only one
UNKNOWN = -1

Beaten, Assignment, AssignedTopic = (
    types_of("ShareGroupHeartbeat")[path] for path in ("", "assignment", "assignment.topic_partitions")
)
Described, DescribedGroup, DescribedMember, MemberAssignment, MemberTopic = (
    types_of("ShareGroupDescribe")[path]
    for path in ("", "groups", "groups.members", "groups.members.assignment",
                 "groups.members.assignment.topic_partitions")
)  # fmt: skip
Offsets, OffsetsGroup, OffsetsTopic, OffsetsRow = (
    types_of("DescribeShareGroupOffsets")[path] for path in ("", "groups", "groups.topics", "groups.topics.partitions")
)
Altered, AlteredTopic, AlteredRow = (
    types_of("AlterShareGroupOffsets")[path] for path in ("", "responses", "responses.partitions")
)
Forgotten, ForgottenTopic = (types_of("DeleteShareGroupOffsets")[path] for path in ("", "responses"))


async def share_group_heartbeat(request: KafkaRequest, context: KafkaContext) -> Message:
    """Joins a share group, keeps a member in it, or leaves it."""
    message = request.message
    refused, text = refusal_of_group(request, context, message.group_id), _mistake(request)
    if refused is Error.NONE and text:
        refused = Error.INVALID_REQUEST
    if refused is Error.NONE:
        refused = refusal_of_topics(request, message.subscribed_topic_names or ())
    if refused is not Error.NONE:
        return Beaten(error_code=request.note(refused), error_message=text or None, member_id=message.member_id)
    names = message.subscribed_topic_names
    call = ShareBeat(
        message.group_id,
        message.member_id,
        message.member_epoch,
        None if names is None else tuple(names),
        Client(request.client.client_id, request.client.host, message.rack_id or ""),
    )
    try:
        answer = await context.groups.coordinators.call(
            classic.SHARE_HEARTBEAT, ShareAnswer, call.group, call, creates=call.member_epoch == JOIN
        )
    except (EngineError, Problem) as error:
        if call.member_epoch == LEAVE and error.code == UnknownGroup.code:
            return Beaten(member_id=message.member_id, member_epoch=LEAVE)
        refused = error_of_member(error)
        text = error.detail if refused is Error.GROUP_ID_NOT_FOUND else ""
        return Beaten(error_code=request.note(refused), error_message=text or None, member_id=message.member_id)
    assignment = None
    if answer.assigned is not None:
        rows = [AssignedTopic(id_bytes(topic_id), list(range(count))) for _, topic_id, count in answer.assigned]
        assignment = Assignment(rows)
    return Beaten(
        member_id=message.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_ms,
        assignment=assignment,
    )


def _mistake(request: KafkaRequest) -> str:
    """Returns what is wrong in a heartbeat; nothing if it is well-formed."""
    message = request.message
    if message.member_epoch < LEAVE:
        return f"there is no member epoch {message.member_epoch}"
    if not is_member_id(message.member_id):
        return "the member id is empty, too long, or not printable"
    if message.rack_id is not None and not 0 < len(message.rack_id) <= NAME_CHARS_MAX:
        return f"the rack id is empty, or longer than {NAME_CHARS_MAX} characters"
    names = message.subscribed_topic_names
    if names is not None and len(names) > TOPICS_MAX:
        return f"a member reads {TOPICS_MAX} topics at most"
    return "a member that joins gives topics" if message.member_epoch == JOIN and not names else ""


async def share_group_describe(request: KafkaRequest, context: KafkaContext) -> Message:
    """Describes share groups."""
    return Described(groups=[await _describe(request, context, name) for name in request.message.group_ids])


async def _describe(request: KafkaRequest, context: KafkaContext, name: str) -> Message:
    refused = refusal_of_group(request, context, name, Operation.DESCRIBE)
    if refused is not Error.NONE:
        return DescribedGroup(error_code=request.note(refused), group_id=name)
    try:
        view = await context.groups.coordinators.call(classic.SHARE_DESCRIBE, ShareGroupView, name, name)
    except (EngineError, Problem) as error:
        code, text = request.note(_error_of_group(error)), error.detail
        return DescribedGroup(error_code=code, error_message=text, group_id=name)
    return DescribedGroup(
        group_id=name,
        group_state=STATES[view.state],
        group_epoch=view.epoch,
        assignment_epoch=view.epoch,
        assignor_name=ASSIGNOR,
        members=[_describe_member(request, member) for member in view.members],
    )


def _describe_member(request: KafkaRequest, member: ShareMemberView) -> Message:
    return DescribedMember(
        member_id=member.member_id,
        rack_id=member.rack or None,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=host_of(member.client_address),
        subscribed_topic_names=[name for name in member.topics if request.caller.allows(Operation.DESCRIBE, name)],
        assignment=MemberAssignment(_topics(request, member.assigned)),
    )


def _topics(request: KafkaRequest, assigned: Sizes) -> list[Message]:
    return [
        MemberTopic(id_bytes(topic_id), name, list(range(count)))
        for name, topic_id, count in assigned
        if request.caller.allows(Operation.DESCRIBE, name)
    ]


def _error_of_group(error: EngineError | Problem) -> Error:
    is_other = error.code in (UnknownGroup.code, WrongGroupKind.code)
    return Error.GROUP_ID_NOT_FOUND if is_other else coordinator_error(error)


async def describe_share_group_offsets(request: KafkaRequest, context: KafkaContext) -> Message:
    """Answers where share groups are, and how many records are not finished."""
    return Offsets(groups=[await _offsets(request, context, one) for one in request.message.groups])


async def _offsets(request: KafkaRequest, context: KafkaContext, asked: Message) -> Message:
    error, text = refusal_of_group(request, context, asked.group_id, Operation.DESCRIBE), None
    found: dict[tuple[str, int], OffsetView] = {}
    done: dict[tuple[str, int], int] = {}
    if error is Error.NONE:
        try:
            view = await context.groups.coordinators.call(DESCRIBE, GroupView, asked.group_id, asked.group_id)
            if view.config.get("kind") != SHARE:
                error, text = Error.GROUP_ID_NOT_FOUND, f"group {asked.group_id!r} is not a share group"
            else:
                found = {(one.topic, one.partition): one for one in view.offsets if _is_present(context, one)}
                done = {(one.topic, one.partition): one.done for one in view.shares}
        except (EngineError, Problem) as failed:
            error, text = _error_of_group(failed), failed.detail
    if error is not Error.NONE:
        return OffsetsGroup(asked.group_id, [], request.note(error), text)
    if asked.topics is None:
        named: dict[str, list[int]] = {}
        for name, number in sorted(found):
            if request.caller.allows(Operation.DESCRIBE, name):
                named.setdefault(name, []).append(number)
    else:
        named = {one.topic_name: list(one.partitions) for one in asked.topics}
    known = [one for slot, one in found.items() if slot[0] in named]
    lags = await measure_lags(context.router, [(one.topic, one.partition, one.offset or 0) for one in known])
    lag_of = {
        (one.topic, one.partition): max(0, lag.records - done.get((one.topic, one.partition), 0))
        for one, lag in zip(known, lags, strict=True)
        if lag is not None
    }
    topics = [_offsets_topic(request, context, name, numbers, found, lag_of) for name, numbers in named.items()]
    return OffsetsGroup(asked.group_id, topics)


def _offsets_topic(
    request: KafkaRequest,
    context: KafkaContext,
    name: str,
    numbers: Iterable[int],
    found: dict[tuple[str, int], OffsetView],
    lags: dict[tuple[str, int], int],
) -> Message:
    topic = find_topic(context, name)
    error = Error.NONE
    if not request.caller.allows(Operation.DESCRIBE, name):
        error, topic = Error.TOPIC_AUTHORIZATION_FAILED, None
    rows = []
    for number in numbers:
        one = None if error else found.get((name, number))
        start = UNKNOWN if one is None or one.offset is None else one.offset
        rows.append(OffsetsRow(number, start, 0, lags.get((name, number), UNKNOWN), request.note(error)))
    return OffsetsTopic(name, bytes(16) if topic is None else id_bytes(topic.record.topic_id), rows)


def _is_present(context: KafkaContext, view: OffsetView) -> bool:
    topic = find_topic(context, view.topic)
    return topic is not None and topic.record.topic_id == view.topic_id


async def alter_share_group_offsets(request: KafkaRequest, context: KafkaContext) -> Message:
    """Sets where a share group without members begins."""
    message = request.message
    refused = refusal_of_group(request, context, message.group_id, Operation.ALTER)
    if refused is not Error.NONE:
        return Altered(error_code=request.note(refused))
    positions: list[Position] = []
    topics: list[Message] = []
    for of_topic in message.topics:
        topic, rows = find_topic(context, of_topic.topic_name), []
        for one in of_topic.partitions:
            error = Error.NONE
            if not request.caller.allows(Operation.READ, of_topic.topic_name):
                error = Error.TOPIC_AUTHORIZATION_FAILED
            elif topic is None or not 0 <= one.partition_index < topic.record.partitions:
                error = Error.UNKNOWN_TOPIC_OR_PARTITION
            elif one.start_offset < 0:
                error = Error.INVALID_REQUEST
            else:
                name, topic_id = topic.record.name, topic.record.topic_id
                positions.append(Position(name, topic_id, one.partition_index, one.start_offset))
            rows.append(AlteredRow(one.partition_index, request.note(error)))
        topic_id_bytes = bytes(16) if topic is None else id_bytes(topic.record.topic_id)
        topics.append(AlteredTopic(of_topic.topic_name, topic_id_bytes, rows))
    text = None
    if positions:
        call = ResetCall(message.group_id, tuple(positions))
        try:
            view = await context.groups.coordinators.call(DESCRIBE, GroupView, message.group_id, message.group_id)
            if view.config.get("kind") != SHARE:
                return Altered(error_code=request.note(Error.GROUP_ID_NOT_FOUND))
            async with audited(request, context, Operation.ALTER, message.group_id, Resource.GROUP):
                await context.groups.coordinators.call(RESET, None, message.group_id, call)
        except (EngineError, Problem) as failed:
            refused, text = _error_of_group(failed), failed.detail
    return Altered(error_code=request.note(refused), error_message=text, responses=topics)


async def delete_share_group_offsets(request: KafkaRequest, context: KafkaContext) -> Message:
    """Forgets where a share group without members is in topics: it begins there again as its setting says."""
    message = request.message
    refused = refusal_of_group(request, context, message.group_id, Operation.DELETE)
    topics: list[Message] = []
    for one in message.topics if refused is Error.NONE else ():
        name, error, text = one.topic_name, Error.NONE, None
        topic = find_topic(context, name)
        if not request.caller.allows(Operation.READ, name):
            error = Error.TOPIC_AUTHORIZATION_FAILED
        else:
            try:
                async with audited(request, context, Operation.DELETE, message.group_id, Resource.GROUP):
                    call = ForgetCall(message.group_id, name)
                    if not await context.groups.coordinators.call(classic.SHARE_FORGET, bool, message.group_id, call):
                        error = Error.UNKNOWN_TOPIC_OR_PARTITION
            except (EngineError, Problem) as failed:
                error, text = _error_of_group(failed), failed.detail
                if error in (Error.GROUP_ID_NOT_FOUND, Error.NON_EMPTY_GROUP):
                    return Forgotten(error_code=request.note(error), error_message=text)
        topic_id = bytes(16) if topic is None else id_bytes(topic.record.topic_id)
        topics.append(ForgottenTopic(name, topic_id, request.note(error), text))
    return Forgotten(error_code=request.note(refused), responses=topics)
