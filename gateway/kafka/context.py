"""The dependencies of Kafka's protocol in its process: those of the stages that it shares with HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.runtime.clock import Clock
from gateway.access.access import Access
from gateway.admin.access_routes import AccessContext
from gateway.admin.context import AdminContext
from gateway.audit.trail import Trail
from gateway.connections.response_buffers import ResponseBuffers
from gateway.fetch.context import FetchContext
from gateway.groups.context import GroupContext
from gateway.http.lifecycle import Lifecycle
from gateway.http.request import RequestBodies
from gateway.kafka.fetch_sessions import FetchSessions
from gateway.kafka.share_sessions import ShareSessions
from gateway.links.kafka_addresses import Endpoint, parse_endpoint
from gateway.metrics.metrics import Metrics
from gateway.produce.context import ProduceContext
from gateway.routing.partitions import Partitions, Topics
from gateway.routing.peers import Peers
from gateway.routing.router import Router
from gateway.server.context import ServerContext
from gateway.settings import NodeSettings
from gateway.tracing.tracer import Tracer


@dataclass(frozen=True, slots=True)
class KafkaContext:
    """The parts of a process that Kafka's protocol needs. Clients connect to `own_address`."""

    settings: NodeSettings
    own_address: Endpoint
    produce: ProduceContext
    fetch: FetchContext
    admin: AdminContext
    groups: GroupContext
    topics: Topics
    partitions: Partitions
    peers: Peers
    router: Router
    access: Access
    access_changes: AccessContext
    bodies: RequestBodies
    responses: ResponseBuffers
    lifecycle: Lifecycle
    metrics: Metrics
    clock: Clock
    audit: Trail | None
    tracer: Tracer | None
    share_sessions: ShareSessions = field(default_factory=ShareSessions)
    fetch_sessions: FetchSessions = field(default_factory=FetchSessions)


def make_context(server: ServerContext) -> KafkaContext:
    """Returns the parts of a process that serves HTTP as well, whose settings say what is advertised."""
    return KafkaContext(
        server.settings,
        parse_endpoint(server.settings.kafka_advertised, "kafka_advertised"),
        server.produce,
        server.fetch,
        server.admin,
        server.groups,
        server.topics,
        server.fetch.partitions,
        server.fetch.peers,
        server.fetch.router,
        server.access,
        server.access_changes,
        server.bodies,
        server.responses,
        server.fetch.lifecycle,
        server.metrics,
        server.clock,
        server.audit,
        server.tracer,
    )
