"""The families of /metrics for replication: leaders, partitions that lack replicas, lag of followers.

Counts nothing itself; a scrape reads all values from the view of the cluster and the replicas. One process of each node
reports the values of the whole cluster. A standalone node reports the same families, so that a dashboard needs no
second form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.directory.placement import shard_of
from engine.shard.shard import Shard
from gateway.metrics.metrics import Numbers
from gateway.routing.peers import Peers
from replication.cluster.view import ClusterView
from replication.cores.partition_state import PartitionState
from replication.replica.replicas import Replicas


def cluster_families(node_id: int, shard: Shard, peers: Peers, replicas: Replicas) -> Iterator[Numbers]:
    """Yields the families of one process of a node."""
    if peers.index == 0:
        yield from _view_families(peers.view, node_id)
    partitions = list(shard.partitions())
    lags = [lag for one in partitions for lag in replicas.by_partition[one].lag.values()]
    yield from _leader_families(peers.view, node_id, peers.index, peers.count, len(partitions), lags)
    text = "Bytes of new batches kept in memory because followers in sync lack them (replica_cache_bytes_max)"
    yield _number("penstock_replica_cache_bytes", text, replicas.cached_bytes)


def _view_families(view: ClusterView | None, node_id: int) -> Iterator[Numbers]:
    """Yields the families of the cluster, from this node's view."""
    leaderless = unclean = 0
    if view is not None:
        leaderless = sum(view.leader(topic_id, number) is None for topic_id, number in view.states)
        unclean = sum(found.state.unclean_elections for found in view.states.values())
    yield _number(
        "penstock_cluster_nodes",
        "Live nodes: registered in the coordination store",
        1 if view is None else len(view.nodes),
    )
    yield _number("penstock_leaderless_partitions", "Partitions of the cluster without a leader", leaderless)
    is_controller = view is None or view.controller == node_id
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


def _number(name: str, text: str, value: float) -> Numbers:
    return Numbers(name, text, None, {"": value})
