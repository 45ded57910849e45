"""Opens a node's sessions with a coordination store: ZooKeeper, or a journal in its own data directory.

The difference between a cluster of several nodes and an embedded one. A journal can be opened only after its directory.
Also checks whether a directory was in a cluster, since each form refuses the other's directories.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Protocol

from engine.directory.data_directory import DataDirectory, known_cluster_id
from engine.directory.log_directories import LogDirectories
from engine.errors import StartRefused
from engine.format import paths
from engine.runtime.disk import Disk
from gateway.settings import NodeSettings
from node.setup.setting_sources import zookeeper_security
from replication.cluster.producer_ids import StoredBlocks
from replication.cluster.start_counter import StartCounter, StartCounters, load_start_counter, save_start_counter
from replication.coordination.embedded import EmbeddedStore
from replication.coordination.interface import Session


class Sessions(Protocol):
    """A source of sessions; `open` is called again after each lost session."""

    async def use_directory(self, directory: DataDirectory) -> None:
        """Takes the node's first directory, which is open. Raises StartRefused."""

    async def open(self) -> Session:
        """Opens a session. Raises StartRefused, StoreDenied."""

    async def load_start_counters(self, directories: LogDirectories, first_id: str) -> StartCounters | None:
        """Return the start counters, if the store can prove which copy of a directory is the newest. Raises OSError."""

    async def close(self) -> None:
        """Closes the source, after all its sessions."""


class ZookeeperSessions:
    """Sessions with ZooKeeper. Implements Sessions."""

    def __init__(self, settings: NodeSettings, new_id: Callable[[], str], executor: Executor) -> None:
        from replication.coordination.zookeeper import (  # its client takes time to import
            ZookeeperSession,
            parse_address,
        )

        self._executor = executor
        self._open = ZookeeperSession.open
        self._address = parse_address(settings.coordination)
        self._security = zookeeper_security(settings)
        self._timeout_ms = settings.session_timeout_ms
        self._new_id = new_id

    async def use_directory(self, directory: DataDirectory) -> None:
        """No-op: the store is not in the directory."""

    async def open(self) -> Session:
        return await self._open(
            self._address, session_timeout_ms=self._timeout_ms, new_id=self._new_id, security=self._security
        )

    async def load_start_counters(self, directories: LogDirectories, first_id: str) -> StartCounters | None:
        disks = {directory.directory_id or first_id: directory for directory in directories.usable}

        def save_all(counters: Mapping[str, StartCounter]) -> None:
            for directory_id, counter in counters.items():
                save_start_counter(disks[directory_id].disk, disks[directory_id].path, counter)

        async def save(counters: Mapping[str, StartCounter]) -> None:
            await asyncio.get_running_loop().run_in_executor(self._executor, save_all, counters)

        counters = {
            directory_id: load_start_counter(directory.disk, directory.path)
            for directory_id, directory in disks.items()
        }
        return StartCounters(first_id, counters, save)

    async def close(self) -> None:
        """No-op: each session closes its own connection."""


class EmbeddedSessions:
    """Sessions with the journal in the data directory. Implements Sessions."""

    _store: EmbeddedStore | None = None

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def use_directory(self, directory: DataDirectory) -> None:
        self._store = await open_coordination(directory, self._executor)

    async def open(self) -> Session:
        assert self._store is not None
        return self._store.session()

    async def load_start_counters(self, directories: LogDirectories, first_id: str) -> None:
        """Returns none: the store is on the disk that it would have to judge."""

    async def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()


async def open_coordination(directory: DataDirectory, executor: Executor) -> EmbeddedStore:
    """Opens the coordination store in a data directory. Raises StartRefused."""
    return await EmbeddedStore.open(directory.disk, directory.file(paths.COORDINATION), executor)


def check_standalone(disk: Disk, path: str) -> None:
    """Checks that a directory was never in a cluster, whose store would miss all changes made here.

    Raises StartRefused.
    """
    if was_in_cluster(disk, path):
        raise StartRefused(
            f"the data directory {path} belongs to a node of cluster {known_cluster_id(disk, path)}",
            hint="use the node's former --coordination, embedded or zookeeper://…",
        )


async def end_of_producer_ids(directory: DataDirectory, executor: Executor) -> int:
    """Returns the end of the producer ids that the node allocated while standalone. Raises StartRefused."""
    store = await open_coordination(directory, executor)
    try:
        return await StoredBlocks(store.session()).end()
    finally:
        await store.close()


def was_in_cluster(disk: Disk, path: str) -> bool:
    """True if the node of this directory has registered with a store, or was about to."""
    try:
        return disk.stat(os.path.join(path, paths.REGISTRATION_STATE)) is not None
    except OSError:
        return False  # opening the directory reports the error
