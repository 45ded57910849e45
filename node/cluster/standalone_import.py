"""Imports the topics of a standalone data directory into a new cluster: the directory's side.

The store's side is replication/cluster/standalone_import.py. The directory does not change before the store has
everything. The last write here, the registration state (`vouching`), prevents a standalone start, and happens before
the cluster opens to other nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar

from engine.directory.catalog import Catalog
from engine.directory.data_directory import DataDirectory
from engine.directory.store_identities import identity_of_store
from engine.errors import StartRefused
from engine.format import paths
from engine.tiering.store.store import open_store, url_of
from gateway.settings import NodeSettings
from node.cluster.sessions import end_of_producer_ids
from replication.cluster.keys import PartitionKey
from replication.cluster.registration_state import RegistrationState
from replication.cluster.standalone_import import StandaloneImport
from replication.cluster.values import ClusterIdentity
from replication.coordination.interface import Session

T = TypeVar("T")


class DirectoryImport:
    """Imports an open directory; closes `session` at the end in any case."""

    def __init__(
        self, session: Session, settings: NodeSettings, directory: DataDirectory, catalog: Catalog, executor: Executor
    ) -> None:
        self._session = session
        self._settings = settings
        self._directory = directory
        self._catalog = catalog
        self._executor = executor
        self._import = StandaloneImport(session, directory.identity.cluster_id)

    def __repr__(self) -> str:
        return f"DirectoryImport({self._directory.path}, {self._import})"

    async def claim(self, new_id: Callable[[], str]) -> ClusterIdentity:
        """Check everything, then create the cluster. Raises StartRefused."""
        for topic in self._catalog.records.values():
            if topic.hosted is not None:
                raise StartRefused(
                    f"topic {topic.name!r} in {self._directory.path} is one of a cluster",
                    hint="the directory is incomplete: restore it from a backup, or start with an empty one",
                )
        await self._in_thread(self._check_shipped)
        self._producer_ids_end = 0
        if not self._settings.is_embedded:  # an embedded store has them already
            self._producer_ids_end = await end_of_producer_ids(self._directory, self._executor)
        return await self._import.claim(new_id)

    async def finish(
        self,
        epochs: Mapping[PartitionKey, int],
        directory_id: str,
        save_registration_state: Callable[[RegistrationState], Awaitable[None]],
    ) -> RegistrationState:
        """Write the topics and finish. Returns the registration state of the node. Raises EngineError."""
        topics = self._catalog.records.values()
        await self._import.write(self._settings.node_id, topics, epochs, self._producer_ids_end)
        since = self._import.broker_epoch
        registration_state = RegistrationState(since, since, directory_id)
        await save_registration_state(registration_state)
        await self._import.finish()
        await self.close()
        return registration_state

    async def close(self) -> None:
        await self._session.close()

    def _check_shipped(self) -> None:
        """Checks that no records are only in the store inside the directory. Blocks. Raises StartRefused."""
        inside = Path(self._directory.file(paths.EMBEDDED_STORE))
        if not self._settings.store or not inside.exists():
            return
        identity = identity_of_store(self._directory, inside.as_uri())
        inside_store = open_store(inside.as_uri(), identity=identity)
        new = open_store(url_of(self._settings.store))
        for topic in self._catalog.records.values():
            prefix = paths.store_topic_prefix(self._directory.identity.cluster_id, topic.name, topic.topic_id)
            keys = {info.key for info in inside_store.list(prefix)}
            if keys and not keys <= {info.key for info in new.list(prefix)}:
                raise StartRefused(
                    f"records of topic {topic.name!r} are in {inside} and not in {new.url}",
                    hint="copy all objects of the first store to the second, then restart the node",
                )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
