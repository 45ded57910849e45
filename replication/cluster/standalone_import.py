"""Imports the topics of a standalone data directory into a new cluster, under the same ids: the store's side.

In three steps, so that an interruption leaves nothing half done: `claim` creates the cluster with a mark that keeps
other nodes out, `write` writes the topics, `finish` removes the mark. Only the same directory can repeat an interrupted
import, from the start; no node acts on the topics before the end. The directory's side is
node/cluster/standalone_import.py. Invariants: nothing is imported into a cluster that was finished once; the claim
counts as the first registration with this disk, so that the node's logs count as intact, and every later broker epoch
is greater.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from engine.directory.topics import TopicRecord
from engine.errors import StartRefused
from replication.cluster import producer_ids
from replication.cluster.keys import CLUSTER, STATES, TOPICS, PartitionKey, block_key, block_of, topic_key
from replication.cluster.partition_state_store import COMMIT_BYTES_MAX
from replication.cluster.values import (
    ClusterIdentity,
    TopicEntry,
    block_to_bytes,
    identity_from_bytes,
    identity_to_bytes,
    topic_to_bytes,
)
from replication.coordination.interface import (
    CommitUnknown,
    Conflict,
    Create,
    Delete,
    Operation,
    Put,
    Session,
    Versioned,
)
from replication.cores.partition_state import Member, PartitionState, VersionedState
from replication.cores.reassignment import with_reassignment

KEYS_PER_COMMIT = 100


async def can_import(session: Session, cluster_id: str, was_standalone: bool, disk_from: int | None = None) -> bool:
    """True if a directory may start its import: it is standalone and the store is empty, or it was interrupted.

    `disk_from` is the broker epoch of the claim if writing it was the last step in the directory. A directory that has
    been in another cluster since may not continue.
    """
    cluster = await session.get(CLUSTER)
    if cluster is None:
        return was_standalone
    identity = identity_from_bytes(CLUSTER, cluster.value)
    if not identity.is_claimed or identity.cluster_id != cluster_id or identity.is_rebuilt:
        return False
    return was_standalone or disk_from == cluster.created


class StandaloneImport:
    """The import of one directory in one session. The caller holds the directory's lock."""

    def __init__(self, session: Session, cluster_id: str, *, is_rebuilt: bool = False) -> None:
        self._session = session
        self._cluster_id = cluster_id
        self._is_rebuilt = is_rebuilt
        self._seen: Versioned | None = None

    def __repr__(self) -> str:
        return f"StandaloneImport({self._cluster_id}, {self._seen})"

    async def claim(self, new_id: Callable[[], str]) -> ClusterIdentity:
        """Create the cluster, or find the claim of this directory. Raises StartRefused."""
        while (cluster := await self._session.get(CLUSTER)) is None:
            if await self._session.children(TOPICS):
                raise StartRefused(
                    "the coordination store has topics and no cluster",
                    hint="it was wiped in part: restore it, or use another path in --coordination",
                )
            made = ClusterIdentity(self._cluster_id, new_id() + new_id(), True, self._is_rebuilt)
            await self._try([Create(CLUSTER, identity_to_bytes(made))])
        self._seen = cluster
        identity = identity_from_bytes(CLUSTER, cluster.value)
        if not identity.is_claimed or identity.cluster_id != self._cluster_id:
            raise StartRefused(
                f"the coordination store is that of cluster {identity.cluster_id}, and the data directory belongs to "
                f"cluster {self._cluster_id}",
                hint="another node created the cluster first: start this one with an empty --data-dir",
            )
        return replace(identity, is_claimed=False)

    @property
    def broker_epoch(self) -> int:
        """The broker epoch of the claim, as if the node had registered with it."""
        assert self._seen is not None
        return self._seen.created

    async def write(
        self,
        node_id: int,
        topics: Iterable[TopicRecord],
        epochs: Mapping[PartitionKey, int],
        producer_ids_end: int,
        others: Sequence[int] = (),
    ) -> None:
        """Write all partitions with this node as their replica and no leader: the first election starts the epoch after
        `epochs`. Up to the replication factor of a topic, `others` are replicas that still have to copy the log.
        """
        member = Member(node_id, self.broker_epoch)
        values: dict[str, bytes] = {}
        for topic in topics:
            blocks: dict[str, dict[int, VersionedState]] = {}
            count = min(topic.replication_factor, 1 + len(others))
            for number in range(topic.partitions):
                epoch = max(1, epochs.get((topic.topic_id, number), 0))
                target = _replicas(node_id, others, count, number)
                state = with_reassignment(PartitionState((node_id,), None, epoch, (member,)), target, target)
                blocks.setdefault(block_of(topic.topic_id, number), {})[number] = VersionedState(state, 0)
            values |= {block_key(block): block_to_bytes(states) for block, states in blocks.items()}
            values[topic_key(topic.name)] = topic_to_bytes(_entry(topic, count))
        if producer_ids_end:
            values[producer_ids.KEY] = str(producer_ids_end).encode()
        await self.write_keys(values)

    async def write_keys(self, values: dict[str, bytes], parents: Sequence[str] = (TOPICS, STATES)) -> None:
        """Writes all keys; those below `parents` that an interrupted attempt left are changed or removed."""
        for parent in parents:
            for name in await self._session.children(parent):
                await self._update(f"{parent}/{name}", values)
        await self._create(values)

    async def finish(self) -> None:
        """Removes the mark: from now on it is a normal cluster. Raises StartRefused if the store has lost it."""
        while True:
            cluster = await self._session.get(CLUSTER)
            if cluster is None:
                raise StartRefused(
                    "the coordination store has lost the cluster",
                    hint="check whether it was wiped, then restart the node",
                )
            identity = identity_from_bytes(CLUSTER, cluster.value)
            if not identity.is_claimed:
                return
            value = identity_to_bytes(replace(identity, is_claimed=False))
            await self._try([Put(CLUSTER, value, cluster.version)])

    async def _update(self, key: str, values: dict[str, bytes]) -> None:
        """Changes an existing key to a value."""
        value = values.pop(key, None)
        while (stored := await self._session.get(key)) is not None and stored.value != value:
            change = Delete(key, stored.version) if value is None else Put(key, value, stored.version)
            await self._try([change])

    async def _create(self, values: dict[str, bytes]) -> None:
        """Creates many keys per commit; existing ones one by one."""
        while values:
            batch: list[Operation] = []
            size = 0
            for key, value in values.items():
                size += len(value)
                if batch and (size > COMMIT_BYTES_MAX or len(batch) == KEYS_PER_COMMIT):
                    break
                batch.append(Create(key, value))
            if await self._try(batch):
                for operation in batch:
                    del values[operation.key]
            else:
                for operation in batch:
                    await self._update_or_create(operation.key, values.pop(operation.key))

    async def _update_or_create(self, key: str, value: bytes) -> None:
        while (stored := await self._session.get(key)) is None or stored.value != value:
            await self._try([Create(key, value) if stored is None else Put(key, value, stored.version)])

    async def _try(self, operations: list[Operation]) -> bool:
        """True if the commit certainly happened; otherwise the next read shows it."""
        try:
            await self._session.commit(*operations)
        except (Conflict, CommitUnknown):
            return False
        return True


def _replicas(node_id: int, others: Sequence[int], count: int, number: int) -> tuple[int, ...]:
    """Returns the nodes of a partition, the preferred leader first; nodes take turns. This node has the records."""
    ring = (node_id, *others)
    chosen = [ring[(number + at) % len(ring)] for at in range(count)]
    return tuple(chosen) if node_id in chosen else (*chosen[:-1], node_id)


def _entry(record: TopicRecord, replication_factor: int) -> TopicEntry:
    overrides = dict(record.overrides)
    return TopicEntry(record.name, record.topic_id, record.partitions, replication_factor, overrides, record.created_ms)
