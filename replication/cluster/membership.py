"""Joins a node to its cluster: checks the cluster's identity, registers the node, and keeps the registration alive.

A registration ends with its session. A node that comes back, as a process or with a new session, registers again with a
greater broker epoch, which elections depend on. Its own stale registration is replaced in the same commit; one with
another data directory belongs to another node and is never touched.

A node with data never creates a cluster in an empty store, and a store that was restored from old data is refused: its
leader epochs would be used twice, and replication relies on one leader per epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from engine.errors import EngineError, StartRefused
from engine.runtime.clock import Clock
from engine.runtime.tasks import warn_of
from replication.cluster.keys import CLUSTER, PartitionKey, node_key
from replication.cluster.registration_state import RegistrationState
from replication.cluster.values import (
    ClusterIdentity,
    NodeInfo,
    identity_from_bytes,
    identity_to_bytes,
    node_from_bytes,
    node_to_bytes,
)
from replication.cluster.view import ClusterView
from replication.coordination.interface import (
    CommitUnknown,
    Conflict,
    Create,
    Delete,
    Operation,
    Put,
    Session,
    SessionLost,
    State,
    Versioned,
)
from replication.cores.partition_state import Member

PINGS = 6  # per session timeout; acks=1 stops after two thirds of it without an answer


async def _save_nothing(_: RegistrationState) -> None:
    """No-op: this node has no data directory yet."""


@dataclass(slots=True)
class OwnNode:
    """A node's own registration. Fields that need an open data directory or listeners are set before it registers."""

    node_id: int
    url: str = ""
    rack: str = ""
    version: str = ""
    shard_urls: tuple[str, ...] = ()
    internal_urls: tuple[str, ...] = ()
    registration_state: RegistrationState = field(default_factory=RegistrationState)
    save_registration_state: Callable[[RegistrationState], Awaitable[None]] = _save_nothing


class Membership:
    """The registration of one session."""

    def __init__(self, session: Session, own: OwnNode, new_id: Callable[[], str], wait_s: float) -> None:
        self._session = session
        self._own = own
        self._new_id = new_id
        self._wait_s = wait_s
        self._key = node_key(own.node_id)
        self._is_leaving = False
        self._offline: frozenset[str] = frozenset()
        self._nonce = ""

    def __repr__(self) -> str:
        return f"Membership({self._key}, is_leaving={self._is_leaving}, offline={len(self._offline)})"

    @property
    def nonce(self) -> str:
        """A random id that distinguishes this registration from earlier ones of the node."""
        return self._nonce

    async def register(self, is_leaving: bool, offline: frozenset[str]) -> Member:
        """Register the node. Raises StartRefused if another node has its id, SessionLost, OSError of the disk."""
        self._is_leaving, self._offline = is_leaving, offline
        self._nonce = self._new_id()
        while True:
            operations = [*await self._replaced(), Create(self._key, self._value(), is_ephemeral=True)]
            with suppress(Conflict, CommitUnknown):  # the read below shows the outcome
                await self._session.commit(*operations)
            found = await self._session.get(self._key)
            if found is not None and node_from_bytes(self._key, found.value, found.created).nonce == self._nonce:
                await self._save_registration_state(self._own.registration_state.registered(found.created))
                return Member(self._own.node_id, found.created)

    async def update(self, *, is_leaving: bool | None = None, offline: frozenset[str] | None = None) -> None:
        """Change fields of the registration, which keeps its broker epoch. Raises SessionLost."""
        self._is_leaving = self._is_leaving if is_leaving is None else is_leaving
        self._offline = self._offline if offline is None else offline
        while True:
            found = await self._session.get(self._key)
            if found is None or found.value == self._value():
                return  # without a registration the session is over, too
            try:
                await self._session.commit(Put(self._key, self._value(), found.version))
            except (Conflict, CommitUnknown):
                continue

    async def _replaced(self) -> list[Operation]:
        """Deletes the stale registration of this node. Waits for one of another node to expire, since that node may be
        dead.
        """
        deadline = asyncio.get_running_loop().time() + self._wait_s
        while (found := await self._session.get(self._key)) is not None:
            other = node_from_bytes(self._key, found.value, found.created)
            if other.directory_id == self._own.registration_state.directory_id:
                return [Delete(self._key, found.version)]
            try:
                async with asyncio.timeout_at(deadline):
                    await self._session.wait_for_change(self._key, found)
            except TimeoutError:
                raise StartRefused(
                    f"node id {self._own.node_id} is taken by the node at {other.url or 'an unknown address'}",
                    hint="give each node of a cluster its own --node-id",
                ) from None
        return []

    async def _save_registration_state(self, now: RegistrationState) -> None:
        """Writes only changes: the disk may be full, and a reconnect changes nothing."""
        if now != self._own.registration_state:
            await self._own.save_registration_state(now)
            self._own.registration_state = now

    def _value(self) -> bytes:
        own, registration_state = self._own, self._own.registration_state
        return node_to_bytes(
            NodeInfo(
                own.node_id,
                0,
                own.url,
                own.shard_urls,
                own.internal_urls,
                own.rack,
                own.version,
                own.registration_state.directory_id,
                registration_state.survives_from or 0,
                registration_state.disk_from or 0,
                self._is_leaving,
                self._offline,
                self._nonce,
            )
        )


