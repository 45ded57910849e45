"""What descriptions tell of the cluster from its view alone: who has what, who leads, who is alive.

Needs no leader, so that a partition which nobody leads can still be described; positions are not in it. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from replication.cluster.reassignments import reassignments
from replication.cluster.view import ClusterView
from replication.cores.partition_state import VersionedState

# What only the leader of a partition knows of it.
POSITIONS = ("log_start", "local_log_start", "log_end", "durable_end", "high_watermark", "size_bytes", "segments")


def topology_row(view: ClusterView, topic_id: str, number: int) -> dict[str, Any]:
    """A partition's replicas and what they are to it. Empty when nothing has been heard of it yet."""
    found = view.states.get((topic_id, number))
    if found is None:
        return {}
    leader, place, state = view.leader(topic_id, number), view.leader_of(topic_id, number), found.state
    in_sync = sorted(member.node_id for member in state.in_sync)
    return {
        "leader": None if leader is None else leader.node_id,
        "leader_url": None if place is None else place.url,
        "leader_epoch": state.leader_epoch,
        "replicas": list(state.replicas),
        "in_sync": in_sync,
        "eligible": sorted(member.node_id for member in state.eligible),
        "under_replicated": len(in_sync) < len(state.replicas),
    }


def offline_row(view: ClusterView, topic_id: str, number: int) -> dict[str, Any]:
    """A partition whose leader cannot be asked: what is known without it."""
    nothing: dict[str, Any] = {
        "leader": None,
        "leader_url": None,
        "leader_epoch": 0,
        "replicas": [],
        "in_sync": [],
        "eligible": [],
    }
    row = {**nothing, "under_replicated": True, **topology_row(view, topic_id, number)}
    reason = "nobody leads it now" if row["leader"] is None else "its leader does not answer"
    return {"partition": number, **row, **dict.fromkeys(POSITIONS), "lag": {}, "lag_bytes": {}, "offline": reason}


def node_rows(view: ClusterView) -> list[dict[str, Any]]:
    """Every node that is registered, and every other one that has replicas."""
    leading, having, behind = Counter[int](), Counter[int](), Counter[int]()
    for (topic_id, number), found in view.states.items():
        state = found.state
        having.update(state.replicas)
        behind.update(node_id for node_id in state.replicas if not state.is_in_sync(node_id))
        leader = view.leader(topic_id, number)
        if leader is not None:
            leading[leader.node_id] += 1
    rows = []
    for node_id in sorted({*view.nodes, *having}):
        node = view.nodes.get(node_id)
        rows.append(
            {
                "node_id": node_id,
                "url": None if node is None else node.url,
                "rack": None if node is None else node.rack or None,
                "version": None if node is None else node.version,
                "alive": node is not None,
                "leaving": node is not None and node.is_leaving,
                "drained": node_id in view.drained,
                "leading": leading[node_id],
                "partitions": having[node_id],
                "under_replicated": behind[node_id],
            }
        )
    return rows


def partitions_in_need(view: ClusterView, may_be_named: Callable[[str], bool]) -> dict[str, Any]:
    """Partitions that nobody leads, that take no acks=all, that lack replicas; of topics that may be named."""

    def chosen(is_so: Callable[[str, int, VersionedState], bool]) -> list[dict[str, Any]]:
        found = []
        for topic in sorted(view.topics.values(), key=lambda one: one.name):
            numbers = [number for number, state in view.partitions_of(topic) if is_so(topic.topic_id, number, state)]
            if numbers and may_be_named(topic.name):
                found.append({"topic": topic.name, "partitions": numbers})
        return found

    def is_offline(topic_id: str, number: int, found: VersionedState) -> bool:
        return view.leader(topic_id, number) is None

    def is_under_min(topic_id: str, number: int, found: VersionedState) -> bool:
        topic = view.topic_by_id(topic_id)
        assert topic is not None
        return len(found.state.in_sync) < topic.rules.min_in_sync(found.state.counted_replicas)

    def is_under_replicated(topic_id: str, number: int, found: VersionedState) -> bool:
        return len(found.state.in_sync) < len(found.state.replicas)

    return {
        "offline_partitions": chosen(is_offline),
        "under_min_in_sync": chosen(is_under_min),
        "under_replicated": chosen(is_under_replicated),
    }


def reassignment_rows(view: ClusterView) -> list[dict[str, Any]]:
    """Partitions that are being moved; how far they are only their leaders know, see `progress_of`."""
    return [
        {
            "topic": one.topic,
            "partition": one.partition,
            "replicas": list(one.target),
            "adding": list(one.adding),
            "removing": list(one.removing),
            "in_sync": list(one.in_sync),
        }
        for one in reassignments(view)
    ]


def progress_of(row: dict[str, Any], described: dict[str, Any]) -> dict[str, Any]:
    """What a move has to copy and what is left of it, from the description of the partition, which may lack both."""
    known = described.get("lag_bytes", {})
    left = {str(node): known[str(node)] for node in row["adding"] if str(node) in known}
    return {"size_bytes": described.get("size_bytes"), "left_bytes": left}
