"""Topics over HTTP: create, list, describe, alter, delete, roll, and how far the store has them."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType

from engine.settings import TopicSettings, rules
from engine.shard.served_topics import Topic
from gateway.access.access import caller_of
from gateway.access.tokens_file import Right
from gateway.admin.altering import alter
from gateway.http.json_body import read_json
from gateway.http.problems import Problem
from gateway.http.query import Number, path_partition, read_query
from gateway.node import NODE, Node
from gateway.routing.routing import at_owner, at_owners, described_rows

DESCRIBE_WAIT_MS = 500  # for a leader: longer than a move of leadership, shorter than who asks gets impatient
JSON_HEADERS = {"Content-Type": "application/json"}


class _Create(Struct, forbid_unknown_fields=True):
    partitions: int | UnsetType = UNSET
    replication_factor: int | UnsetType = UNSET
    config: dict[str, Any] = {}


class _Alter(Struct, forbid_unknown_fields=True):
    config: dict[str, Any] | UnsetType = UNSET
    partitions: int | UnsetType = UNSET
    replication_factor: Annotated[int, Meta(ge=1, le=16)] | UnsetType = UNSET


async def create_topic(request: web.Request) -> web.Response:
    """PUT /v1/topics/{topic}"""
    node = request.app[NODE]
    read_query(request, {})
    node.check_accepting()
    wish = await read_json(request, _Create, _Create())
    partitions = node.settings.default_partitions if wish.partitions is UNSET else wish.partitions
    replicas = node.settings.default_replication_factor
    if wish.replication_factor is not UNSET:
        replicas = wish.replication_factor
    topic, is_new = await node.create_topic(request.match_info["topic"], partitions, replicas, wish.config)
    return await _described(node, topic, 201 if is_new else 200, node.settings.leader_wait_ms)


async def list_topics(request: web.Request) -> web.Response:
    """GET /v1/topics"""
    node = request.app[NODE]
    read_query(request, {})
    caller = caller_of(request)
    topics = [
        {
            "topic": name,
            "topic_id": topic.record.topic_id,
            "partitions": topic.record.partitions,
            "replication_factor": topic.record.replication_factor,
        }
        for name, topic in sorted(node.shard.topics.items())
        if caller.allows(Right.READ, name)
    ]
    return answer({"topics": topics})


async def describe_topic(request: web.Request) -> web.Response:
    """GET /v1/topics/{topic}"""
    node = request.app[NODE]
    read_query(request, {})
    return await _described(node, node.shard.topic(request.match_info["topic"]), 200, DESCRIBE_WAIT_MS)


async def alter_topic(request: web.Request) -> web.Response:
    """PATCH /v1/topics/{topic}"""
    node = request.app[NODE]
    read_query(request, {})
    node.check_accepting()
    wish = await read_json(request, _Alter)
    if wish.config is UNSET and wish.partitions is UNSET and wish.replication_factor is UNSET:
        raise Problem("invalid_body", "the body names nothing to change: give config, partitions, replication_factor")
    config = {} if wish.config is UNSET else wish.config
    partitions = None if wish.partitions is UNSET else wish.partitions
    replicas = None if wish.replication_factor is UNSET else wish.replication_factor
    topic = await alter(node, request.match_info["topic"], config, partitions, replicas)
    return await _described(node, topic, 200, node.settings.leader_wait_ms)


async def delete_topic(request: web.Request) -> web.Response:
    """DELETE /v1/topics/{topic}"""
    node = request.app[NODE]
    read_query(request, {})
    node.check_accepting()
    await node.delete_topic(request.match_info["topic"])
    return web.Response(status=204)


async def roll_topic(request: web.Request) -> web.Response:
    """POST /v1/topics/{topic}/roll"""
    node = request.app[NODE]
    read_query(request, {})
    node.check_accepting()
    topic = node.shard.topic(request.match_info["topic"])
    return answer({"topic": topic.record.name, "partitions": await at_owners(node, "roll", topic)})


async def delete_records(request: web.Request) -> web.Response:
    """DELETE /v1/topics/{topic}/partitions/{partition}/records"""
    node = request.app[NODE]
    before = read_query(request, {"before": Number(None, 0, 2**63 - 1)})["before"]
    if before is None:
        raise Problem("invalid_query", "before is needed: the first offset that stays", parameter="before")
    node.check_accepting()
    topic, number = request.match_info["topic"], path_partition(request)
    document, _ = await at_owner(node, "delete_before", topic, number, before)
    return answer(document)


async def tier_status(request: web.Request) -> web.Response:
    """GET /v1/topics/{topic}/tier"""
    node = request.app[NODE]
    read_query(request, {})
    topic = node.shard.topic(request.match_info["topic"])
    partitions = await at_owners(node, "tier_status", topic)
    return answer({"topic": topic.record.name, "store": node.tier.store_url, "partitions": partitions})


def answer(document: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(document), headers=JSON_HEADERS)


async def _described(node: Node, topic: Topic, status: int, patience_ms: int) -> web.Response:
    """In a cluster, leaders that are just being elected are waited for so long."""
    settings = topic.settings
    document = {
        "topic": topic.record.name,
        "topic_id": topic.record.topic_id,
        "replication_factor": topic.record.replication_factor,
        "config": {rule.name: getattr(settings, rule.name) for rule in rules(TopicSettings)},
        "partitions": await described_rows(node, topic, patience_ms),
    }
    return answer(document, status)
