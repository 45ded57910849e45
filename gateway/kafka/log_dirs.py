"""DescribeLogDirs: the directories of this node, and the bytes that its replicas take in each.

Each process of the node has some of the replicas, and says where they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import NoneType
from typing import NamedTuple

from engine.errors import EngineError
from gateway.fetch.context import ReadContext
from gateway.http.rights import Operation, Resource
from gateway.kafka.cluster import visible_topics
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error
from gateway.kafka.requests import KafkaRequest
from gateway.links.link import Handler, handler

REPLICA_SIZES = "replica_sizes"
SIZES_S = 2.0  # for the answer of each process; replicas of a silent process are left out
LEVELS = 4  # of a partition's directory below that of the node: topics, name, id, number
UNKNOWN_BYTES = -1

Described, DescribedDirectory, DescribedTopic, DescribedRow = (
    types_of("DescribeLogDirs")[path] for path in ("", "results", "results.topics", "results.topics.partitions")
)


class ReplicaSize(NamedTuple):
    """The bytes of one replica, and the directory of the node that has it."""

    directory: str
    topic: str
    partition: int
    size_bytes: int


def replica_sizes(context: ReadContext) -> list[ReplicaSize]:
    """Returns the replicas of this process."""
    return [
        ReplicaSize(
            partition.log.directory.rsplit("/", LEVELS)[0], topic.record.name, number, partition.statistics().size_bytes
        )
        for topic in context.topics.all()
        for number, partition in topic.partitions.items()
    ]


def replica_size_handlers(context: ReadContext) -> Mapping[str, Handler]:
    """Returns the handler of another process's question."""

    async def sizes(_: None, __: bytes) -> tuple[list[ReplicaSize], bytes]:
        return replica_sizes(context), b""

    return {REPLICA_SIZES: handler(NoneType, sizes)}


async def describe_log_dirs(request: KafkaRequest, context: KafkaContext) -> Message:
    """Describes the directories of this node, with the replicas of the topics that the request names; null: all."""
    if not request.caller.allows(Operation.DESCRIBE, "", Resource.CLUSTER):
        return Described(error_code=request.note(Error.CLUSTER_AUTHORIZATION_FAILED))
    named = request.message.topics
    requested = None if named is None else {one.topic: set(one.partitions) for one in named}
    visible = {topic.record.name for topic in visible_topics(request, context)}
    directories: dict[str, dict[str, list[Message]]] = {one: {} for one in context.settings.directories}
    for directory, topic, number, size_bytes in await _all_sizes(context):
        if topic in visible and (requested is None or number in requested.get(topic, ())):
            rows = directories.setdefault(directory, {}).setdefault(topic, [])
            rows.append(DescribedRow(number, size_bytes, 0, False))
    results = [
        DescribedDirectory(0, directory, [DescribedTopic(*of_topic) for of_topic in topics.items()], *_UNKNOWN)
        for directory, topics in directories.items()
    ]
    return Described(results=results)


_UNKNOWN = (UNKNOWN_BYTES, UNKNOWN_BYTES)  # of the whole file system


async def _all_sizes(context: KafkaContext) -> list[ReplicaSize]:
    """Returns the replicas of all processes of this node that answer, each once."""
    calls = [link.call(REPLICA_SIZES, None, timeout_s=SIZES_S) for link in context.peers.links.links(of_this_node=True)]
    found = {row[1:3]: row for row in replica_sizes(context.fetch.reads)}
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, EngineError):
            continue
        if isinstance(outcome, BaseException):
            raise outcome
        found |= {(topic, number): ReplicaSize(*row) for row in outcome[0] for _, topic, number, _ in [row]}
    return [found[key] for key in sorted(found)]
