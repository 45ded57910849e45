"""Joins a node to its cluster: checks the cluster's identity, registers the node, and keeps the registration alive.

A registration ends with its session. A node that comes back, as a process or with a new session, registers again with a
greater broker epoch, which elections depend on. Its own stale registration is replaced in the same commit; one with
another data directory, or with a newer copy of this one, belongs to another process and is never touched.

The start counters (start_counter.py) show whether a data directory is the newest copy of itself. An older one counts as
a new disk. A process that finds that a copy of its directory has registered is fenced, and must end.

A node with data never creates a cluster in an empty store, and a store that was restored from old data is refused: its
leader epochs would be used twice, and replication relies on one leader per epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from engine.errors import EngineError, StartRefused
from engine.runtime.tasks import warn_of
from replication.cluster.keys import CLUSTER, PartitionKey, node_key, starts_key
from replication.cluster.registration_state import RegistrationState
from replication.cluster.start_counter import (
    ADVANCE_S,
    StartCounters,
    StoredStarts,
    starts_from_bytes,
    starts_to_bytes,
)
from replication.cluster.values import (
    LEVEL_MAX,
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

LISTED_MAX = 5000  # partitions in a registration; beyond it the whole node counts as one with a new disk

HINT_EMPTY = (
    "if the store was emptied, stop the nodes and rebuild it from their directories with penstock coordination rebuild "
    "(docs/operate/coordination.md)"
)

log = logging.getLogger("penstock.cluster")


class Fenced(StartRefused):
    """A process with a newer copy of this node's data directory has registered. This process must end."""


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
    tls: bool = False
    kafka: str = ""  # NodeInfo.kafka
    registration_state: RegistrationState = field(default_factory=RegistrationState)
    save_registration_state: Callable[[RegistrationState], Awaitable[None]] = _save_nothing
    starts: StartCounters | None = None  # None: the store is on the node's own disk, and proves nothing about it
    partitions_in: Mapping[str, frozenset[str]] = field(default_factory=dict)  # of each further data directory, by id
    unopened: frozenset[str] = frozenset()  # of these partitions, those whose log cannot be opened
    log_from: dict[str, int] = field(default_factory=dict)  # NodeInfo.log_from
    intact_from: dict[str, int] = field(default_factory=dict)  # NodeInfo.intact_from
    has_registered: bool = False  # in the life of this process


