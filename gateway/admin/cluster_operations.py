"""Operations on the cluster over HTTP: move partitions, call that off, drain and empty nodes, spread bytes.

The supervisor does them (node/cluster/operator.py); here are the requests, and what a node answers that is alone: it
has one place for everything, and refuses what would need another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

from aiohttp import web
from msgspec import Meta, Struct

from engine.errors import InvalidConfig, UnknownPartition, UnknownTopic
from gateway.access.access import caller_of
from gateway.access.tokens_file import Right
from gateway.admin.cluster_rows import progress_of, reassignment_rows
from gateway.admin.topics import answer
from gateway.http.json_body import read_json
from gateway.http.problems import Problem
from gateway.http.query import partition_number, path_partition, read_query
from gateway.node import NODE, Node
from gateway.routing.routing import described_row, sizes_of_all, topic_id_of
from replication.errors import NoOtherNode

NodeId = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class _Reassign(Struct, forbid_unknown_fields=True):
    topic: str
    partitions: Annotated[dict[str, Annotated[list[NodeId], Meta(min_length=1, max_length=16)]], Meta(min_length=1)]


class _Drain(Struct, forbid_unknown_fields=True):
    drained: bool


class _Balance(Struct, forbid_unknown_fields=True):
    apply: bool = False


async def list_reassignments(request: web.Request) -> web.Response:
    """GET /v1/cluster/reassignments"""
    node, caller = request.app[NODE], caller_of(request)
    read_query(request, {})
    rows = [] if node.peers.nodes is None else reassignment_rows(node.peers.nodes.view)
    seen = (row for row in rows if caller.allows(Right.READ, row["topic"]))
    return answer({"reassignments": await _with_progress(node, seen)})


async def reassign(request: web.Request) -> web.Response:
    """POST /v1/cluster/reassignments"""
    node = _operating(request)
    wish = await read_json(request, _Reassign)
    targets = {partition_number(text): nodes for text, nodes in wish.partitions.items()}
    await node.look_for(wish.topic, 1 + max(targets, default=0))
    for number in targets:
        topic_id_of(node, wish.topic, number)
    if node.operate is None:
        for number, nodes in targets.items():
            _check_own(node, number, nodes)
        return answer({"reassignments": []}, 202)
    rows = await node.operate("reassign", wish.topic, targets)
    return answer({"reassignments": await _with_progress(node, rows)}, 202)


async def cancel_reassignment(request: web.Request) -> web.Response:
    """DELETE /v1/cluster/reassignments/{topic}/{partition}"""
    node = _operating(request)
    topic, number = request.match_info["topic"], path_partition(request)
    topic_id_of(node, topic, number)
    if node.operate is not None:
        await node.operate("cancel", topic, number)
    return web.Response(status=204)


async def drain_node(request: web.Request) -> web.Response:
    """POST /v1/cluster/nodes/{node_id}/drain"""
    node = _operating(request)
    wish, node_id = await read_json(request, _Drain), _node_id(request)
    await _in_cluster(node)("drain", node_id, wish.drained)
    return answer({"node_id": node_id, "drained": wish.drained})


async def decommission_node(request: web.Request) -> web.Response:
    """POST /v1/cluster/nodes/{node_id}/decommission"""
    node = _operating(request)
    node_id, operate = _node_id(request), _in_cluster(node)
    moving = await operate("decommission", node_id, await sizes_of_all(node))
    return answer({"node_id": node_id, "moving": moving}, 202)


async def balance(request: web.Request) -> web.Response:
    """POST /v1/cluster/balance"""
    node = _operating(request)
    wish = await read_json(request, _Balance, _Balance())
    moves = [] if node.operate is None else await node.operate("balance", wish.apply, await sizes_of_all(node))
    return answer({"moves": moves, "applied": wish.apply})


async def _with_progress(node: Node, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leaders that do not answer soon, or are not there, are not waited for."""

    async def told(row: dict[str, Any]) -> dict[str, Any]:
        topic = node.shard.topics.get(row["topic"])
        try:
            described = {} if topic is None else await described_row(node, topic.record, row["partition"], 0)
        except (UnknownTopic, UnknownPartition):  # deleted meanwhile
            described = {}
        return {**row, **progress_of(row, described)}

    return await asyncio.gather(*map(told, rows))


def _operating(request: web.Request) -> Node:
    node = request.app[NODE]
    read_query(request, {})
    node.check_accepting()
    return node


def _in_cluster(node: Node) -> Any:
    if node.operate is None:
        raise NoOtherNode(
            "this node is alone: no other can take anything over",
            hint="start the nodes of a cluster with --coordination",
        )
    return node.operate


def _check_own(node: Node, number: int, nodes: list[int]) -> None:
    """As a cluster that has this node alone would answer (replication/cluster/operations.py)."""
    own = node.settings.node_id
    if nodes != [own]:
        text = f"partition {number}: replicas {nodes} are not all there"
        raise InvalidConfig(text, hint=f"the nodes that are there are [{own}]: this one is alone", setting="replicas")


def _node_id(request: web.Request) -> int:
    text = request.match_info["node_id"]
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and 1 <= int(text) < 2**31):
        raise Problem("invalid_config", f"{text[:64]!r} is no number of a node", setting="node_id")
    return int(text)
