"""The view of a cluster of one: a standalone node, which leads each of its partitions as long as the partition exists.

Answers the questions of a ClusterView, so that no caller has to know which kind of node it runs on. No store keeps the
state of a partition here, because nothing could change it: `states` and `topics` stay empty, and leaders are computed.
Invariant: there is one node, this one; it is the controller.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.directory.placement import shard_of
from engine.errors import EngineError, UnknownTopic
from replication.cluster.values import NodeInfo
from replication.cluster.view import ClusterView, ReplicaEndpoint
from replication.cores.partition_state import Member

_BROKER_EPOCH = 0  # no store registers the node


class StandaloneView(ClusterView):
    has_elections = False

    def __init__(self, node_id: int = 0, shard_urls: Sequence[str] = ("",)) -> None:
        """`shard_urls` has the URL of each shard for clients. A single process needs none."""
        super().__init__()
        self.controller = node_id
        self.has_others = len(shard_urls) > 1
        node = NodeInfo(node_id, _BROKER_EPOCH, "", tuple(shard_urls), internal_urls=("",) * len(shard_urls))
        self.put_nodes({node_id: node})
        self._leader = Member(node_id, _BROKER_EPOCH)
        self._endpoints = [ReplicaEndpoint(node_id, shard, url) for shard, url in enumerate(shard_urls)]

    def leader(self, topic_id: str, number: int) -> Member:
        return self._leader

    def leader_of(self, topic_id: str, number: int) -> ReplicaEndpoint:
        endpoints = self._endpoints
        return endpoints[shard_of(topic_id, number, len(endpoints))]

    def missing_topic(self, name: str) -> EngineError:
        return UnknownTopic(f"there is no topic {name!r} of that id any more")
