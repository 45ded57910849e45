"""The dependencies of fetches: at the partitions' owner, and in the process that accepted the request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from engine.partition.partition import Partition
from engine.partition.reader import Chunk, Reader
from engine.partition.shared_file_read import SharedFileReads
from gateway.access.access import Access
from gateway.connections.long_polls import LongPolls
from gateway.connections.read_budget import ReadBudget
from gateway.connections.stream_budget import StreamBudget
from gateway.fetch.rendered_cache import CachedPoll, Lines, Part, RenderedCache
from gateway.http.lifecycle import Lifecycle
from gateway.http.offload import Offload
from gateway.metrics.metrics import Metrics
from gateway.registry.registered_schemas import RegisteredSchemas
from gateway.routing.partitions import Partitions, Topics
from gateway.routing.peers import Peers
from gateway.routing.retry_budget import RetryBudgets
from gateway.routing.router import Router
from gateway.settings import NodeSettings


class TierReader(Protocol):
    """Reads records from the store, below the start of the local log. `store_url` is empty without a store."""

    store_url: str

    def tiered_end(self, partition: Partition) -> int: ...
    async def read(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None: ...
    async def first_at_or_after(self, partition: Partition, timestamp: int) -> tuple[int, int] | None: ...


@dataclass(frozen=True, slots=True)
class ReadContext:
    """The dependencies for reading partitions of this process. The budgets bound what is read and rendered at once.

    `placed` reads files of other shards. `lines`: what event streams have read last. `polled`: the last answers of long
    polls.
    """

    settings: NodeSettings
    topics: Topics
    partitions: Partitions
    reader: Reader
    tier: TierReader
    local_budget: ReadBudget
    store_budget: ReadBudget
    long_polls: LongPolls
    lifecycle: Lifecycle
    offload: Offload
    metrics: Metrics
    placed: SharedFileReads
    lines: RenderedCache[Lines] = field(default_factory=RenderedCache)
    polled: RenderedCache[CachedPoll] = field(default_factory=RenderedCache)


@dataclass(frozen=True, slots=True)
class FetchContext:
    """The dependencies for answering a fetch. `rotation` numbers reads over many partitions: each begins at another.

    `events`: what event streams have encoded last.
    """

    settings: NodeSettings
    topics: Topics
    partitions: Partitions
    peers: Peers
    router: Router
    budgets: RetryBudgets
    reads: ReadContext
    long_polls: LongPolls
    stream_budget: StreamBudget
    rotation: Iterator[int]
    access: Access
    lifecycle: Lifecycle
    offload: Offload
    metrics: Metrics
    schemas: RegisteredSchemas | None = None  # of the node's registry
    events: RenderedCache[tuple[Part, bytes]] = field(default_factory=RenderedCache)
