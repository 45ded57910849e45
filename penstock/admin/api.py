"""The routes that several parts of the client use, as functions from arguments to Request values. Pure.

A route that only a method of `Admin` uses is in that method (admin.py).
"""

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
    return with_json("PUT", topic_path(topic), given(body))


def list_topics(**query: str | int | None) -> Request:
    return with_query("/v1/topics", query)


def overview() -> Request:
    return Request("GET", "/v1/overview")


def history(**query: str | int | None) -> Request:
    return with_query("/v1/history", query)


def node_settings() -> Request:
    return Request("GET", "/v1/settings")


def describe_topic(topic: str) -> Request:
    return Request("GET", topic_path(topic))


def cluster() -> Request:
    return Request("GET", "/v1/cluster")


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
    return with_query(f"/v1/tenants/{quote(tenant, safe='')}/usage", {"from": begin or None, "to": end or None})


def _access(
    method: str, path: str, document: Mapping[str, Any] | None, headers: dict[str, str], query: Query
) -> Request:
    if document is None:
        return Request(method, path, query, None, headers)
    return Request(method, path, query, _dump(document), {"Content-Type": JSON_TYPE, **headers})


def list_groups(**query: str | int | None) -> Request:
    return with_query("/v1/groups", query)


def describe_group(group: str) -> Request:
    return Request("GET", group_path(group))


def configure_group(group: str, config: Mapping[str, Any]) -> Request:
    return with_json("PUT", group_path(group), {"config": config})


def leave_group(group: str, member_id: str) -> Request:
    return Request("DELETE", f"{group_path(group)}/members/{quote(member_id, safe='')}")


def commit_offsets(
    group: str,
    offsets: Sequence[Mapping[str, Any]],
    is_forced: bool = False,
    *,
    member: Mapping[str, Any] = MappingProxyType({}),
) -> Request:
    """Makes a commit; `member` has `member_id` and `member_epoch`, and is empty without membership."""
    body = {"offsets": list(offsets), "force": is_forced, **member}
    return with_json("PUT", f"{group_path(group)}/offsets", body)


def group_poll(group: str, member_id: str, body: Mapping[str, Any], rack: str = "") -> Request:
    """Makes a poll. A group with the assignor `rack_aware` prefers partitions in `rack` for the member."""
    request = with_json("POST", f"{group_path(group)}/members/{quote(member_id, safe='')}/poll", body)
    return request._replace(headers={**request.headers, RACK_HEADER: rack}) if rack else request


def group_heartbeat(group: str, body: Mapping[str, Any]) -> Request:
    return with_json("POST", f"{group_path(group)}/heartbeat", body)


def acquire_records(group: str, body: Mapping[str, Any]) -> Request:
    return with_json("POST", f"{group_path(group)}/acquire", body)


def acknowledge_records(group: str, body: Mapping[str, Any]) -> Request:
    return with_json("POST", f"{group_path(group)}/acknowledge", body)


def group_path(group: str) -> str:
    return f"/v1/groups/{quote(group, safe='')}"


def with_json(method: str, path: str, document: Mapping[str, Any]) -> Request:
    return Request(method, path, {}, _dump(document), {"Content-Type": JSON_TYPE})


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values that are given: those that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def _dump(document: Mapping[str, Any]) -> bytes:
    """Raises ClientError, for instance for a number of more than 64 bits."""
    try:
        return orjson.dumps(document)
    except TypeError as error:
        raise ClientError(f"the request cannot be written as JSON: {error}") from None


def with_query(path: str, query: Mapping[str, str | int | None]) -> Request:
    """Returns the request with the values that are given."""
    return Request("GET", path, given(query))
