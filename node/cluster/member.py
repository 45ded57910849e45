"""The supervisor's part in a cluster: joins it, and forwards changes of the cluster to the shards.

Owns the agent, which holds the coordination session. Forwards its events to the shards by calls that it does not await,
and to TopicSync, which opens and closes topics. Decides nothing. Invariants: (1) the cluster is known before a data
directory is changed, unless the directory names it (embedded, or during an import), and the node registers only once
its shards can answer other nodes; (2) the shards receive a lost session first; (3) a shard that died comes back with a
new broker epoch, since it lost its leader state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from random import Random
from types import NoneType
from typing import Any, cast

from msgspec.structs import astuple

from engine.directory.catalog import Catalog
from engine.directory.data_directory import DataDirectory, known_cluster_id
from engine.directory.log_directories import LogDirectories
from engine.errors import EngineError, StartRefused
from engine.log.recovery import LastShutdown
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk
from gateway.links.link import Answer, Busy, Handler, handler
from gateway.links.node_tls import OFF
from gateway.settings import NodeSettings
from node.child_processes import ChildProcesses
from node.cluster.operations import ClusterOperator
from node.cluster.sessions import EmbeddedSessions, Sessions, ZookeeperSessions, was_in_cluster
from node.cluster.standalone_import import DirectoryImport
from node.cluster.standalone_topics import Standalone
from node.cluster.topic_sync import TopicSync
from node.messages import CHANGE_S, ClusterFields, ClusterTask, TopicChanges
from node.process_calls import AlterTopic, CreateTopic, PartitionNumber
from node.setup.setting_sources import node_tls
from replication.cluster.agent import AgentSettings, ClusterAgent
from replication.cluster.keys import partition_name
from replication.cluster.membership import OwnNode
from replication.cluster.producer_ids import StoredBlocks
from replication.cluster.registration_state import (
    RegistrationState,
    load_registration_state,
    read_registration_state,
    save_registration_state,
)
from replication.cluster.standalone_import import can_import
from replication.cluster.store_calls import SilenceWatch, with_store_timeout
from replication.cluster.values import (
    ClusterIdentity,
    TopicEntry,
    outcome_to_plain,
    proposal_from_plain,
    states_to_plain,
    topic_to_plain,
)
from replication.cluster.view import ClusterView, StateChange
from replication.coordination.interface import Session
from replication.cores.partition_state import Member

LEAVE_S = 20.0  # until then a node keeps leading partitions that no other node can lead
PAUSE_S = 5.0  # a shard settles within two seconds
RESUME_S = 1.0
SHARDS_LEFT_S = 2.0  # for the slowest shard and the end of the session


class ClusterMember:
    """The membership of a node of a cluster, in place of Standalone; the listener of its agent."""

    _processes: ChildProcesses | None = None

    def __init__(
        self,
        settings: NodeSettings,
        own_node: OwnNode,
        internal_ports: list[int],
        executor: Executor,
        clock: Clock,
        random: Random,
        new_id: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._own_node = own_node
        self._internal_ports = internal_ports
        self._executor = executor
        self._new_id = new_id
        self._sessions: Sessions = (
            EmbeddedSessions(executor) if settings.is_embedded else ZookeeperSessions(settings, new_id, executor)
        )
        self._agent = ClusterAgent(
            self._sessions.open,
            own_node,
            self,
            clock,
            new_id,
            random,
            AgentSettings(
                settings.session_timeout_ms, settings.leader_imbalance_check_ms, settings.leader_imbalance_percent
            ),
        )
        self._agent.view.is_single_node = settings.is_embedded
        self._silence = SilenceWatch(settings.session_timeout_ms / 1000, clock)
        self._topics: TopicSync | None = None
        self._identity: ClusterIdentity | None = None
        self._secrets: tuple[str, ...] = ()
        self._import: DirectoryImport | None = None
        self._is_leaving = False
        self._directories: LogDirectories | None = None
        self.fenced: asyncio.Future[StartRefused] = asyncio.get_running_loop().create_future()
        self._left_shards: set[int] = set()
        self._has_left = asyncio.Event()

    def __repr__(self) -> str:
        return f"ClusterMember({self._agent}, {self._topics})"

    async def find_cluster(self, disk: Disk) -> None:
        """Find or create the cluster without touching a data directory. Raises StartRefused.

        No-op if the data directory determines the cluster: an embedded one, or one that imports it.
        """
        path = self._settings.directories[0]
        directory_of = await self._in_thread(partial(known_cluster_id, disk, path))
        is_by_directory = self._settings.is_embedded
        if directory_of and not is_by_directory:
            is_by_directory = await self._can_import(directory_of, disk, path)
        if not is_by_directory:
            self._identity = await self._agent.join_cluster(self._settings.cluster_id, directory_of)

    async def _can_import(self, cluster_id: str, disk: Disk, path: str) -> bool:
        was_standalone = not await self._in_thread(partial(was_in_cluster, disk, path))
        disk_from = (await self._in_thread(partial(read_registration_state, disk, path))).disk_from
        session = await self._sessions.open()
        try:
            return await can_import(session, cluster_id, was_standalone, disk_from)
        finally:
            await session.close()

    # For the supervisor, as Standalone has it.

    @property
    def session(self) -> Session:
        return self._agent.session

    @property
    def cluster_id(self) -> str | None:
        return None if self._identity is None else self._identity.cluster_id

    async def prepare(self, directories: LogDirectories, catalog: Catalog, processes: ChildProcesses) -> None:
        first, self._directories = directories.first, directories
        lost = any(directory.last_shutdown is LastShutdown.POWER_LOSS for directory in directories)
        last_shutdown = LastShutdown.POWER_LOSS if lost else first.last_shutdown
        if self._settings.is_embedded:  # no other replica could have lost records: it leads again with what it has
            last_shutdown = LastShutdown.CLEAN
        await self._sessions.use_directory(first)
        if self._identity is None:
            await self._acquire_identity(first, catalog)
        assert self._identity is not None
        self._secrets = self._identity.secrets
        check = partial(node_tls, self._settings, self._identity.cluster_id)
        await self._in_thread(check)  # else each shard would find the wrong file
        if self._import is None:
            load = partial(load_registration_state, first.disk, first.path, last_shutdown, self._new_id)
            self._own_node.registration_state = await self._in_thread(load)
        self._processes = processes
        agent = self._agent
        self._topics = TopicSync(catalog, agent.view, self._own_node.node_id, processes, agent.is_deleted)

    async def _acquire_identity(self, first: DataDirectory, catalog: Catalog) -> None:
        """Take the cluster of the directory, or start its import. Raises StartRefused."""
        cluster_id = first.identity.cluster_id
        if not await self._can_import(cluster_id, first.disk, first.path):
            self._identity = await self._agent.join_cluster(cluster_id, cluster_id)
            return
        self._import = DirectoryImport(await self._sessions.open(), self._settings, first, catalog, self._executor)
        self._identity = await self._import.claim(self._new_id)

    def task(self, index: int) -> ClusterTask | None:
        assert self._identity is not None
        port = self._internal_ports[index] if index >= 0 else 0
        return ClusterTask(self._identity.cluster_id, self._secrets, port)

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "cluster": handler(NoneType, self._full_view),
            "propose": handler(list[list[object]], self._propose),
            "confirmed": handler(list[tuple[str, int]], self._read_confirmed),
            "partition_offline": handler(PartitionNumber, partial(_report, self._agent.partition_offline)),
            "distrust": handler(PartitionNumber, partial(_report, self._agent.distrust)),
            "partition_online": handler(PartitionNumber, partial(_report, self._agent.partition_online)),
            "find_topic": handler(str, self._find_topic),
            "left": handler(int, self._on_shard_left),
            **ClusterOperator(self._agent).handlers(),
        }

    async def join(self) -> None:
        """Register, and open the node's topics. Raises StartRefused."""
        epochs = await self._find_partitions()
        if self._import is not None:
            await self.import_standalone(self._import, epochs)
        assert self._directories is not None
        directory_id = self._own_node.registration_state.directory_id
        self._own_node.starts = await self._sessions.load_start_counters(self._directories, directory_id)
        agent = self._agent
        await agent.start(epochs)
        if not self._settings.is_embedded:
            self._silence.start()
        # its first topic may need this node
        await agent.wait_in_view(lambda: self._own_node.node_id in agent.view.nodes)
        self._hosted.start()
        await self._hosted.until(lambda: self._hosted.is_up_to_date)

    async def import_standalone(self, pending: DirectoryImport, epochs: dict[tuple[str, int], int]) -> None:
        """Import the directory's topics and join the cluster. Raises StartRefused."""
        assert self._identity is not None
        cluster_id = self._identity.cluster_id
        try:
            self._own_node.registration_state = await pending.finish(
                epochs, self._new_id(), self._own_node.save_registration_state
            )
            await self._agent.join_cluster(cluster_id, cluster_id)
        except EngineError as error:
            raise StartRefused(error.detail, hint=error.hint or "restart the node: the import resumes") from error

    def on_shard_died(self) -> None:
        self._agent.reregister()

    async def leave(self) -> None:
        """Pauses appends while leaderships move, then resume them for partitions that no other node can lead."""
        await self._pause(True)
        await self._agent.leave(LEAVE_S)
        await self._pause(False)
        self._is_leaving = True

    async def _pause(self, is_paused: bool) -> None:
        """Pauses or resume appends. Does not wait for a shard that hangs: it is killed with the others."""
        assert self._processes is not None
        with suppress(EngineError, TimeoutError):
            async with asyncio.timeout(PAUSE_S if is_paused else RESUME_S):
                await self._processes.call_shards("pause", is_paused)

    async def close(self) -> None:
        self._silence.stop()
        if self._topics is not None:
            self._topics.stop()
        if self._import is not None:
            await self._import.close()
        await self._agent.stop()
        await self._sessions.close()

    async def create_topic(self, new: CreateTopic) -> bool:
        create = partial(self._agent.create_topic, *astuple(new))
        topic, is_new = await with_store_timeout(self._agent.session, create)
        await self._hosted.wait_applied(new.name, lambda: self._hosted.has(topic))
        return is_new

    async def alter_topic(self, change: AlterTopic) -> None:
        alter = partial(self._agent.alter_topic, *astuple(change))
        topic = await with_store_timeout(self._agent.session, alter)
        await self._hosted.wait_applied(change.name, lambda: self._hosted.has(topic))

    async def delete_topic(self, name: str) -> None:
        topic = await with_store_timeout(self._agent.session, partial(self._agent.delete_topic, name))
        await self._hosted.wait_applied(name, lambda: not self._hosted.has_any(topic))

    async def take_producer_ids(self, floor: int) -> range:
        return await with_store_timeout(self._agent.session, StoredBlocks(self._agent.session, floor).take)

    async def end_of_producer_ids(self, floor: int) -> int:
        return await with_store_timeout(
            self._agent.session, StoredBlocks(self._agent.session, floor).end, changes=False
        )

    # ClusterListener.

    def on_registered(self, member: Member) -> None:
        self._notify_shards("registered", member)

    def on_session_lost(self) -> None:
        self._notify_shards("session_lost", None)

    def on_fenced(self, error: StartRefused) -> None:
        if not self.fenced.done():
            self.fenced.set_result(error)

    def on_contact(self, at: float) -> None:
        self._silence.on_contact(at)
        self._notify_shards("contact", at)

    def on_identity(self, identity: ClusterIdentity) -> None:
        self._secrets = identity.secrets
        self._notify_shards("identity", (identity.secrets, identity.level))

    def on_nodes(self, view: ClusterView) -> None:
        self._notify_shards("nodes", view.nodes_to_plain())

    def on_topics(self, changed: list[TopicEntry], deleted: list[TopicEntry]) -> None:
        plain: TopicChanges = {
            "changed": list(map(topic_to_plain, changed)),
            "deleted": list(map(topic_to_plain, deleted)),
        }
        self._notify_shards("topics", plain)
        self._hosted.queue(topic.name for topic in (*changed, *deleted))

    def on_states(self, changed: list[StateChange]) -> None:
        self._notify_shards("states", states_to_plain(changed))
        self._hosted.on_states_changed(changed)

    def _notify_shards(self, change: str, arguments: object) -> None:
        """Calls all connected shards. Others fetch the whole view when they connect."""
        assert self._processes is not None
        for link in self._processes.shard_links():
            with suppress(Busy):
                link.begin(change, arguments)

    # Calls of the shards.

    async def _full_view(self, _: None, __: bytes) -> tuple[ClusterFields, bytes]:
        agent = self._agent
        own = {
            "member": agent.member,
            "contact_at": agent.contact_at,
            "secrets": self._secrets,
            "level": agent.view.feature_level,
        }
        return cast(ClusterFields, {**agent.view.to_plain(), **own}), b""

    async def _read_confirmed(self, keys: list[tuple[str, int]], _: bytes) -> Answer:
        """Returns the states that the store has at some time after the call. Omits deleted partitions."""
        states_found = await asyncio.gather(*(self._agent.read_confirmed_state(*key) for key in keys))
        states = [(*key, state) for key, state in zip(keys, states_found, strict=True) if state is not None]
        return states_to_plain(states), b""

    async def _propose(self, plain: list[list[object]], _: bytes) -> Answer:
        outcomes = await self._agent.propose([proposal_from_plain(proposal) for proposal in plain])
        return [outcome_to_plain(outcome) for outcome in outcomes], b""

    async def _find_topic(self, name: str, _: bytes) -> tuple[bool, bytes]:
        """True if the cluster has the topic; this node then has it too."""
        find = partial(self._agent.find_topic, name)
        topic = await with_store_timeout(self._agent.session, find, changes=False)
        if topic is not None:
            await self._hosted.wait_applied(name, lambda: self._hosted.has(topic))
        return topic is not None, b""

    async def _on_shard_left(self, index: int, _: bytes) -> tuple[None, bytes]:
        """Records that a shard has stopped appends. After the last one the session ends, while shards still follow.

        Other leaders must not wait for an in-sync replica that has stopped.
        """
        if self._is_leaving:
            self._left_shards.add(index)
            if len(self._left_shards) == self._settings.shards:
                await self._agent.stop()
                self._has_left.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(SHARDS_LEFT_S):
                    await self._has_left.wait()
        return None, b""

    # Helpers.

    @property
    def _hosted(self) -> TopicSync:
        assert self._topics is not None
        return self._topics

    async def _find_partitions(self) -> dict[tuple[str, int], int]:
        """Notes which partitions each data directory has. Returns the greatest leader epoch in each log."""
        assert self._processes is not None
        calls = [link.call("leader_epochs", None, timeout_s=CHANGE_S) for link in self._processes.shard_links()]
        rows = [row for rows_of_shard, _ in await asyncio.gather(*calls) for row in rows_of_shard]
        partitions_in: dict[str, set[str]] = {}
        for topic_id, number, _, directory_id, _ in rows:
            partitions_in.setdefault(directory_id, set()).add(partition_name(topic_id, number))
        self._own_node.unopened = frozenset(partition_name(row[0], row[1]) for row in rows if not row[4])
        self._own_node.partitions_in = {directory_id: frozenset(names) for directory_id, names in partitions_in.items()}
        return {(topic_id, number): epoch for topic_id, number, epoch, *_ in rows}

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


async def _report(note: Callable[[str, int], None], which: PartitionNumber, _: bytes) -> tuple[None, bytes]:
    note(which.topic_id, which.number)
    return None, b""


async def create_member(
    settings: NodeSettings,
    urls: tuple[str, list[str], list[str]],
    internal_ports: list[int],
    executor: Executor,
    disk: Disk,
    clock: Clock,
    random: Random,
    new_id: Callable[[], str],
) -> ClusterMember:
    """Makes the member of the cluster in the settings, not registered yet. Raises StartRefused."""
    url, shard_urls, internal_urls = urls

    async def save(state: RegistrationState) -> None:
        path = settings.directories[0]
        await asyncio.get_running_loop().run_in_executor(executor, save_registration_state, disk, path, state)

    own_node = OwnNode(
        settings.node_id,
        url,
        settings.rack,
        version("penstock-server"),
        tuple(shard_urls),
        tuple(internal_urls),
        settings.internal_tls != OFF,
        kafka=settings.kafka_advertised if settings.kafka_listen else "",
        save_registration_state=save,
    )
    member = ClusterMember(settings, own_node, internal_ports, executor, clock, random, new_id)
    await member.find_cluster(disk)
    return member


Membership = Standalone | ClusterMember
