"""The operations on a cluster, as a standalone node performs them: it has one place for every replica.

Answers as a cluster of this node alone would (replication/cluster/operations.py): what is so already succeeds, and an
operation that needs another node is rejected.
"""

from __future__ import annotations

from typing import Any

from engine.errors import InvalidConfig
from gateway.admin.operation_calls import (
    Balance,
    CancelReassignment,
    ChangeReplicationFactor,
    DecommissionNode,
    DrainNode,
    ElectPreferred,
    Operate,
    Operation,
    Reassign,
)
from replication.errors import NoOtherNode


def operate_standalone(node_id: int) -> Operate:
    """Returns the function that performs the operations on this node."""

    async def operate(operation: Operation) -> Any:
        match operation:
            case Reassign(_, targets):
                for number, nodes in targets.items():
                    _check_own(node_id, number, nodes)
                return []
            case ChangeReplicationFactor(_, replication_factor):
                if replication_factor != 1:
                    text = f"replication_factor is {replication_factor}"
                    raise InvalidConfig(text, hint="this node is standalone: use 1", setting="replication_factor")
            case DrainNode() | DecommissionNode():
                raise NoOtherNode(
                    "this node is standalone: there is no other node",
                    hint="start the nodes of a cluster with --coordination",
                )
            case Balance():
                return []
            case ElectPreferred():
                return []  # this node leads what it has
            case CancelReassignment():
                pass  # none is in progress
        return None

    return operate


def _check_own(node_id: int, number: int, nodes: list[int]) -> None:
    if nodes != [node_id]:
        text = f"partition {number}: replicas {nodes} name unknown nodes"
        raise InvalidConfig(text, hint=f"the known nodes are [{node_id}]: this one is standalone", setting="replicas")
