"""Every route of the dialect, and how its requests differ from those of the contract."""

from __future__ import annotations

import base64
import binascii
import re

from gateway.http.request import Request, Route
from gateway.http.rights import AUTHENTICATED, OPEN, READ_TOPIC, Need, Operation, Resource, Where
from gateway.produce.context import ProduceContext
from gateway.produce.request import ProduceRequest
from gateway.rest_proxy import consumers, instance_reads, metadata, produce, v3, v3_configs, v3_groups, v3_produce
from gateway.rest_proxy.context import make_context
from gateway.rest_proxy.errors import refuse
from gateway.rest_proxy.media_types import is_v3
from gateway.server.context import ServerContext
from gateway.server.dialect import Dialect
from gateway.server.routes import ALTER, CHANGE_ACCESS, DELETE, DESCRIBE, SEE_GROUP, USE_GROUP, WRITE, Rows

PARTITION = "/topics/{topic}/partitions/{partition}"
INSTANCE = "/consumers/{group}/instances/{instance}"
_LIST_TOPICS = Need(Operation.READ, Resource.TOPIC, Where.LIST)
_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
_V3_TARGET = rf"/v3/clusters/[A-Za-z0-9._-]+/topics/{_NAME}/records"
_TARGET = re.compile(rf"{_V3_TARGET}|/topics/{_NAME}(?:/partitions/[0-9]{{1,10}})?")

V2: Rows = [
    ("GET", "/", OPEN, metadata.rest_root),
    ("GET", "/brokers", AUTHENTICATED, metadata.rest_list_brokers),
    ("GET", "/topics", _LIST_TOPICS, metadata.rest_list_topics),
    ("GET", "/topics/{topic}", DESCRIBE, metadata.rest_describe_topic),
    ("POST", "/topics/{topic}", WRITE, produce.rest_produce),
    ("GET", "/topics/{topic}/partitions", DESCRIBE, metadata.rest_list_partitions),
    ("GET", PARTITION, DESCRIBE, metadata.rest_describe_partition),
    ("POST", PARTITION, WRITE, produce.rest_produce),
    ("GET", PARTITION + "/offsets", READ_TOPIC, metadata.rest_find_offsets),
    ("POST", "/consumers/{group}", USE_GROUP, consumers.rest_create_instance),
    ("DELETE", INSTANCE, USE_GROUP, consumers.rest_delete_instance),
    ("POST", INSTANCE + "/subscription", USE_GROUP, consumers.rest_subscribe),
    ("GET", INSTANCE + "/subscription", USE_GROUP, consumers.rest_read_subscription),
    ("DELETE", INSTANCE + "/subscription", USE_GROUP, consumers.rest_unsubscribe),
    ("POST", INSTANCE + "/assignments", USE_GROUP, consumers.rest_assign),
    ("GET", INSTANCE + "/assignments", USE_GROUP, consumers.rest_read_assignments),
    ("POST", INSTANCE + "/positions", USE_GROUP, consumers.rest_seek),
    ("POST", INSTANCE + "/positions/beginning", USE_GROUP, consumers.rest_seek_beginning),
    ("POST", INSTANCE + "/positions/end", USE_GROUP, consumers.rest_seek_end),
    ("GET", INSTANCE + "/records", USE_GROUP, instance_reads.rest_read_records),
    ("POST", INSTANCE + "/offsets", USE_GROUP, consumers.rest_commit),
    ("GET", INSTANCE + "/offsets", USE_GROUP, consumers.rest_read_offsets),
]

CLUSTER = "/v3/clusters/{cluster}"
TOPIC = CLUSTER + "/topics/{topic}"
V3_GROUP = CLUSTER + "/consumer-groups/{group}"
REPLICAS = TOPIC + "/partitions/{partition}/replicas"
_LIST_GROUPS = Need(Operation.DESCRIBE, Resource.GROUP, Where.LIST)

