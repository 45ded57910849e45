"""ApiVersions, Metadata, DescribeCluster and FindCoordinator: which APIs there are, and who answers what."""

from __future__ import annotations

import logging
import re
from collections.abc import Coroutine, Mapping
from typing import Any
from zlib import crc32

from engine.errors import EngineError
from engine.format.paths import GROUPS_TOPIC, is_topic_name
from engine.shard.served_topics import Topic
from gateway.http.problems import Problem
from gateway.http.rights import Operation, Resource
from gateway.kafka.cluster import (
    NO_ID,
    Broker,
    brokers,
    find_topic,
    find_topic_by_id,
    id_bytes,
    leadership,
    visible_topics,
)
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.codec.tables import TABLES
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error, error_of
from gateway.kafka.requests import API_VERSIONS, Api, KafkaRequest
from gateway.kafka.transactions import NO_TRANSACTIONS

log = logging.getLogger("penstock.kafka")

_WORD = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
BROKERS, CONTROLLERS = 1, 2  # types of endpoints
GROUP, TRANSACTION = 0, 1  # types of keys of coordinators
IDS_VERSION = 12  # of Metadata: before it an answer cannot leave out the name
PARTITIONS_MAX = 2000  # of one answer of DescribeTopicPartitions

ApiVersions = types_of(API_VERSIONS)[""]
ApiVersion = types_of(API_VERSIONS)["api_keys"]
Metadata, MetadataBroker, MetadataTopic, MetadataPartition = (
    types_of("Metadata")[path] for path in ("", "brokers", "topics", "topics.partitions")
)
Detailed, DetailedTopic, DetailedPartition, Cursor = (
    types_of("DescribeTopicPartitions")[path] for path in ("", "topics", "topics.partitions", "next_cursor")
)
Cluster, ClusterBroker = (types_of("DescribeCluster")[path] for path in ("", "brokers"))
Coordinator, CoordinatorRow = (types_of("FindCoordinator")[path] for path in ("", "coordinators"))


def api_versions(request: KafkaRequest, apis: Mapping[int, Api]) -> Message:
    """Answers which APIs and versions there are."""
    message, client = request.message, request.client
    if request.version >= TABLES[API_VERSIONS].flexible:
        name, version = message.client_software_name, message.client_software_version
        if not (_WORD.fullmatch(name) and _WORD.fullmatch(version)):
            return ApiVersions(request.note(Error.INVALID_REQUEST))
        client.software = f"{name} {version}"
    return ApiVersions(0, [ApiVersion(api.key, api.first, api.last) for api in apis.values()])


async def metadata(request: KafkaRequest, context: KafkaContext) -> Message:
    """Answers which topics there are, and who leads their partitions."""
    requested = request.message.topics
    topics: list[Message] = []
    if requested is None or (request.version == 0 and not requested):
        topics = [_topic(request, context, topic) for topic in visible_topics(request, context)]
    else:
        for one in requested:
            if one.name is None and request.version < IDS_VERSION:
                topics.append(MetadataTopic(request.note(Error.INVALID_REQUEST), "", one.topic_id))
            elif one.name is None:
                topics.append(_topic_by_id(request, context, one.topic_id))
            else:
                topics.append(await _topic_by_name(request, context, one.name))
    return Metadata(
        brokers=[MetadataBroker(*broker) for broker in brokers(context)],
        cluster_id=context.admin.cluster_id,
        controller_id=context.peers.node_id,  # any node takes admin requests
        topics=topics,
    )


async def _topic_by_name(request: KafkaRequest, context: KafkaContext, name: str) -> Message:
    if not is_topic_name(name):
        return MetadataTopic(error_code=request.note(Error.INVALID_TOPIC), name=name)
    if not request.caller.allows(Operation.DESCRIBE, name):
        return MetadataTopic(error_code=request.note(Error.TOPIC_AUTHORIZATION_FAILED), name=name)
    if find_topic(context, name) is None:
        try:
            await context.topics.refresh(name)
            if find_topic(context, name) is None and _may_create(request, context):
                await context.topics.get_or_create(name, request.caller)
                # Another process may not have it yet: the client asks again.
                return MetadataTopic(error_code=request.note(Error.LEADER_NOT_AVAILABLE), name=name)
        except (Problem, EngineError) as error:
            return MetadataTopic(error_code=request.note(error_of(error)), name=name)
    topic = find_topic(context, name)
    if topic is None:
        return MetadataTopic(error_code=request.note(Error.UNKNOWN_TOPIC_OR_PARTITION), name=name)
    return _topic(request, context, topic)


def _may_create(request: KafkaRequest, context: KafkaContext) -> bool:
    return context.settings.auto_create_topics and (request.version < 4 or request.message.allow_auto_topic_creation)


def _topic_by_id(request: KafkaRequest, context: KafkaContext, topic_id: bytes) -> Message:
    topic = find_topic_by_id(context, topic_id)
    if topic is None:
        return MetadataTopic(error_code=request.note(Error.UNKNOWN_TOPIC_ID), name=None, topic_id=topic_id)
    if not request.caller.allows(Operation.DESCRIBE, topic.record.name):
        return MetadataTopic(error_code=request.note(Error.UNKNOWN_TOPIC_ID), name=None, topic_id=topic_id)
    return _topic(request, context, topic)


def _topic(request: KafkaRequest, context: KafkaContext, topic: Topic) -> Message:
    record = topic.record
    partitions = [_partition(context, topic, number) for number in range(record.partitions)]
    return MetadataTopic(0, record.name, id_bytes(record.topic_id), False, partitions)


