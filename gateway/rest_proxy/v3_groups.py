"""Consumer groups, their lag, and ACLs of v3: what there is, without changes."""

from __future__ import annotations

from typing import cast

from gateway.access.rules import Effect, Pattern
from gateway.groups.group_lag import measure_lags
from gateway.groups.hosting.calls import DESCRIBE
from gateway.groups.model.settings import PUSH_PREFIX
from gateway.groups.model.values import GroupRow, GroupView, MemberView, OffsetView
from gateway.groups.names import group_name
from gateway.groups.visible_topics import VisibleTopics
from gateway.http.problems import Problem
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.rights import Operation, Resource
from gateway.rest_proxy.context import RestProxyContext
from gateway.rest_proxy.v3 import Document, Paths, json_response, paths_of

_STATES = {"empty": "EMPTY", "stable": "STABLE", "reconciling": "PREPARING_REBALANCE"}
_PATTERNS = {Pattern.LITERAL: "LITERAL", Pattern.PREFIX: "PREFIXED", Pattern.ALL: "LITERAL"}


async def rest_list_groups(request: Request, context: RestProxyContext) -> Response:
    """GET …/consumer-groups. Raises Problem, EngineError."""
    paths, caller = paths_of(request, context), request.caller
    prefix = "" if request.space is None else request.space.prefix
    rows = [
        row
        for row in await context.groups.coordinators.list()
        if row.group.startswith(prefix)
        and not row.group.startswith(PUSH_PREFIX)
        and caller.allows(Operation.DESCRIBE, row.group, Resource.GROUP)
    ]
    data = [_group(paths, row.group, row.state) for row in sorted(rows, key=_name)]
    return paths.collection("KafkaConsumerGroupList", data, "consumer-groups")


def _name(row: GroupRow) -> str:
    return row.group


async def rest_describe_group(request: Request, context: RestProxyContext) -> Response:
    """GET …/consumer-groups/{group}. Raises Problem, EngineError."""
    paths, view = await _find(request, context)
    return json_response(_group(paths, view.group, view.state))


async def rest_list_consumers(request: Request, context: RestProxyContext) -> Response:
    """GET …/consumer-groups/{group}/consumers. Raises Problem, EngineError."""
    paths, view = await _find(request, context)
    data = [_consumer(paths, view.group, member) for member in view.members]
    return paths.collection("KafkaConsumerList", data, "consumer-groups", view.group, "consumers")


async def rest_describe_consumer(request: Request, context: RestProxyContext) -> Response:
    """GET …/consumers/{consumer}. Raises Problem, EngineError."""
    paths, view = await _find(request, context)
    return json_response(_consumer(paths, view.group, _member(request, view)))


async def rest_list_member_partitions(request: Request, context: RestProxyContext) -> Response:
    """GET …/consumers/{consumer}/assignments. Raises Problem, EngineError."""
    paths, view = await _find(request, context)
    member = _member(request, view)
    place = ("consumer-groups", view.group, "consumers", member.member_id, "assignments")
    names = (("consumer-group", view.group), ("consumer", member.member_id))
    data = [
        paths.resource("KafkaConsumerAssignment", (*names, ("assignment", number)), *place, topic, "partitions", number)
        | {
            "consumer_group_id": view.group,
            "consumer_id": member.member_id,
            "topic_name": topic,
            "partition_id": number,
            "partition": paths.related("topics", topic, "partitions", number),
        }
        for topic, number in member.assignment
    ]
    return paths.collection("KafkaConsumerAssignmentList", data, *place)


async def rest_list_lags(request: Request, context: RestProxyContext) -> Response:
    """GET …/consumer-groups/{group}/lags. Raises Problem, EngineError."""
    paths, view = await _find(request, context)
    return paths.collection("KafkaConsumerLagList", await _lags(paths, context, view), *_lag_place(view))


async def rest_describe_lag(request: Request, context: RestProxyContext) -> Response:
    """GET …/lags/{topic}/partitions/{partition}. Raises Problem, EngineError."""
    paths, view = await _find(request, context)
    asked = (request.names["topic"], request.names["partition"])
    for lag in await _lags(paths, context, view):
        if (lag["topic_name"], str(lag["partition_id"])) == asked:
            return json_response(lag)
    raise Problem("not_found", f"Lag of partition {asked[1][:20]} of topic {asked[0]} cannot be found.")


