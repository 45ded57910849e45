"""The dependencies of a produce request in its process."""

from __future__ import annotations

from dataclasses import dataclass

from engine.partition.committer import Committer
from engine.runtime.clock import Clock
from gateway.connections.request_order import RequestOrder
from gateway.http.json_limits import JsonLimits
from gateway.http.lifecycle import Lifecycle
from gateway.http.offload import Offload
from gateway.http.request import RequestBodies
from gateway.metrics.metrics import Metrics
from gateway.metrics.stages import Stages
from gateway.produce.accumulator import Accumulator
from gateway.produce.keys_in_flight import KeysInFlight
from gateway.produce.partitioner import Partitioners
from gateway.registry.registered_schemas import RegisteredSchemas
from gateway.routing.leader_failover import LeaderFailover
from gateway.routing.partitions import Partitions, Topics
from gateway.routing.peers import Peers
from gateway.routing.retry_budget import RetryBudgets
from gateway.routing.router import Router
from gateway.settings import NodeSettings
from gateway.usage.counting import UsageCounting
from gateway.usage.holdings import Holdings
from replication.cluster.producer_ids import ProducerIds


@dataclass(frozen=True, slots=True)
class ProduceContext:
    """The parts of a process that take a produce request to its partitions."""

    settings: NodeSettings
    topics: Topics
    partitions: Partitions
    partitioners: Partitioners
    peers: Peers
    router: Router
    failover: LeaderFailover
    budgets: RetryBudgets
    producer_ids: ProducerIds
    keys: KeysInFlight
    order: RequestOrder
    queue: Committer
    accumulator: Accumulator
    lifecycle: Lifecycle
    bodies: RequestBodies
    json_limits: JsonLimits
    clock: Clock
    offload: Offload
    metrics: Metrics
    stages: Stages
    usage: UsageCounting
    holdings: Holdings
    schemas: RegisteredSchemas | None = None  # None: no registry is configured
