"""Clusters, brokers, topics and partitions of v3."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any
from urllib.parse import urlsplit

import orjson
from msgspec import Meta, Struct

from engine.directory.topics import check_new_topic
from engine.shard.served_topics import Topic
from engine.topic_settings import check_applicable, topic_settings
from gateway.access.access import forbidden
from gateway.access.names import NAME
from gateway.http.json_body import read_json
from gateway.http.problems import Problem
from gateway.http.query import path_partition
from gateway.http.request import Request
from gateway.http.response import JSON_TYPE, Response
from gateway.http.rights import Operation
from gateway.kafka.cluster import leadership
from gateway.kafka.topic_configs import parse_configs
from gateway.rest_proxy.context import RestProxyContext
from gateway.rest_proxy.errors import BAD_REQUEST, Refusal
from gateway.rest_proxy.metadata import check_partition, node_ids, visible_topics
from gateway.routing.partitions import check_not_internal

Document = dict[str, object]


class ConfigEntry(Struct):
    name: str
    value: str | None = None


class _CreateTopic(Struct):
    topic_name: Annotated[str, NAME]
    partitions_count: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=32767)] | None = None
    configs: list[ConfigEntry] = []
    validate_only: bool = False
    replicas_assignments: Any = None


class _PatchTopic(Struct):
    partitions_count: Annotated[int, Meta(ge=1, le=2**31 - 1)]


def json_response(document: Document, status: int = 200) -> Response:
    return Response(orjson.dumps(document), dict((JSON_TYPE,)), status)


def check_cluster(request: Request, context: RestProxyContext) -> None:
    """Raises Problem not_found for the id of another cluster."""
    given = request.names["cluster"]
    if given != context.admin.cluster_id:
        raise Problem("not_found", f"Cluster {given[:100]} cannot be found.")


class Paths:
    """The URLs of a cluster's resources, as the client of a request reaches them, and their names."""

    def __init__(self, request: Request, context: RestProxyContext) -> None:
        scheme = "https" if request.connection.tls is not None else "http"
        self.cluster_id = context.admin.cluster_id
        self._space = request.space
        self._root = f"{scheme}://{request.headers.get('Host', '')}/v3/clusters"

    def url(self, *parts: object) -> str:
        return "/".join((self._root, self.cluster_id, *map(self._shown, parts)))

    def _shown(self, part: object) -> str:
        """Returns a name as its tenant says it: the metadata of a document is not walked for names."""
        return str(part) if self._space is None else self._space.visible(str(part))

    def related(self, *parts: object) -> dict[str, str]:
        return {"related": self.url(*parts)}

    def list_url(self) -> str:
        return self._root

    def resource(self, kind: str, names: Iterable[tuple[str, object]], *parts: object) -> Document:
        """Returns the beginning of the document of a resource; `names` are those of it and of what it is in."""
        name = "".join(f"/{word}={self._shown(value)}" for word, value in names)
        metadata = {"self": self.url(*parts), "resource_name": f"crn:///kafka={self.cluster_id}{name}"}
        return {"kind": kind, "metadata": metadata, "cluster_id": self.cluster_id}

    def collection(self, kind: str, data: list[Document], *parts: object) -> Response:
        return json_response({"kind": kind, "metadata": {"self": self.url(*parts), "next": None}, "data": data})


def paths_of(request: Request, context: RestProxyContext) -> Paths:
    """Returns the URLs of the cluster that a request names. Raises Problem not_found."""
    check_cluster(request, context)
    return Paths(request, context)


def rest_list_clusters(request: Request, context: RestProxyContext) -> Response:
    """GET /v3/clusters"""
    paths = Paths(request, context)
    metadata = {"self": paths.list_url(), "next": None}
    return json_response({"kind": "KafkaClusterList", "metadata": metadata, "data": [_cluster(paths, context)]})


def rest_describe_cluster(request: Request, context: RestProxyContext) -> Response:
    """GET /v3/clusters/{cluster}. Raises Problem."""
    return json_response(_cluster(paths_of(request, context), context))


def _cluster(paths: Paths, context: RestProxyContext) -> Document:
    controller = context.peers.cluster.controller
    controller = context.peers.node_id if controller is None else controller
    return paths.resource("KafkaCluster", ()) | {
        "controller": paths.related("brokers", controller),
        "acls": paths.related("acls"),
        "brokers": paths.related("brokers"),
        "broker_configs": paths.related("broker-configs"),
        "consumer_groups": paths.related("consumer-groups"),
        "topics": paths.related("topics"),
        "partition_reassignments": paths.related("topics", "-", "partitions", "-", "reassignment"),
    }


