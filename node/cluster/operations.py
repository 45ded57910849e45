"""The supervisor's side of administrative operations: runs operations that a shard received over HTTP, in plain values.

gateway/admin/cluster_operations.py parses the requests, replication/cluster/operations.py decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypedDict, cast

from gateway.admin.cluster_rows import ReassignmentRow, reassignment_rows
from gateway.admin.operation_calls import (
    Balance,
    CancelReassignment,
    ChangeReplicationFactor,
    DecommissionNode,
    DrainNode,
    ElectPreferred,
    Operation,
    Reassign,
)
from gateway.links.link import Answer, Handler, handler
from replication.cluster.agent import ClusterAgent
from replication.cluster.keys import partition_key
from replication.cluster.store_calls import with_store_timeout
from replication.cores.assignment import Move


class MoveRow(TypedDict):
    """A replica that balancing moves, in bytes and node ids."""

    topic: str
    partition: int
    from_node: int
    to_node: int
    size_bytes: int
    replicas: list[int]


class ClusterOperator:
    def __init__(self, agent: ClusterAgent) -> None:
        self._agent = agent

    def __repr__(self) -> str:
        return f"ClusterOperator({self._agent})"

    def handlers(self) -> Mapping[str, Handler]:
        """Returns the handler for shards."""

        async def operate(operation: Operation, _: bytes) -> Answer:
            return await with_store_timeout(self._agent.session, partial(self._operate, operation)), b""

        return {"operate": handler(cast(Any, Operation), operate)}

    async def _operate(self, operation: Operation) -> object:
        match operation:
            case Reassign(topic, targets):
                return await self._reassign(topic, targets)
            case CancelReassignment(topic, number):
                await self._agent.operations.cancel_reassignment(topic, number)
            case ElectPreferred(topic, numbers):
                return await self._agent.operations.elect_preferred(topic, numbers)
            case ChangeReplicationFactor(topic, replication_factor):
                await self._agent.operations.change_replication_factor(topic, replication_factor)
            case DrainNode(node_id, is_drained):
                await self._agent.operations.drain_node(node_id, is_drained)
            case DecommissionNode(node_id, sizes):
                return await self._agent.operations.decommission_node(node_id, lambda name: sizes.get(name, 0))
            case Balance(is_applied, sizes):
                return await self._balance(is_applied, sizes)
        return None

    async def _reassign(self, topic: str, targets: Mapping[int, list[int]]) -> list[ReassignmentRow]:
        await self._agent.operations.reassign(topic, targets)
        return [row for row in reassignment_rows(self._agent.view) if row["topic"] == topic]

    async def _balance(self, is_applied: bool, sizes: Mapping[str, int]) -> list[MoveRow]:
        operations = self._agent.operations
        moves = await operations.plan_balance(lambda name: sizes.get(name, 0))
        if is_applied:
            await operations.apply(moves)
        return [self._move_row(move) for move in moves]

    def _move_row(self, move: Move) -> MoveRow:
        topic_id, number = partition_key(move.partition)
        topic = self._agent.view.topic_by_id(topic_id)
        return {
            "topic": topic_id if topic is None else topic.name,
            "partition": number,
            "from_node": move.from_node,
            "to_node": move.to_node,
            "size_bytes": move.bytes,
            "replicas": list(move.target),
        }
