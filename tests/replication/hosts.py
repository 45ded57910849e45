"""Several nodes in one process: each has a real shard on its own directory, a ReplicaHost, and the real internal
listener.

Fetches go over loopback by aiohttp. There is no coordination: an in-memory store applies proposals by compare-and-set
and notifies every node. A test elects a leader by writing a state.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from engine.directory.log_directories import open_data_directories
from engine.format.batch import Buffer, Record, decode, encode_values
from engine.partition.partition import Partition
from engine.runtime.clock import SystemClock
from engine.runtime.disk import Disk, RealDisk
from engine.shard.shard import Shard, ShardEvents
from gateway.links.internal_link import Credentials
from gateway.links.internal_listener import InternalListener
from gateway.links.replica_exchange import ReplicaExchanges
from replication.cluster.values import Confirmed, Outcome, Proposal, Rejected
from replication.cores.in_sync_set import with_in_sync
from replication.cores.partition_state import (
    Member,
    PartitionState,
    Registration,
    TopicRules,
    VersionedState,
    sorted_members,
)
from replication.replica.acks import Acks
from replication.replica.fetcher import FetchLimits
from replication.replica.replica import Replica
from replication.replica.replica_host import ReplicaHost, ReplicaLimits

OURS = Credentials("cluster", "secret")
SESSION_S = 6.0
LIMITS = ReplicaLimits(lag_s_max=5.0, fetches=FetchLimits(wait_ms=200), session_timeout_s=SESSION_S)


class Store:
    """A stand-in for coordination: the state of each partition, and the registered nodes."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, int], VersionedState] = {}
        self.nodes: dict[int, HostedNode] = {}
        self.broker_epochs = itertools.count(1)
        self.proposals: list[Proposal] = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def confirm(self, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], VersionedState]:
        await self.answers.wait()
        return {key: self.states[key] for key in keys if key in self.states}

    async def propose(self, proposals: Sequence[Proposal]) -> list[Outcome]:
        await asyncio.sleep(0)
        return [self._taken(one) for one in proposals]

    def write(self, topic_id: str, number: int, state: PartitionState) -> None:
        """Write as a controller does."""
        known = self.states.get((topic_id, number))
        found = VersionedState(state, known.partition_epoch + 1 if known else 1)
        self.states[topic_id, number] = found
        for node in self.nodes.values():
            node.host.on_states([(topic_id, number, found)])

    def notify_nodes(self) -> None:
        registered = {
            node.node_id: Registration(node.host.member.broker_epoch, 0)
            for node in self.nodes.values()
            if node.host.member is not None
        }
        urls = {node: [self.nodes[node].url] for node in registered}
        for node in self.nodes.values():
            node.host.on_nodes(registered, urls)

    def _taken(self, one: Proposal) -> Outcome:
        self.proposals.append(one)
        found = self.states[one.topic_id, one.number]
        if found.partition_epoch != one.partition_epoch:
            return Rejected(found)
        self.write(one.topic_id, one.number, one.state)
        return Confirmed(self.states[one.topic_id, one.number].partition_epoch)


