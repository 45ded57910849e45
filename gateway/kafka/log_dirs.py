"""DescribeLogDirs and AlterReplicaLogDirs: the directories of this node, their replicas, and moves between them.

Each process of the node has some of the replicas (gateway/admin/disks.py).
"""

from __future__ import annotations

from engine.errors import EngineError
from gateway.admin.disks import COPYING, DiskRow
from gateway.http.problems import Problem
from gateway.http.rights import Operation, Resource
from gateway.kafka.audit import audited
from gateway.kafka.cluster import visible_topics
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error, error_of
from gateway.kafka.requests import KafkaRequest

UNKNOWN_BYTES = -1

Described, DescribedDirectory, DescribedTopic, DescribedRow = (
    types_of("DescribeLogDirs")[path] for path in ("", "results", "results.topics", "results.topics.partitions")
)
Altered, AlteredTopic, AlteredRow = (
    types_of("AlterReplicaLogDirs")[path] for path in ("", "results", "results.partitions")
)


async def describe_log_dirs(request: KafkaRequest, context: KafkaContext) -> Message:
    """Describes the directories of this node, with the replicas of the topics that the request names; null: all."""
    if not request.caller.allows(Operation.DESCRIBE, "", Resource.CLUSTER):
        return Described(error_code=request.note(Error.CLUSTER_AUTHORIZATION_FAILED))
    named = request.message.topics
    requested = None if named is None else {one.topic: set(one.partitions) for one in named}
    visible = {topic.record.name for topic in visible_topics(request, context)}
    directories: dict[str, dict[str, list[Message]]] = {one: {} for one in context.settings.directories}
    try:
        node = await context.admin.disks.describe(context.settings.node_id)
    except EngineError as error:  # a process does not answer
        return Described(error_code=request.note(error_of(error)))
    rows = [(row.directory, row.topic, row.partition, row.size_bytes, False) for row in node.replicas]
    copied = [row for row in node.moves if row.state == COPYING]
    rows += [(row.target, row.topic, row.partition, row.size_bytes - row.left_bytes, True) for row in copied]
    for directory, topic, number, size_bytes, is_future in rows:
        if topic in visible and (requested is None or number in requested.get(topic, ())):
            of_topic = directories.setdefault(directory, {}).setdefault(topic, [])
            of_topic.append(DescribedRow(number, size_bytes, 0, is_future))
    rooms = {disk.path: disk for disk in node.disks}
    results = [
        _described(directory, [DescribedTopic(*of_topic) for of_topic in topics.items()], rooms.get(directory))
        for directory, topics in directories.items()
    ]
    return Described(results=results)


async def alter_replica_log_dirs(request: KafkaRequest, context: KafkaContext) -> Message:
    """Moves replicas to other directories of this node, each by itself; the present one ends a move."""
    is_allowed = request.caller.allows(Operation.OPERATE, "", Resource.CLUSTER)
    visible = {topic.record.name for topic in visible_topics(request, context)}
    topics: dict[str, list[Message]] = {}
    for directory in request.message.dirs:
        for of_topic in directory.topics:
            for number in of_topic.partitions:
                error = Error.CLUSTER_AUTHORIZATION_FAILED
                if is_allowed and of_topic.name in visible:
                    error = await _move(request, context, (of_topic.name, number, directory.path))
                elif is_allowed:
                    error = Error.UNKNOWN_TOPIC_OR_PARTITION
                row = AlteredRow(number, request.note(error))
                topics.setdefault(of_topic.name, []).append(row)
    return Altered(results=[AlteredTopic(*of_topic) for of_topic in topics.items()])


async def _move(request: KafkaRequest, context: KafkaContext, move: tuple[str, int, str]) -> Error:
    name, number, path = move
    if path not in context.settings.directories:
        return Error.LOG_DIR_NOT_FOUND
    after = {f"{name}/{number}": path}
    try:
        context.lifecycle.check_accepting()
        async with audited(request, context, Operation.OPERATE, "", Resource.CLUSTER, before=None, after=after):
            await context.admin.disks.move(context.settings.node_id, [move], is_dry_run=False)
    except (EngineError, Problem) as error:
        return error_of(error)
    return Error.NONE


def _described(path: str, topics: list[Message], disk: DiskRow | None) -> Message:
    """Returns a directory; one without a row is configured and not opened."""
    if disk is None or disk.reason:
        return DescribedDirectory(Error.KAFKA_STORAGE_ERROR, path, topics, UNKNOWN_BYTES, UNKNOWN_BYTES)
    room = (UNKNOWN_BYTES if size is None else size for size in (disk.capacity_bytes, disk.free_bytes))
    return DescribedDirectory(0, path, topics, *room)
