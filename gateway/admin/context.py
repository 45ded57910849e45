"""The dependencies of administration: at the partitions' owner, and in the process that accepted the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from engine.partition.partition import Partition
from engine.runtime.clock import Clock
from engine.shard.shard import Shard
from engine.tiering.shipping.shippers import TierStatistics
from gateway.admin.disks import NodeDisks
from gateway.admin.operation_calls import Operate
from gateway.docs.page import DocsPages
from gateway.http.lifecycle import Lifecycle
from gateway.http.offload import Offload
from gateway.links.link_client import LinkClient
from gateway.metrics.metrics import Metrics
from gateway.routing.partitions import Partitions, Topics
from gateway.routing.peers import Peers
from gateway.routing.router import Router
from gateway.settings import NodeSettings
from replication.replica.replicas import Replicas


class TierStatus(Protocol):
    """The part of a partition that is in the store."""

    async def statistics(self, partition: Partition) -> TierStatistics: ...


@dataclass(frozen=True, slots=True)
class OwnerContext:
    """The dependencies for administering partitions of this process."""

    settings: NodeSettings
    partitions: Partitions
    peers: Peers
    shard: Shard
    tier: TierStatus
    lifecycle: Lifecycle
    clock: Clock


@dataclass(frozen=True, slots=True)
class AdminContext:
    """The dependencies for answering an operator's request.

    `replicas` knows how old the view of the cluster is. `operate` runs an operation on the cluster. `siblings` are the
    processes of this node that serve no requests, by name.
    """

    settings: NodeSettings
    topics: Topics
    partitions: Partitions
    peers: Peers
    router: Router
    replicas: Replicas
    operate: Operate
    siblings: Callable[[], Mapping[str, LinkClient]]
    own_sizes: Callable[[], dict[str, int]]
    disks: NodeDisks
    cluster_id: str
    store_url: str
    lifecycle: Lifecycle
    offload: Offload
    metrics: Metrics
    docs: DocsPages