def _partition(context: KafkaContext, topic: Topic, number: int) -> Message:
    leader, epoch, replicas, in_sync, offline = leadership(context, topic, number)
    error = Error.LEADER_NOT_AVAILABLE if leader < 0 else Error.NONE
    return MetadataPartition(error, number, leader, epoch, replicas, in_sync, offline)


def describe_topic_partitions(request: KafkaRequest, context: KafkaContext) -> Message:
    """Describes partitions in pieces: a cursor says where the next answer begins. Names are in their order."""
    message = request.message
    names = sorted({one.name for one in message.topics})
    if not names:
        names = [topic.record.name for topic in visible_topics(request, context)]
    first, begin = ("", 0) if message.cursor is None else (message.cursor.topic_name, message.cursor.partition_index)
    left = min(max(message.response_partition_limit, 1), PARTITIONS_MAX)
    topics: list[Message] = []
    for name in names:
        if name < first:
            continue
        if left == 0:
            return Detailed(topics=topics, next_cursor=Cursor(name, 0))
        row, behind = _describe_topic(request, context, name, begin if name == first else 0, left)
        topics.append(row)
        left -= len(row.partitions)
        if behind is not None:
            return Detailed(topics=topics, next_cursor=Cursor(name, behind))
    return Detailed(topics=topics)


def _describe_topic(
    request: KafkaRequest, context: KafkaContext, name: str, begin: int, most: int
) -> tuple[Message, int | None]:
    """Returns a topic with at most so many of its partitions, and the number of the next one."""
    topic, error = find_topic(context, name), Error.NONE
    if not request.caller.allows(Operation.DESCRIBE, name):
        error = Error.TOPIC_AUTHORIZATION_FAILED
    elif not is_topic_name(name):
        error = Error.INVALID_TOPIC
    elif topic is None:
        error = Error.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None or error is not Error.NONE:
        return DetailedTopic(request.note(error), name, NO_ID, partitions=[]), None
    count = topic.record.partitions
    numbers = range(min(max(begin, 0), count), min(max(begin, 0) + most, count))
    rows = [_describe_partition(context, topic, number) for number in numbers]
    behind = numbers.stop if numbers.stop < count else None
    return DetailedTopic(0, name, id_bytes(topic.record.topic_id), False, rows), behind


def _describe_partition(context: KafkaContext, topic: Topic, number: int) -> Message:
    leader, epoch, replicas, in_sync, offline = leadership(context, topic, number)
    versioned = context.peers.cluster.states.get((topic.record.topic_id, number))
    eligible = [] if versioned is None else [member.node_id for member in versioned.state.eligible]
    error = Error.LEADER_NOT_AVAILABLE if leader < 0 else Error.NONE
    return DetailedPartition(error, number, leader, epoch, replicas, in_sync, eligible, [], offline)


def describe_cluster(request: KafkaRequest, context: KafkaContext) -> Message:
    """Answers which brokers there are."""
    kind = request.message.endpoint_type if request.version else BROKERS
    if kind != BROKERS:
        text = "this cluster has no controllers apart from its brokers"
        return Cluster(error_code=request.note(Error.UNSUPPORTED_ENDPOINT_TYPE), error_message=text)
    return Cluster(
        cluster_id=context.admin.cluster_id,
        controller_id=context.peers.node_id,
        brokers=[ClusterBroker(*broker) for broker in brokers(context)],
    )


def find_coordinator(request: KafkaRequest, context: KafkaContext) -> Message | Coroutine[Any, Any, Message]:
    """Answers which broker takes the calls of a group."""
    message = request.message
    keys = message.coordinator_keys if request.version >= 4 else [message.key]
    kind = message.key_type if request.version else GROUP
    rows = [_coordinator(request, context, kind, key) for key in keys]
    if request.version >= 4:
        return Coordinator(coordinators=rows)
    row = rows[0]
    return Coordinator(
        error_code=row.error_code, error_message=row.error_message, node_id=row.node_id, host=row.host, port=row.port
    )


def _coordinator(request: KafkaRequest, context: KafkaContext, kind: int, key: str) -> Message:
    error, text = Error.NONE, ""
    if kind == TRANSACTION:
        # The one code at which every client gives up at once; after others it asks for minutes.
        error, text = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS
        log.warning(
            "a client asks for transactions",
            extra={"client": request.client.address, "client_id": request.client.client_id, "hint": NO_TRANSACTIONS},
        )
    elif kind != GROUP:
        error, text = Error.INVALID_REQUEST, f"there is no coordinator for keys of type {kind}"
    elif not key:
        error, text = Error.INVALID_GROUP_ID, "the group id is empty"
    elif not request.caller.allows(Operation.READ, key, Resource.GROUP):
        error, text = Error.GROUP_AUTHORIZATION_FAILED, f"{request.caller.principal} may not read the group"
    if error is not Error.NONE:
        return CoordinatorRow(key, -1, "", -1, request.note(error), text)
    node_id, host, port, _ = _broker_of_group(context, key)
    return CoordinatorRow(key, node_id, host, port, 0, None)


def _broker_of_group(context: KafkaContext, group: str) -> Broker:
    """Returns the broker whose node leads the partition of the group; this one while that is not known.

    Any process takes the calls of any group, and passes them on.
    """
    own, *others = brokers(context)
    topic = context.topics.get(GROUPS_TOPIC)
    if topic is not None:
        leader = leadership(context, topic, crc32(group.encode()) % topic.record.partitions).leader
        return next((broker for broker in others if broker.node_id == leader), own)
    return own
