"""Which partitions are being moved to other nodes, as a view of the cluster shows it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from replication.cluster.values import TopicEntry
from replication.cluster.view import ClusterView
from replication.cores.partition_state import VersionedState


class Reassignment(NamedTuple):
    """A move that is under way: it ends once all of `target` is in sync."""

    topic: str
    partition: int
    target: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    in_sync: tuple[int, ...]


def reassignments(view: ClusterView) -> list[Reassignment]:
    """Those that are under way."""
    return [
        _told(topic, number, found)
        for topic in view.topics.values()
        for number, found in view.partitions_of(topic)
        if found.state.adding or found.state.removing
    ]


def _told(topic: TopicEntry, number: int, found: VersionedState) -> Reassignment:
    state = found.state
    target = tuple(node for node in state.replicas if node not in state.removing)
    in_sync = tuple(member.node_id for member in state.in_sync)
    return Reassignment(topic.name, number, target, state.adding, state.removing, in_sync)
