"""The routes of the contract that the client uses, as functions from arguments to Request values.

Pure. Bodies of records are made in client/lines.py; this file only says where they go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import orjson

from client.exchange import Request

JSON_TYPE = "application/json"
NDJSON_TYPE = "application/x-ndjson"
RACK_HEADER = "Penstock-Rack"
BATCH_TYPE = "application/vnd.penstock.recordbatch"


def create_topic(
    topic: str,
    partitions: int | None = None,
    replication_factor: int | None = None,
    config: Mapping[str, Any] | None = None,
) -> Request:
    wanted = {"partitions": partitions, "replication_factor": replication_factor, "config": config}
    return _with_json("PUT", _topic(topic), {name: value for name, value in wanted.items() if value is not None})


def list_topics() -> Request:
    return Request("GET", "/v1/topics")


def describe_topic(topic: str) -> Request:
    return Request("GET", _topic(topic))


def alter_topic(
    topic: str,
    config: Mapping[str, Any] | None = None,
    partitions: int | None = None,
    replication_factor: int | None = None,
) -> Request:
    wish = {"config": config, "partitions": partitions, "replication_factor": replication_factor}
    return _with_json("PATCH", _topic(topic), {name: value for name, value in wish.items() if value is not None})


def delete_topic(topic: str) -> Request:
    return Request("DELETE", _topic(topic))


def roll_topic(topic: str) -> Request:
    return Request("POST", f"{_topic(topic)}/roll")


def tier_status(topic: str) -> Request:
    return Request("GET", f"{_topic(topic)}/tier")


def cluster() -> Request:
    return Request("GET", "/v1/cluster")


def reassignments() -> Request:
    return Request("GET", "/v1/cluster/reassignments")


def reassign(topic: str, targets: Mapping[int, Sequence[int]]) -> Request:
    partitions = {str(number): list(nodes) for number, nodes in targets.items()}
    return _with_json("POST", "/v1/cluster/reassignments", {"topic": topic, "partitions": partitions})


def cancel_reassignment(topic: str, partition: int) -> Request:
    return Request("DELETE", f"/v1/cluster/reassignments/{quote(topic, safe='')}/{partition}")


def drain_node(node_id: int, is_drained: bool) -> Request:
    return _with_json("POST", f"/v1/cluster/nodes/{node_id}/drain", {"drained": is_drained})


def decommission_node(node_id: int) -> Request:
    return Request("POST", f"/v1/cluster/nodes/{node_id}/decommission")


def balance(is_applied: bool) -> Request:
    return _with_json("POST", "/v1/cluster/balance", {"apply": is_applied})


def create_producer() -> Request:
    return Request("POST", "/v1/producers")


def positions(topic: str, partition: int, timestamp: int | str | None = None) -> Request:
    query: dict[str, str | int] = {} if timestamp is None else {"timestamp": timestamp}
    return Request("GET", f"{_topic(topic)}/partitions/{partition}/offsets", query)


def produce(
    topic: str,
    body: bytes,
    content_type: str,
    *,
    partition: int | None,
    query: Mapping[str, str | int],
    headers: Mapping[str, str] = {},
) -> Request:
    return Request("POST", _records(topic, partition), query, body, {"Content-Type": content_type, **headers})


def produce_conditions(
    idempotency_key: str | None, expected_end: int | None, fencing_token: str | None
) -> dict[str, str]:
    """The headers of what a produce request may demand of the node."""
    wanted = {
        "Idempotency-Key": idempotency_key,
        "Penstock-Expected-End": expected_end,
        "Penstock-Fencing-Token": fencing_token,
    }
    return {name: str(value) for name, value in wanted.items() if value is not None}


def fetch(
    topic: str,
    partition: int,
    accept: str,
    query: Mapping[str, str | int],
    leader_epoch: int | None = None,
    rack: str = "",
) -> Request:
    """With a `leader_epoch` no leader is served from that knows only of an earlier one; with a `rack`, from there."""
    headers = {"Accept": accept}
    if leader_epoch:
        headers["Penstock-Leader-Epoch"] = str(leader_epoch)
    if rack:
        headers[RACK_HEADER] = rack
    return Request("GET", _records(topic, partition), query, None, headers)


def _topic(topic: str) -> str:
    return f"/v1/topics/{quote(topic, safe='')}"


def _records(topic: str, partition: int | None) -> str:
    return f"{_topic(topic)}/records" if partition is None else f"{_topic(topic)}/partitions/{partition}/records"


def _with_json(method: str, path: str, document: Mapping[str, Any]) -> Request:
    return Request(method, path, {}, orjson.dumps(document), {"Content-Type": JSON_TYPE})