class Membership:
    """The registration of one session."""

    def __init__(self, session: Session, own_node: OwnNode, new_id: Callable[[], str], wait_s: float) -> None:
        self._session = session
        self._own_node = own_node
        self._new_id = new_id
        self._wait_s = wait_s
        self._key = node_key(own_node.node_id)
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
        """Registers the node. Raises StartRefused if another node has its id, Fenced, SessionLost, OSError."""
        self._is_leaving, self._offline = is_leaving, offline
        self._nonce = self._new_id()
        own_node = self._own_node
        while True:
            counted = await self._count_start()
            operations = [*counted, *await self._replace_stale(), Create(self._key, self._value(), is_ephemeral=True)]
            with suppress(Conflict, CommitUnknown):  # the read below shows the outcome
                await self._session.commit(*operations)
            registration = await self._session.get(self._key)
            if (
                registration is not None
                and node_from_bytes(self._key, registration.value, registration.created).nonce == self._nonce
            ):
                await self._save_registration_state(own_node.registration_state.registered(registration.created))
                if own_node.starts is not None:
                    await own_node.starts.note_registered(registration.created)
                own_node.log_from.update(
                    {name: epoch or registration.created for name, epoch in own_node.log_from.items()}
                )
                own_node.has_registered = True
                return Member(own_node.node_id, registration.created)

    async def advance(self) -> None:
        """Counts once more, so that every copy of the disks made until now is known to be old.

        Raises Fenced, SessionLost, CommitUnknown, OSError of the disk.
        """
        while self._own_node.starts is not None:
            try:
                if operations := await self._count_start():
                    await self._session.commit(*operations)
                return
            except Conflict:
                continue

    async def advance_forever(self) -> None:
        """Advances until the session ends. Raises Fenced."""
        while self._own_node.starts is not None:
            await asyncio.sleep(ADVANCE_S)
            try:
                await self.advance()
            except SessionLost:
                return
            except (CommitUnknown, OSError) as error:  # the next time counts for this one too
                warn_of("the start counter was not advanced", error)

    async def _count_start(self) -> list[Operation]:
        """Count on the disks; return what the store must be given. Condemns directories that are older copies."""
        starts, key = self._own_node.starts, starts_key(self._own_node.node_id)
        if starts is None:
            return []
        counter = await self._session.get(key)
        stored = None if counter is None else starts_from_bytes(key, counter.value)
        await self._check_rebuilt(starts, stored)
        older = starts.older(stored)
        if older:
            await self._condemn(starts, stored, older)
            counter = await self._session.get(key)  # it may have waited
            stored = None if counter is None else starts_from_bytes(key, counter.value)
        own_node = self._own_node
        own_node.log_from = starts.log_from(own_node.partitions_in) | own_node.log_from
        own_node.intact_from = starts.intact_from(
            {directory_id: has - own_node.unopened for directory_id, has in own_node.partitions_in.items()}, stored
        )
        counted = await starts.count(stored, self._new_id())
        if counted == stored:
            return []
        value = starts_to_bytes(counted)
        return [Create(key, value) if counter is None else Put(key, value, counter.version)]

    async def _check_rebuilt(self, starts: StartCounters, stored: StoredStarts | None) -> None:
        """Takes over what a rebuild of the store judged: broker epochs of the earlier store mean nothing here.

        A directory that the rebuild did not see is refused: its replicas would count as moved. Raises StartRefused.
        """
        own_node, cluster = self._own_node, await self._session.get(CLUSTER)
        if cluster is None or not identity_from_bytes(CLUSTER, cluster.value).is_rebuilt or own_node.has_registered:
            return
        state = own_node.registration_state
        is_known = stored is not None and (starts.first == stored.first or starts.first in stored.counters)
        if not is_known and state.disk_from is not None:
            raise StartRefused(
                f"the coordination store was rebuilt without the data directory of node {own_node.node_id}",
                hint="keep it elsewhere and start with an empty one; or empty the store and rebuild it with this one",
            )
        if stored is not None and stored.is_rebuilt and starts.first not in starts.older(stored):
            since = cluster.created
            survives_from = None if state.survives_from is None else since
            await self._save_registration_state(replace(state, disk_from=since, survives_from=survives_from))
            starts.trust_all()

    async def _condemn(self, starts: StartCounters, stored: StoredStarts | None, older: set[str]) -> None:
        """Trust older directories since the next registration only, once no process with a newer copy is registered."""
        own_node = self._own_node
        if own_node.has_registered:
            raise Fenced(
                f"another process runs as node {own_node.node_id} with a copy of this node's data directory",
                hint="stop it, or remove one of the copies; a copy counts as a new disk once it starts alone",
            )
        if starts.first in older:
            await self._wait_until_expired()
            await self._save_registration_state(
                replace(own_node.registration_state, disk_from=None, survives_from=None)
            )
        for directory_id in sorted(older):
            if not starts.counters[directory_id].number and (stored is None or directory_id not in stored.counters):
                continue  # a new disk
            counter = None if stored is None else stored.counters.get(directory_id)
            extra = {
                "directory_id": directory_id,
                "start": starts.counters[directory_id].number,
                "newest": counter and counter.number,
            }
            log.error(
                "a data directory is older than the coordination store knows: a copy was put back, or its disk was "
                "rolled back; its partitions leave all in-sync sets and follow",
                extra=extra,
            )
        starts.set_known_from(older)

    async def update(self, *, is_leaving: bool | None = None, offline: frozenset[str] | None = None) -> None:
        """Changes fields of the registration, which keeps its broker epoch. Raises SessionLost."""
        self._is_leaving = self._is_leaving if is_leaving is None else is_leaving
        self._offline = self._offline if offline is None else offline
        while True:
            registration = await self._session.get(self._key)
            if registration is None or registration.value == self._value():
                return  # without a registration the session is over, too
            try:
                await self._session.commit(Put(self._key, self._value(), registration.version))
            except (Conflict, CommitUnknown):
                continue

    async def _replace_stale(self) -> list[Operation]:
        """Deletes the stale registration of this node. Waits for one of another process to expire, which may be dead.

        A process at another address may be alive, and have a copy of this directory.
        """
        own_node, registration = self._own_node, await self._session.get(self._key)
        if registration is None:
            return []
        other = node_from_bytes(self._key, registration.value, registration.created)
        is_copy = other.directory_id == own_node.registration_state.directory_id
        if is_copy and (own_node.has_registered or own_node.starts is None or other.url == own_node.url):
            return [Delete(self._key, registration.version)]
        await self._wait_until_expired()
        return []

    async def _wait_until_expired(self) -> None:
        """Waits for the end of this node's registration by another process. Raises StartRefused if it does not end."""
        deadline, own_node = asyncio.get_running_loop().time() + self._wait_s, self._own_node
        while (registration := await self._session.get(self._key)) is not None:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._session.wait_for_change(self._key, registration)
            except TimeoutError:
                break
        else:
            return
        other = node_from_bytes(self._key, registration.value, registration.created)
        at = other.url or "an unknown address"
        if other.directory_id != own_node.registration_state.directory_id:
            hint = "give each node of a cluster its own --node-id"
            raise StartRefused(f"node id {own_node.node_id} is taken by the node at {at}", hint=hint)
        raise StartRefused(
            f"node {own_node.node_id} runs at {at} with a newer copy of this data directory",
            hint="never start two nodes from copies of one directory; give a further node an empty --data-dir and its "
            "own --node-id",
        )

    async def _save_registration_state(self, now: RegistrationState) -> None:
        """Writes only changes: the disk may be full, and a reconnect changes nothing."""
        if now != self._own_node.registration_state:
            await self._own_node.save_registration_state(now)
            self._own_node.registration_state = now

    def _value(self) -> bytes:
        own_node, state, log_from = self._own_node, self._own_node.registration_state, self._own_node.log_from
        intact_from = own_node.intact_from if len(own_node.intact_from) <= LISTED_MAX else {}
        disk_from, survives_from = state.disk_from, state.survives_from
        if len(log_from) > LISTED_MAX:
            disk_from = survives_from = None
            log_from = intact_from = {}
        return node_to_bytes(
            NodeInfo(
                own_node.node_id,
                0,
                own_node.url,
                own_node.shard_urls,
                own_node.internal_urls,
                own_node.rack,
                own_node.version,
                own_node.registration_state.directory_id,
                survives_from or 0,
                disk_from or 0,
                self._is_leaving,
                self._offline,
                self._nonce,
                log_from,
                intact_from,
                own_node.tls,
                own_node.kafka,
                LEVEL_MAX,
            )
        )


