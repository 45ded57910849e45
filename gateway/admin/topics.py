"""Topics over HTTP: create, describe, alter, delete, roll, and the status of the store."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from engine.errors import InvalidConfig
from engine.settings import rules
from engine.shard.served_topics import Topic
from engine.topic_settings import TopicSettings, check_applicable, topic_settings
from gateway.admin.altering import alter, shown_record
from gateway.admin.context import AdminContext
from gateway.admin.descriptions import describe_partitions
from gateway.admin.partition_calls import DELETE_BEFORE, ROLL, TIER_STATUS
from gateway.http.json_body import read_json
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, Number, path_partition, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.routing.leader_headers import may_be_led
from gateway.routing.partitions import check_not_internal

TOPIC_DEFAULTS = TopicSettings()
DESCRIBE_WAIT_MS = 500  # for a leader: longer than a move of leadership, shorter than a client's timeout


class _DeleteQuery(Struct, frozen=True):
    before: Annotated[int | None, Number(0, 2**63 - 1)] = None


class _Create(Struct, forbid_unknown_fields=True):
    partitions: int | UnsetType = UNSET
    replication_factor: int | UnsetType = UNSET
    config: dict[str, Any] = {}


class _Alter(Struct, forbid_unknown_fields=True):
    config: dict[str, Any] | UnsetType = UNSET
    unset: list[str] | UnsetType = UNSET
    partitions: int | UnsetType = UNSET
    replication_factor: Annotated[int, Meta(ge=1, le=16)] | UnsetType = UNSET


async def create_topic(request: Request, context: AdminContext) -> Response:
    """PUT /v1/topics/{topic}"""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    body = await read_json(request, _Create, _Create())
    partitions = context.settings.default_partitions if body.partitions is UNSET else body.partitions
    replicas = context.settings.default_replication_factor
    if body.replication_factor is not UNSET:
        replicas = body.replication_factor
    check_applicable(body.config, topic_settings(body.config))
    present = context.topics.get(request.names["topic"])
    made = {"partitions": partitions, "replication_factor": replicas, "config": body.config}
    await request.intend(before=None if present is None else shown_record(present.record), after=made)
    topic, is_new = await context.topics.create(request.names["topic"], partitions, replicas, body.config)
    return await _describe(request, context, topic, 201 if is_new else 200, context.settings.leader_wait_ms)


async def describe_topic(request: Request, context: AdminContext) -> Response:
    """GET /v1/topics/{topic}"""
    read_query(request, NoQuery)
    return await _describe(request, context, context.topics.topic(request.names["topic"]), 200, DESCRIBE_WAIT_MS)


async def alter_topic(request: Request, context: AdminContext) -> Response:
    """PATCH /v1/topics/{topic}. Raises Problem."""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    body = await read_json(request, _Alter)
    if all(given is UNSET for given in (body.config, body.unset, body.partitions, body.replication_factor)):
        raise Problem("invalid_body", "the body has no change: give config, unset, partitions or replication_factor")
    config = {} if body.config is UNSET else body.config
    config = config | _defaults_of([] if body.unset is UNSET else body.unset, config)
    partitions = None if body.partitions is UNSET else body.partitions
    replicas = None if body.replication_factor is UNSET else body.replication_factor
    topic = await alter(request, context, request.names["topic"], config, partitions, replicas)
    return await _describe(request, context, topic, 200, context.settings.leader_wait_ms)


def _defaults_of(names: list[str], config: dict[str, Any]) -> dict[str, Any]:
    """Returns the defaults of settings. Raises Problem invalid_body, InvalidConfig."""
    for name in names:
        if name in config:
            raise Problem("invalid_body", f"{name[:64]!r} is in config and in unset: name it once")
        if name not in TopicSettings.__slots__:
            raise InvalidConfig(f"there is no setting {name[:64]!r} of topics", setting=name[:64])
    return {name: getattr(TOPIC_DEFAULTS, name) for name in names}


async def delete_topic(request: Request, context: AdminContext) -> Response:
    """DELETE /v1/topics/{topic}. Raises TopicProtected."""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    name = request.names["topic"]
    check_not_internal(name)
    await request.intend(before=shown_record(context.topics.topic(name).record))
    await context.topics.delete(name)
    return Response(status=204)


async def roll_topic(request: Request, context: AdminContext) -> Response:
    """POST /v1/topics/{topic}/roll"""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()
    name = request.names["topic"]
    check_not_internal(name)
    topic = context.topics.topic(name)
    await request.intend()
    return json_response({"topic": name, "partitions": await context.router.call_all(ROLL, topic)})


async def delete_records(request: Request, context: AdminContext) -> Response:
    """DELETE /v1/topics/{topic}/partitions/{partition}/records. Raises Problem."""
    before = read_query(request, _DeleteQuery).before
    if before is None:
        raise Problem("invalid_query", "before is missing: the first offset to keep", parameter="before")
    context.lifecycle.check_accepting()
    topic, number = request.names["topic"], path_partition(request)
    check_not_internal(topic)
    context.partitions.topic_id(topic, number)
    await request.intend(after={"partition": number, "before": before})
    document, _ = await context.router.call(DELETE_BEFORE, topic, number, before)
    return json_response(document)


async def tier_status(request: Request, context: AdminContext) -> Response:
    """GET /v1/topics/{topic}/tier"""
    read_query(request, NoQuery)
    topic = context.topics.topic(request.names["topic"])
    partitions = await context.router.call_all(TIER_STATUS, topic)
    store = context.store_url if request.space is None else None  # the operator's bucket, with all tenants' records
    return json_response({"topic": topic.record.name, "store": store, "partitions": partitions})


async def _describe(request: Request, context: AdminContext, topic: Topic, status: int, budget_ms: int) -> Response:
    """Returns the description of a topic. In a cluster, waits `budget_ms` for leaders that are being elected."""
    settings, partitions = topic.settings, await describe_partitions(context, topic, budget_ms)
    if not may_be_led(request.connection):
        partitions = [{**row, "leader_url": None} for row in partitions]
    document = {
        "topic": topic.record.name,
        "topic_id": topic.record.topic_id,
        "replication_factor": topic.record.replication_factor,
        "config": {rule.name: getattr(settings, rule.name) for rule in rules(TopicSettings)},
        "partitions": partitions,
    }
    return json_response(document, status)
