"""Replica assignment: where replicas of a new topic go, and moves that resize, evacuate or balance existing ones.

Pure functions of partition states; reassignment.py carries out the targets that they return. Counts existing leaders
and replicas per node and spreads over racks. Deterministic: ties go to the smaller node id.
Few moves matter more than a perfect balance, since each move copies bytes. Invariants: a target has at least as many
racks as its nodes allow without another move; a balance plan never swaps two replicas; partitions with a reassignment
in progress are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from replication.cores.partition_state import PartitionState

TOLERATED_PERCENT = 10  # of the mean load; a smaller gap is not worth a copy
MOVES_MAX = 1000  # of one plan; the next plan continues from there

States = Mapping[str, PartitionState]
Racks = Mapping[int, str]
Bytes = Callable[[str], int]


class TooFewNodes(ValueError):
    """The replication factor is above the number of nodes. Lower it, or start more nodes."""


def assigned_replicas(
    racks: Mapping[int, str], partitions: int, replication_factor: int, existing: Iterable[PartitionState] = ()
) -> list[tuple[int, ...]]:
    """Returns the replicas of each partition, the preferred leader first. Raises TooFewNodes."""
    if replication_factor > len(racks):
        raise TooFewNodes(f"replication_factor {replication_factor} is above the number of nodes, {len(racks)}")
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for state in existing:
        leaders[state.replicas[0]] += 1
        replicas.update(state.replicas)
    assignment = []
    for _ in range(partitions):
        chosen = _chosen(racks, replication_factor, leaders, replicas)
        leaders[chosen[0]] += 1
        replicas.update(chosen)
        assignment.append(chosen)
    return assignment


def _chosen(
    racks: Mapping[int, str], replication_factor: int, leaders: Counter[int], replicas: Counter[int]
) -> tuple[int, ...]:
    chosen = [min(racks, key=lambda node: (leaders[node], replicas[node], node))]
    while len(chosen) < replication_factor:
        used = Counter(racks[node] for node in chosen)
        rest = [node for node in racks if node not in chosen]
        # on a tie, a node that leads already: nodes without a leader are kept for the next partitions
        chosen.append(min(rest, key=lambda node: (used[racks[node]], replicas[node], -leaders[node], node)))
    return tuple(chosen)


class Move(NamedTuple):
    """The move of one replica. `bytes` is what the destination copies, `target` the replicas afterwards."""

    partition: str
    from_node: int
    to_node: int
    bytes: int
    target: tuple[int, ...]


def loads(states: States, racks: Racks, bytes_of: Bytes) -> dict[int, int]:
    """Returns the bytes that each node holds. Each partition adds 1, so that empty ones are spread too."""
    loads = dict.fromkeys(racks, 0)
    for partition, state in states.items():
        for node in state.replicas:
            if node in loads and node not in state.removing:
                loads[node] += bytes_of(partition) + 1
    return loads


def resized(states: States, replication_factor: int, racks: Racks, bytes_of: Bytes) -> dict[str, tuple[int, ...]]:
    """Returns the replicas of each partition with another replication factor. Raises TooFewNodes."""
    held = loads(states, racks, bytes_of)
    targets = {}
    for partition, state in states.items():
        target = _target(state)
        while len(target) > replication_factor:
            target = _without_one(target, state)
        while len(target) < replication_factor:
            node = _least_loaded(target, racks, held)
            held[node] += bytes_of(partition) + 1
            target = (*target, node)
        targets[partition] = target
    return targets


def evacuated(states: States, node: int, racks: Racks, bytes_of: Bytes) -> dict[str, tuple[int, ...]]:
    """Returns the new replicas of the partitions on a node, with that node replaced. Raises TooFewNodes."""
    others = {node_id: rack for node_id, rack in racks.items() if node_id != node}
    held = loads(states, others, bytes_of)
    targets = {}
    for partition, state in states.items():
        target = _target(state)
        if node in target:
            chosen = _least_loaded(
                tuple(replica for replica in target if replica != node), others, held, also_not=target
            )
            held[chosen] += bytes_of(partition) + 1
            targets[partition] = tuple(chosen if replica == node else replica for replica in target)
    return targets


def balanced(states: States, racks: Racks, bytes_of: Bytes) -> list[Move]:
    """Returns moves that bring every node near the mean load, largest gaps first."""
    settled = {p: state.replicas for p, state in states.items() if not state.adding and not state.removing}
    held = loads(states, racks, bytes_of)
    moves: list[Move] = []
    moved: set[str] = set()
    while len(moves) < MOVES_MAX:
        move = _next_move(settled, moved, racks, held, bytes_of)
        if move is None:
            break
        held[move.from_node] -= move.bytes + 1
        held[move.to_node] += move.bytes + 1
        settled[move.partition] = move.target
        moved.add(move.partition)
        moves.append(move)
    return moves


def _next_move(
    replicas: Mapping[str, tuple[int, ...]], moved: set[str], racks: Racks, held: Mapping[int, int], bytes_of: Bytes
) -> Move | None:
    if not held:
        return None
    tolerated = sum(held.values()) / len(held) * TOLERATED_PERCENT / 100
    by_load = sorted(held, key=lambda node: (held[node], node))
    for source in reversed(by_load):
        for destination in by_load:
            gap = held[source] - held[destination]
            if gap <= max(tolerated, 1):
                break
            fitting = [
                (_gain(bytes_of(partition) + 1, gap), partition)
                for partition, nodes in replicas.items()
                if partition not in moved and _may_move(nodes, source, destination, racks)
            ]
            gain, best = max(fitting, default=((0, 0), ""))
            if 2 * gain[0] > tolerated:
                target = tuple(destination if replica == source else replica for replica in replicas[best])
                return Move(best, source, destination, bytes_of(best), target)
    return None


def _gain(size: int, gap: int) -> tuple[int, int]:
    """By how much the load of the fuller node falls; among equals the smaller copy is better."""
    return min(size, gap - size), -size


def _may_move(nodes: tuple[int, ...], source: int, destination: int, racks: Racks) -> bool:
    """True if the move keeps the number of racks. A node that is not registered counts as a rack of its own."""
    if source not in nodes or destination in nodes:
        return False
    after = (destination if node == source else node for node in nodes)
    return len({racks.get(node, node) for node in after}) >= len({racks.get(node, node) for node in nodes})


def _target(state: PartitionState) -> tuple[int, ...]:
    """The replicas after a reassignment in progress, if there is one."""
    return tuple(node for node in state.replicas if node not in state.removing)


def _without_one(replicas: tuple[int, ...], state: PartitionState) -> tuple[int, ...]:
    """Removes one replica: 1. one that is not in sync, 2. one that is not the leader, 3. the last one."""
    leader = None if state.leader is None else state.leader.node_id
    last = {node: position for position, node in enumerate(replicas)}
    gone = min(replicas, key=lambda node: (state.is_in_sync(node), node == leader, -last[node]))
    return tuple(node for node in replicas if node != gone)


def _least_loaded(
    replicas: tuple[int, ...], racks: Racks, held: Mapping[int, int], also_not: tuple[int, ...] = ()
) -> int:
    """The node for another replica: in the rack with the fewest replicas of the partition, then with the least load."""
    used = Counter(racks[node] for node in replicas if node in racks)
    free = [node for node in racks if node not in replicas and node not in also_not]
    if not free:
        raise TooFewNodes(f"no node remains for a replica in addition to {list(replicas)}")
    return min(free, key=lambda node: (used[racks[node]], held[node], node))
