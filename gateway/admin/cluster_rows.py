"""Describes the cluster from its view alone: replicas, leaders, and live nodes.

Needs no leader, so that a partition without one can be described; log positions are not included. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypedDict

from replication.cluster.view import ClusterView, reassignments
from replication.cores.partition_state import VersionedState


class PartitionRow(TypedDict, total=False):
    """A partition in the description of its topic. Positions are None if its leader does not answer."""

    partition: int
    leader: int | None
    leader_url: str | None
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    eligible: list[int]
    under_replicated: bool
    lag: dict[str, int]
    lag_bytes: dict[str, int]
    log_start: int | None
    local_log_start: int | None
    log_end: int | None
    durable_end: int | None
    high_watermark: int | None
    size_bytes: int | None
    segments: int | None
    offline: str


class NodeRow(TypedDict):
    """A node in the description of its cluster. `leading` and the numbers below it count partitions.

    `stale`: the coordination store is silent, so this is what was known when it last answered.
    """

    node_id: int
    url: str | None
    rack: str | None
    version: str | None
    feature_level_max: int | None
    alive: bool
    stale: bool
    leaving: bool
    drained: bool
    leading: int
    partitions: int
    under_replicated: int


class TopicPartitions(TypedDict):
    """Some partitions of a topic."""

    topic: str
    partitions: list[int]


class UnhealthyPartitions(TypedDict):
    """Partitions without a leader, that take no acks=all, and that lack replicas."""

    offline_partitions: list[TopicPartitions]
    under_min_in_sync: list[TopicPartitions]
    under_replicated: list[TopicPartitions]


class ReassignmentRow(TypedDict):
    """A partition that is being moved: node ids."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    in_sync: list[int]


class Progress(TypedDict):
    """The bytes of a move, and how many are left to copy for each node."""

    size_bytes: int | None
    left_bytes: dict[str, int]


class ReassignmentWithProgress(ReassignmentRow, Progress):
    """A partition that is being moved, and how far it is."""


def topology_row(view: ClusterView, topic_id: str, number: int) -> PartitionRow:
    """Returns a partition's replicas and their states. Empty while the partition is unknown."""
    versioned = view.states.get((topic_id, number))
    if versioned is None:
        return {}
    leader, endpoint, state = view.leader(topic_id, number), view.leader_of(topic_id, number), versioned.state
    in_sync = sorted(member.node_id for member in state.in_sync)
    return {
        "leader": None if leader is None else leader.node_id,
        "leader_url": None if endpoint is None else endpoint.url,
        "leader_epoch": state.leader_epoch,
        "replicas": list(state.replicas),
        "in_sync": in_sync,
        "eligible": sorted(member.node_id for member in state.eligible),
        "under_replicated": len(in_sync) < len(state.replicas),
    }


def offline_row(view: ClusterView, topic_id: str, number: int) -> PartitionRow:
    """Returns the known facts of a partition whose leader cannot be asked."""
    row: PartitionRow = {
        "partition": number,
        "leader": None,
        "leader_url": None,
        "leader_epoch": 0,
        "replicas": [],
        "in_sync": [],
        "eligible": [],
        "under_replicated": True,
    }
    row |= topology_row(view, topic_id, number)
    reason = "the partition has no leader" if row["leader"] is None else "its leader does not answer"
    return {**row, **_NO_POSITIONS, "lag": {}, "lag_bytes": {}, "offline": reason}


def node_rows(view: ClusterView, silent_at: int | None = None) -> list[NodeRow]:
    """Returns every registered node, and every other node that has replicas.

    `silent_at`: this node, if the coordination store does not answer it.
    """
    leading, having, behind = Counter[int](), Counter[int](), Counter[int]()
    for (topic_id, number), versioned in view.states.items():
        state = versioned.state
        having.update(state.replicas)
        behind.update(node_id for node_id in state.replicas if not state.is_in_sync(node_id))
        leader = view.leader(topic_id, number)
        if leader is not None:
            leading[leader.node_id] += 1
    rows: list[NodeRow] = []
    for node_id in sorted({*view.nodes, *having}):
        node = view.nodes.get(node_id)
        rows.append(
            {
                "node_id": node_id,
                "url": None if node is None else node.url,
                "rack": None if node is None else node.rack or None,
                "version": None if node is None else node.version,
                "feature_level_max": None if node is None else node.level,
                "alive": node is not None,
                "stale": silent_at not in (None, node_id),
                "leaving": node is not None and node.is_leaving,
                "drained": node_id in view.drained,
                "leading": leading[node_id],
                "partitions": having[node_id],
                "under_replicated": behind[node_id],
            }
        )
    return rows


def unhealthy_partitions(view: ClusterView, is_visible: Callable[[str], bool]) -> UnhealthyPartitions:
    """Returns the partitions in need, of the topics that `is_visible` accepts."""

    def topics_where(is_so: Callable[[str, int, VersionedState], bool]) -> list[TopicPartitions]:
        rows: list[TopicPartitions] = []
        for topic in sorted(view.topics.values(), key=lambda topic: topic.name):
            numbers = [number for number, state in view.partitions_of(topic) if is_so(topic.topic_id, number, state)]
            if numbers and is_visible(topic.name):
                rows.append({"topic": topic.name, "partitions": numbers})
        return rows

    def is_offline(topic_id: str, number: int, versioned: VersionedState) -> bool:
        return view.leader(topic_id, number) is None

    def is_under_min(topic_id: str, number: int, versioned: VersionedState) -> bool:
        topic = view.topic_by_id(topic_id)
        assert topic is not None
        return len(versioned.state.in_sync) < topic.rules.min_in_sync(versioned.state.counted_replicas)

    def is_under_replicated(topic_id: str, number: int, versioned: VersionedState) -> bool:
        return len(versioned.state.in_sync) < len(versioned.state.replicas)

    return {
        "offline_partitions": topics_where(is_offline),
        "under_min_in_sync": topics_where(is_under_min),
        "under_replicated": topics_where(is_under_replicated),
    }


def reassignment_rows(view: ClusterView) -> list[ReassignmentRow]:
    """Returns the partitions that are being moved. `progress_of` adds their progress."""
    return [
        {
            "topic": reassignment.topic,
            "partition": reassignment.partition,
            "replicas": list(reassignment.target),
            "adding": list(reassignment.adding),
            "removing": list(reassignment.removing),
            "in_sync": list(reassignment.in_sync),
        }
        for reassignment in reassignments(view)
    ]


def progress_of(row: ReassignmentRow, described: PartitionRow) -> Progress:
    """Returns the size of a move and the bytes left, from a description of the partition, which may lack both."""
    lag_bytes = described.get("lag_bytes", {})
    left = {str(node): lag_bytes[str(node)] for node in row["adding"] if str(node) in lag_bytes}
    return {"size_bytes": described.get("size_bytes"), "left_bytes": left}


_NO_POSITIONS: PartitionRow = {  # known only to the leader of a partition
    "log_start": None,
    "local_log_start": None,
    "log_end": None,
    "durable_end": None,
    "high_watermark": None,
    "size_bytes": None,
    "segments": None,
}
