"""The families of /metrics for replication: leaders, partitions that lack replicas, lag of followers.

Counts nothing itself; a scrape reads all values from the view of the cluster and the replicas. One process of each node
reports the values of the whole cluster. A standalone node reports the same families, so that a dashboard needs no
second form. While the coordination store is silent, what only the store knows is NaN: neither 0 nor the last value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import nan

from engine.directory.placement import shard_of
from engine.shard.shard import Shard
from gateway.metrics.metrics import Numbers
from gateway.routing.peers import Peers
from replication.cluster.view import ClusterView
from replication.cores.partition_state import PartitionState
from replication.replica.replicas import Replicas

_OF_THE_STORE = ("penstock_under_replicated_partitions", "penstock_under_min_isr_partitions")


def cluster_families(node_id: int, shard: Shard, peers: Peers, replicas: Replicas) -> Iterator[Numbers]:
    """Yields the families of one process of a node."""
    is_silent = not replicas.has_contact
    if peers.index == 0:
        yield from _view_families(peers.view, node_id, is_silent=is_silent)
        text = "Seconds since the coordination store answered this node, and age of what it knows of the cluster"
        yield _number("penstock_coordination_age_seconds", text, replicas.store_age_s or 0)
    partitions = list(shard.partitions())
    lags = [lag for one in partitions for lag in replicas.by_partition[one].lag.values()]
    families = _leader_families(peers.view, node_id, peers.index, peers.count, len(partitions), lags)
    yield from (_unknown(one) if is_silent and one.name in _OF_THE_STORE else one for one in families)
    kept = sum(replicas.by_partition[one].kept_from is not None for one in partitions)
    text = "Replicas of this node that do not follow their leader, because it lacks committed records that they have"
    yield _number("penstock_diverged_replicas", text, kept)
    text = "Bytes of new batches kept in memory because followers in sync lack them (replica_cache_bytes_max)"
    yield _number("penstock_replica_cache_bytes", text, replicas.cached_bytes)


def _view_families(view: ClusterView | None, node_id: int, *, is_silent: bool) -> Iterator[Numbers]:
    """Yields the families of the cluster, from this node's view."""
    leaderless = unclean = 0
    if view is not None:
        leaderless = sum(view.leader(topic_id, number) is None for topic_id, number in view.states)
        unclean = sum(found.state.unclean_elections for found in view.states.values())
    text = "Live nodes: registered in the coordination store"
    yield _number("penstock_cluster_nodes", text, nan if is_silent else 1 if view is None else len(view.nodes))
    text = "Partitions of the cluster without a leader"
    yield _number("penstock_leaderless_partitions", text, nan if is_silent else leaderless)
    is_controller = not is_silent and (view is None or view.controller == node_id)
    yield _number("penstock_active_controller", "1 if this node is the controller, else 0", is_controller)
    text = "Leader elections that this node has observed"
    yield _number("penstock_leader_elections_total", text, 0 if view is None else view.elections)
    text = "Unclean leader elections of the existing topics; committed records may be lost"
    yield _number("penstock_unclean_leader_elections_total", text, unclean)


def _leader_families(
    view: ClusterView | None, node_id: int, shard: int, shards: int, partitions: int, lags: Iterable[int]
) -> Iterator[Numbers]:
    """Yields the families of the partitions led here, of `partitions`. `lags`: records that each follower lacks."""
    led = partitions if view is None else 0
    few = under = 0
    for topic_id, state in _leader_partitions(view, node_id, shard, shards):
        topic = None if view is None else view.topic_by_id(topic_id)
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


def _leader_partitions(
    view: ClusterView | None, node_id: int, shard: int, shards: int
) -> Iterator[tuple[str, PartitionState]]:
    if view is None:
        return
    for (topic_id, number), found in view.states.items():
        leader = view.leader(topic_id, number)
        if leader is not None and leader.node_id == node_id and shard_of(topic_id, number, shards) == shard:
            yield topic_id, found.state


def _unknown(family: Numbers) -> Numbers:
    return family._replace(values=dict.fromkeys(family.values, nan))


def _number(name: str, text: str, value: float) -> Numbers:
    return Numbers(name, text, None, {"": value})