V3: Rows = [
    ("GET", "/v3/clusters", AUTHENTICATED, v3.rest_list_clusters),
    ("GET", CLUSTER, AUTHENTICATED, v3.rest_describe_cluster),
    ("GET", CLUSTER + "/brokers", AUTHENTICATED, v3.rest_list_nodes),
    ("GET", CLUSTER + "/brokers/{broker}", AUTHENTICATED, v3.rest_describe_node),
    ("GET", CLUSTER + "/acls", CHANGE_ACCESS, v3_groups.rest_list_acls),
    ("GET", CLUSTER + "/topics", _LIST_TOPICS, v3.rest_v3_list_topics),
    ("POST", CLUSTER + "/topics", Need(Operation.CREATE, Resource.TOPIC, Where.BODY), v3.rest_v3_create_topic),
    ("GET", TOPIC, DESCRIBE, v3.rest_v3_describe_topic),
    ("PATCH", TOPIC, ALTER, v3.rest_v3_alter_topic),
    ("DELETE", TOPIC, DELETE, v3.rest_v3_delete_topic),
    ("GET", TOPIC + "/configs", DESCRIBE, v3_configs.rest_list_configs),
    ("POST", TOPIC + "/configs:alter", ALTER, v3_configs.rest_alter_configs),
    ("GET", TOPIC + "/configs/{name}", DESCRIBE, v3_configs.rest_describe_config),
    ("PUT", TOPIC + "/configs/{name}", ALTER, v3_configs.rest_set_config),
    ("DELETE", TOPIC + "/configs/{name}", ALTER, v3_configs.rest_reset_config),
    ("GET", TOPIC + "/partitions", DESCRIBE, v3.rest_v3_list_partitions),
    ("GET", TOPIC + "/partitions/{partition}", DESCRIBE, v3.rest_v3_describe_partition),
    ("GET", REPLICAS, DESCRIBE, v3.rest_list_replicas),
    ("GET", REPLICAS + "/{broker}", DESCRIBE, v3.rest_describe_replica),
    ("POST", TOPIC + "/records", WRITE, v3_produce.rest_produce_record),
    ("POST", TOPIC + "/records:batch", WRITE, v3_produce.rest_produce_batch),
    ("GET", CLUSTER + "/consumer-groups", _LIST_GROUPS, v3_groups.rest_list_groups),
    ("GET", V3_GROUP, SEE_GROUP, v3_groups.rest_describe_group),
    ("GET", V3_GROUP + "/consumers", SEE_GROUP, v3_groups.rest_list_consumers),
    ("GET", V3_GROUP + "/consumers/{consumer}", SEE_GROUP, v3_groups.rest_describe_consumer),
    ("GET", V3_GROUP + "/consumers/{consumer}/assignments", SEE_GROUP, v3_groups.rest_list_member_partitions),
    ("GET", V3_GROUP + "/lags", SEE_GROUP, v3_groups.rest_list_lags),
    ("GET", V3_GROUP + "/lags/{topic}/partitions/{partition}", SEE_GROUP, v3_groups.rest_describe_lag),
    ("GET", V3_GROUP + "/lag-summary", SEE_GROUP, v3_groups.rest_summarize_lag),
]
ROWS = [*V2, *V3]


def rest_proxy_dialect(server: ServerContext) -> Dialect:
    """Returns the dialect of one process. The audit trail stands around the routes that change something."""
    context = make_context(server)
    routes = [Route(method, path, handler.__name__, need, handler, context) for method, path, need, handler in ROWS]
    if server.audit is not None:
        routes = list(map(server.audit.around, routes))
    return Dialect(routes, _TARGET, _parse_produce, refuse, _credential, id_mark="p")


def _parse_produce(request: Request, context: ProduceContext) -> ProduceRequest:
    parse = v3_produce.parse if is_v3(request) else produce.parse
    return parse(request, context)


def _credential(text: str) -> str:
    """Returns a token that came as the password of Basic, as clients of REST Proxy send it, in our form."""
    scheme, _, encoded = text.partition(" ")
    if scheme.lower() != "basic":
        return text
    try:
        _, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return text
    return f"Bearer {password}" if colon else text
