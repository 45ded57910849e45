"""Several complete nodes in one process and loop with real links between them; the test decides who leads.

Each has every partition, and nothing is copied between them: these tests are about the routing of requests, not
replication.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from engine.directory.topics import TopicRecord
from engine.partition.partition import Partition
from engine.partition.spool import Spool
from gateway.links.link_client import LinkClient, listen
from gateway.links.process_links import ProcessLinks
from gateway.routing.peers import Peers
from replication.cluster.values import NodeInfo, TopicEntry
from replication.cluster.view import ClusterView
from replication.cores.leader import Propose
from replication.cores.partition_state import Member, PartitionState, Registrations, VersionedState
from replication.cores.role import Lead
from replication.errors import NotLeader, OffsetNotAvailable
from replication.replica.acks import Acks
from replication.replica.replica import Replica
from tests.scenarios.gateways import Gateway, InProcess, Topic, in_process


class World:
    """The cluster state that all nodes see at once. `lead` and `put` are about the topic of `topic_id`."""

    def __init__(self) -> None:
        self.members: dict[int, OneNode] = {}
        self.view = ClusterView()
        self.topic_id = ""

    def lead(self, number: int, node_id: int | None, in_sync: Sequence[int] = ()) -> None:
        """Change the leader, with a new epoch; waiters on the old leader are woken, as by its replica."""
        known = self.view.states.get((self.topic_id, number))
        epoch = 1 if known is None else known.state.leader_epoch + 1
        self.put(number, node_id, epoch, in_sync)

    def put(self, number: int, node_id: int | None, epoch: int, in_sync: Sequence[int] = ()) -> None:
        nodes = tuple(self.members)
        members = tuple(Member(one, 1) for one in in_sync or nodes)
        leader = None if node_id is None else Member(node_id, 1)
        state = PartitionState(nodes, leader, epoch, members)
        self.view.put_states([(self.topic_id, number, VersionedState(state, epoch))])
        for member in self.members.values():
            member.node.peers.on_leaders_changed()
            for partition in member.node.shard.partitions():
                if partition.number == number:
                    partition.wake_all()

    def is_in_sync(self, node_id: int, topic_id: str, number: int) -> bool:
        return self.view.states[topic_id, number].state.is_in_sync(node_id)

    def leads(self, node_id: int, topic_id: str, number: int, least_epoch: int) -> bool:
        found = self.view.states[topic_id, number].state
        return found.leader == Member(node_id, 1) and found.leader_epoch >= least_epoch


class HostOfOne:
    """Implements replica.Host for a replica that never proposes and has no followers here."""

    def __init__(self, node_id: int) -> None:
        self.member: Member | None = Member(node_id, 1)
        self.registrations: Registrations = {}
        self.is_in_doubt, self.has_contact = False, True
        self.lag_s_max = 1.0
        self.spool = Spool()

    def now(self) -> float:
        return 0.0

    def moved(self, replica: Replica) -> None: ...
    def went_offline(self, replica: Replica) -> None: ...

    def on_role_changed(self, replica: Replica) -> None:
        raise AssertionError("it always leads")

    def propose(self, replica: Replica, change: Propose) -> None:
        raise AssertionError("it is the only replica")

    async def confirms(self, replica: Replica, leader_epoch: int) -> bool:
        return True


class LedByWord(Replica):
    """The leader of one partition, as `World` defines it; tests can make it reject."""

    world: World
    topic_id: str
    rejection: Exception | None = None  # of appends
    is_new = False  # does not know the high watermark yet
    lookups = 0

    async def lead(self, own: Member) -> None:
        """Lead in epoch 1 from now on."""
        await self.shard.start_epoch(self.partition, 1)
        self.state = VersionedState(PartitionState((own.node_id,), own, 1, (own,)), 0)
        self.role = Lead(1)
        self._lead(own)

    def check_append(self, acks: Acks) -> None:
        self.lookups += 1
        self.check_serves_reads()
        if self.rejection is not None:
            raise self.rejection

    def check_serves_reads(self, least_epoch: int = 0, *, from_follower: bool = False) -> None:
        if from_follower and self.world.is_in_sync(self.in_sync[0], self.topic_id, self.partition.number):
            return
        if not self.world.leads(self.in_sync[0], self.topic_id, self.partition.number, least_epoch):
            raise NotLeader(f"node {self.in_sync[0]} does not lead {self.partition.number}")

    def check_latest(self) -> None:
        self.check_serves_reads()
        if self.is_new:
            raise OffsetNotAvailable("not known yet")
        super().check_latest()


class OneNode:
    """One node, and a client of it."""

    def __init__(self, gateway: InProcess, world: World, path: str, callers: Mapping[int, LinkClient]) -> None:
        self.gateway: Gateway = gateway
        self.node = gateway.node
        self.path = path
        self.callers = callers
        self._world = world
        self._server: asyncio.Server | None = None

    async def serve(self) -> None:
        self._server = await listen(self.path, self.node.peer_handlers())

    def stop_serving(self) -> None:
        assert self._server is not None
        self._server.close()

    async def open(self, record: TopicRecord) -> Topic:
        await self.node.shard.open_topic(record)
        for partition in self.node.shard.topic(record.name).partitions.values():
            node_id = self.node.settings.node_id
            leader = LedByWord(partition, self.node.shard, partition.name, HostOfOne(node_id))
            leader.world, leader.topic_id = self._world, record.topic_id
            await leader.lead(Member(node_id, 1))
            self.node.replicas.by_partition[partition] = leader
        return Topic(self.gateway, record.name)

    def leader(self, name: str, number: int = 0) -> LedByWord:
        leader = self.node.partitions.replica(self.node.shard.partition(name, number))
        assert isinstance(leader, LedByWord)
        return leader

    def partition(self, name: str, number: int = 0) -> Partition:
        return self.node.shard.partition(name, number)


class Cluster(NamedTuple):
    world: World
    members: dict[int, OneNode]

    async def create(self, name: str, partitions: int = 1, leader: int = 2) -> dict[int, Topic]:
        """Create the topic; return it as each node shows it. One node leads all its partitions."""
        record = TopicRecord(name, f"id-of-{name}", partitions, 2, {}, 1_000)
        self.world.topic_id = record.topic_id
        self.world.view.put_topic(TopicEntry(name, record.topic_id, partitions, 2))
        for number in range(partitions):
            self.world.lead(number, leader)
        return {number: await member.open(record) for number, member in self.members.items()}


@asynccontextmanager
async def several_nodes(directory: Path, count: int = 2, **settings: Any) -> AsyncIterator[Cluster]:
    world = World()
    async with AsyncExitStack() as stack:
        paths = {node_id: directory / str(node_id) for node_id in range(1, count + 1)}
        for node_id, path in paths.items():
            path.mkdir()
            callers = {other: LinkClient(str(paths[other] / "link")) for other in paths if other != node_id}
            links = ProcessLinks({(other, 0): caller for other, caller in callers.items()})
            peers = Peers(links=links, cluster=world.view, node_id=node_id)
            gateway = await stack.enter_async_context(in_process(path, peers, node_id=node_id, **settings))
            gateway.node.replicas.lasting = {}  # type: ignore[misc]  # the test elects the leaders
            member = world.members[node_id] = OneNode(gateway, world, str(path / "link"), callers)
            await member.serve()
        world.view.put_nodes(
            {
                number: NodeInfo(number, 1, one.node.peers.url, (), ("internal",), f"rack {number}")
                for number, one in world.members.items()
            }
        )
        for member in world.members.values():
            for caller in member.callers.values():
                await caller.wait_connected_within(60)
        yield Cluster(world, world.members)
        for member in world.members.values():
            member.node.peers.links.close()
            member.stop_serving()
