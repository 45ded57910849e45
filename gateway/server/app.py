"""The application: every route of the contract in one table. gateway/server/middleware.py is around each.

Runs unchanged on aiohttp's own server (tests) and behind ours (gateway/server/adapter.py). A test compares this table
with openapi/gateway.yaml.
"""

from __future__ import annotations

from aiohttp import web

from gateway.admin import cluster_operations, fencing, operations, producers, sources, topics
from gateway.admin.context import ADMIN
from gateway.fetch import fetch, fetch_many, tail
from gateway.fetch.context import FETCH
from gateway.groups import acknowledge, acquire, administration, events, explanation, membership, offsets, poll
from gateway.groups.context import GROUPS
from gateway.http.context import HTTP
from gateway.produce import produce, produce_many
from gateway.produce.context import PRODUCE
from gateway.server.context import ServerContext
from gateway.server.middleware import MIDDLEWARE, Handler, Middleware
from gateway.subscriptions import routes as subscriptions
from gateway.subscriptions.context import PUSH
from gateway.tables import key_route, table_route

PARTITION = "/v1/topics/{topic}/partitions/{partition}"
GROUP = "/v1/groups/{group}"
SUBSCRIPTION = "/v1/subscriptions/{subscription}"
MEMBER = GROUP + "/members/{member}"

# Hot routes first: aiohttp tries those with a common prefix in order.
ROUTES: list[tuple[str, str, Handler]] = [
    ("POST", "/v1/topics/{topic}/records", produce.produce),
    ("POST", PARTITION + "/records", produce.produce_to_partition),
    ("POST", "/v1/records", produce_many.produce_many),
    ("GET", PARTITION + "/records", fetch.fetch),
    ("GET", "/v1/topics/{topic}/records", tail.tail_topic),
    ("GET", PARTITION + "/offsets", fetch.find_offsets),
    ("POST", "/v1/fetch", fetch_many.fetch_many),
    ("GET", "/v1/topics", topics.list_topics),
    ("GET", "/v1/topics/{topic}", topics.describe_topic),
    ("PUT", "/v1/topics/{topic}", topics.create_topic),
    ("PATCH", "/v1/topics/{topic}", topics.alter_topic),
    ("DELETE", "/v1/topics/{topic}", topics.delete_topic),
    ("POST", "/v1/topics/{topic}/roll", topics.roll_topic),
    ("DELETE", PARTITION + "/records", topics.delete_records),
    ("GET", PARTITION + "/fence", fencing.describe_fence),
    ("PUT", PARTITION + "/fence", fencing.set_fence),
    ("GET", PARTITION + "/source", sources.describe_source),
    ("GET", "/v1/topics/{topic}/tier", topics.tier_status),
    ("GET", "/v1/cluster", operations.describe_cluster),
    ("GET", "/v1/cluster/reassignments", cluster_operations.list_reassignments),
    ("POST", "/v1/cluster/reassignments", cluster_operations.reassign),
    ("DELETE", "/v1/cluster/reassignments/{topic}/{partition}", cluster_operations.cancel_reassignment),
    ("POST", "/v1/cluster/nodes/{node_id}/drain", cluster_operations.drain_node),
    ("POST", "/v1/cluster/nodes/{node_id}/decommission", cluster_operations.decommission_node),
    ("POST", "/v1/cluster/balance", cluster_operations.balance),
    ("GET", "/healthz", operations.healthz),
    ("GET", "/readyz", operations.readyz),
    ("GET", "/metrics", operations.metrics),
    ("GET", "/openapi.json", operations.openapi_json),
    ("GET", "/docs", operations.docs),
    ("GET", "/", operations.root),
    ("GET", "/v1", operations.links),
    ("POST", "/v1/producers", producers.create_producer),
    ("POST", MEMBER + "/poll", poll.group_poll),
    ("GET", MEMBER + "/events", events.group_events),
    ("POST", GROUP + "/acquire", acquire.acquire_records),
    ("POST", GROUP + "/acknowledge", acknowledge.acknowledge_records),
    ("POST", GROUP + "/heartbeat", membership.group_heartbeat),
    ("DELETE", MEMBER, membership.leave_group),
    ("PUT", GROUP + "/offsets", offsets.commit_group_offsets),
    ("GET", GROUP + "/offsets", offsets.read_group_offsets),
    ("DELETE", GROUP + "/offsets", offsets.delete_group_offsets),
    ("GET", "/v1/groups", administration.list_groups),
    ("GET", GROUP, administration.describe_group),
    ("GET", GROUP + "/explanation", explanation.explain_group),
    ("PUT", GROUP, administration.configure_group),
    ("PATCH", GROUP, administration.alter_group),
    ("DELETE", GROUP, administration.delete_group),
    ("POST", GROUP + "/reset", offsets.reset_group),
    ("GET", "/v1/subscriptions", subscriptions.list_subscriptions),
    ("PUT", SUBSCRIPTION, subscriptions.put_subscription),
    ("PATCH", SUBSCRIPTION, subscriptions.alter_subscription),
    ("GET", SUBSCRIPTION, subscriptions.describe_subscription),
    ("DELETE", SUBSCRIPTION, subscriptions.delete_subscription),
    ("POST", SUBSCRIPTION + "/pause", subscriptions.pause_subscription),
    ("POST", SUBSCRIPTION + "/resume", subscriptions.resume_subscription),
    ("POST", SUBSCRIPTION + "/replay", subscriptions.replay_subscription),
    ("GET", "/v1/topics/{topic}/table", table_route.read_table),
    ("GET", "/v1/topics/{topic}/table/{key}", key_route.read_table_key),
]


METHODS = {method for method, _, _ in ROUTES} | {"HEAD"}


def make_app(context: ServerContext) -> web.Application:
    """Returns the application of one process."""
    middleware = Middleware(context, METHODS)
    app = web.Application(middlewares=[middleware.around], client_max_size=2**40)  # RequestBodies has the limits
    app[MIDDLEWARE] = middleware
    app[HTTP], app[PRODUCE], app[FETCH], app[ADMIN] = context.http, context.produce, context.fetch, context.admin
    app[GROUPS], app[PUSH] = context.groups, context.push
    for method, path, handler in ROUTES:
        app.router.add_route(method, path, handler)
        if method == "GET":  # without its body
            app.router.add_route("HEAD", path, handler)
    return app
