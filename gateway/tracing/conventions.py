"""The names of spans' attributes: the only place that knows OpenTelemetry's semantic conventions.

Conventions of HTTP are stable. Conventions of messaging are in development (v1.45.0): when they change, this table
changes with the tests that read it. Attributes of our own begin with `penstock.`. Not here, as nowhere in logs: keys,
payloads, queries, tokens. So `url.path` is left out, which may have the key of a table; `http.route` has its template.
"""

from __future__ import annotations

# HTTP, stable
METHOD = "http.request.method"
ROUTE = "http.route"
STATUS = "http.response.status_code"
REQUEST_BYTES = "http.request.body.size"
RESPONSE_BYTES = "http.response.body.size"
PROTOCOL_NAME = "network.protocol.name"
PROTOCOL_VERSION = "network.protocol.version"
ERROR = "error.type"  # the code of the problem
SERVER_ADDRESS = "server.address"

# Messaging, in development
SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
TOPIC = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
GROUP = "messaging.consumer.group.name"
SUBSCRIPTION = "messaging.destination.subscription.name"
RECORDS = "messaging.batch.message_count"
CLIENT_ID = "messaging.client.id"

# Resources
SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"
INSTANCE = "service.instance.id"

# Our own
OPERATION = "penstock.operation"
REQUEST_ID = "penstock.request_id"
BASE_OFFSET = "penstock.base_offset"
PARTITIONS = "penstock.partitions"
ACKS = "penstock.acks"
NODE = "penstock.node"
SHARD = "penstock.shard"

OUR_SYSTEM, KAFKA_SYSTEM = "penstock", "kafka"
# The kind of each operation of the contract that moves records. Others are requests over HTTP and nothing more.
OPERATION_TYPES = {
    "produce": "send",
    "produce_to_partition": "send",
    "produce_many": "send",
    "fetch": "receive",
    "fetch_many": "receive",
    "tail_topic": "receive",
    "group_poll": "receive",
    "group_events": "receive",
    "acquire_records": "receive",
    "acknowledge_records": "settle",
    "commit_group_offsets": "settle",
}
KAFKA_OPERATION_TYPES = {
    "Produce": "send",
    "Fetch": "receive",
    "ShareFetch": "receive",
    "ShareAcknowledge": "settle",
    "OffsetCommit": "settle",
}
