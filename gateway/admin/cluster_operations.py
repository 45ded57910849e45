"""Operations on the cluster over HTTP: reassign partitions, cancel that, drain and decommission nodes, balance bytes.

Here are the requests. `operate` performs them: the supervisor in a cluster (node/cluster/operations.py), else
gateway/admin/standalone_operations.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from engine.errors import UnknownPartition, UnknownTopic
from gateway.admin.cluster_rows import (
    PartitionRow,
    ReassignmentRow,
    ReassignmentWithProgress,
    progress_of,
    reassignment_rows,
)
from gateway.admin.context import AdminContext
from gateway.admin.descriptions import describe_partition
from gateway.admin.operation_calls import (
    Balance,
    CancelReassignment,
    DecommissionNode,
    DrainNode,
    Reassign,
)
from gateway.admin.peer_calls import collect_sizes
from gateway.admin.restart import restart_reasons
from gateway.http.json_body import read_json
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, partition_number, path_partition, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.http.rights import Operation

NodeId = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class _Reassign(Struct, forbid_unknown_fields=True):
    topic: str
    partitions: Annotated[dict[str, Annotated[list[NodeId], Meta(min_length=1, max_length=16)]], Meta(min_length=1)]


class _Drain(Struct, forbid_unknown_fields=True):
    drained: bool


class _Balance(Struct, forbid_unknown_fields=True):
    apply: bool = False


async def list_reassignments(request: Request, context: AdminContext) -> Response:
    """GET /v1/cluster/reassignments"""
    caller = request.caller
    read_query(request, NoQuery)
    seen = (row for row in reassignment_rows(context.peers.cluster) if caller.allows(Operation.READ, row["topic"]))
    return json_response({"reassignments": await _add_progress(context, seen)})


async def reassign(request: Request, context: AdminContext) -> Response:
    """POST /v1/cluster/reassignments"""
    check_operating(request, context)
    reassignment = await read_json(request, _Reassign)
    targets = {partition_number(text): nodes for text, nodes in reassignment.partitions.items()}
    await context.topics.refresh(reassignment.topic, 1 + max(targets, default=0))
    for number in targets:
        context.partitions.topic_id(reassignment.topic, number)
    await request.intend(
        before=_replicas_of(context, reassignment.topic, targets), after=targets, name=reassignment.topic
    )
    rows = await context.operate(Reassign(reassignment.topic, targets))
    return json_response({"reassignments": await _add_progress(context, rows)}, 202)


async def cancel_reassignment(request: Request, context: AdminContext) -> Response:
    """DELETE /v1/cluster/reassignments/{topic}/{partition}"""
    check_operating(request, context)
    topic, number = request.names["topic"], path_partition(request)
    context.partitions.topic_id(topic, number)
    await request.intend(before=_replicas_of(context, topic, [number]))
    await context.operate(CancelReassignment(topic, number))
    return Response(status=204)


async def drain_node(request: Request, context: AdminContext) -> Response:
    """POST /v1/cluster/nodes/{node_id}/drain"""
    check_operating(request, context)
    body, node_id = await read_json(request, _Drain), path_node_id(request)
    before = {"drained": node_id in context.peers.cluster.drained}
    await request.intend(before=before, after={"drained": body.drained})
    await context.operate(DrainNode(node_id, body.drained))
    return json_response({"node_id": node_id, "drained": body.drained})


async def decommission_node(request: Request, context: AdminContext) -> Response:
    """POST /v1/cluster/nodes/{node_id}/decommission"""
    check_operating(request, context)
    node_id = path_node_id(request)
    sizes = await collect_sizes(context)
    await request.intend(after={"decommissioned": True})
    moving = await context.operate(DecommissionNode(node_id, sizes))
    return json_response({"node_id": node_id, "moving": moving}, 202)


async def may_restart(request: Request, context: AdminContext) -> Response:
    """GET /v1/cluster/nodes/{node_id}/may-restart"""
    read_query(request, NoQuery)
    node_id, caller = path_node_id(request), request.caller
    reasons = restart_reasons(context.peers.cluster, node_id, is_silent=not context.replicas.has_contact)
    shown = [row for row in reasons if row["topic"] is None or caller.allows(Operation.READ, row["topic"])]
    return json_response({"node_id": node_id, "may_restart": not reasons, "reasons": shown})


async def balance(request: Request, context: AdminContext) -> Response:
    """POST /v1/cluster/balance"""
    check_operating(request, context)
    body = await read_json(request, _Balance, _Balance())
    sizes = await collect_sizes(context)
    if body.apply:
        await request.intend(after={"apply": True})
    moves = await context.operate(Balance(body.apply, sizes))
    return json_response({"moves": moves, "applied": body.apply})


async def _add_progress(context: AdminContext, rows: Iterable[ReassignmentRow]) -> list[ReassignmentWithProgress]:
    """Adds the progress to each row. Does not wait for leaders that are missing or slow."""

    async def add_progress(row: ReassignmentRow) -> ReassignmentWithProgress:
        described: PartitionRow
        topic = context.topics.get(row["topic"])
        try:
            described = {} if topic is None else await describe_partition(context, topic.record, row["partition"], 0)
        except (UnknownTopic, UnknownPartition):  # deleted meanwhile
            described = {}
        return {**row, **progress_of(row, described)}

    return await asyncio.gather(*map(add_progress, rows))


def _replicas_of(context: AdminContext, topic: str, partitions: Iterable[int]) -> dict[int, list[int]]:
    """Returns the present replicas of partitions, as far as this process knows them."""
    view, found = context.peers.cluster, context.topics.get(topic)
    if found is None:
        return {}
    states = {number: view.states.get((found.record.topic_id, number)) for number in partitions}
    return {number: list(one.state.replicas) for number, one in states.items() if one is not None}


def check_operating(request: Request, context: AdminContext) -> None:
    """Raises Problem unknown_query, Draining."""
    read_query(request, NoQuery)
    context.lifecycle.check_accepting()


def path_node_id(request: Request) -> int:
    """Returns the node of the path. Raises Problem invalid_config."""
    text = request.names["node_id"]
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and 1 <= int(text) < 2**31):
        raise Problem("invalid_config", f"{text[:64]!r} is not a node id", setting="node_id")
    return int(text)
