"""Committed positions: OffsetCommit sets them in any direction, OffsetFetch reads them, OffsetDelete forgets them.

They are the positions of groups over HTTP too, in the same records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import EngineError
from engine.shard.served_topics import Topic
from gateway.groups.hosting import classic
from gateway.groups.hosting.calls import DESCRIBE as DESCRIBE_GROUP
from gateway.groups.hosting.calls import FORGET
from gateway.groups.model.classic import ClassicCommitCall, MemberCall
from gateway.groups.model.errors import UnknownGroup
from gateway.groups.model.values import ForgetCall, GroupView, OffsetView, Position
from gateway.http.problems import Problem
from gateway.http.rights import Operation, Resource
from gateway.kafka.audit import audited
from gateway.kafka.cluster import NO_ID, find_topic, find_topic_by_key, id_bytes, may_know
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error
from gateway.kafka.groups import ERRORS, coordinator_error, refusal_of_group
from gateway.kafka.requests import KafkaRequest

METADATA_BYTES_MAX = 4096
GROUPS_VERSION = 8  # of OffsetFetch: from it on a request names several groups
TOP_ERROR_VERSION = 2
IDS_VERSION = 10  # of both: from it on topics are named by their ids
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
    rows: list[tuple[Message, list[Error]]] = []
    positions: list[Position] = []
    for of_topic in message.topics:
        errors = []
        for one in of_topic.partitions:
            error, topic = refused, None
            if error is Error.NONE:
                error, topic = await _find(request, context, _key(request, of_topic), one)
            errors.append(error)
            if topic is not None:
                metadata, epoch = one.committed_metadata or "", one.committed_leader_epoch
                name, topic_id = topic.record.name, topic.record.topic_id
                positions.append(Position(name, topic_id, one.partition_index, one.committed_offset, metadata, epoch))
        rows.append((of_topic, errors))
    stored = await _store(request, context, tuple(positions)) if positions else Error.NONE
    topics = [
        CommittedTopic(
            of_topic.name,
            of_topic.topic_id,
            [
                CommittedRow(one.partition_index, request.note(error or stored))
                for one, error in zip(of_topic.partitions, errors, strict=True)
            ],
        )
        for of_topic, errors in rows
    ]
    return Committed(topics=topics)


def _key(request: KafkaRequest, of_topic: Message) -> str | bytes:
    """Returns what a request names a topic by."""
    key: str | bytes = of_topic.topic_id if request.version >= IDS_VERSION else of_topic.name
    return key


async def _find(
    request: KafkaRequest, context: KafkaContext, key: str | bytes, one: Message
) -> tuple[Error, Topic | None]:
    """Returns the topic of a position, or why it is refused."""
    if isinstance(key, str):
        if not request.caller.allows(Operation.READ, key):
            return Error.TOPIC_AUTHORIZATION_FAILED, None
        if context.topics.lacks(key, one.partition_index + 1):
            try:
                await context.topics.refresh(key, one.partition_index + 1)
            except (EngineError, Problem) as error:
                return coordinator_error(error), None
    topic = find_topic_by_key(context, key)
    if topic is None or (isinstance(key, bytes) and not may_know(request, topic.record.name)):
        return Error.UNKNOWN_TOPIC_ID if isinstance(key, bytes) else Error.UNKNOWN_TOPIC_OR_PARTITION, None
    if not request.caller.allows(Operation.READ, topic.record.name):
        return Error.TOPIC_AUTHORIZATION_FAILED, None
    if not 0 <= one.partition_index < topic.record.partitions:
        return Error.UNKNOWN_TOPIC_OR_PARTITION, None
    if len((one.committed_metadata or "").encode()) > METADATA_BYTES_MAX:
        return Error.OFFSET_METADATA_TOO_LARGE, None
    return (Error.NONE, topic) if one.committed_offset >= 0 else (Error.INVALID_REQUEST, None)


async def _store(request: KafkaRequest, context: KafkaContext, positions: tuple[Position, ...]) -> Error:
    message = request.message
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
            error, rows = await _positions(request, context, one.group_id, one.topics, one.member_id, one.member_epoch)
            topics = [GroupTopic(name, topic_id, [GroupRow(*row) for row in found]) for name, topic_id, found in rows]
            groups.append(FetchedGroup(one.group_id, topics, request.note(error)))
        return Fetched(groups=groups)
    error, rows = await _positions(request, context, message.group_id, message.topics)
    if request.version < TOP_ERROR_VERSION and error is not Error.NONE:
        named = message.topics or ()
        rows = [(one.name, b"", [(number, NONE, NONE, "", error) for number in one.partition_indexes]) for one in named]
    topics = [FetchedTopic(name, [FetchedRow(*row) for row in found]) for name, _, found in rows]
    return Fetched(topics=topics, error_code=request.note(error))


_Row = tuple[int, int, int, str, Error]  # partition, offset, leader epoch, metadata, error
_OfTopic = tuple[str, bytes, list[_Row]]  # its name and its id


async def _positions(
    request: KafkaRequest,
    context: KafkaContext,
    group: str,
    topics: Sequence[Any] | None,
    member_id: str | None = None,
    member_epoch: int = NONE,
) -> tuple[Error, list[_OfTopic]]:
    """Returns the positions of a group, by topic. None for the topics: all that it has.

    A member that says its epoch is refused if it is not one of the group, or knows a later one.
    """
    error = refusal_of_group(request, context, group, Operation.DESCRIBE)
    if error is not Error.NONE:
        return error, []
    shown: GroupView | None = None
    try:
        shown = await context.groups.coordinators.call(DESCRIBE_GROUP, GroupView, group, group)
    except (EngineError, Problem) as failed:
        if failed.code != UnknownGroup.code:  # a group that is not there has no positions
            return coordinator_error(failed), []
    if member_id and member_epoch >= 0:
        epochs = {} if shown is None else {member.member_id: member.member_epoch for member in shown.members}
        if member_id not in epochs:
            return Error.UNKNOWN_MEMBER_ID, []
        if member_epoch > epochs[member_id]:
            return Error.STALE_MEMBER_EPOCH, []
    by_topic: dict[str, dict[int, OffsetView]] = {}
    for one in () if shown is None else shown.offsets:
        topic = find_topic(context, one.topic)
        if one.offset is not None and topic is not None and topic.record.topic_id == one.topic_id:
            by_topic.setdefault(one.topic, {})[one.partition] = one
    if topics is None:
        return Error.NONE, [
            _rows(request, context, name, sorted(rows), by_topic)
            for name, rows in sorted(by_topic.items())
            if request.caller.allows(Operation.DESCRIBE, name)
        ]
    named = [(_key(request, one), one.partition_indexes) for one in topics]
    return Error.NONE, [_rows(request, context, key, numbers, by_topic) for key, numbers in named]


def _rows(
    request: KafkaRequest,
    context: KafkaContext,
    key: str | bytes,
    numbers: Sequence[int],
    found: Mapping[str, Mapping[int, OffsetView]],
) -> _OfTopic:
    """Returns the positions of some partitions of a topic, which a request names by name or by id."""
    topic = find_topic_by_key(context, key)
    if topic is not None and isinstance(key, bytes) and not may_know(request, topic.record.name):
        topic = None
    name = topic.record.name if topic is not None else key if isinstance(key, str) else ""
    error = Error.NONE
    if topic is None and isinstance(key, bytes):
        error = Error.UNKNOWN_TOPIC_ID
    elif not request.caller.allows(Operation.DESCRIBE, name):
        error = Error.TOPIC_AUTHORIZATION_FAILED
    rows: list[_Row] = []
    for number in numbers:
        one = None if error else found.get(name, {}).get(number)
        if one is None or one.offset is None:
            rows.append((number, NONE, NONE, "", request.note(error)))
        else:
            rows.append((number, one.offset, one.leader_epoch, one.metadata, Error.NONE))
    topic_id = key if isinstance(key, bytes) else b"" if topic is None else id_bytes(topic.record.topic_id)
    return name, topic_id or NO_ID, rows


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