async def rest_summarize_lag(request: Request, context: RestProxyContext) -> Response:
    """GET …/consumer-groups/{group}/lag-summary. Raises Problem, EngineError."""
    paths, view = await _find(request, context)
    lags = await _lags(paths, context, view)
    if not lags:
        raise Problem("not_found", f"Consumer group {view.group} has no positions.")
    most = max(lags, key=_lag_of)
    names = (("consumer-group", view.group), ("lag-summary", ""))
    document = paths.resource("KafkaConsumerGroupLagSummary", names, "consumer-groups", view.group, "lag-summary") | {
        "consumer_group_id": view.group,
        "max_lag_consumer_id": most["consumer_id"],
        "max_lag_instance_id": most["instance_id"],
        "max_lag_client_id": most["client_id"],
        "max_lag_topic_name": most["topic_name"],
        "max_lag_partition_id": most["partition_id"],
        "max_lag": most["lag"],
        "total_lag": sum(map(_lag_of, lags)),
        "max_lag_consumer": paths.related("consumer-groups", view.group, "consumers", most["consumer_id"]),
        "max_lag_partition": paths.related("topics", most["topic_name"], "partitions", most["partition_id"]),
    }
    return json_response(document)


def _lag_of(lag: Document) -> int:
    return cast(int, lag["lag"])


async def _find(request: Request, context: RestProxyContext) -> tuple[Paths, GroupView]:
    """Returns the group in the path, as far as the caller may know its topics. Raises UnknownGroup."""
    paths, group = paths_of(request, context), group_name(request)
    view = await context.groups.coordinators.call(DESCRIBE, GroupView, group, group)
    return paths, VisibleTopics(request.caller).view(view)


def _member(request: Request, view: GroupView) -> MemberView:
    for member in view.members:
        if member.member_id == request.names["consumer"]:
            return member
    raise Problem("not_found", f"Consumer {request.names['consumer'][:200]} cannot be found.")


def _group(paths: Paths, name: str, state: str) -> Document:
    place = ("consumer-groups", name)
    return paths.resource("KafkaConsumerGroup", (("consumer-group", name),), *place) | {
        "consumer_group_id": name,
        "is_simple": state == "empty",
        "partition_assignor": "",
        "state": _STATES.get(state, "UNKNOWN"),
        "coordinator": paths.related("brokers"),
        "consumers": paths.related(*place, "consumers"),
        "lag_summary": paths.related(*place, "lag-summary"),
    }


def _consumer(paths: Paths, group: str, member: MemberView) -> Document:
    place = ("consumer-groups", group, "consumers", member.member_id)
    names = (("consumer-group", group), ("consumer", member.member_id))
    return paths.resource("KafkaConsumer", names, *place) | {
        "consumer_group_id": group,
        "consumer_id": member.member_id,
        "instance_id": None,
        "client_id": member.client_id,
        "assignments": paths.related(*place, "assignments"),
    }


def _lag_place(view: GroupView) -> tuple[str, str, str]:
    return "consumer-groups", view.group, "lags"


async def _lags(paths: Paths, context: RestProxyContext, view: GroupView) -> list[Document]:
    """Returns the lag of each partition with a position, as far as it can be learnt now."""
    committed = [one for one in view.offsets if one.offset is not None]
    measured = await measure_lags(
        context.groups.router, [(one.topic, one.partition, one.offset or 0) for one in committed]
    )
    clients = {member.member_id: member.client_id for member in view.members}
    return [
        _lag(paths, view, one, lag.high_watermark, clients)
        for one, lag in zip(committed, measured, strict=True)
        if lag is not None
    ]


def _lag(paths: Paths, view: GroupView, one: OffsetView, end: int, clients: dict[str, str]) -> Document:
    names = (("consumer-group", view.group), ("topic", one.topic), ("partition", one.partition))
    place = (*_lag_place(view), one.topic, "partitions", one.partition)
    return paths.resource("KafkaConsumerLag", names, *place) | {
        "consumer_group_id": view.group,
        "topic_name": one.topic,
        "partition_id": one.partition,
        "current_offset": one.offset,
        "log_end_offset": end,
        "lag": max(0, end - (one.offset or 0)),
        "consumer_id": one.member_id,
        "instance_id": None,
        "client_id": clients.get(one.member_id, ""),
    }


def rest_list_acls(request: Request, context: RestProxyContext) -> Response:
    """GET …/acls: the access rules of the cluster, one row for each principal and operation. Raises Problem."""
    paths = paths_of(request, context)
    tenant = None if request.space is None else request.space.tenant
    data = [
        paths.resource("KafkaAcl", (("acl", rule.id),), "acls")
        | {
            "resource_type": rule.resource.value.upper(),
            "resource_name": "*" if rule.pattern is Pattern.ALL else rule.name,
            "pattern_type": _PATTERNS[rule.pattern],
            "principal": f"User:{principal}",
            "host": ",".join(rule.sources) or "*",
            "operation": operation.value.upper(),
            "permission": "ALLOW" if rule.effect is Effect.ALLOW else "DENY",
        }
        for rule in context.access.snapshot.state.rules
        if rule.tenant == tenant
        for principal in rule.principals
        for operation in rule.operations
    ]
    return paths.collection("KafkaAclList", data, "acls")
