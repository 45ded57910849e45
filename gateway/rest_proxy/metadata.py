"""Brokers, topics, partitions and offsets of v2."""

from __future__ import annotations

from typing import Any

import orjson

from engine.format.paths import INTERNAL_TOPICS
from engine.shard.served_topics import Topic
from gateway.groups.group_lag import find_bounds
from gateway.http.problems import Problem
from gateway.http.query import path_partition
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.rights import Operation
from gateway.kafka.cluster import leadership
from gateway.kafka.topic_configs import CONFIGS
from gateway.produce.partitioner import unknown_partition
from gateway.rest_proxy.context import RestProxyContext
from gateway.rest_proxy.media_types import answer_type


def document_response(request: Request, document: Any, status: int = 200) -> Response:
    """Returns a document of v2, with the names that the tenant of the request says. Raises Problem not_acceptable."""
    media_type = answer_type(request.headers.get("Accept", ""))
    shown = document if request.space is None else request.space.shown(document)
    return Response(orjson.dumps(shown), {"Content-Type": media_type}, status)


def rest_root(request: Request, context: RestProxyContext) -> Response:
    """GET /"""
    return document_response(request, {})


def rest_list_brokers(request: Request, context: RestProxyContext) -> Response:
    """GET /brokers"""
    return document_response(request, {"brokers": node_ids(context)})


def rest_list_topics(request: Request, context: RestProxyContext) -> Response:
    """GET /topics"""
    return document_response(request, [topic.record.name for topic in visible_topics(request, context)])


def rest_describe_topic(request: Request, context: RestProxyContext) -> Response:
    """GET /topics/{topic}. Raises UnknownTopic."""
    topic = context.topics.topic(request.names["topic"])
    configs = {name: config.shown(topic.settings) for name, config in CONFIGS.items()}
    rows = [_partition_row(context, topic, number) for number in range(topic.record.partitions)]
    return document_response(request, {"name": topic.record.name, "configs": configs, "partitions": rows})


def rest_list_partitions(request: Request, context: RestProxyContext) -> Response:
    """GET /topics/{topic}/partitions. Raises UnknownTopic."""
    topic = context.topics.topic(request.names["topic"])
    rows = [_partition_row(context, topic, number) for number in range(topic.record.partitions)]
    return document_response(request, rows)


def rest_describe_partition(request: Request, context: RestProxyContext) -> Response:
    """GET /topics/{topic}/partitions/{partition}. Raises UnknownTopic, Problem unknown_partition."""
    topic, number = topic_partition(request, context)
    return document_response(request, _partition_row(context, topic, number))


async def rest_find_offsets(request: Request, context: RestProxyContext) -> Response:
    """GET /topics/{topic}/partitions/{partition}/offsets. Raises UnknownTopic, Problem."""
    topic, number = topic_partition(request, context)
    [bounds] = await find_bounds(context.fetch.router, [(topic.record.name, number)])
    document = {"beginning_offset": bounds["log_start"], "end_offset": bounds["high_watermark"]}
    return document_response(request, document)


def visible_topics(request: Request, context: RestProxyContext) -> list[Topic]:
    """Returns the topics that the caller may read, by name."""
    prefix = "" if request.space is None else request.space.prefix
    topics = {topic.record.name: topic for topic in context.topics.all()}
    return [
        topic
        for name, topic in sorted(topics.items())
        if name.startswith(prefix) and name not in INTERNAL_TOPICS and request.caller.allows(Operation.READ, name)
    ]


def topic_partition(request: Request, context: RestProxyContext) -> tuple[Topic, int]:
    """Returns the topic and the partition in the path. Raises UnknownTopic, Problem unknown_partition."""
    topic = context.topics.topic(request.names["topic"])
    number = path_partition(request)
    check_partition(topic, number)
    return topic, number


def check_partition(topic: Topic, number: int) -> None:
    """Raises Problem unknown_partition."""
    if number >= topic.record.partitions:
        raise unknown_partition(topic.record.name, number, topic.record.partitions)


def node_ids(context: RestProxyContext) -> list[int]:
    """Returns the live nodes, with this one."""
    return sorted({context.peers.node_id, *context.peers.cluster.nodes})


def _partition_row(context: RestProxyContext, topic: Topic, number: int) -> dict[str, Any]:
    placed = leadership(context, topic, number)
    replicas = [
        {"broker": node_id, "leader": node_id == placed.leader, "in_sync": node_id in placed.in_sync}
        for node_id in placed.replicas
    ]
    return {"partition": number, "leader": placed.leader, "replicas": replicas}


def missing(text: str) -> Problem:
    """Returns the problem of a path that names nothing."""
    return Problem("not_found", text)