async def wait_lost(session: Session) -> None:
    """Waits for the end of a session."""
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


async def join(session: Session, new_id: Callable[[], str], wanted_id: str, directory_id: str) -> ClusterIdentity:
    """Returns the cluster's identity, creating the cluster if this node is the first. Raises StartRefused."""
    while (cluster := await session.get(CLUSTER)) is None or is_claimed(cluster):
        if cluster is not None:
            await _wait_for_import(session, cluster)
            continue
        if directory_id:
            raise StartRefused(
                f"the data directory belongs to cluster {directory_id}, and the coordination store has no cluster",
                hint=f"{HINT_EMPTY}, or correct --coordination",
            )
        made = ClusterIdentity(wanted_id or new_id(), new_id() + new_id())
        try:
            await session.commit(Create(CLUSTER, identity_to_bytes(made)))
        except (Conflict, CommitUnknown):
            continue  # the next read shows the outcome
    identity = identity_from_bytes(CLUSTER, cluster.value)
    if wanted_id not in ("", identity.cluster_id):
        raise StartRefused(
            f"the coordination store belongs to cluster {identity.cluster_id}, not {wanted_id}",
            hint="check --coordination and cluster_id",
        )
    return identity


def is_claimed(cluster: Versioned) -> bool:
    return identity_from_bytes(CLUSTER, cluster.value).is_claimed


async def _wait_for_import(session: Session, cluster: Versioned) -> None:
    """Raises StartRefused."""
    identity = identity_from_bytes(CLUSTER, cluster.value)
    what = "rebuild of" if identity.is_rebuilt else "import of a standalone node into"
    hint = f"start that node, which continues the import; if it no longer exists, delete {CLUSTER} in ZooKeeper"
    if identity.is_rebuilt:
        hint = "repeat penstock coordination rebuild, which continues"
    log.warning(f"waiting for the {what} this cluster", extra={"cluster_id": identity.cluster_id})
    try:
        async with asyncio.timeout(IMPORT_S):
            await session.wait_for_change(CLUSTER, cluster)
    except TimeoutError:
        raise StartRefused(f"the {what} cluster {identity.cluster_id} was not finished", hint=hint) from None


async def check_same_cluster(session: Session, expected: ClusterIdentity | None) -> ClusterIdentity:
    """Check in a new session that the store still has the joined cluster. Returns its identity. Raises StartRefused."""
    cluster = await session.get(CLUSTER)
    identity = None if cluster is None else identity_from_bytes(CLUSTER, cluster.value)
    if identity is None:
        raise StartRefused("the coordination store has no cluster any more", hint=HINT_EMPTY)
    if expected is not None and not identity.has_secret_of(expected):
        text = f"the coordination store has another cluster than this node joined, {expected.cluster_id}"
        raise StartRefused(text, hint="if it was rebuilt, restart the node; else correct --coordination")
    return identity


def check_not_older(view: ClusterView, local_epochs: Mapping[PartitionKey, int]) -> None:
    """Refuse a store that was restored from old data, since it would reuse leader epochs. Raises StartRefused.

    `local_epochs` has the greatest leader epoch in the log of each partition on this node's disks.
    """
    for (topic_id, number), epoch in local_epochs.items():
        versioned = view.states.get((topic_id, number))
        topic = view.topic_by_id(topic_id)
        if versioned is not None and topic is not None and versioned.state.leader_epoch < epoch:
            raise StartRefused(
                f"the coordination store has leader epoch {versioned.state.leader_epoch} of {topic.name}/{number}, and "
                f"this node's log is of epoch {epoch}: the store was restored from old data",
                hint="restore the newest data of the store, or correct --coordination",
            )