def rest_list_nodes(request: Request, context: RestProxyContext) -> Response:
    """GET /v3/clusters/{cluster}/brokers. Raises Problem."""
    paths = paths_of(request, context)
    return paths.collection("KafkaBrokerList", [_broker(paths, context, one) for one in node_ids(context)], "brokers")


def rest_describe_node(request: Request, context: RestProxyContext) -> Response:
    """GET /v3/clusters/{cluster}/brokers/{broker}. Raises Problem."""
    paths, given = paths_of(request, context), request.names["broker"]
    if given not in map(str, node_ids(context)):
        raise Problem("not_found", f"Broker {given[:100]} cannot be found.")
    return json_response(_broker(paths, context, int(given)))


def _broker(paths: Paths, context: RestProxyContext, node_id: int) -> Document:
    node = context.peers.cluster.nodes.get(node_id)
    url = urlsplit(context.peers.url if node is None or node_id == context.peers.node_id else node.url)
    rack = context.settings.rack if node is None else node.rack
    return paths.resource("KafkaBroker", (("broker", node_id),), "brokers", node_id) | {
        "broker_id": node_id,
        "host": url.hostname,
        "port": url.port,
        "rack": rack or None,
        "configs": paths.related("brokers", node_id, "configs"),
        "partition_replicas": paths.related("brokers", node_id, "partition-replicas"),
    }


# Topics


def rest_v3_list_topics(request: Request, context: RestProxyContext) -> Response:
    """GET /v3/clusters/{cluster}/topics. Raises Problem."""
    paths = paths_of(request, context)
    return paths.collection(
        "KafkaTopicList", [_topic(paths, one) for one in visible_topics(request, context)], "topics"
    )


def rest_v3_describe_topic(request: Request, context: RestProxyContext) -> Response:
    """GET /v3/clusters/{cluster}/topics/{topic}. Raises Problem, UnknownTopic."""
    return json_response(_topic(paths_of(request, context), context.topics.topic(request.names["topic"])))


async def rest_v3_create_topic(request: Request, context: RestProxyContext) -> Response:
    """POST /v3/clusters/{cluster}/topics. Raises Refusal, Problem, EngineError."""
    paths = paths_of(request, context)
    context.lifecycle.check_accepting()
    body = await read_json(request, _CreateTopic)
    name, caller = body.topic_name, request.caller
    check_not_internal(name)
    if not caller.allows(Operation.CREATE, name):
        raise forbidden(caller, Operation.CREATE, name)
    if body.replicas_assignments:
        text = "replicas are placed by the cluster: give replication_factor, and move partitions afterwards"
        raise Refusal(BAD_REQUEST, text)
    await context.topics.refresh(name)
    if context.topics.get(name) is not None:
        raise Refusal(BAD_REQUEST, f"Topic '{_visible(request, name)}' already exists.")
    partitions = body.partitions_count or context.settings.default_partitions
    replicas = body.replication_factor or context.settings.default_replication_factor
    overrides = parse_configs({one.name: one.value for one in body.configs})
    check_applicable(overrides, topic_settings(overrides))
    live = context.peers.count_live_nodes()
    check_new_topic(name, partitions, replicas, overrides, replication_factor_max=live)
    if not body.validate_only:
        made = {"partitions": partitions, "replication_factor": replicas, "config": overrides}
        await request.intend(before=None, after=made, name=name)
        topic, is_new = await context.topics.create(name, partitions, replicas, overrides)
        if not is_new:
            raise Refusal(BAD_REQUEST, f"Topic '{_visible(request, name)}' already exists.")
        document = _topic(paths, topic)
    else:
        document = _topic_document(paths, name, partitions, replicas)
    response = json_response(document, 201)
    response.headers["Location"] = paths.url("topics", name)
    return response


async def rest_v3_alter_topic(request: Request, context: RestProxyContext) -> Response:
    """PATCH /v3/clusters/{cluster}/topics/{topic}: more partitions. Raises Refusal, Problem, EngineError."""
    paths = paths_of(request, context)
    context.lifecycle.check_accepting()
    count = (await read_json(request, _PatchTopic)).partitions_count
    name = request.names["topic"]
    check_not_internal(name)
    present = context.topics.topic(name).record.partitions
    if count <= present:
        raise Refusal(
            BAD_REQUEST, f"Topic currently has {present} partitions, which is higher than or equal to {count}."
        )
    await request.intend(before={"partitions": present}, after={"partitions": count})
    return json_response(_topic(paths, await context.topics.alter(name, {}, count)))


