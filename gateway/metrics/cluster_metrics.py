"""The families of /metrics for replication: leaders, partitions that lack replicas, lag of followers.

Counts nothing itself; a scrape reads all values from the view of the cluster and the replicas. One process of each node
reports the values of the whole cluster. A standalone node reports the same families, so that a dashboard needs no
second form. While the coordination store is silent, what only the store knows is NaN: neither 0 nor the last value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import nan

from engine.shard.shard import Shard
from gateway.metrics.metrics import Histograms, Numbers
from gateway.routing.peers import Peers
from replication.cluster.values import LEVEL_MAX
from replication.cluster.view import ClusterView
from replication.cores.partition_state import PartitionState
from replication.replica.replicas import Replicas

_OF_THE_STORE = ("penstock_under_replicated_partitions", "penstock_under_min_isr_partitions")


def cluster_families(shard: Shard, peers: Peers, replicas: Replicas) -> Iterator[Numbers | Histograms]:
    """Yields the families of one process of a node."""
    is_silent = not replicas.has_contact
    if peers.index == 0:
        yield from _view_families(peers.cluster, peers.node_id, is_silent=is_silent)
        text = "Seconds since the coordination store answered this node, and age of what it knows of the cluster"
        yield _number("penstock_coordination_age_seconds", text, replicas.store_age_s or 0)
    partitions = list(shard.partitions())
    lags = [lag for partition in partitions for lag in replicas.by_partition[partition].lag.values()]
    families = _leader_families(peers, replicas, lags)
    yield from (_unknown(family) if is_silent and family.name in _OF_THE_STORE else family for family in families)
    diverged = sum(replicas.by_partition[partition].kept_from is not None for partition in partitions)
    text = "Replicas of this node that do not follow their leader, because it lacks committed records that they have"
    yield _number("penstock_diverged_replicas", text, diverged)
    text = "Bytes of new batches kept in memory because followers in sync lack them (replica_cache_bytes_max)"
    yield _number("penstock_replica_cache_bytes", text, replicas.cached_bytes)


def _view_families(view: ClusterView, node_id: int, *, is_silent: bool) -> Iterator[Numbers | Histograms]:
    """Yields the families of the cluster, from this node's view."""
    levels = {"cluster": nan if is_silent else view.feature_level, "node": LEVEL_MAX}
    if view.nodes:
        levels["nodes"] = nan if is_silent else min(node.level for node in view.nodes.values())
    text = "Feature level: of the cluster, the highest that this node serves, the highest that all live nodes serve"
    yield Numbers("penstock_feature_level", text, "kind", levels)
    leaderless = sum(view.leader(topic_id, number) is None for topic_id, number in view.states)
    text = "Live nodes: registered in the coordination store"
    yield _number("penstock_cluster_nodes", text, nan if is_silent else len(view.nodes))
    text = "Partitions of the cluster without a leader"
    yield _number("penstock_leaderless_partitions", text, nan if is_silent else leaderless)
    is_controller = not is_silent and view.controller == node_id
    yield _number("penstock_active_controller", "1 if this node is the controller, else 0", is_controller)
    text = "Leader elections that this node has observed"
    yield _number("penstock_leader_elections_total", text, view.elections)
    text = "Unclean leader elections that this node has observed; committed records may be lost"
    yield _number("penstock_unclean_leader_elections_total", text, view.unclean_elections)
    text = "When this node saw the last unclean leader election, in seconds since 1970; 0: none since it started"
    yield _number("penstock_last_unclean_leader_election_timestamp_seconds", text, view.last_unclean_ms / 1000)
    text = "Time from the sight of a partition that needs another leader until the store has it; of the controller"
    yield Histograms("penstock_leader_election_duration_seconds", text, None, {"": view.election_times})


def _leader_families(peers: Peers, replicas: Replicas, lags: Iterable[int]) -> Iterator[Numbers]:
    """Yields the families of the partitions led here. `lags`: records that each follower lacks."""
    led, few, under = len(replicas.lasting), 0, 0
    for topic_id, state in _leader_partitions(peers):
        topic = peers.cluster.topic_by_id(topic_id)
        led += 1
        few += len(state.in_sync) < len(state.replicas)
        under += topic is not None and len(state.in_sync) < topic.rules.min_in_sync(state.counted_replicas)
    yield _number("penstock_leader_partitions", "Partitions that this node leads", led)
    text = "Partitions led by this node with fewer in-sync replicas than replicas"
    yield _number("penstock_under_replicated_partitions", text, few)
    text = "Partitions led by this node that reject acks=all, because fewer than min_insync_replicas are in sync"
    yield _number("penstock_under_min_isr_partitions", text, under)
    text = "Largest lag of a follower of a partition led by this node, in records"
    yield _number("penstock_replica_lag_records", text, max(lags, default=0))


def _leader_partitions(peers: Peers) -> Iterator[tuple[str, PartitionState]]:
    """Yields the partitions that this process was elected to lead."""
    for (topic_id, number), versioned in peers.cluster.states.items():
        leader = peers.cluster.leader(topic_id, number)
        if leader is not None and leader.node_id == peers.node_id and peers.owns(topic_id, number):
            yield topic_id, versioned.state


def _unknown(family: Numbers) -> Numbers:
    return family._replace(values=dict.fromkeys(family.values, nan))


def _number(name: str, text: str, value: float) -> Numbers:
    return Numbers(name, text, None, {"": value})
