"""This node among the nodes of its cluster: what the supervisor does when the node is not alone.

Has the agent, which holds the coordination session, and passes on what it tells: to the shards at once, by calls that
nobody waits for, and to TopicSync, which opens and closes. It decides nothing.
What must hold: (1) the cluster is known before a data directory is touched, unless the directory itself says which one
it is (embedded, or while it is adopted), and this node is registered only when its shards can answer others; (2) that
the session is lost reaches the shards before anything else is done about it; (3) a shard that died comes back under a
new registration: it has forgotten what it had said as a leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from random import Random
from typing import Any

from engine.directory.catalog import Catalog
from engine.directory.data_directory import DataDirectory, known_cluster_id
from engine.directory.log_directories import LogDirectories
from engine.errors import AckTimeout, EngineError, StartRefused
from engine.log.recovery import LastStop
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk
from gateway.links.link import Busy, Handler
from gateway.settings import NodeSettings
from node.cluster.operations import ClusterOperator
from node.cluster.sessions import EmbeddedSessions, Sessions, ZookeeperSessions, was_in_cluster
from node.cluster.standalone_import import Adopting
from node.cluster.standalone_topics import Processes
from node.cluster.topic_sync import TopicSync
from node.messages import CHANGE_S, ClusterTask
from replication.cluster.agent import AgentSettings, ClusterAgent
from replication.cluster.membership import OwnNode
from replication.cluster.producer_ids import StoredBlocks
from replication.cluster.registration_state import (
    RegistrationState,
    known_vouching,
    load_registration_state,
    save_vouching,
)
from replication.cluster.standalone_import import may_adopt
from replication.cluster.store_timeout import while_answered
from replication.cluster.values import (
    ClusterIdentity,
    TopicEntry,
    outcome_to_plain,
    proposal_from_plain,
    states_to_plain,
    topic_to_plain,
)
from replication.cluster.view import ClusterView, StateChange
from replication.cores.partition_state import Member

LEAVE_S = 20.0  # whom nobody can follow up leads until the end
PAUSE_S = 5.0  # a shard settles within two
GO_ON_S = 1.0
LEFT_S = 2.0  # for the slowest shard and the end of the session
FOLLOW_S = 30.0  # what the store has taken is followed within milliseconds; a disk may need longer


class ClusterMember:
    """Implements Membership, and the agent's ClusterListener."""

    _processes: Processes | None = None

    def __init__(
        self,
        settings: NodeSettings,
        own: OwnNode,
        internal_ports: list[int],
        executor: Executor,
        clock: Clock,
        random: Random,
        new_id: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._own = own
        self._internal_ports = internal_ports
        self._executor = executor
        self._new_id = new_id
        self._sessions: Sessions = (
            EmbeddedSessions(executor) if settings.is_embedded else ZookeeperSessions(settings, new_id)
        )
        self._agent = ClusterAgent(
            self._sessions.open,
            own,
            self,
            clock,
            new_id,
            random,
            AgentSettings(
                settings.session_timeout_ms, settings.leader_rebalance_check_ms, settings.leader_imbalance_percent
            ),
        )
        self._agent.view.is_lone = settings.is_embedded
        self._topics: TopicSync | None = None
        self._identity: ClusterIdentity | None = None
        self._adopting: Adopting | None = None
        self._is_leaving = False
        self._left_shards: set[int] = set()
        self._has_left = asyncio.Event()

    def __repr__(self) -> str:
        return f"ClusterMember({self._agent}, {self._topics})"

    async def find_cluster(self, disk: Disk) -> None:
        """Which cluster this is; the first node makes it. No data directory is touched. Raises StartRefused.

        Unless that is told by the data directory: of a cluster of one, and of one that begins with its topics.
        """
        path = self._settings.directories[0]
        directory_of = await self._in_thread(partial(known_cluster_id, disk, path))
        is_by_directory = self._settings.is_embedded
        if directory_of and not is_by_directory:
            is_by_directory = await self._may_adopt(directory_of, disk, path)
        if not is_by_directory:
            self._identity = await self._agent.join_cluster(self._settings.cluster_id, directory_of)

    async def _may_adopt(self, cluster_id: str, disk: Disk, path: str) -> bool:
        was_alone = not await self._in_thread(partial(was_in_cluster, disk, path))
        disk_from = (await self._in_thread(partial(known_vouching, disk, path))).disk_from
        session = await self._sessions.open()
        try:
            return await may_adopt(session, cluster_id, was_alone, disk_from)
        finally:
            await session.close()

    # Membership.

    @property
    def cluster_id(self) -> str | None:
        return None if self._identity is None else self._identity.cluster_id

    async def begin(self, directories: LogDirectories, catalog: Catalog, processes: Processes) -> None:
        first = directories.first
        lost = any(directory.last_stop is LastStop.POWER_LOSS for directory in directories)
        last_stop = LastStop.POWER_LOSS if lost else first.last_stop
        if self._settings.is_embedded:  # nobody else could have what it lost: it leads again with what it has
            last_stop = LastStop.CLEAN

        async def keep(vouching: RegistrationState) -> None:
            await self._in_thread(partial(save_vouching, first.disk, first.path, vouching))

        self._own.keep_vouching = keep
        await self._sessions.begin(first)
        if self._identity is None:
            await self._take_identity(first, catalog)
        if self._adopting is None:
            load = partial(load_registration_state, first.disk, first.path, last_stop, self._new_id)
            self._own.vouching = await self._in_thread(load)
        self._processes = processes
        agent = self._agent
        self._topics = TopicSync(catalog, agent.view, self._own.node_id, processes, agent.is_deleted)

    async def _take_identity(self, first: DataDirectory, catalog: Catalog) -> None:
        """That of the directory, which belongs to the cluster already, or begins it. Raises StartRefused."""
        cluster_id = first.identity.cluster_id
        if not await self._may_adopt(cluster_id, first.disk, first.path):
            self._identity = await self._agent.join_cluster(cluster_id, cluster_id)
            return
        self._adopting = Adopting(await self._sessions.open(), self._settings, first, catalog, self._executor)
        self._identity = await self._adopting.claim(self._new_id)

    def task(self, index: int) -> ClusterTask | None:
        assert self._identity is not None
        port = self._internal_ports[index] if index >= 0 else 0
        return ClusterTask(self._identity.cluster_id, self._identity.secret, port)

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "cluster": self._whole_view,
            "propose": self._propose,
            "confirmed": self._confirmed,
            "partition_offline": self._partition_offline,
            "find_topic": self._find_topic,
            "left": self._left,
            **ClusterOperator(self._agent).handlers(),
        }

    async def join(self) -> None:
        """Register, and open what the cluster has."""
        epochs = await self._local_epochs()
        if self._adopting is not None:
            await self.import_standalone(self._adopting, epochs)
        await self._agent.start(epochs)
        self._hosted.start()
        await self._hosted.until(lambda: self._hosted.is_up_to_date)

    async def import_standalone(self, adopting: Adopting, epochs: dict[tuple[str, int], int]) -> None:
        """Then the cluster is there as if it always had been."""
        assert self._identity is not None
        cluster_id = self._identity.cluster_id
        try:
            self._own.vouching = await adopting.finish(epochs, self._new_id(), self._own.keep_vouching)
            await self._agent.join_cluster(cluster_id, cluster_id)
        except EngineError as error:
            raise StartRefused(error.detail, hint=error.hint or "start again: it goes on where it was") from error

    def shard_died(self) -> None:
        self._agent.register_again()

    async def leave(self) -> None:
        """Appends pause while the leaderships move; of a partition that nobody else can lead they go on to the end."""
        await self._pause(True)
        await self._agent.leave(LEAVE_S)
        await self._pause(False)
        self._is_leaving = True

    async def _pause(self, is_paused: bool) -> None:
        """A shard that hangs is not waited for: it is ended with the others."""
        assert self._processes is not None
        with suppress(EngineError, TimeoutError):
            async with asyncio.timeout(PAUSE_S if is_paused else GO_ON_S):
                await self._processes.tell_shards("pause", is_paused)

    async def close(self) -> None:
        if self._topics is not None:
            self._topics.stop()
        if self._adopting is not None:
            await self._adopting.close()
        await self._agent.stop()
        await self._sessions.close()

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, overrides: dict[str, object]
    ) -> bool:
        topic, is_new = await while_answered(
            self._agent.session, lambda: self._agent.create_topic(name, partitions, replication_factor, overrides)
        )
        await self._until_followed(name, lambda: self._hosted.has(topic))
        return is_new

    async def alter_topic(self, name: str, overrides: dict[str, object], partitions: int | None) -> None:
        alter = partial(self._agent.alter_topic, name, overrides, partitions)
        topic = await while_answered(self._agent.session, alter)
        await self._until_followed(name, lambda: self._hosted.has(topic))

    async def delete_topic(self, name: str) -> None:
        topic = await while_answered(self._agent.session, partial(self._agent.delete_topic, name))
        await self._until_followed(name, lambda: not self._hosted.has_any(topic))

    async def take_producer_ids(self, floor: int) -> range:
        return await while_answered(self._agent.session, StoredBlocks(self._agent.session, floor).take)

    async def end_of_producer_ids(self, floor: int) -> int:
        return await while_answered(self._agent.session, StoredBlocks(self._agent.session, floor).end, changes=False)

    # ClusterListener.

    def on_registered(self, member: Member) -> None:
        self._tell("registered", member)

    def on_session_lost(self) -> None:
        self._tell("session_lost", None)

    def on_contact(self, at: float) -> None:
        self._tell("contact", at)

    def on_nodes(self, view: ClusterView) -> None:
        self._tell("nodes", view.nodes_to_plain())

    def on_topics(self, changed: list[TopicEntry], deleted: list[TopicEntry]) -> None:
        plain = {"changed": list(map(topic_to_plain, changed)), "deleted": list(map(topic_to_plain, deleted))}
        self._tell("topics", plain)
        self._hosted.changed(topic.name for topic in (*changed, *deleted))

    def on_states(self, changed: list[StateChange]) -> None:
        self._tell("states", states_to_plain(changed))
        self._hosted.states_changed(changed)

    def _tell(self, change: str, arguments: Any) -> None:
        """All shards that are up. One that is not asks for the whole when it is."""
        assert self._processes is not None
        for link in self._processes.shard_links():
            with suppress(Busy):
                link.begin(change, arguments)

    # What shards call.

    async def _whole_view(self, _: Any, __: bytes) -> tuple[Any, bytes]:
        agent = self._agent
        return {**agent.view.to_plain(), "member": agent.member, "contact_at": agent.contact_at}, b""

    async def _confirmed(self, keys: Any, _: bytes) -> tuple[Any, bytes]:
        """The states of partitions, as the store has them at some time after the call; without those that are gone."""
        found = await asyncio.gather(*(self._agent.confirmed_state(*key) for key in keys))
        states = [(*key, state) for key, state in zip(keys, found, strict=True) if state is not None]
        return states_to_plain(states), b""

    async def _propose(self, plain: Any, _: bytes) -> tuple[Any, bytes]:
        outcomes = await self._agent.propose([proposal_from_plain(one) for one in plain])
        return [outcome_to_plain(outcome) for outcome in outcomes], b""

    async def _partition_offline(self, which: Any, _: bytes) -> tuple[None, bytes]:
        topic_id, number = which
        self._agent.partition_offline(topic_id, number)
        return None, b""

    async def _find_topic(self, name: Any, _: bytes) -> tuple[bool, bytes]:
        """Whether there is one, which another node may have made; this node has it too when this returns."""
        find = partial(self._agent.find_topic, name)
        topic = await while_answered(self._agent.session, find, changes=False)
        if topic is not None:
            await self._until_followed(name, lambda: self._hosted.has(topic))
        return topic is not None, b""

    async def _left(self, index: Any, _: bytes) -> tuple[None, bytes]:
        """A shard takes no appends any more. When none does, the session ends, while they follow still: whoever leads
        must not wait for a replica that has stopped and is counted among those in sync.
        """
        if self._is_leaving:
            self._left_shards.add(index)
            if len(self._left_shards) == self._settings.shards:
                await self._agent.stop()
                self._has_left.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(LEFT_S):
                    await self._has_left.wait()
        return None, b""

    # Inside.

    @property
    def _hosted(self) -> TopicSync:
        assert self._topics is not None
        return self._topics

    async def _local_epochs(self) -> dict[tuple[str, int], int]:
        """The greatest leader epoch that each log on this disk knows."""
        assert self._processes is not None
        calls = [link.call("leader_epochs", None, timeout_s=CHANGE_S) for link in self._processes.shard_links()]
        rows = [row for found, _ in await asyncio.gather(*calls) for row in found]
        return {(topic_id, number): epoch for topic_id, number, epoch in rows}

    async def _until_followed(self, name: str, is_so: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(FOLLOW_S):
                await self._hosted.until(is_so)
        except TimeoutError:
            text = f"topic {name!r} has changed, and this node has not followed within {FOLLOW_S:g} s"
            raise AckTimeout(text, hint="look, and try again") from None

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


async def found_cluster(
    settings: NodeSettings,
    urls: tuple[str, list[str], list[str]],
    internal_ports: list[int],
    executor: Executor,
    disk: Disk,
    clock: Clock,
    random: Random,
    new_id: Callable[[], str],
) -> ClusterMember:
    """A member of the cluster that the settings name, not registered yet. Raises StartRefused."""
    url, shard_urls, internal_urls = urls
    own = OwnNode(settings.node_id, url, settings.rack, version("penstock"), tuple(shard_urls), tuple(internal_urls))
    member = ClusterMember(settings, own, internal_ports, executor, clock, random, new_id)
    await member.find_cluster(disk)
    return member