async def rest_v3_delete_topic(request: Request, context: RestProxyContext) -> Response:
    """DELETE /v3/clusters/{cluster}/topics/{topic}. Raises Problem, EngineError."""
    check_cluster(request, context)
    context.lifecycle.check_accepting()
    name = request.names["topic"]
    check_not_internal(name)
    await request.intend(before={"topic_id": context.topics.topic(name).record.topic_id})
    await context.topics.delete(name)
    return Response(status=204)


def _visible(request: Request, name: str) -> str:
    return name if request.space is None else request.space.visible(name)


def _topic(paths: Paths, topic: Topic) -> Document:
    record = topic.record
    return _topic_document(paths, record.name, record.partitions, record.replication_factor)


def _topic_document(paths: Paths, name: str, partitions: int, replicas: int) -> Document:
    place = ("topics", name)
    return paths.resource("KafkaTopic", (("topic", name),), *place) | {
        "topic_name": name,
        "is_internal": False,
        "replication_factor": replicas,
        "partitions_count": partitions,
        "partitions": paths.related(*place, "partitions"),
        "configs": paths.related(*place, "configs"),
        "partition_reassignments": paths.related(*place, "partitions", "-", "reassignment"),
        "authorized_operations": [],
    }


# Partitions and replicas


def rest_v3_list_partitions(request: Request, context: RestProxyContext) -> Response:
    """GET …/topics/{topic}/partitions. Raises Problem, UnknownTopic."""
    paths, topic = paths_of(request, context), context.topics.topic(request.names["topic"])
    rows = [_partition(paths, context, topic, number) for number in range(topic.record.partitions)]
    return paths.collection("KafkaPartitionList", rows, "topics", topic.record.name, "partitions")


def rest_v3_describe_partition(request: Request, context: RestProxyContext) -> Response:
    """GET …/partitions/{partition}. Raises Problem, UnknownTopic."""
    paths, topic, number = _placed(request, context)
    return json_response(_partition(paths, context, topic, number))


def rest_list_replicas(request: Request, context: RestProxyContext) -> Response:
    """GET …/partitions/{partition}/replicas. Raises Problem, UnknownTopic."""
    paths, topic, number = _placed(request, context)
    rows = [_replica(paths, context, topic, number, one) for one in leadership(context, topic, number).replicas]
    return paths.collection("KafkaReplicaList", rows, "topics", topic.record.name, "partitions", number, "replicas")


def rest_describe_replica(request: Request, context: RestProxyContext) -> Response:
    """GET …/partitions/{partition}/replicas/{broker}. Raises Problem, UnknownTopic."""
    paths, topic, number = _placed(request, context)
    given = request.names["broker"]
    if given not in map(str, leadership(context, topic, number).replicas):
        raise Problem("not_found", f"Replica {given[:100]} cannot be found.")
    return json_response(_replica(paths, context, topic, number, int(given)))


def _placed(request: Request, context: RestProxyContext) -> tuple[Paths, Topic, int]:
    paths, topic = paths_of(request, context), context.topics.topic(request.names["topic"])
    number = path_partition(request)
    check_partition(topic, number)
    return paths, topic, number


def _partition(paths: Paths, context: RestProxyContext, topic: Topic, number: int) -> Document:
    name, placed = topic.record.name, leadership(context, topic, number)
    place = ("topics", name, "partitions", number)
    leader = None if placed.leader < 0 else paths.related(*place, "replicas", placed.leader)
    return paths.resource("KafkaPartition", (("topic", name), ("partition", number)), *place) | {
        "topic_name": name,
        "partition_id": number,
        "leader": leader,
        "replicas": paths.related(*place, "replicas"),
        "reassignment": paths.related(*place, "reassignment"),
    }


def _replica(paths: Paths, context: RestProxyContext, topic: Topic, number: int, node_id: int) -> Document:
    name, placed = topic.record.name, leadership(context, topic, number)
    place = ("topics", name, "partitions", number, "replicas", node_id)
    names = (("topic", name), ("partition", number), ("replica", node_id))
    return paths.resource("KafkaReplica", names, *place) | {
        "topic_name": name,
        "partition_id": number,
        "broker_id": node_id,
        "is_leader": node_id == placed.leader,
        "is_in_sync": node_id in placed.in_sync,
        "broker": paths.related("brokers", node_id),
    }