class Heartbeat:
    """Sends a request to the store at an interval, and reports when the last answered one was sent."""

    def __init__(self, session: Session, timeout_s: float, clock: Clock, on_contact: Callable[[float], None]) -> None:
        self.at = clock.boottime()  # the registration is sent after this, and answered before the value is read
        self._session = session
        self._timeout_s = timeout_s
        self._clock = clock
        self._on_contact = on_contact

    def __repr__(self) -> str:
        return f"Heartbeat(at={self.at})"

    async def run(self) -> None:
        """Send heartbeats until the session is lost."""
        with suppress(SessionLost):
            while True:
                sent_at = self._clock.boottime()
                await self._session.get(CLUSTER)
                self.at = sent_at
                self._on_contact(sent_at)
                await asyncio.sleep(self._timeout_s / PINGS)


async def until_lost(session: Session) -> None:
    """Wait for the end of a session."""
    state = session.state
    while state is not State.LOST:
        state = await session.wait_for_state(state)


async def close_session(session: Session) -> None:
    """Close a session; on error, log it. The registration then ends by its timeout or when the node registers again."""
    try:
        await session.close()
    except (EngineError, OSError) as error:
        warn_of("closing a session failed", error)


IMPORT_S = 300.0  # an import takes seconds once the shards have opened, and perhaps recovered, their logs

log = logging.getLogger("penstock.cluster")


async def join(session: Session, new_id: Callable[[], str], wanted_id: str, directory_id: str) -> ClusterIdentity:
    """Return the cluster's identity, creating the cluster if this node is the first. Raises StartRefused."""
    while (found := await session.get(CLUSTER)) is None or is_claimed(found):
        if found is not None:
            await _wait_for_import(session, found)
            continue
        if directory_id:
            raise StartRefused(
                f"the data directory belongs to cluster {directory_id}, and the coordination store has no cluster",
                hint="the store was wiped, or --coordination was changed",
            )
        made = ClusterIdentity(wanted_id or new_id(), new_id() + new_id())
        try:
            await session.commit(Create(CLUSTER, identity_to_bytes(made)))
        except (Conflict, CommitUnknown):
            continue  # the next read shows the outcome
    identity = identity_from_bytes(CLUSTER, found.value)
    if wanted_id not in ("", identity.cluster_id):
        raise StartRefused(
            f"the coordination store belongs to cluster {identity.cluster_id}, not {wanted_id}",
            hint="check --coordination and cluster_id",
        )
    return identity


def is_claimed(found: Versioned) -> bool:
    return identity_from_bytes(CLUSTER, found.value).is_claimed


async def _wait_for_import(session: Session, found: Versioned) -> None:
    """Raises StartRefused."""
    cluster_id = identity_from_bytes(CLUSTER, found.value).cluster_id
    log.warning("waiting for the node that imports its topics into this cluster", extra={"cluster_id": cluster_id})
    try:
        async with asyncio.timeout(IMPORT_S):
            await session.wait_for_change(CLUSTER, found)
    except TimeoutError:
        raise StartRefused(
            f"the import of a standalone node into cluster {cluster_id} was not finished",
            hint=f"start that node, which continues the import; if it no longer exists, delete {CLUSTER} in ZooKeeper",
        ) from None


async def check_same_cluster(session: Session, known: ClusterIdentity | None) -> ClusterIdentity:
    """Check in a new session that the store still has the joined cluster. Returns its identity. Raises StartRefused."""
    found = await session.get(CLUSTER)
    identity = None if found is None else identity_from_bytes(CLUSTER, found.value)
    if identity is None or (known is not None and identity != known):
        raise StartRefused("the coordination store belongs to another cluster", hint="was it wiped?")
    return identity


def check_not_older(view: ClusterView, local_epochs: Mapping[PartitionKey, int]) -> None:
    """Refuse a store that was restored from old data, since it would reuse leader epochs. Raises StartRefused.

    `local_epochs` has the greatest leader epoch in the log of each partition on this node's disks.
    """
    for (topic_id, number), epoch in local_epochs.items():
        found = view.states.get((topic_id, number))
        topic = view.topic_by_id(topic_id)
        if found is not None and topic is not None and found.state.leader_epoch < epoch:
            raise StartRefused(
                f"the coordination store has leader epoch {found.state.leader_epoch} of {topic.name}/{number}, and "
                f"this node's log is of epoch {epoch}: the store was restored from old data",
                hint="restore the newest data of the store, or correct --coordination",
            )
