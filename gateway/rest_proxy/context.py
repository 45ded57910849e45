"""The dependencies of the dialect in its process: those of the stages that it shares with the contract's routes."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.access.access import Access
from gateway.admin.context import AdminContext
from gateway.fetch.context import FetchContext
from gateway.groups.context import GroupContext
from gateway.http.lifecycle import Lifecycle
from gateway.produce.context import ProduceContext
from gateway.routing.partitions import Topics
from gateway.routing.peers import Peers
from gateway.server.context import ServerContext
from gateway.settings import NodeSettings


@dataclass(frozen=True, slots=True)
class RestProxyContext:
    """The parts of a process that answer the dialect."""

    settings: NodeSettings
    produce: ProduceContext
    fetch: FetchContext
    admin: AdminContext
    groups: GroupContext
    access: Access
    topics: Topics
    peers: Peers
    lifecycle: Lifecycle


def make_context(server: ServerContext) -> RestProxyContext:
    """Returns the parts of a process that serves the contract as well."""
    return RestProxyContext(
        server.settings,
        server.produce,
        server.fetch,
        server.admin,
        server.groups,
        server.access,
        server.topics,
        server.fetch.peers,
        server.fetch.lifecycle,
    )
