"""The operations on a cluster, as a shard sends them to its supervisor: a name, then the arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct


class Reassign(Struct, frozen=True, array_like=True, tag="reassign"):
    """Moves partitions of a topic to the given nodes."""

    topic: str
    targets: dict[int, list[int]]


class CancelReassignment(Struct, frozen=True, array_like=True, tag="cancel"):
    topic: str
    partition: int


class ElectPreferred(Struct, frozen=True, array_like=True, tag="elect"):
    """Makes the first replica of partitions their leader, where it is in sync. Returns those that it then leads."""

    topic: str
    partitions: list[int]


class ChangeReplicationFactor(Struct, frozen=True, array_like=True, tag="change_replication_factor"):
    topic: str
    replication_factor: int


class DrainNode(Struct, frozen=True, array_like=True, tag="drain"):
    node_id: int
    is_drained: bool


class DecommissionNode(Struct, frozen=True, array_like=True, tag="decommission"):
    """Removes a node. `sizes` has the bytes of each partition."""

    node_id: int
    sizes: dict[str, int]


class Balance(Struct, frozen=True, array_like=True, tag="balance"):
    """Plans moves, and makes them if `is_applied`. `sizes` has the bytes of each partition."""

    is_applied: bool
    sizes: dict[str, int]


Operation = (
    Reassign | CancelReassignment | ElectPreferred | ChangeReplicationFactor | DrainNode | DecommissionNode | Balance
)
Operate = Callable[[Operation], Awaitable[Any]]
