"""Every route of the contract: its method and path, what its caller needs, its handler and the context of that.

A test compares this table with openapi/gateway.yaml.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.admin import cluster_operations, fencing, operations, producers, sources, topics
from gateway.fetch import fetch, fetch_many, tail
from gateway.groups import acknowledge, acquire, administration, events, explanation, membership, offsets, poll
from gateway.http.request import Handled, Request, Route
from gateway.http.rights import Requirement, Right
from gateway.produce import produce, produce_many
from gateway.server.context import ServerContext
from gateway.subscriptions import routes as subscriptions
from gateway.tables import key_route, table_route

PARTITION = "/v1/topics/{topic}/partitions/{partition}"
GROUP = "/v1/groups/{group}"
SUBSCRIPTION = "/v1/subscriptions/{subscription}"
MEMBER = GROUP + "/members/{member}"

Handler = Callable[[Request, Any], Handled]
Needs = Right | Requirement
NONE, AUTHENTICATED, SEES = Requirement.NONE, Requirement.AUTHENTICATED, Requirement.SEES
OPERATES = Requirement.OPERATES
READ, WRITE, ADMIN, OF_GROUP = Right.READ, Right.WRITE, Right.ADMIN, Right.GROUP

# By the context of the handlers. A handler of groups or subscriptions checks the right read to each topic itself.
_PRODUCE: list[tuple[str, str, Needs, Handler]] = [
    ("POST", "/v1/topics/{topic}/records", WRITE, produce.produce),
    ("POST", PARTITION + "/records", WRITE, produce.produce_to_partition),
    ("POST", "/v1/records", AUTHENTICATED, produce_many.produce_many),
    ("POST", "/v1/producers", Requirement.WRITES, producers.create_producer),
]
_FETCH: list[tuple[str, str, Needs, Handler]] = [
    ("GET", PARTITION + "/records", READ, fetch.fetch),
    ("GET", "/v1/topics/{topic}/records", READ, tail.tail_topic),
    ("GET", PARTITION + "/offsets", READ, fetch.find_offsets),
    ("POST", "/v1/fetch", AUTHENTICATED, fetch_many.fetch_many),
    ("GET", "/v1/topics/{topic}/table", READ, table_route.read_table),
    ("GET", "/v1/topics/{topic}/table/{key}", READ, key_route.read_table_key),
]
_ADMIN: list[tuple[str, str, Needs, Handler]] = [
    ("GET", "/v1/topics", AUTHENTICATED, topics.list_topics),
    ("GET", "/v1/topics/{topic}", SEES, topics.describe_topic),
    ("PUT", "/v1/topics/{topic}", ADMIN, topics.create_topic),
    ("PATCH", "/v1/topics/{topic}", ADMIN, topics.alter_topic),
    ("DELETE", "/v1/topics/{topic}", ADMIN, topics.delete_topic),
    ("POST", "/v1/topics/{topic}/roll", ADMIN, topics.roll_topic),
    ("DELETE", PARTITION + "/records", ADMIN, topics.delete_records),
    ("GET", PARTITION + "/fence", WRITE, fencing.describe_fence),  # who knows the fencing token can write with it
    ("PUT", PARTITION + "/fence", WRITE, fencing.set_fence),
    ("GET", PARTITION + "/source", WRITE, sources.describe_source),
    ("GET", "/v1/topics/{topic}/tier", SEES, topics.tier_status),
    ("GET", "/v1/cluster", AUTHENTICATED, operations.describe_cluster),
    ("GET", "/v1/cluster/reassignments", AUTHENTICATED, cluster_operations.list_reassignments),
    ("POST", "/v1/cluster/reassignments", OPERATES, cluster_operations.reassign),
    ("DELETE", "/v1/cluster/reassignments/{topic}/{partition}", OPERATES, cluster_operations.cancel_reassignment),
    ("POST", "/v1/cluster/nodes/{node_id}/drain", OPERATES, cluster_operations.drain_node),
    ("POST", "/v1/cluster/nodes/{node_id}/decommission", OPERATES, cluster_operations.decommission_node),
    ("POST", "/v1/cluster/balance", OPERATES, cluster_operations.balance),
    ("GET", "/healthz", NONE, operations.healthz),  # health reports nothing else
    ("GET", "/readyz", NONE, operations.readyz),
    ("GET", "/metrics", Requirement.METRICS, operations.metrics),
    ("GET", "/openapi.json", NONE, operations.openapi_json),  # the contract and its page are the same on every node
    ("GET", "/docs", NONE, operations.docs),
    ("GET", "/", NONE, operations.root),
    ("GET", "/v1", NONE, operations.links),
]
_GROUPS: list[tuple[str, str, Needs, Handler]] = [
    ("POST", MEMBER + "/poll", OF_GROUP, poll.group_poll),
    ("GET", MEMBER + "/events", OF_GROUP, events.group_events),
    ("POST", GROUP + "/acquire", OF_GROUP, acquire.acquire_records),
    ("POST", GROUP + "/acknowledge", OF_GROUP, acknowledge.acknowledge_records),
    ("POST", GROUP + "/heartbeat", OF_GROUP, membership.group_heartbeat),
    ("DELETE", MEMBER, OF_GROUP, membership.leave_group),
    ("PUT", GROUP + "/offsets", OF_GROUP, offsets.commit_group_offsets),
    ("GET", GROUP + "/offsets", OF_GROUP, offsets.read_group_offsets),
    ("DELETE", GROUP + "/offsets", OF_GROUP, offsets.delete_group_offsets),
    ("GET", "/v1/groups", AUTHENTICATED, administration.list_groups),
    ("GET", GROUP, OF_GROUP, administration.describe_group),
    ("GET", GROUP + "/explanation", OF_GROUP, explanation.explain_group),
    ("PUT", GROUP, OF_GROUP, administration.configure_group),
    ("PATCH", GROUP, OF_GROUP, administration.alter_group),
    ("DELETE", GROUP, OF_GROUP, administration.delete_group),
    ("POST", GROUP + "/reset", OF_GROUP, offsets.reset_group),
]
_PUSH: list[tuple[str, str, Needs, Handler]] = [
    ("GET", "/v1/subscriptions", AUTHENTICATED, subscriptions.list_subscriptions),
    ("PUT", SUBSCRIPTION, AUTHENTICATED, subscriptions.put_subscription),
    ("PATCH", SUBSCRIPTION, AUTHENTICATED, subscriptions.alter_subscription),
    ("GET", SUBSCRIPTION, AUTHENTICATED, subscriptions.describe_subscription),
    ("DELETE", SUBSCRIPTION, AUTHENTICATED, subscriptions.delete_subscription),
    ("POST", SUBSCRIPTION + "/pause", AUTHENTICATED, subscriptions.pause_subscription),
    ("POST", SUBSCRIPTION + "/resume", AUTHENTICATED, subscriptions.resume_subscription),
    ("POST", SUBSCRIPTION + "/replay", AUTHENTICATED, subscriptions.replay_subscription),
]


ROUTES = [*_PRODUCE, *_FETCH, *_ADMIN, *_GROUPS, *_PUSH]


def routes_of(context: ServerContext) -> list[Route]:
    """Returns the routes of one process."""
    by_context: list[tuple[object, list[tuple[str, str, Needs, Handler]]]] = [
        (context.produce, _PRODUCE),
        (context.fetch, _FETCH),
        (context.admin, _ADMIN),
        (context.groups, _GROUPS),
        (context.push, _PUSH),
    ]
    return [
        Route(method, path, handler.__name__, need, handler, given)
        for given, rows in by_context
        for method, path, need, handler in rows
    ]
