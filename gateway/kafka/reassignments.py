"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments: the operations of `penstock cluster`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from engine.errors import EngineError, InvalidConfig
from gateway.admin.operation_calls import CancelReassignment, ElectPreferred, Reassign
from gateway.http.problems import Problem
from gateway.http.rights import Operation, Resource
from gateway.kafka.audit import audited
from gateway.kafka.cluster import find_topic, leadership, visible_topics
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error, error_of
from gateway.kafka.requests import KafkaRequest

PREFERRED, UNCLEAN = 0, 1  # types of elections
_NO_NAME = ""

Altered, AlteredTopic, AlteredRow = (
    types_of("AlterPartitionReassignments")[path] for path in ("", "responses", "responses.partitions")
)
Listed, ListedTopic, ListedRow = (
    types_of("ListPartitionReassignments")[path] for path in ("", "topics", "topics.partitions")
)
Elected, ElectedTopic, ElectedRow = (
    types_of("ElectLeaders")[path]
    for path in ("", "replica_election_results", "replica_election_results.partition_result")
)
Outcome = tuple[Error, str | None]


async def alter_partition_reassignments(request: KafkaRequest, context: KafkaContext) -> Message:
    """Moves replicas to other nodes, each partition by itself; null ends a move."""
    if (refused := _refusal(request, Operation.OPERATE)) is not Error.NONE:
        return Altered(error_code=request.note(refused))
    topics = []
    for of_topic in request.message.topics:
        rows = []
        for one in of_topic.partitions:
            try:
                error, text = await _reassign(request, context, of_topic.name, one)
            except (EngineError, Problem) as failed:
                error, text = error_of(failed), failed.detail
                if isinstance(failed, InvalidConfig):
                    error = Error.INVALID_REPLICA_ASSIGNMENT
            rows.append(AlteredRow(one.partition_index, request.note(error), text))
        topics.append(AlteredTopic(of_topic.name, rows))
    return Altered(responses=topics)


async def _reassign(request: KafkaRequest, context: KafkaContext, name: str, one: Message) -> Outcome:
    number, replicas = one.partition_index, one.replicas
    topic = find_topic(context, name)
    if topic is None or not 0 <= number < topic.record.partitions:
        return Error.UNKNOWN_TOPIC_OR_PARTITION, None
    versioned = context.peers.cluster.states.get((topic.record.topic_id, number))
    if replicas is None and (versioned is None or not (versioned.state.adding or versioned.state.removing)):
        return Error.NO_REASSIGNMENT_IN_PROGRESS, None
    if replicas is not None and not (replicas and len(set(replicas)) == len(replicas) and min(replicas) > 0):
        return Error.INVALID_REPLICA_ASSIGNMENT, "name each node once, by its id"
    context.lifecycle.check_accepting()
    before = {number: leadership(context, topic, number).replicas}
    after = None if replicas is None else {number: list(replicas)}
    async with audited(request, context, Operation.OPERATE, _NO_NAME, Resource.CLUSTER, before=before, after=after):
        if replicas is None:
            await context.admin.operate(CancelReassignment(name, number))
        else:
            await context.admin.operate(Reassign(name, {number: list(replicas)}))
    return Error.NONE, None


def list_partition_reassignments(request: KafkaRequest, context: KafkaContext) -> Message:
    """Lists the partitions that are being moved."""
    if (refused := _refusal(request, Operation.DESCRIBE)) is not Error.NONE:
        return Listed(error_code=request.note(refused))
    named = request.message.topics
    requested = None if named is None else {one.name: set(one.partition_indexes) for one in named}
    topics = []
    for topic in visible_topics(request, context):
        name, rows = topic.record.name, []
        for number in range(topic.record.partitions):
            versioned = context.peers.cluster.states.get((topic.record.topic_id, number))
            if versioned is None or (requested is not None and number not in requested.get(name, ())):
                continue
            state = versioned.state
            if state.adding or state.removing:
                rows.append(ListedRow(number, list(state.replicas), list(state.adding), list(state.removing)))
        if rows:
            topics.append(ListedTopic(name, rows))
    return Listed(topics=topics)


async def elect_leaders(request: KafkaRequest, context: KafkaContext) -> Message:
    """Makes the first replica of partitions their leader. Without a list: of all that have another one."""
    if (refused := _refusal(request, Operation.OPERATE)) is not Error.NONE:
        return Elected(error_code=request.note(refused))
    message = request.message
    kind = message.election_type if request.version else PREFERRED
    if kind not in (PREFERRED, UNCLEAN):
        return Elected(error_code=request.note(Error.INVALID_REQUEST))
    topics = []
    for name, numbers in _elections(request, context):
        rows = []
        for number, (error, text) in (await _elect(request, context, name, numbers, kind)).items():
            if message.topic_partitions is not None or error is not Error.ELECTION_NOT_NEEDED:
                rows.append(ElectedRow(number, request.note(error), text))
        if rows:
            topics.append(ElectedTopic(name, rows))
    return Elected(replica_election_results=topics)


def _elections(request: KafkaRequest, context: KafkaContext) -> Iterator[tuple[str, Sequence[int]]]:
    named = request.message.topic_partitions
    if named is None:
        for topic in visible_topics(request, context):
            yield topic.record.name, range(topic.record.partitions)
        return
    for one in named:
        yield one.topic, one.partitions


async def _elect(
    request: KafkaRequest, context: KafkaContext, name: str, numbers: Sequence[int], kind: int
) -> dict[int, Outcome]:
    """Returns what became of each partition of a topic."""
    topic = find_topic(context, name)
    outcomes: dict[int, Outcome] = {}
    asked: list[int] = []
    for number in numbers:
        if topic is None or not 0 <= number < topic.record.partitions:
            outcomes[number] = (Error.UNKNOWN_TOPIC_OR_PARTITION, None)
            continue
        leader, _, replicas, *_ = leadership(context, topic, number)
        if leader >= 0 and (kind == UNCLEAN or leader == replicas[0]):
            outcomes[number] = (Error.ELECTION_NOT_NEEDED, "the partition has this leader already")
        elif kind == UNCLEAN:
            text = "allow it by the setting unclean.leader.election.enable of the topic"
            outcomes[number] = (Error.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)
        else:
            asked.append(number)
    if not asked:
        return outcomes
    try:
        context.lifecycle.check_accepting()
        after: Any = {"topic": name, "partitions": asked}
        async with audited(request, context, Operation.OPERATE, _NO_NAME, Resource.CLUSTER, after=after):
            elected = await context.admin.operate(ElectPreferred(name, asked)) or ()
    except (EngineError, Problem) as failed:
        return outcomes | dict.fromkeys(asked, (error_of(failed), failed.detail))
    text = "the first replica is not alive and in sync"
    refused = (Error.PREFERRED_LEADER_NOT_AVAILABLE, text)
    return outcomes | {number: (Error.NONE, None) if number in elected else refused for number in asked}


def _refusal(request: KafkaRequest, operation: Operation) -> Error:
    is_allowed = request.caller.allows(operation, _NO_NAME, Resource.CLUSTER)
    return Error.NONE if is_allowed else Error.CLUSTER_AUTHORIZATION_FAILED
