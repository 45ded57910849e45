"""The routes of topics and of the cluster, as functions from arguments to Request values. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import orjson

from penstock.errors import ClientError
from penstock.transport.api import JSON_TYPE, RACK_HEADER, topic_path
from penstock.transport.exchange import Json, Query, Request

_FORCED: Query = MappingProxyType({"force": "true"})


def create_topic(
    topic: str,
    partitions: int | None = None,
    replication_factor: int | None = None,
    config: Mapping[str, Any] | None = None,
) -> Request:
    body = {"partitions": partitions, "replication_factor": replication_factor, "config": config}
    return _with_json("PUT", topic_path(topic), {name: value for name, value in body.items() if value is not None})


def list_topics(**query: str | int | None) -> Request:
    return _with_query("/v1/topics", query)


def overview() -> Request:
    return Request("GET", "/v1/overview")


def history(**query: str | int | None) -> Request:
    return _with_query("/v1/history", query)


def me() -> Request:
    return Request("GET", "/v1/me")


def node_settings() -> Request:
    return Request("GET", "/v1/settings")


def describe_topic(topic: str) -> Request:
    return Request("GET", topic_path(topic))


def alter_topic(
    topic: str,
    config: Mapping[str, Any] | None = None,
    partitions: int | None = None,
    replication_factor: int | None = None,
    unset: Sequence[str] | None = None,
) -> Request:
    body = {
        "config": config,
        "unset": None if unset is None else list(unset),
        "partitions": partitions,
        "replication_factor": replication_factor,
    }
    return _with_json("PATCH", topic_path(topic), {name: value for name, value in body.items() if value is not None})


def delete_topic(topic: str) -> Request:
    return Request("DELETE", topic_path(topic))


def roll_topic(topic: str) -> Request:
    return Request("POST", f"{topic_path(topic)}/roll")


def delete_records(topic: str, partition: int, before: int) -> Request:
    return Request("DELETE", f"{topic_path(topic)}/partitions/{partition}/records", {"before": before})


def tier_status(topic: str) -> Request:
    return Request("GET", f"{topic_path(topic)}/tier")


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


def describe_disks(node_id: int) -> Request:
    return Request("GET", f"/v1/cluster/nodes/{node_id}/disks")


def move_partitions(node_id: int, moves: Sequence[tuple[str, int, str]] | None, is_dry_run: bool) -> Request:
    document: dict[str, object] = {"dry_run": is_dry_run}
    if moves is None:
        document["balance"] = True
    else:
        document["moves"] = [{"topic": topic, "partition": number, "to": path} for topic, number, path in moves]
    return _with_json("POST", f"/v1/cluster/nodes/{node_id}/disks/moves", document)


def cancel_move(node_id: int, topic: str, partition: int) -> Request:
    return Request("DELETE", f"/v1/cluster/nodes/{node_id}/disks/moves/{quote(topic, safe='')}/{partition}")


def balance(is_applied: bool) -> Request:
    return _with_json("POST", "/v1/cluster/balance", {"apply": is_applied})


def list_subscriptions(**query: str | int | None) -> Request:
    return _with_query("/v1/subscriptions", query)


def subscription(method: str, name: str, action: str = "", document: Json | None = None) -> Request:
    """Returns a request about one subscription: `action` is pause, resume, replay, or empty."""
    path = f"/v1/subscriptions/{quote(name, safe='')}" + (f"/{action}" if action else "")
    if document is None:
        return Request(method, path)
    return Request(method, path, {}, _dump(document), {"Content-Type": "application/json"})


def access(
    method: str,
    what: str,
    document: Mapping[str, Any] | None = None,
    *,
    of: str = "",
    force: bool = False,
    tenant: str | None = None,
    page: Query = MappingProxyType({}),
) -> Request:
    """Return a request about rules, tokens, quotas or decisions. `of` is one of them, with an action behind it."""
    headers = {} if tenant is None else {"Penstock-Tenant": tenant}
    path = f"/v1/access/{what}" + (f"/{quote(of)}" if of else "")
    return _access(method, path, document, headers, _FORCED if force else page)


def tenants(
    method: str,
    tenant: str = "",
    document: Mapping[str, Any] | None = None,
    *,
    force: bool = False,
    page: Query = MappingProxyType({}),
) -> Request:
    """Return a request about one tenant, or about all."""
    path = "/v1/tenants" + (f"/{quote(tenant, safe='')}" if tenant else "")
    return _access(method, path, document, {}, _FORCED if force else page)


def usage(tenant: str, begin: str | None, end: str | None) -> Request:
    """Return a request for what a tenant has used."""
    return _with_query(f"/v1/tenants/{quote(tenant, safe='')}/usage", {"from": begin or None, "to": end or None})


def _access(
    method: str, path: str, document: Mapping[str, Any] | None, headers: dict[str, str], query: Query
) -> Request:
    if document is None:
        return Request(method, path, query, None, headers)
    return Request(method, path, query, _dump(document), {"Content-Type": JSON_TYPE, **headers})


def list_groups(**query: str | int | None) -> Request:
    return _with_query("/v1/groups", query)


def describe_group(group: str) -> Request:
    return Request("GET", _group_path(group))


def explain_group(group: str) -> Request:
    return Request("GET", f"{_group_path(group)}/explanation")


def configure_group(group: str, config: Mapping[str, Any]) -> Request:
    return _with_json("PUT", _group_path(group), {"config": config})


def delete_group(group: str) -> Request:
    return Request("DELETE", _group_path(group))


def leave_group(group: str, member_id: str) -> Request:
    return Request("DELETE", f"{_group_path(group)}/members/{quote(member_id, safe='')}")


def group_offsets(group: str) -> Request:
    return Request("GET", f"{_group_path(group)}/offsets")


def commit_offsets(
    group: str,
    offsets: Sequence[Mapping[str, Any]],
    is_forced: bool = False,
    *,
    member: Mapping[str, Any] = MappingProxyType({}),
) -> Request:
    """Makes a commit; `member` has `member_id` and `member_epoch`, and is empty without membership."""
    body = {"offsets": list(offsets), "force": is_forced, **member}
    return _with_json("PUT", f"{_group_path(group)}/offsets", body)


def group_poll(group: str, member_id: str, body: Mapping[str, Any], rack: str = "") -> Request:
    """Makes a poll. A group with the assignor `rack_aware` prefers partitions in `rack` for the member."""
    request = _with_json("POST", f"{_group_path(group)}/members/{quote(member_id, safe='')}/poll", body)
    return request._replace(headers={**request.headers, RACK_HEADER: rack}) if rack else request


def group_heartbeat(group: str, body: Mapping[str, Any]) -> Request:
    return _with_json("POST", f"{_group_path(group)}/heartbeat", body)


def acquire_records(group: str, body: Mapping[str, Any]) -> Request:
    return _with_json("POST", f"{_group_path(group)}/acquire", body)


def acknowledge_records(group: str, body: Mapping[str, Any]) -> Request:
    return _with_json("POST", f"{_group_path(group)}/acknowledge", body)


def reset_group(group: str, body: Mapping[str, Any]) -> Request:
    return _with_json("POST", f"{_group_path(group)}/reset", body)


def delete_group_offsets(group: str, topic: str, partition: int | None = None) -> Request:
    query = {"topic": topic} | ({} if partition is None else {"partition": str(partition)})
    return Request("DELETE", f"{_group_path(group)}/offsets", query)


def _group_path(group: str) -> str:
    return f"/v1/groups/{quote(group, safe='')}"


def _with_json(method: str, path: str, document: Mapping[str, Any]) -> Request:
    return Request(method, path, {}, _dump(document), {"Content-Type": JSON_TYPE})


def _dump(document: Mapping[str, Any]) -> bytes:
    """Raises ClientError, for instance for a number of more than 64 bits."""
    try:
        return orjson.dumps(document)
    except TypeError as error:
        raise ClientError(f"the request cannot be written as JSON: {error}") from None


def _with_query(path: str, query: Mapping[str, str | int | None]) -> Request:
    """Returns the request with the values that are given."""
    return Request("GET", path, {name: value for name, value in query.items() if value is not None})
