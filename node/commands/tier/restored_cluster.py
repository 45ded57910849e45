"""The cluster that `penstock tier restore --coordination` creates: the restored directory is its first node.

Does what an import of a standalone directory does (node/cluster/standalone_import.py), before any node runs, and names
the other nodes as new replicas: they copy the records when they start. Claims the place first, so that no node creates
another cluster there meanwhile. A call after an interruption continues; a place that has another cluster is refused.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from engine.errors import StartRefused
from engine.format.paths import partition_dir
from engine.log.leader_epochs import load_epochs
from engine.runtime.disk import Disk
from engine.tiering.audit.restored_directory import RestoredTopic
from node.setup.setting_sources import ENVIRONMENT_PREFIX
from replication.cluster.keys import CLUSTER, PartitionKey
from replication.cluster.registration_state import (
    RegistrationState,
    read_registration_state,
    save_registration_state,
)
from replication.cluster.standalone_import import StandaloneImport
from replication.cluster.values import identity_from_bytes
from replication.coordination.interface import Session
from replication.coordination.zookeeper import ZookeeperSession, parse_address
from replication.coordination.zookeeper_security import ZookeeperSecurity

_SESSION_TIMEOUT_MS = 10_000

_SECURITY = ("tls_ca", "tls_cert", "tls_key", "login_file", "acl")

OpenSession = Callable[[], AbstractAsyncContextManager[Session]]
OpenZookeeper = Callable[[], AbstractAsyncContextManager[ZookeeperSession]]


class RestoredCluster:
    """Implements Publication. `nodes` are the ids of all nodes of the cluster, `node_id` is the restored one."""

    def __init__(
        self, open_session: OpenSession, disk: Disk, node_id: int, nodes: Sequence[int], new_id: Callable[[], str]
    ) -> None:
        self._open_session = open_session
        self._disk = disk
        self._node_id = node_id
        self._others = [node for node in nodes if node != node_id]
        self._new_id = new_id
        self._cluster_id = ""
        self._is_finished = False

    def __repr__(self) -> str:
        return f"RestoredCluster(node {self._node_id}, others {self._others})"

    def claim(self, directory: str, cluster_id: str) -> None:
        """Create the cluster with a mark that keeps nodes out, or find the mark. Raises StartRefused."""
        self._cluster_id = cluster_id
        asyncio.run(self._claim(directory, cluster_id))

    def finish(self, directory: str, topics: Sequence[RestoredTopic]) -> None:
        """Write the topics, make the directory the one of a node, and remove the mark. Raises StartRefused."""
        if not self._is_finished:
            asyncio.run(self._finish(directory, topics))

    async def _claim(self, directory: str, cluster_id: str) -> None:
        async with self._open_session() as session:
            cluster_key = await session.get(CLUSTER)
            identity = None if cluster_key is None else identity_from_bytes(CLUSTER, cluster_key.value)
            if cluster_key is None or identity is None or (identity.cluster_id == cluster_id and identity.is_claimed):
                await StandaloneImport(session, cluster_id).claim(self._new_id)
                return
            disk_from = read_registration_state(self._disk, directory).disk_from
            self._is_finished = identity.cluster_id == cluster_id and disk_from == cluster_key.created
            if not self._is_finished:
                raise StartRefused(
                    f"the place in --coordination has cluster {identity.cluster_id}",
                    hint="give an empty place: nothing is restored into a cluster that exists",
                )

    async def _finish(self, directory: str, topics: Sequence[RestoredTopic]) -> None:
        epochs: dict[PartitionKey, int] = {}
        for topic in topics:
            name, topic_id = topic.record.name, topic.record.topic_id
            for log in topic.partitions:
                number = log.partition.partition
                starts = load_epochs(self._disk, partition_dir(directory, name, topic_id, number))
                epochs[topic_id, number] = max((start.epoch for start in starts), default=0)
        records = [replace(topic.record, replication_factor=topic.replication_factor) for topic in topics]
        async with self._open_session() as session:
            importing = StandaloneImport(session, self._cluster_id)
            await importing.claim(self._new_id)
            await importing.write(self._node_id, records, epochs, 0, self._others)
            since = importing.broker_epoch
            save_registration_state(self._disk, directory, RegistrationState(since, since, self._new_id()))
            await importing.finish()


def zookeeper_sessions(
    coordination: str, new_id: Callable[[], str], security: ZookeeperSecurity | None = None
) -> OpenZookeeper:
    """Return a factory of sessions with ZooKeeper. Without `security` the environment has it, as for a node.

    Raises StartRefused for another address, or for a wrong file.
    """
    address = parse_address(coordination)
    given = security or zookeeper_security_of_environment()
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # the failure of the command says it in one line

    @asynccontextmanager
    async def open_session() -> AsyncIterator[ZookeeperSession]:
        session = await ZookeeperSession.open(
            address, session_timeout_ms=_SESSION_TIMEOUT_MS, new_id=new_id, security=given
        )
        try:
            yield session
        finally:
            await session.close()

    return open_session


def zookeeper_security_of_environment() -> ZookeeperSecurity:
    """Returns how the variables PENSTOCK_ZOOKEEPER_… say that ZooKeeper is reached. Raises StartRefused."""
    words = {name: os.environ.get(f"{ENVIRONMENT_PREFIX}ZOOKEEPER_{name.upper()}", "") for name in _SECURITY}
    tls_ca, tls_cert, tls_key, login_file, acl = words.values()
    security = ZookeeperSecurity(tls_ca, tls_cert, tls_key, login_file, acl.lower() in ("true", "1"))
    security.check()
    return security
