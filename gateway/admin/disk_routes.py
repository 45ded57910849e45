"""Requests about the disks of a node: what they hold, and moves of partitions between them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gateway.admin.cluster_operations import check_operating, path_node_id
from gateway.admin.context import AdminContext
from gateway.admin.disks import DiskRow, MoveRow, ProcessDisks
from gateway.http.json_body import read_json
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, path_partition, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.http.rights import Operation, Resource

MOVES_MAX = 10_000  # of one request


class _Move(Struct, forbid_unknown_fields=True):
    topic: str
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    to: Annotated[str, Meta(min_length=1, max_length=4096)]


class _Moves(Struct, forbid_unknown_fields=True):
    moves: Annotated[list[_Move], Meta(max_length=MOVES_MAX)] | None = None
    balance: bool = False
    dry_run: bool = False


async def describe_disks(request: Request, context: AdminContext) -> Response:
    """GET /v1/cluster/nodes/{node_id}/disks"""
    read_query(request, NoQuery)
    node_id = path_node_id(request)
    node = await context.disks.describe(node_id)
    caller = request.caller  # who starts moves sees all of them: nothing else says that one has ended
    is_operator = caller.allows(Operation.OPERATE, "", Resource.CLUSTER)
    seen = [row for row in node.moves if is_operator or caller.allows(Operation.READ, row.topic)]
    disks = [_disk(row, node) for row in node.disks]
    return json_response({"node_id": node_id, "disks": disks, "moves": list(map(_move, seen))})


async def move_partitions(request: Request, context: AdminContext) -> Response:
    """POST /v1/cluster/nodes/{node_id}/disks/moves. Raises Problem."""
    check_operating(request, context)
    node_id, body = path_node_id(request), await read_json(request, _Moves)
    if (body.moves is None) is not body.balance:
        raise Problem("invalid_body", "name either moves or balance")
    if body.moves is None:
        rows = await context.disks.plan(node_id)
        moves = [(row.topic, row.partition, row.target) for row in rows]
    else:
        moves = [(move.topic, move.partition, move.to) for move in body.moves]
        if len({move[:2] for move in moves}) < len(moves):
            raise Problem("invalid_body", "a partition has two moves: name it once")
        for topic, number, _ in moves:
            await context.topics.refresh(topic, 1 + number)
            context.partitions.topic_id(topic, number)
        rows = await context.disks.move(node_id, moves, is_dry_run=True)
    if not body.dry_run and moves:
        after = {f"{topic}/{number}": path for topic, number, path in moves}
        await request.intend(before={f"{row.topic}/{row.partition}": row.source for row in rows}, after=after)
        rows = await context.disks.move(node_id, moves, is_dry_run=False)
    status = 200 if body.dry_run else 202
    return json_response({"node_id": node_id, "dry_run": body.dry_run, "moves": list(map(_move, rows))}, status)


async def cancel_move(request: Request, context: AdminContext) -> Response:
    """DELETE /v1/cluster/nodes/{node_id}/disks/moves/{topic}/{partition}"""
    check_operating(request, context)
    node_id, topic, number = path_node_id(request), request.names["topic"], path_partition(request)
    await context.topics.refresh(topic, 1 + number)
    context.partitions.topic_id(topic, number)
    await request.intend(before={f"{topic}/{number}": "moving"})
    await context.disks.cancel(node_id, topic, number)
    return Response(status=204)


def _disk(row: DiskRow, node: ProcessDisks) -> dict[str, object]:
    replicas = [replica for replica in node.replicas if replica.directory == row.path]
    return {
        "path": row.path,
        "online": not row.reason,
        "reason": row.reason or None,
        "free_bytes": row.free_bytes,
        "capacity_bytes": row.capacity_bytes,
        "partitions": len(replicas),
        "size_bytes": sum(replica.size_bytes for replica in replicas),
    }


def _move(row: MoveRow) -> dict[str, object]:
    return {
        "topic": row.topic,
        "partition": row.partition,
        "from": row.source,
        "to": row.target,
        "state": row.state,
        "size_bytes": row.size_bytes,
        "left_bytes": row.left_bytes,
        "error": row.error or None,
    }
