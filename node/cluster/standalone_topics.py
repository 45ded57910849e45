"""Topics of a standalone node of several processes: the catalog on its disk is authoritative; a journal has the rest.

node/cluster/member.py replaces it in a cluster. Invariant: a topic change returns only after every running process has
applied it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor

from msgspec.structs import astuple

from engine.directory.catalog import Catalog
from engine.directory.log_directories import LogDirectories
from engine.directory.topics import TopicRecord
from engine.errors import EngineError, StartRefused
from gateway.links.link import Handler
from node.child_processes import ChildProcesses
from node.cluster.sessions import open_coordination
from node.messages import record_to
from node.process_calls import AlterTopic, CreateTopic
from replication.cluster.producer_ids import StoredBlocks
from replication.coordination.embedded import EmbeddedStore
from replication.coordination.interface import Session


class Standalone:
    """Keeps the topics of a standalone node.

    `cluster_id`: the cluster that the data directories must belong to; None: any. `fenced` is done if a copy of this
    node has taken its place. `session`: with the coordination store, for keys that are not of topics.
    """

    _catalog: Catalog
    _processes: ChildProcesses
    _coordination: EmbeddedStore | None = None
    cluster_id: str | None = None
    session: Session

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.fenced: asyncio.Future[StartRefused] = asyncio.get_running_loop().create_future()
        self._unsent: set[str] = set()  # topics that a process may have missed; a repeated request notifies all

    async def prepare(self, directories: LogDirectories, catalog: Catalog, processes: ChildProcesses) -> None:
        self._coordination = await open_coordination(directories.first, self._executor)
        self.session = self._coordination.session()
        self._blocks = StoredBlocks(self.session)
        self._catalog = catalog
        self._processes = processes

    def task(self, index: int) -> None:
        return None

    def handlers(self) -> Mapping[str, Handler]:
        return {}

    async def join(self) -> None:
        """No-op: a standalone node has no peers."""

    def on_shard_died(self) -> None:
        """No-op: it leads the same partitions when it is back."""

    async def leave(self) -> None:
        """No-op: a standalone node has no peers."""

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

    async def create_topic(self, new: CreateTopic) -> bool:
        """Creates a topic. Returns whether it is new. Raises TopicExists, Invalid."""
        async with self._catalog.changing:
            name = new.name
            if name in self._catalog.partially_deleted:
                await self._delete(self._catalog.partially_deleted[name])
            record, is_new = await self._catalog.create(*astuple(new))
            if is_new or name in self._unsent:  # the worker last: it calls the shards
                self._unsent.add(name)
                await self._processes.call_shards("open_topic", record_to(record))
                await self._processes.call_worker("open_topic", record_to(record))
                self._unsent.discard(name)
            return is_new

    async def alter_topic(self, change: AlterTopic) -> None:
        async with self._catalog.changing:
            record = await self._catalog.alter(*astuple(change))
            if change.partitions is not None:  # at every owner before a request can append there
                await self._processes.call_shards("open_added", record_to(record))
            await self._processes.call_shards("altered", record_to(record))
            await self._processes.call_worker("altered", record_to(record))

    async def delete_topic(self, name: str) -> None:
        async with self._catalog.changing:
            await self._delete(self._catalog.deletable(name))

    async def _delete(self, record: TopicRecord) -> None:
        """Deletes a topic. If the disk fails, serves it as before, unless it is partly deleted; then a retry
        finishes.
        """
        await self._processes.call_shards("close_topic", record.name)
        try:
            await self._catalog.delete(record)
        except EngineError:
            if record.name not in self._catalog.partially_deleted:
                self._unsent.add(record.name)
                await self._processes.call_shards("open_topic", record_to(record))
            raise
        self._unsent.discard(record.name)
        await self._processes.call_worker("removed", record_to(record))
