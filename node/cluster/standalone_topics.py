"""A node of several processes that is alone: its catalog is the truth of topics, a journal on its disk of the rest.

What a node of a cluster has in place of it is node/cluster/member.py. Invariant: a topic change is answered only
when every process that is up has followed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any, Protocol

from engine.directory.catalog import Catalog
from engine.directory.log_directories import LogDirectories
from engine.directory.topics import TopicRecord
from engine.errors import EngineError
from gateway.links.link import Handler, Link
from node.cluster.sessions import open_coordination
from node.messages import ClusterTask, record_to
from replication.cluster.producer_ids import StoredBlocks
from replication.coordination.embedded import EmbeddedStore


class Processes(Protocol):
    """The processes of this node. One that goes down meanwhile learns of a change when it is back."""

    async def tell_shards(self, change: str, arguments: Any) -> None: ...
    async def tell_worker(self, change: str, arguments: Any) -> None: ...
    def shard_links(self) -> list[Link]: ...


class Membership(Protocol):
    """What the supervisor asks of either: alone, or a member of a cluster."""

    @property
    def cluster_id(self) -> str | None:
        """Of which cluster the data directories must be; None: whatever they say."""

    async def begin(self, directories: LogDirectories, catalog: Catalog, processes: Processes) -> None:
        """Before any process is started; the catalog is loaded. Raises StartRefused."""

    def task(self, index: int) -> ClusterTask | None:
        """What a process must know of the cluster before it asks."""

    def handlers(self) -> Mapping[str, Handler]:
        """What the processes call."""

    async def join(self) -> None:
        """All processes serve. Returns when this node takes part. Raises StartRefused."""

    def shard_died(self) -> None: ...
    async def leave(self) -> None:
        """Before the processes are told to end: give away what others can take over."""

    async def close(self) -> None: ...
    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, overrides: dict[str, object]
    ) -> bool: ...
    async def alter_topic(self, name: str, overrides: dict[str, object], partitions: int | None) -> None: ...
    async def delete_topic(self, name: str) -> None: ...
    async def take_producer_ids(self, floor: int) -> range: ...
    async def end_of_producer_ids(self, floor: int) -> int: ...


class Alone:
    """Implements Membership."""

    _catalog: Catalog
    _processes: Processes
    _coordination: EmbeddedStore | None = None
    cluster_id = None

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._half_told: set[str] = set()  # topics that some process may not have yet; told again when asked for again

    async def begin(self, directories: LogDirectories, catalog: Catalog, processes: Processes) -> None:
        self._coordination = await open_coordination(directories.first, self._executor)
        self._blocks = StoredBlocks(self._coordination.session())
        self._catalog = catalog
        self._processes = processes

    def task(self, index: int) -> None:
        return None

    def handlers(self) -> Mapping[str, Handler]:
        return {}

    async def join(self) -> None:
        """There is nobody."""

    def shard_died(self) -> None:
        """It leads again what it led, as soon as it is back."""

    async def leave(self) -> None:
        """There is nobody."""

    async def close(self) -> None:
        coordination, self._coordination = self._coordination, None
        if coordination is not None:
            await coordination.close()

    async def take_producer_ids(self, floor: int) -> range:
        self._blocks.floor = floor
        return await self._blocks.take()

    async def end_of_producer_ids(self, floor: int) -> int:
        self._blocks.floor = floor
        return await self._blocks.end()

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, overrides: dict[str, object]
    ) -> bool:
        """Whether it is new."""
        async with self._catalog.changing:
            if name in self._catalog.half_deleted:
                await self._delete(self._catalog.half_deleted[name])
            record, is_new = await self._catalog.create(name, partitions, replication_factor, overrides)
            if is_new or name in self._half_told:  # the worker last: it asks the shards at once
                self._half_told.add(name)
                await self._processes.tell_shards("open_topic", record_to(record))
                await self._processes.tell_worker("open_topic", record_to(record))
                self._half_told.discard(name)
            return is_new

    async def alter_topic(self, name: str, overrides: dict[str, object], partitions: int | None) -> None:
        async with self._catalog.changing:
            record = await self._catalog.alter(name, overrides, partitions)
            if partitions is not None:  # at every owner before anybody sends records there
                await self._processes.tell_shards("open_added", record_to(record))
            await self._processes.tell_shards("altered", record_to(record))
            await self._processes.tell_worker("altered", record_to(record))

    async def delete_topic(self, name: str) -> None:
        async with self._catalog.changing:
            await self._delete(self._catalog.record(name))

    async def _delete(self, record: TopicRecord) -> None:
        """If the disk refuses, the topic is served as before, unless it has vanished: then its deletion goes on."""
        await self._processes.tell_shards("close_topic", record.name)
        try:
            await self._catalog.delete(record)
        except EngineError:
            if record.name not in self._catalog.half_deleted:
                self._half_told.add(record.name)
                await self._processes.tell_shards("open_topic", record_to(record))
            raise
        self._half_told.discard(record.name)
        await self._processes.tell_worker("removed", record_to(record))
