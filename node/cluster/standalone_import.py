"""A node whose data directory was alone starts in a cluster for the first time: it brings its topics along.

The directory's side of replication/cluster/standalone_import.py: whether it may, what it has, and what it remembers at
the end. Nothing in the directory is changed before the store has everything; the last thing written here, `vouching`,
is what keeps it from being alone again, and comes before the cluster is open to others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar

from engine.directory.catalog import Catalog
from engine.directory.data_directory import DataDirectory
from engine.errors import StartRefused
from engine.format import paths
from engine.tiering.store.store import open_store
from gateway.settings import NodeSettings
from node.cluster.sessions import end_of_producer_ids
from replication.cluster.keys import PartitionKey
from replication.cluster.registration_state import RegistrationState
from replication.cluster.standalone_import import Adoption
from replication.cluster.values import ClusterIdentity
from replication.coordination.interface import Session

T = TypeVar("T")


class Adopting:
    """Of a directory that is open; `session` is closed at the end, whatever that is."""

    def __init__(
        self, session: Session, settings: NodeSettings, directory: DataDirectory, catalog: Catalog, executor: Executor
    ) -> None:
        self._session = session
        self._settings = settings
        self._directory = directory
        self._catalog = catalog
        self._executor = executor
        self._adoption = Adoption(session, directory.identity.cluster_id)

    def __repr__(self) -> str:
        return f"Adopting({self._directory.path}, {self._adoption})"

    async def claim(self, new_id: Callable[[], str]) -> ClusterIdentity:
        """Everything that can be refused is refused before. Raises StartRefused."""
        for topic in self._catalog.records.values():
            if topic.hosted is not None:
                raise StartRefused(
                    f"topic {topic.name!r} in {self._directory.path} is one of a cluster",
                    hint="the directory is not whole: restore it from a backup, or start with an empty one",
                )
        await self._in_thread(self._check_shipped)
        self._producer_ids_end = 0
        if not self._settings.is_embedded:  # else they are in the store already
            self._producer_ids_end = await end_of_producer_ids(self._directory, self._executor)
        return await self._adoption.claim(new_id)

    async def finish(
        self,
        epochs: Mapping[PartitionKey, int],
        directory_id: str,
        keep_vouching: Callable[[RegistrationState], Awaitable[None]],
    ) -> RegistrationState:
        """What the node may say of itself from now on. Raises EngineError."""
        topics = self._catalog.records.values()
        await self._adoption.write(self._settings.node_id, topics, epochs, self._producer_ids_end)
        since = self._adoption.incarnation
        vouching = RegistrationState(since, since, directory_id)
        await keep_vouching(vouching)
        await self._adoption.finish()
        await self.close()
        return vouching

    async def close(self) -> None:
        await self._session.close()

    def _check_shipped(self) -> None:
        """Records that were shipped to the store inside the directory would be gone in another one. Blocks."""
        inside = Path(self._directory.file(paths.EMBEDDED_STORE))
        if not self._settings.store or not inside.exists():
            return
        own, new = open_store(inside.as_uri()), open_store(self._settings.store)
        for topic in self._catalog.records.values():
            prefix = paths.store_topic_prefix(self._directory.identity.cluster_id, topic.name, topic.topic_id)
            keys = {found.key for found in own.list(prefix)}
            if keys and not keys <= {found.key for found in new.list(prefix)}:
                raise StartRefused(
                    f"records of topic {topic.name!r} are in {inside} and not in {new.url}",
                    hint="copy everything in the one store to the other, then start again",
                )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
