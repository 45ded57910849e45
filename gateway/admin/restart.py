"""Decides whether a node may be restarted now, from the view of the cluster. Pure.

A node may be restarted if each of its replicas is in sync, and the others of each of its partitions suffice for
acks=all without it, as far as a whole set of replicas would. A partition with one replica does not count: it is away
during every restart.
"""

from __future__ import annotations

from typing import TypedDict

from replication.cluster.view import ClusterView

REASONS_MAX = 20


class RestartReason(TypedDict):
    """Why not. Without a topic it is about the node as a whole."""

    code: str
    detail: str
    topic: str | None
    partitions: list[int]


def restart_reasons(view: ClusterView, node_id: int, *, is_silent: bool) -> list[RestartReason]:
    """Returns why a node must not be restarted now; empty: it may be. The first REASONS_MAX topics are named."""
    if node_id not in view.nodes and not is_silent:
        text = f"node {node_id} is not there: it is down, or no node of this cluster"
        return [RestartReason(code="unknown_node", detail=text, topic=None, partitions=[])]
    if is_silent:
        text = "the coordination store is silent, so the state of the replicas is not known"
        return [RestartReason(code="coordination_silent", detail=text, topic=None, partitions=[])]
    are_all_there = view.nodes.keys() >= {node for row in view.states.values() for node in row.state.replicas}
    lagging: dict[str, list[int]] = {}
    needed: dict[str, list[int]] = {}
    for (topic_id, number), versioned in view.states.items():
        state = versioned.state
        if node_id not in state.replicas or (are_all_there and len(state.in_sync) == len(state.replicas)):
            continue  # the usual case first: readiness is asked often, and by any caller
        topic = view.topic_by_id(topic_id)
        if topic is None or node_id in state.adding or state.counted_replicas < 2:
            continue
        in_sync = {member.node_id for member in state.in_sync}
        others = in_sync & view.nodes.keys() - {node_id}
        least = min(topic.rules.min_in_sync(state.counted_replicas), state.counted_replicas - 1)
        if node_id not in in_sync:
            lagging.setdefault(topic.name, []).append(number)
        elif len(others) < max(1, least):
            needed.setdefault(topic.name, []).append(number)
    return [
        *_reasons("not_in_sync", lagging, f"node {node_id} has not caught up"),
        *_reasons("needed", needed, f"without node {node_id} too few replicas are in sync for acks=all"),
    ]


def _reasons(code: str, topics: dict[str, list[int]], text: str) -> list[RestartReason]:
    rows = sorted(topics.items())[:REASONS_MAX]
    return [RestartReason(code=code, detail=text, topic=name, partitions=sorted(numbers)) for name, numbers in rows]
