"""A data directory that was alone begins a cluster: its topics are made known to the store, under the ids they have.

In three steps, so that nothing is ever half done: `claim` makes the cluster with a mark on it that keeps other nodes
out; `write` says which topics there are; `finish` takes the mark away. What is interrupted is done again from the
beginning by the same directory, and by no other: until the end nobody has acted upon what was written. Not what the
directory itself remembers: node/cluster/standalone_import.py.
Invariants: a cluster that was ever finished is never adopted into; the claim counts as the registration with which this
disk began, so that the node vouches for what it has, and every later incarnation is greater.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from replication.coordination.interface import Conflict, Create, Delete, Operation, Put, Session, Unsure, Versioned
from replication.cores.partition_state import Member, PartitionState, VersionedState

KEYS_PER_COMMIT = 100


async def may_adopt(session: Session, cluster_id: str, was_alone: bool, disk_from: int | None = None) -> bool:
    """Whether the directory of this cluster may begin one: it was alone, and the store has none; or it has begun it.

    `disk_from` is the claim's incarnation if that was the last that the directory was to remember. One that has been in
    another cluster since does not go on here.
    """
    found = await session.get(CLUSTER)
    if found is None:
        return was_alone
    identity = identity_from_bytes(CLUSTER, found.value)
    if not identity.is_claimed or identity.cluster_id != cluster_id:
        return False
    return was_alone or disk_from == found.created


class Adoption:
    """Of one directory, over one session. Whoever has it holds the directory's lock."""

    def __init__(self, session: Session, cluster_id: str) -> None:
        self._session = session
        self._cluster_id = cluster_id
        self._seen: Versioned | None = None

    def __repr__(self) -> str:
        return f"Adoption({self._cluster_id}, {self._seen})"

    async def claim(self, new_id: Callable[[], str]) -> ClusterIdentity:
        """Make the cluster, or find that it was claimed for this directory. Raises StartRefused."""
        while (found := await self._session.get(CLUSTER)) is None:
            if await self._session.children(TOPICS):
                raise StartRefused(
                    "the coordination store has topics and no cluster",
                    hint="it was wiped in part: restore it, or name another place with --coordination",
                )
            made = ClusterIdentity(self._cluster_id, new_id() + new_id(), is_claimed=True)
            await self._try([Create(CLUSTER, identity_to_bytes(made))])
        self._seen = found
        identity = identity_from_bytes(CLUSTER, found.value)
        if not identity.is_claimed or identity.cluster_id != self._cluster_id:
            raise StartRefused(
                f"the coordination store is that of cluster {identity.cluster_id}, and the data directory belongs to "
                f"cluster {self._cluster_id}",
                hint="another node was faster: start this one with an empty --data-dir",
            )
        return replace(identity, is_claimed=False)

    @property
    def incarnation(self) -> int:
        """As if the node had registered with the claim."""
        assert self._seen is not None
        return self._seen.created

    async def write(
        self, node_id: int, topics: Iterable[TopicRecord], epochs: Mapping[PartitionKey, int], producer_ids_end: int
    ) -> None:
        """All partitions lie on this node, led by nobody yet: the first election is in the epoch after `epochs`."""
        own = Member(node_id, self.incarnation)
        wanted: dict[str, bytes] = {}
        for topic in topics:
            blocks: dict[str, dict[int, VersionedState]] = {}
            for number in range(topic.partitions):
                epoch = max(1, epochs.get((topic.topic_id, number), 0))
                state = PartitionState((node_id,), None, epoch, (own,))
                blocks.setdefault(block_of(topic.topic_id, number), {})[number] = VersionedState(state, 0)
            wanted |= {block_key(block): block_to_bytes(states) for block, states in blocks.items()}
            wanted[topic_key(topic.name)] = topic_to_bytes(_entry(topic))
        if producer_ids_end:
            wanted[producer_ids.KEY] = str(producer_ids_end).encode()
        for parent in (TOPICS, STATES):  # of an earlier try, after which the directory was alone again
            for name in await self._session.children(parent):
                await self._bring(f"{parent}/{name}", wanted)
        await self._create(wanted)

    async def finish(self) -> None:
        """From here on it is a cluster like any other."""
        while True:
            found = await self._session.get(CLUSTER)
            if found is None:
                raise StartRefused("the coordination store has lost the cluster", hint="was it wiped? start again")
            identity = identity_from_bytes(CLUSTER, found.value)
            if not identity.is_claimed:
                return
            value = identity_to_bytes(replace(identity, is_claimed=False))
            await self._try([Put(CLUSTER, value, found.version)])

    async def _bring(self, key: str, wanted: dict[str, bytes]) -> None:
        """A key that is there to what is wanted of it."""
        value = wanted.pop(key, None)
        while (found := await self._session.get(key)) is not None and found.value != value:
            change = Delete(key, found.version) if value is None else Put(key, value, found.version)
            await self._try([change])

    async def _create(self, wanted: dict[str, bytes]) -> None:
        """Many in one commit; what is there already, one by one."""
        while wanted:
            batch: list[Operation] = []
            size = 0
            for key, value in wanted.items():
                size += len(value)
                if batch and (size > COMMIT_BYTES_MAX or len(batch) == KEYS_PER_COMMIT):
                    break
                batch.append(Create(key, value))
            if await self._try(batch):
                for operation in batch:
                    del wanted[operation.key]
            else:
                for operation in batch:
                    await self._bring_or_create(operation.key, wanted.pop(operation.key))

    async def _bring_or_create(self, key: str, value: bytes) -> None:
        while (found := await self._session.get(key)) is None or found.value != value:
            await self._try([Create(key, value) if found is None else Put(key, value, found.version)])

    async def _try(self, operations: list[Operation]) -> bool:
        """Whether it certainly was done; otherwise it shows in what is there now."""
        try:
            await self._session.commit(*operations)
        except (Conflict, Unsure):
            return False
        return True


def _entry(record: TopicRecord) -> TopicEntry:
    overrides = dict(record.overrides)
    return TopicEntry(record.name, record.topic_id, record.partitions, 1, overrides, record.created_ms)
