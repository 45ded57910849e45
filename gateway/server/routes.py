"""Every route of the contract: its method and path, what its caller needs, its handler and the context of that.

A test compares this table with openapi/gateway.yaml.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.admin import (
    access_routes,
    cluster_operations,
    disk_routes,
    operations,
    producers,
    quota_routes,
    signed_url_routes,
    tenant_routes,
    topics,
    usage_routes,
)
from gateway.fetch import fetch, fetch_many, tail
from gateway.groups import acknowledge, acquire, administration, explanation, member_stream, membership, offsets, poll
from gateway.http.request import Handled, Request, Route
from gateway.http.rights import AUTHENTICATED, OPEN, READ_TOPIC, Need, Operation, Resource, Where
from gateway.produce import produce, produce_many
from gateway.server.context import ServerContext
from gateway.status import audit_route, caller, group_list, history_route, job_list, overview, topic_list
from gateway.subscriptions import routes as subscriptions
from gateway.tables import key_route, table_route

PARTITION = "/v1/topics/{topic}/partitions/{partition}"
GROUP = "/v1/groups/{group}"
SUBSCRIPTION = "/v1/subscriptions/{subscription}"
TENANT = "/v1/tenants/{tenant}"
MEMBER = GROUP + "/members/{member}"

Handler = Callable[[Request, Any], Handled]
Rows = list[tuple[str, str, Need, Handler]]

_TOPIC, _GROUP, _SUBSCRIPTION, _CLUSTER = Resource.TOPIC, Resource.GROUP, Resource.SUBSCRIPTION, Resource.CLUSTER


def _needs(resource: Resource, where: Where, *operations: Operation) -> list[Need]:
    return [Need(operation, resource, where) for operation in operations]


WRITE, CREATE, ALTER, DELETE, DESCRIBE = _needs(
    _TOPIC, Where.PATH, Operation.WRITE, Operation.CREATE, Operation.ALTER, Operation.DELETE, Operation.DESCRIBE
)
USE_GROUP, SEE_GROUP, ALTER_GROUP, DELETE_GROUP = _needs(
    _GROUP, Where.PATH, Operation.READ, Operation.DESCRIBE, Operation.ALTER, Operation.DELETE
)
SEE_PUSH, CREATE_PUSH, ALTER_PUSH, DELETE_PUSH = _needs(
    _SUBSCRIPTION, Where.PATH, Operation.DESCRIBE, Operation.CREATE, Operation.ALTER, Operation.DELETE
)
SEE_CLUSTER, OPERATE, METRICS, CHANGE_ACCESS = _needs(
    _CLUSTER, Where.NONE, Operation.DESCRIBE, Operation.OPERATE, Operation.METRICS, Operation.ACCESS
)

# By the context of the handlers. A handler of groups or subscriptions checks the right read to each topic itself.
_PRODUCE: Rows = [
    ("POST", "/v1/topics/{topic}/records", WRITE, produce.produce),
    ("POST", PARTITION + "/records", WRITE, produce.produce_to_partition),
    ("POST", "/v1/records", Need(Operation.WRITE, _TOPIC, Where.BODY), produce_many.produce_many),
    ("POST", "/v1/producers", Need(Operation.WRITE, _TOPIC, Where.ANY), producers.create_producer),
]
_FETCH: Rows = [
    ("GET", PARTITION + "/records", READ_TOPIC, fetch.fetch),
    ("GET", "/v1/topics/{topic}/records", READ_TOPIC, tail.tail_topic),
    ("GET", PARTITION + "/offsets", READ_TOPIC, fetch.find_offsets),
    ("POST", "/v1/fetch", Need(Operation.READ, _TOPIC, Where.BODY), fetch_many.fetch_many),
    ("GET", "/v1/topics/{topic}/table", READ_TOPIC, table_route.read_table),
    ("GET", "/v1/topics/{topic}/table/{key}", READ_TOPIC, key_route.read_table_key),
]
_ADMIN: Rows = [
    ("GET", "/v1/topics/{topic}", DESCRIBE, topics.describe_topic),
    ("PUT", "/v1/topics/{topic}", CREATE, topics.create_topic),
    ("PATCH", "/v1/topics/{topic}", ALTER, topics.alter_topic),
    ("DELETE", "/v1/topics/{topic}", DELETE, topics.delete_topic),
    ("POST", "/v1/topics/{topic}/roll", ALTER, topics.roll_topic),
    ("DELETE", PARTITION + "/records", ALTER, topics.delete_records),
    ("GET", PARTITION + "/fence", WRITE, producers.describe_fence),  # who knows the fencing token can write with it
    ("PUT", PARTITION + "/fence", WRITE, producers.set_fence),
    ("GET", PARTITION + "/source", WRITE, producers.describe_source),
    ("GET", "/v1/topics/{topic}/tier", DESCRIBE, topics.tier_status),
    ("GET", "/v1/cluster", SEE_CLUSTER, operations.describe_cluster),
    ("GET", "/v1/cluster/reassignments", SEE_CLUSTER, cluster_operations.list_reassignments),
    ("POST", "/v1/cluster/reassignments", OPERATE, cluster_operations.reassign),
    ("DELETE", "/v1/cluster/reassignments/{topic}/{partition}", OPERATE, cluster_operations.cancel_reassignment),
    ("POST", "/v1/cluster/nodes/{node_id}/drain", OPERATE, cluster_operations.drain_node),
    ("POST", "/v1/cluster/nodes/{node_id}/decommission", OPERATE, cluster_operations.decommission_node),
    ("GET", "/v1/cluster/nodes/{node_id}/may-restart", SEE_CLUSTER, cluster_operations.may_restart),
    ("GET", "/v1/cluster/nodes/{node_id}/disks", SEE_CLUSTER, disk_routes.describe_disks),
    ("POST", "/v1/cluster/nodes/{node_id}/disks/moves", OPERATE, disk_routes.move_partitions),
    ("DELETE", "/v1/cluster/nodes/{node_id}/disks/moves/{topic}/{partition}", OPERATE, disk_routes.cancel_move),
    ("POST", "/v1/cluster/balance", OPERATE, cluster_operations.balance),
    ("GET", "/healthz", OPEN, operations.healthz),  # health reports nothing else
    ("GET", "/readyz", OPEN, operations.readyz),
    ("GET", "/metrics", METRICS, operations.metrics),
    ("GET", "/openapi.json", OPEN, operations.openapi_json),  # the contract and its page are the same on every node
    ("GET", "/docs", OPEN, operations.docs),
    ("GET", "/docs/{guide}", OPEN, operations.docs_guide),
    ("GET", "/", OPEN, operations.root),
    ("GET", "/assets/{build}/{file}", OPEN, operations.console_asset),
    ("GET", "/v1", OPEN, operations.links),
]
_STATUS: Rows = [  # a caller sees what is its own, and of the nodes what it has the right to
    ("GET", "/v1/topics", Need(Operation.READ, _TOPIC, Where.LIST), topic_list.list_topics),
    ("GET", "/v1/groups", Need(Operation.DESCRIBE, _GROUP, Where.LIST), group_list.list_groups),
    ("GET", "/v1/overview", AUTHENTICATED, overview.describe_overview),
    ("GET", "/v1/history", AUTHENTICATED, history_route.read_history),
    ("GET", "/v1/me", AUTHENTICATED, caller.describe_me),
    ("GET", "/v1/settings", OPERATE, caller.describe_settings),
    ("GET", "/v1/cluster/nodes/{node_id}/audit", OPERATE, audit_route.read_audit),
    ("GET", "/v1/cluster/jobs", SEE_CLUSTER, job_list.list_jobs),
]
_GROUPS: Rows = [
    ("POST", MEMBER + "/poll", USE_GROUP, poll.group_poll),
    ("GET", MEMBER + "/events", USE_GROUP, member_stream.group_events),
    ("POST", GROUP + "/acquire", USE_GROUP, acquire.acquire_records),
    ("POST", GROUP + "/acknowledge", USE_GROUP, acknowledge.acknowledge_records),
    ("POST", GROUP + "/heartbeat", USE_GROUP, membership.group_heartbeat),
    ("DELETE", MEMBER, USE_GROUP, membership.leave_group),
    ("PUT", GROUP + "/offsets", USE_GROUP, offsets.commit_group_offsets),
    ("GET", GROUP + "/offsets", SEE_GROUP, offsets.read_group_offsets),
    ("DELETE", GROUP + "/offsets", ALTER_GROUP, offsets.delete_group_offsets),
    ("GET", GROUP, SEE_GROUP, administration.describe_group),
    ("GET", GROUP + "/explanation", SEE_GROUP, explanation.explain_group),
    ("PUT", GROUP, ALTER_GROUP, administration.configure_group),
    ("PATCH", GROUP, ALTER_GROUP, administration.alter_group),
    ("DELETE", GROUP, DELETE_GROUP, administration.delete_group),
    ("POST", GROUP + "/reset", ALTER_GROUP, offsets.reset_group),
]
_PUSH: Rows = [
    ("GET", "/v1/subscriptions", Need(Operation.DESCRIBE, _SUBSCRIPTION, Where.LIST), subscriptions.list_subscriptions),
    ("PUT", SUBSCRIPTION, CREATE_PUSH, subscriptions.put_subscription),
    ("PATCH", SUBSCRIPTION, ALTER_PUSH, subscriptions.alter_subscription),
    ("GET", SUBSCRIPTION, SEE_PUSH, subscriptions.describe_subscription),
    ("DELETE", SUBSCRIPTION, DELETE_PUSH, subscriptions.delete_subscription),
    ("POST", SUBSCRIPTION + "/pause", ALTER_PUSH, subscriptions.pause_subscription),
    ("POST", SUBSCRIPTION + "/resume", ALTER_PUSH, subscriptions.resume_subscription),
    ("POST", SUBSCRIPTION + "/replay", ALTER_PUSH, subscriptions.replay_subscription),
]


_ACCESS: Rows = [
    ("POST", "/v1/access/signed-urls", AUTHENTICATED, signed_url_routes.sign_url),  # it checks the right to its topic
    *(
        (method, f"/v1/access/{path}", CHANGE_ACCESS, handler)
        for method, path, handler in (
            ("GET", "rules", access_routes.list_rules),
            ("POST", "rules", access_routes.add_rule),
            ("DELETE", "rules/{rule}", access_routes.remove_rule),
            ("GET", "tokens", access_routes.list_tokens),
            ("POST", "tokens", access_routes.create_token),
            ("DELETE", "tokens/{token}", access_routes.revoke_token),
            ("POST", "tokens/{token}/rotate", access_routes.rotate_token),
            ("POST", "check", access_routes.check_access),
            ("GET", "quotas", quota_routes.list_quotas),
            ("PUT", "quotas/{owner}/{name}", quota_routes.set_quota),
            ("DELETE", "quotas/{owner}/{name}", quota_routes.remove_quota),
            ("GET", "keys", signed_url_routes.list_url_keys),
            ("POST", "keys", signed_url_routes.add_url_key),
            ("DELETE", "keys/{key}", signed_url_routes.remove_url_key),
        )
    ),
]

_TENANTS: list[tuple[str, str, Need, Handler]] = [
    ("GET", "/v1/tenants", Need(Operation.DESCRIBE, Resource.TENANT, Where.LIST), tenant_routes.list_tenants),
    ("GET", TENANT, Need(Operation.DESCRIBE, Resource.TENANT, Where.PATH), tenant_routes.describe_tenant),
    ("PUT", TENANT, CHANGE_ACCESS, tenant_routes.create_tenant),
    ("PATCH", TENANT, CHANGE_ACCESS, tenant_routes.alter_tenant),
    ("DELETE", TENANT, CHANGE_ACCESS, tenant_routes.remove_tenant),
]

_USAGE: Rows = [
    ("GET", TENANT + "/usage", Need(Operation.DESCRIBE, Resource.TENANT, Where.PATH), usage_routes.describe_usage)
]

ROUTES = [*_PRODUCE, *_FETCH, *_ADMIN, *_STATUS, *_GROUPS, *_PUSH, *_ACCESS, *_TENANTS, *_USAGE]


def routes_of(context: ServerContext) -> list[Route]:
    """Returns the routes of one process. The audit trail stands around those that change something."""
    by_context: list[tuple[object, Rows]] = [
        (context.produce, _PRODUCE),
        (context.fetch, _FETCH),
        (context.admin, _ADMIN),
        (context.status, _STATUS),
        (context.groups, _GROUPS),
        (context.push, _PUSH),
        (context.access_changes, _ACCESS),
        (context.access_changes, _TENANTS),
        (context.usage, _USAGE),
    ]
    routes = [
        Route(method, path, handler.__name__, need, handler, given)
        for given, rows in by_context
        for method, path, need, handler in rows
    ]
    return routes if context.audit is None else list(map(context.audit.around, routes))
