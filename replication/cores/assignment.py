"""Which nodes get the replicas of a new topic: spread over racks, leaders and replicas balanced.

Pure; counts what the nodes have already. Deterministic: ties go to the smaller node id, after where the last partition
ended, so that equal nodes take turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from replication.cores.partition_state import PartitionState


class TooFewNodes(ValueError):
    """The replication factor is above the number of nodes. Lower it, or start more nodes."""


def assigned_replicas(
    racks: Mapping[int, str], partitions: int, replication_factor: int, existing: Iterable[PartitionState] = ()
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the preferred leader first. Raises TooFewNodes."""
    if replication_factor > len(racks):
        raise TooFewNodes(f"replication_factor {replication_factor} is above the number of nodes, {len(racks)}")
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for state in existing:
        leaders[state.replicas[0]] += 1
        replicas.update(state.replicas)
    found = []
    for _ in range(partitions):
        chosen = _chosen(racks, replication_factor, leaders, replicas)
        leaders[chosen[0]] += 1
        replicas.update(chosen)
        found.append(chosen)
    return found


def _chosen(
    racks: Mapping[int, str], replication_factor: int, leaders: Counter[int], replicas: Counter[int]
) -> tuple[int, ...]:
    chosen = [min(racks, key=lambda node: (leaders[node], replicas[node], node))]
    while len(chosen) < replication_factor:
        used = Counter(racks[node] for node in chosen)
        rest = [node for node in racks if node not in chosen]
        # on a tie one that leads already: who leads nothing yet is to lead one of the next partitions
        chosen.append(min(rest, key=lambda node: (used[racks[node]], replicas[node], -leaders[node], node)))
    return tuple(chosen)
