"""The controller core: compares every partition's state with the registered nodes and returns the writes to make.

The decisions per partition are election.py's and reassignment.py's. The driver reads and writes the store. Each write
carries the controller epoch, so that the store rejects those of a deposed controller. Invariant: at most one write per
partition is in flight; a rejected write is followed by a read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from replication.cores.election import reconciled, with_preferred_leader
from replication.cores.partition_state import PartitionState, Registrations, TopicRules, VersionedState


@dataclass(frozen=True, slots=True)
class Write:
    """Compare-and-set one partition's state, in one transaction with a check of the controller epoch."""

    partition: str
    state: PartitionState
    partition_epoch: int
    controller_epoch: int


@dataclass(slots=True)
class _Partition:
    found: VersionedState
    rules: TopicRules
    is_writing: bool = False


class Controller:
    """One controller epoch. Each election of this node makes a new instance with a greater epoch."""

    def __init__(self, controller_epoch: int) -> None:
        self.controller_epoch = controller_epoch
        self._nodes: Registrations = {}
        self._partitions: dict[str, _Partition] = {}

    def __repr__(self) -> str:
        return (
            f"Controller(epoch={self.controller_epoch}, {len(self._nodes)} nodes, {len(self._partitions)} partitions)"
        )

    def on_nodes(self, nodes: Registrations) -> list[Write]:
        """Takes the registered nodes. Every partition is checked again: one pass over small values."""
        self._nodes = nodes
        return [write for partition in self._partitions for write in self._evaluate(partition)]

    def on_partition(self, partition: str, versioned: VersionedState, rules: TopicRules) -> list[Write]:
        """Takes a state from the store. Ignores one that is older than the known state."""
        current = self._partitions.get(partition)
        if current is not None and versioned.partition_epoch < current.found.partition_epoch:
            return []
        is_writing = (
            current is not None and current.is_writing and versioned.partition_epoch == current.found.partition_epoch
        )
        self._partitions[partition] = _Partition(versioned, rules, is_writing)
        return self._evaluate(partition)

    def on_deleted(self, partition: str) -> None:
        self._partitions.pop(partition, None)

    def on_rejected(self, partition: str) -> None:
        """Notes that a write lost the compare-and-set. The driver reads; on_partition continues."""
        if partition in self._partitions:
            self._partitions[partition].is_writing = False

    def moves_to_preferred(self) -> list[Write]:
        """Returns the writes of a preferred leader election. Called every `leader_imbalance_check_ms`."""
        return self._changes(with_preferred_leader)

    def _evaluate(self, partition: str) -> list[Write]:
        return self._change(partition, reconciled)

    def _changes(self, change: _Wanted) -> list[Write]:
        return [write for partition in self._partitions for write in self._change(partition, change)]

    def _change(self, partition: str, change: _Wanted) -> list[Write]:
        current = self._partitions[partition]
        if current.is_writing:
            return []
        state = change(partition, current.found.state, current.rules, self._nodes)
        if state == current.found.state:
            return []
        current.is_writing = True
        return [Write(partition, state, current.found.partition_epoch, self.controller_epoch)]


_Wanted = Callable[[str, PartitionState, TopicRules, Registrations], PartitionState]


def is_unbalanced(states: Iterable[PartitionState], nodes: Container[int], imbalance_percent: int) -> bool:
    """True if a node's share of preferred partitions led elsewhere exceeds `imbalance_percent` (Kafka: leader
    imbalance).
    """
    meant: Counter[int] = Counter()
    elsewhere: Counter[int] = Counter()
    for state in states:
        preferred = state.replicas[0]
        if preferred in nodes:
            meant[preferred] += 1
            elsewhere[preferred] += state.leader is None or state.leader.node_id != preferred
    return any(elsewhere[node] * 100 > meant[node] * imbalance_percent for node in meant)