class HostedNode:
    """One life of a node. `path` is the same for all its lives."""

    def __init__(self, node_id: int, path: Path, store: Store, limits: ReplicaLimits) -> None:
        self.node_id = node_id
        self._path = path
        self._store = store
        self._limits = limits
        self._executor = ThreadPoolExecutor(4)
        self.disk: Disk = RealDisk()
        self.offline: list[tuple[str, int]] = []
        self.distrusted: list[tuple[str, int]] = []
        self.online: list[tuple[str, int]] = []
        self.url = ""
        self.boottime = 1000.0  # changed by the test

    async def start(self) -> None:
        disk, ids = self.disk, (f"id{n}" for n in itertools.count())
        directories = open_data_directories(
            disk, [str(self._path)], node_id=self.node_id, cluster_id=None, boot_id="boot", new_id=ids.__next__
        )
        clock = SystemClock()
        self.exchanges = ReplicaExchanges(OURS, self._limits.fetches.wait_ms)
        self.host = ReplicaHost(
            0,
            self._limits,
            connect=self.exchanges.to,
            propose=self._store.propose,
            confirm=self._store.confirm,
            boottime=lambda: self.boottime,
            partition_offline=lambda topic_id, number: self.offline.append((topic_id, number)),
            distrust=lambda topic_id, number: self.distrusted.append((topic_id, number)),
            new_session=(f"session {n}" for n in itertools.count()).__next__,
            partition_online=lambda topic_id, number: self.online.append((topic_id, number)),
        )
        events = ShardEvents(
            opened=self.host.on_opened,
            closed=lambda topic: self.host.on_closed(topic.partitions.values()),
            positions_moved=self.host.on_positions_moved,
            went_offline=self.host.partition_went_offline,
            read_failed=self.host.on_read_failed,
            damaged=self.host.on_damaged,
            compacted_by_all=self.host.compacted_by_all,
        )
        self.shard = Shard(disk, directories.first, clock, self._executor, ids.__next__, events=events)
        self.may_fetch = asyncio.Event()
        self.may_fetch.set()
        self.listener = InternalListener(OURS, {}, self._answer)
        await self.listener.open("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.listener.port}"
        await self.shard.start()

    async def _answer(self, body: bytes) -> list[Buffer]:
        """A test may delay the answers, as a bad network does."""
        answer = await self.host.server.fetch(body)
        await self.may_fetch.wait()
        return answer

    def register(self) -> None:
        self.host.on_registered(Member(self.node_id, next(self._store.broker_epochs)))
        self.host.on_contact(self.boottime)
        self._store.nodes[self.node_id] = self
        self._store.notify_nodes()
        self.host.on_states([(*key, found) for key, found in self._store.states.items()])

    async def stop(self) -> None:
        self._store.nodes.pop(self.node_id, None)
        await self.host.stop()
        await self.listener.close()
        await self.exchanges.close()
        await self.shard.stop()
        self._executor.shutdown()

    def partition(self, number: int = 0, topic: str = "t") -> Partition:
        return self.shard.partition(topic, number)

    def replica(self, number: int = 0, topic: str = "t") -> Replica:
        return self.host.by_partition[self.partition(number, topic)]

    async def produce(self, *values: bytes, acks: Acks = Acks.ALL, number: int = 0, timeout_ms: int = 10_000) -> int:
        """Return the first offset."""
        batch = batch_of(*values)
        return (await self.replica(number).produce(batch, acks, timeout_ms)).base_offset

    def records(self, number: int = 0) -> list[Record]:
        """Return all records in the log, committed or not."""
        found, offset, partition = [], self.partition(number).log.local_log_start, self.partition(number)
        for segment in partition.log.segments:
            _ = segment.handle, segment.index  # a sealed segment may be closed
        while chunk := self.shard.reader.read_uncommitted_nowait(partition, offset, 1 << 20):
            found += decode(chunk.data)
            offset = chunk.next_offset
        return found

    def values(self, number: int = 0) -> list[bytes]:
        return [record.value or b"" for record in self.records(number)]

    def stored_bytes(self, number: int = 0) -> bytes:
        log = self.partition(number).log
        return b"".join(Path(segment.path).read_bytes() for segment in log.segments)


class Hosts:
    """A cluster of such nodes with one topic."""

    def __init__(self, path: Path, limits: ReplicaLimits = LIMITS) -> None:
        self.path = path
        self.store = Store()
        self.limits = limits
        self.nodes: dict[int, HostedNode] = {}
        self.topic_id = ""

    def __getitem__(self, node_id: int) -> HostedNode:
        return self.nodes[node_id]

    async def start(self, node_id: int, disk: Disk | None = None) -> HostedNode:
        node = self.nodes[node_id] = HostedNode(node_id, self.path / str(node_id), self.store, self.limits)
        node.disk = disk or node.disk
        await node.start()
        node.register()
        return node

    async def restart(self, node_id: int) -> HostedNode:
        await self.nodes.pop(node_id).stop()
        self.store.notify_nodes()
        return await self.start(node_id)

    async def stop(self, node_id: int) -> None:
        await self.nodes.pop(node_id).stop()
        self.store.notify_nodes()

    async def create_topic(self, partitions: int = 1, **settings: object) -> None:
        for node in self.nodes.values():
            topic, _ = await node.shard.create_topic("t", partitions, 1, settings)
            self.topic_id = topic.record.topic_id

    def member(self, node_id: int) -> Member:
        found = self.nodes[node_id].host.member
        assert found is not None
        return found

    def state(self, number: int = 0) -> PartitionState:
        return self.store.states[self.topic_id, number].state

    def elect(self, leader: int | None, in_sync: Sequence[int] = (), number: int = 0) -> None:
        """Start a new leader epoch. Without in_sync: the live nodes that were in it, or all of them at first."""
        known = self.store.states.get((self.topic_id, number))
        was = [member.node_id for member in known.state.in_sync] if known else list(self.nodes)
        members = sorted_members(self.member(node) for node in in_sync or was if node in self.nodes)
        replicas = known.state.replicas if known else tuple(self.nodes)
        epoch = known.state.leader_epoch + 1 if known else 1
        own = self.member(leader) if leader is not None else None
        self.store.write(self.topic_id, number, PartitionState(replicas, own, epoch, members))

    def hold_fetches(self) -> None:
        for node in self.nodes.values():
            node.may_fetch.clear()

    def let_fetches_go(self) -> None:
        for node in self.nodes.values():
            node.may_fetch.set()

    def leave_out(self, node_id: int, number: int = 0) -> None:
        """Remove a node from the in-sync set, with the same leader."""
        state = self.state(number)
        rest = tuple(member for member in state.in_sync if member.node_id != node_id)
        self.store.write(self.topic_id, number, replace(with_in_sync(state, rest, TopicRules())))


def batch_of(*values: bytes) -> bytearray:
    return encode_values(values, 1_700_000_000_000)


@asynccontextmanager
async def hosts(path: Path, nodes: int = 3, limits: ReplicaLimits = LIMITS) -> AsyncIterator[Hosts]:
    cluster = Hosts(path, limits)
    try:
        for number in range(1, nodes + 1):
            await cluster.start(number)
        yield cluster
    finally:
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
