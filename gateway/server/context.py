"""The dependencies of serving HTTP: the contexts of the routes, and those of the checks around them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from engine.runtime.clock import Clock
from gateway.access.access import Access
from gateway.admin.access_routes import AccessContext
from gateway.admin.context import AdminContext
from gateway.admin.usage_routes import UsageContext
from gateway.audit.trail import Trail
from gateway.connections.response_buffers import ResponseBuffers
from gateway.fetch.context import FetchContext
from gateway.groups.context import GroupContext
from gateway.http.request import HttpContext, RequestBodies
from gateway.metrics.metrics import Metrics
from gateway.produce.context import ProduceContext
from gateway.routing.partitions import Topics
from gateway.settings import NodeSettings
from gateway.status.context import StatusContext
from gateway.subscriptions.context import PushContext
from gateway.tracing.tracer import Tracer


@dataclass(frozen=True, slots=True)
class ServerContext:
    """`shard` is the index of this process among the shards of its node. `audit`, `tracer`: None if switched off."""

    settings: NodeSettings
    shard: int
    http: HttpContext
    produce: ProduceContext
    fetch: FetchContext
    admin: AdminContext
    status: StatusContext
    groups: GroupContext
    push: PushContext
    access_changes: AccessContext
    usage: UsageContext
    access: Access
    audit: Trail | None
    topics: Topics
    responses: ResponseBuffers
    bodies: RequestBodies
    metrics: Metrics
    clock: Clock
    random: Random
    tracer: Tracer | None = None
