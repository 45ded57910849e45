"""The supervisor's side of administrative operations: runs operations that a shard received over HTTP, in plain values.

gateway/admin/cluster_operations.py parses the requests, replication/cluster/operations.py decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypedDict

from gateway.admin.cluster_rows import ReassignmentRow, reassignment_rows
from gateway.links.link import Handler
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
        self._calls: dict[str, Callable[..., Awaitable[Any]]] = {
            "reassign": self._reassign,
            "cancel": self._cancel,
            "change_replication_factor": self._change_replication_factor,
            "drain": self._drain,
            "decommission": self._decommission,
            "balance": self._balance,
        }

    def __repr__(self) -> str:
        return f"ClusterOperator({self._agent})"

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler for shards: the name of an operation and its arguments."""

        async def operate(arguments: Any, _: bytes) -> tuple[Any, bytes]:
            name, *rest = arguments
            return await with_store_timeout(self._agent.session, partial(self._calls[name], *rest)), b""

        return {"operate": operate}

    async def _reassign(self, topic: str, targets: Mapping[int, list[int]]) -> list[ReassignmentRow]:
        await self._agent.operations.reassign(topic, targets)
        return [row for row in reassignment_rows(self._agent.view) if row["topic"] == topic]

    async def _cancel(self, topic: str, number: int) -> None:
        await self._agent.operations.cancel_reassignment(topic, number)

    async def _change_replication_factor(self, topic: str, replication_factor: int) -> None:
        await self._agent.operations.change_replication_factor(topic, replication_factor)

    async def _drain(self, node_id: int, is_drained: bool) -> None:
        await self._agent.operations.drain_node(node_id, is_drained)

    async def _decommission(self, node_id: int, sizes: Mapping[str, int]) -> int:
        return await self._agent.operations.decommission_node(node_id, lambda name: sizes.get(name, 0))

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
