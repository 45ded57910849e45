"""Where a node's sessions with a coordination store come from: ZooKeeper, or a journal in its own data directory.

What differs between a node among others and a cluster of one, but for who can reach it. A journal can be opened only
once its directory is; what a directory remembers of clusters is told here too, because each form must refuse what
belongs to the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

from engine.directory.data_directory import DataDirectory, known_cluster_id
from engine.errors import StartRefused
from engine.format import paths
from engine.runtime.disk import Disk
from gateway.settings import NodeSettings
from replication.cluster.producer_ids import StoredBlocks
from replication.coordination.embedded import EmbeddedStore
from replication.coordination.interface import Session
from replication.coordination.zookeeper import ZookeeperSession, parse_address


class Sessions(Protocol):
    """`open` one after the other, each when the last is lost."""

    async def begin(self, directory: DataDirectory) -> None:
        """The node's first directory is open. Raises StartRefused."""

    async def open(self) -> Session:
        """Raises StartRefused."""

    async def close(self) -> None:
        """All sessions are closed."""


class ZookeeperSessions:
    """Implements Sessions."""

    def __init__(self, settings: NodeSettings, new_id: Callable[[], str]) -> None:
        self._address = parse_address(settings.coordination)
        self._timeout_ms = settings.session_timeout_ms
        self._new_id = new_id

    async def begin(self, directory: DataDirectory) -> None:
        """It lies elsewhere."""

    async def open(self) -> Session:
        return await ZookeeperSession.open(self._address, session_timeout_ms=self._timeout_ms, new_id=self._new_id)

    async def close(self) -> None:
        """Each session has a connection of its own."""


class EmbeddedSessions:
    """Implements Sessions."""

    _store: EmbeddedStore | None = None

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def begin(self, directory: DataDirectory) -> None:
        self._store = await open_coordination(directory, self._executor)

    async def open(self) -> Session:
        assert self._store is not None
        return self._store.session()

    async def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()


async def open_coordination(directory: DataDirectory, executor: Executor) -> EmbeddedStore:
    """The coordination store in a data directory. Raises StartRefused."""
    return await EmbeddedStore.open(directory.disk, directory.file(paths.COORDINATION), executor)


def check_alone(disk: Disk, path: str) -> None:
    """A node that was in a cluster has its topics in a store, and that would not hear what becomes of them here.

    Raises StartRefused.
    """
    if was_in_cluster(disk, path):
        raise StartRefused(
            f"the data directory {path} is that of a node of cluster {known_cluster_id(disk, path)}",
            hint="start it with the --coordination that it had, embedded or zookeeper://…",
        )


async def end_of_producer_ids(directory: DataDirectory, executor: Executor) -> int:
    """Given out by the node while it was alone. Raises StartRefused."""
    store = await open_coordination(directory, executor)
    try:
        return await StoredBlocks(store.session()).end()
    finally:
        await store.close()


def was_in_cluster(disk: Disk, path: str) -> bool:
    """Whether a data directory belongs to a node that has registered with a store, or was about to."""
    try:
        return disk.stat(os.path.join(path, paths.VOUCHING)) is not None
    except OSError:
        return False  # who opens it says what is wrong
