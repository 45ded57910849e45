"""Which nodes the replicas of partitions should move to: more or fewer of them, off a node, or evenly spread.

Pure; says targets, which reassignment.py brings about. Few moves matter more than a perfect spread: each copies bytes.
Invariants: a target has as many racks as the racks of its nodes allow without a further move; a balanced plan never
moves a replica that would only change places with another; what is being moved already is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from replication.cores.assignment import TooFewNodes
from replication.cores.partition_state import PartitionState

TOLERATED_PERCENT = 10  # of the mean: below that a move costs more than it mends
MOVES_MAX = 1000  # of one plan; another one goes on where it ends

States = Mapping[str, PartitionState]
Racks = Mapping[int, str]
Bytes = Callable[[str], int]


class Move(NamedTuple):
    """One replica of a partition goes from a node to another; so many bytes are copied."""

    partition: str
    from_node: int
    to_node: int
    bytes: int
    target: tuple[int, ...]


def loads(states: States, racks: Racks, bytes_of: Bytes) -> dict[int, int]:
    """What each node holds. A partition counts even when it is empty, so that new ones are spread too."""
    found = dict.fromkeys(racks, 0)
    for partition, state in states.items():
        for node in state.replicas:
            if node in found and node not in state.removing:
                found[node] += bytes_of(partition) + 1
    return found


def resized(states: States, replication_factor: int, racks: Racks, bytes_of: Bytes) -> dict[str, tuple[int, ...]]:
    """The replicas of each partition with another replication factor. Raises TooFewNodes."""
    held = loads(states, racks, bytes_of)
    targets = {}
    for partition, state in states.items():
        wanted = _target(state)
        while len(wanted) > replication_factor:
            wanted = _without_one(wanted, state)
        while len(wanted) < replication_factor:
            node = _chosen(wanted, racks, held)
            held[node] += bytes_of(partition) + 1
            wanted = (*wanted, node)
        targets[partition] = wanted
    return targets


def evacuated(states: States, node: int, racks: Racks, bytes_of: Bytes) -> dict[str, tuple[int, ...]]:
    """The replicas of those partitions that have one on a node, with another one in its place. Raises TooFewNodes."""
    others = {one: rack for one, rack in racks.items() if one != node}
    held = loads(states, others, bytes_of)
    targets = {}
    for partition, state in states.items():
        wanted = _target(state)
        if node in wanted:
            chosen = _chosen(tuple(one for one in wanted if one != node), others, held, also_not=wanted)
            held[chosen] += bytes_of(partition) + 1
            targets[partition] = tuple(chosen if one == node else one for one in wanted)
    return targets


def balanced(states: States, racks: Racks, bytes_of: Bytes) -> list[Move]:
    """Moves that bring every node near the mean, largest gaps first."""
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
                target = tuple(destination if one == source else one for one in replicas[best])
                return Move(best, source, destination, bytes_of(best), target)
    return None


def _gain(size: int, gap: int) -> tuple[int, int]:
    """By how much the fuller of two nodes will hold less; of equal ones the smaller copy is better."""
    return min(size, gap - size), -size


def _may_move(nodes: tuple[int, ...], source: int, destination: int, racks: Racks) -> bool:
    """Onto as many racks as before; a node that is not there now stands in a rack of its own."""
    if source not in nodes or destination in nodes:
        return False
    after = (destination if one == source else one for one in nodes)
    return len({racks.get(one, one) for one in after}) >= len({racks.get(one, one) for one in nodes})


def _target(state: PartitionState) -> tuple[int, ...]:
    """Where it is, or is going."""
    return tuple(node for node in state.replicas if node not in state.removing)


def _without_one(replicas: tuple[int, ...], state: PartitionState) -> tuple[int, ...]:
    """1. Not in sync. 2. Not the leader. 3. The last one."""
    leader = None if state.leader is None else state.leader.node_id
    last = {node: place for place, node in enumerate(replicas)}
    gone = min(replicas, key=lambda node: (state.is_in_sync(node), node == leader, -last[node]))
    return tuple(node for node in replicas if node != gone)


def _chosen(replicas: tuple[int, ...], racks: Racks, held: Mapping[int, int], also_not: tuple[int, ...] = ()) -> int:
    """Another node for a partition: in a rack that has fewest of its replicas, with the least on it."""
    used = Counter(racks[node] for node in replicas if node in racks)
    free = [node for node in racks if node not in replicas and node not in also_not]
    if not free:
        raise TooFewNodes(f"no node is left for another replica beside {list(replicas)}")
    return min(free, key=lambda node: (used[racks[node]], held[node], node))
