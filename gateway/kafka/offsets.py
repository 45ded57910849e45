"""Committed positions: OffsetCommit sets them in any direction, OffsetFetch reads them, OffsetDelete forgets them.

They are the positions of groups over HTTP too, in the same records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from engine.errors import EngineError
from gateway.groups.hosting import classic
from gateway.groups.hosting.calls import DESCRIBE as DESCRIBE_GROUP
from gateway.groups.hosting.calls import FORGET
from gateway.groups.model.classic import ClassicCommitCall, MemberCall
from gateway.groups.model.errors import UnknownGroup
from gateway.groups.model.values import ForgetCall, GroupView, OffsetView, Position
from gateway.http.problems import Problem
from gateway.http.rights import Operation, Resource
from gateway.kafka.audit import audited
from gateway.kafka.cluster import find_topic
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error
from gateway.kafka.groups import ERRORS, coordinator_error, refusal_of_group
from gateway.kafka.requests import KafkaRequest

METADATA_BYTES_MAX = 4096
GROUPS_VERSION = 8  # of OffsetFetch: from it on a request names several groups
TOP_ERROR_VERSION = 2
NONE = -1  # an offset or an epoch that is not there

Committed, CommittedTopic, CommittedRow = (
    types_of("OffsetCommit")[path] for path in ("", "topics", "topics.partitions")
)
Fetched, FetchedTopic, FetchedRow, FetchedGroup, GroupTopic, GroupRow = (
    types_of("OffsetFetch")[path]
    for path in ("", "topics", "topics.partitions", "groups", "groups.topics", "groups.topics.partitions")
)
Forgotten, ForgottenTopic, ForgottenRow = (
    types_of("OffsetDelete")[path] for path in ("", "topics", "topics.partitions")
)


async def offset_commit(request: KafkaRequest, context: KafkaContext) -> Message:
    """Commits positions, of a member or of a group without members."""
    message = request.message
    refused = refusal_of_group(request, context, message.group_id)
    errors: dict[tuple[str, int], Error] = {}
    positions: list[Position] = []
    for of_topic in message.topics:
        for one in of_topic.partitions:
            error = refused
            if error is Error.NONE:
                error = await _refusal_of_position(request, context, of_topic.name, one)
            errors[of_topic.name, one.partition_index] = error
            if error is Error.NONE:
                topic = context.topics.topic(of_topic.name)
                metadata, epoch = one.committed_metadata or "", one.committed_leader_epoch
                positions.append(
                    Position(
                        of_topic.name, topic.record.topic_id, one.partition_index, one.committed_offset, metadata, epoch
                    )
                )
    if positions:
        error = await _store(context, message, tuple(positions))
        errors |= {(one.topic, one.partition): error for one in positions}
    topics = [
        CommittedTopic(
            of_topic.name,
            [
                CommittedRow(one.partition_index, request.note(errors[of_topic.name, one.partition_index]))
                for one in of_topic.partitions
            ],
        )
        for of_topic in message.topics
    ]
    return Committed(topics=topics)


async def _refusal_of_position(request: KafkaRequest, context: KafkaContext, name: str, one: Message) -> Error:
    if not request.caller.allows(Operation.READ, name):
        return Error.TOPIC_AUTHORIZATION_FAILED
    if len((one.committed_metadata or "").encode()) > METADATA_BYTES_MAX:
        return Error.OFFSET_METADATA_TOO_LARGE
    if context.topics.lacks(name, one.partition_index + 1):
        try:
            await context.topics.refresh(name, one.partition_index + 1)
        except (EngineError, Problem) as error:
            return coordinator_error(error)
    topic = find_topic(context, name)
    if topic is None or not 0 <= one.partition_index < topic.record.partitions:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    return Error.NONE if one.committed_offset >= 0 else Error.INVALID_REQUEST


async def _store(context: KafkaContext, message: Message, positions: tuple[Position, ...]) -> Error:
    member = MemberCall(
        message.group_id, message.member_id, message.group_instance_id, message.generation_id_or_member_epoch
    )
    call = ClassicCommitCall(member, positions)
    try:
        return ERRORS[await context.groups.coordinators.call(classic.COMMIT, str, message.group_id, call, creates=True)]
    except (EngineError, Problem) as error:
        return coordinator_error(error)


async def offset_fetch(request: KafkaRequest, context: KafkaContext) -> Message:
    """Answers committed positions: of named partitions, or all of a group."""
    message = request.message
    if request.version >= GROUPS_VERSION:
        groups = []
        for one in message.groups:
            error, rows = await _positions(request, context, one.group_id, one.topics)
            topics = [GroupTopic(name, [GroupRow(*row) for row in of_topic]) for name, of_topic in rows]
            groups.append(FetchedGroup(one.group_id, topics, request.note(error)))
        return Fetched(groups=groups)
    error, rows = await _positions(request, context, message.group_id, message.topics)
    if request.version < TOP_ERROR_VERSION and error is not Error.NONE:
        named = message.topics or ()
        rows = [(one.name, [(number, NONE, NONE, "", error) for number in one.partition_indexes]) for one in named]
    topics = [FetchedTopic(name, [FetchedRow(*row) for row in of_topic]) for name, of_topic in rows]
    return Fetched(topics=topics, error_code=request.note(error))


_Row = tuple[int, int, int, str, Error]  # partition, offset, leader epoch, metadata, error


async def _positions(
    request: KafkaRequest, context: KafkaContext, group: str, topics: Sequence[Any] | None
) -> tuple[Error, list[tuple[str, list[_Row]]]]:
    """Returns the positions of a group, by topic. None for the topics: all that it has."""
    error = refusal_of_group(request, context, group, Operation.DESCRIBE)
    if error is not Error.NONE:
        return error, []
    found: Iterable[OffsetView] = ()
    try:
        view = await context.groups.coordinators.call(DESCRIBE_GROUP, GroupView, group, group)
        found = [one for one in view.offsets if one.offset is not None]
    except (EngineError, Problem) as failed:
        if failed.code != UnknownGroup.code:  # a group that is not there has no positions
            return coordinator_error(failed), []
    by_topic: dict[str, dict[int, OffsetView]] = {}
    for one in found:
        topic = find_topic(context, one.topic)
        if topic is not None and topic.record.topic_id == one.topic_id:
            by_topic.setdefault(one.topic, {})[one.partition] = one
    if topics is None:
        wanted = [(name, sorted(rows)) for name, rows in sorted(by_topic.items())]
        wanted = [(name, numbers) for name, numbers in wanted if request.caller.allows(Operation.DESCRIBE, name)]
    else:
        wanted = [(one.name, one.partition_indexes) for one in topics]
    return Error.NONE, [
        (name, [_row(request, name, number, by_topic.get(name, {}).get(number)) for number in numbers])
        for name, numbers in wanted
    ]


def _row(request: KafkaRequest, name: str, number: int, found: OffsetView | None) -> _Row:
    if not request.caller.allows(Operation.DESCRIBE, name):
        return number, NONE, NONE, "", request.note(Error.TOPIC_AUTHORIZATION_FAILED)
    if found is None or found.offset is None:
        return number, NONE, NONE, "", Error.NONE
    return number, found.offset, found.leader_epoch, found.metadata, Error.NONE


async def offset_delete(request: KafkaRequest, context: KafkaContext) -> Message:
    """Forgets positions of a group without members."""
    message = request.message
    error = refusal_of_group(request, context, message.group_id, Operation.DELETE)
    if error is not Error.NONE:
        return Forgotten(error_code=request.note(error))
    topics = []
    for of_topic in message.topics:
        rows = []
        for one in of_topic.partitions:
            call = ForgetCall(message.group_id, of_topic.name, one.partition_index)
            row = Error.NONE
            try:
                forgotten = {"topic": of_topic.name, "partition": one.partition_index}
                async with audited(
                    request, context, Operation.DELETE, message.group_id, Resource.GROUP, before=forgotten
                ):
                    await context.groups.coordinators.call(FORGET, None, message.group_id, call)
            except (EngineError, Problem) as failed:
                row = coordinator_error(failed)
                if row is Error.NON_EMPTY_GROUP:
                    row = Error.GROUP_SUBSCRIBED_TO_TOPIC
                elif row is Error.GROUP_ID_NOT_FOUND:
                    return Forgotten(error_code=request.note(row))
            rows.append(ForgottenRow(one.partition_index, request.note(row)))
        topics.append(ForgottenTopic(of_topic.name, rows))
    return Forgotten(topics=topics)
