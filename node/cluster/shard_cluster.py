"""A shard's part in the cluster: its view, its replicas, the links to other nodes and the internal port.

Composes these parts and applies the supervisor's calls one after the other, so their order is kept. Decides nothing and
has no coordination session. Invariant: no change is lost between connecting and the first view, because the supervisor
already sends changes to this process when it answers with the view.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from types import NoneType
from typing import Any, TypeVar

from engine.directory.topics import REPLICATION_FACTOR_MAX
from engine.errors import EngineError
from engine.partition.committer import Committer
from engine.partition.spool import Spool
from engine.runtime.clock import SystemClock
from engine.shard.shard import Shard
from gateway.admin.operation_calls import Operation
from gateway.links.internal_link import Credentials
from gateway.links.internal_listener import InternalListener
from gateway.links.link import Handler, Link, handler
from gateway.links.replica_exchange import ReplicaExchanges
from gateway.routing.peers import Peers
from gateway.routing.topic_finder import TopicFinder
from gateway.settings import NodeSettings
from node.messages import CHANGE_S, ClusterFields, ClusterTask, ShardTask, TopicChanges
from node.process_calls import PartitionNumber
from node.setup.listener import Listener
from node.setup.setting_sources import node_tls
from replication.cluster.values import (
    Outcome,
    Proposal,
    outcome_from_plain,
    proposal_to_plain,
    states_from_plain,
    topic_from_plain,
)
from replication.cluster.view import ClusterView, NodesFields
from replication.cores.partition_state import Member, VersionedState
from replication.replica.fetcher import FetchLimits
from replication.replica.replica_host import CONFIRM_S, ReplicaHost, ReplicaLimits

A = TypeVar("A")

LOOPBACK = "127.0.0.1"  # an embedded cluster has no other nodes
DRAIN_S = 5.0  # leaderships have moved before: pending appends are acknowledged within a few fetches
COMMIT_WAIT_S, COMMIT_CHECK_S = 2.0, 0.01  # an append is committed within one fetch of each follower
PROPOSE_S = 30.0  # after this the outcome is unknown, and the state is read again


class ShardCluster:
    """The shard's cluster, whose replicas get the events of the shard. Made before the shard."""

    replication_factor_max = REPLICATION_FACTOR_MAX

    def __init__(self, task: ShardTask, cluster: ClusterTask) -> None:
        self.view = ClusterView(SystemClock().now_ms)
        self.topic_finder = TopicFinder(self._find_topic)
        tls = node_tls(task.settings, cluster.cluster_id)
        self.credentials = Credentials(cluster.cluster_id, cluster.secrets[0], tls, cluster.secrets[1:])
        self._task = task
        self._port = cluster.internal_port
        self._exchanges = ReplicaExchanges(self.credentials, task.settings.replica_fetch_wait_max_ms)

    def create_replicas(
        self,
        peers: Peers,
        supervisor: Callable[[], Link],
        new_session: Callable[[], str],
        boottime: Callable[[], float],
        spool: Spool,
    ) -> ReplicaHost:
        settings = self._task.settings
        self._peers, self._supervisor = peers, supervisor
        self.host = ReplicaHost(
            self._task.index,
            _limits(settings),
            connect=self._exchanges.to,
            propose=self._propose,
            confirm=None if settings.is_embedded else self._read_confirmed,
            boottime=boottime,
            partition_offline=partial(self._report, "partition_offline"),
            distrust=partial(self._report, "distrust"),
            new_session=new_session,
            spool=spool,
            partition_online=self._partition_online,
        )
        return self.host

    def socket_passing(self, peers: Peers) -> None:
        """Returns None: a connection stays, because leaders move."""

    async def operate(self, operation: Operation) -> Any:
        """Runs an operation of node/cluster/operations.py on the cluster."""
        result, _ = await self._supervisor().call("operate", operation, timeout_s=CHANGE_S)
        return result

    async def load_view(self, link: Link) -> None:
        fields: ClusterFields
        fields, _ = await link.call("cluster", None, timeout_s=CHANGE_S)
        for topic in fields["topics"]:
            self.view.put_topic(topic_from_plain(topic))
        self._apply_nodes(fields["nodes"])
        self._apply_states(fields["states"])
        self._use_identity((fields["secrets"], fields["level"]))
        self.host.on_contact(fields["contact_at"])
        if fields["member"] is not None:
            self.host.on_registered(Member(*fields["member"]))

    async def open(self, handlers: Mapping[str, Handler]) -> None:
        self._listener = InternalListener(self.credentials, handlers, self.host.server.fetch)
        settings = self._task.settings
        await self._listener.open(LOOPBACK if settings.is_embedded else settings.host, self._port)

    async def move_clients(self, listener: Listener) -> None:
        await listener.announce_shutdown()

    async def close(self) -> None:
        """Stops leading and following. The peers close the links to other nodes.

        Appends end first, then this node's membership, then following: see `left` of the supervisor.
        """
        await self._listener.wait_idle(DRAIN_S)
        await self._listener.close()
        with suppress(EngineError):
            await self._supervisor().call("left", self._task.index, timeout_s=CHANGE_S)
        await self.host.stop()
        await self._exchanges.close()

    def handlers(self, shard: Shard) -> dict[str, Handler]:
        def sync_handler(kind: type[A], apply: Callable[[A], None]) -> Handler:
            async def call(arguments: A, _: bytes) -> tuple[None, bytes]:
                apply(arguments)
                return None, b""

            return handler(kind, call)

        async def leader_epochs(_: None, __: bytes) -> tuple[list[tuple[str, int, int, str, bool]], bytes]:
            holding = shard.directories.holding
            rows = [
                (
                    topic.record.topic_id,
                    number,
                    partition.log.leader_epoch,
                    holding(partition.log.directory).directory_id,
                    partition.offline is None,
                )
                for topic in shard.topics.values()
                for number, partition in topic.partitions.items()
            ]
            return rows, b""

        async def pause(is_paused: bool, _: bytes) -> tuple[None, bytes]:
            await self._pause(shard.committer, is_paused)
            return None, b""

        async def renew_internal_tls(_: None, __: bytes) -> tuple[None, bytes]:
            await asyncio.to_thread(self.credentials.tls.renew)
            return None, b""

        return {
            "renew_internal_tls": handler(NoneType, renew_internal_tls),
            "leader_epochs": handler(NoneType, leader_epochs),
            "pause": handler(bool, pause),
            "identity": sync_handler(tuple[tuple[str, ...], int], self._use_identity),
            "nodes": sync_handler(NodesFields, self._apply_nodes),
            "topics": sync_handler(TopicChanges, self._apply_topics),
            "states": sync_handler(list[list[object]], self._apply_states),
            "registered": sync_handler(Member, self.host.on_registered),
            "session_lost": sync_handler(NoneType, self._on_session_lost),
            "contact": sync_handler(float, self.host.on_contact),
        }

    async def _pause(self, committer: Committer, is_paused: bool) -> None:
        """Pauses or resume appends. Returns once all appends are committed, or after COMMIT_WAIT_S."""
        for replica in self.host.replicas():
            replica.pause(is_paused)
        deadline = asyncio.get_running_loop().time() + COMMIT_WAIT_S
        while is_paused and asyncio.get_running_loop().time() < deadline:
            if not committer.queued_bytes and all(replica.is_fully_committed for replica in self.host.replicas()):
                return
            await asyncio.sleep(COMMIT_CHECK_S)

    def _use_identity(self, identity: tuple[tuple[str, ...], int]) -> None:
        secrets, self.view.feature_level = identity
        self.credentials.use(secrets)

    def _on_session_lost(self, _: None) -> None:
        self.view.session_losses += 1
        self.host.on_session_lost()

    def _apply_nodes(self, plain: NodesFields) -> None:
        self.view.put_plain_nodes(plain)
        self.credentials.tls.follow(self.view.nodes.values())
        urls = {node_id: node.internal_urls for node_id, node in self.view.nodes.items()}
        self.host.on_nodes(self.view.registrations, urls)
        self._peers.on_nodes_changed()

    def _apply_states(self, plain: list[list[object]]) -> None:
        """Applies states. Unchanged ones reach the replicas too: a leader may wait for the end of its proposal."""
        changed = states_from_plain(plain)
        self.view.put_states(changed)
        self.host.on_states(changed)
        self._peers.on_leaders_changed()

    def _apply_topics(self, plain: TopicChanges) -> None:
        for topic in plain["changed"]:
            self.view.put_topic(topic_from_plain(topic))
        for deleted in map(topic_from_plain, plain["deleted"]):
            self.view.remove_topic(deleted)
            self.host.on_deleted(deleted.topic_id)
        self._peers.on_leaders_changed()

    async def _find_topic(self, name: str) -> bool:
        """Returns whether the cluster has the topic; this node then has it too."""
        is_there, _ = await self._supervisor().call("find_topic", name, timeout_s=CHANGE_S)
        return bool(is_there)

    async def _propose(self, proposals: Sequence[Proposal]) -> list[Outcome]:
        plain = [proposal_to_plain(proposal) for proposal in proposals]
        answers, _ = await self._supervisor().call("propose", plain, timeout_s=PROPOSE_S)
        return [outcome_from_plain(answer) for answer in answers]

    async def _read_confirmed(self, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], VersionedState]:
        plain, _ = await self._supervisor().call("confirmed", keys, timeout_s=CONFIRM_S)
        return {(topic_id, number): versioned for topic_id, number, versioned in states_from_plain(plain)}

    def _report(self, what: str, topic_id: str, number: int) -> None:
        sent = self._supervisor().begin(what, PartitionNumber(topic_id, number))
        sent.add_done_callback(lambda future: future.cancelled() or future.exception())

    def _partition_online(self, topic_id: str, number: int) -> None:
        sent = self._supervisor().begin("partition_online", PartitionNumber(topic_id, number))
        sent.add_done_callback(lambda future: future.cancelled() or future.exception())


def _limits(settings: NodeSettings) -> ReplicaLimits:
    fetches = FetchLimits(
        settings.replica_fetch_min_bytes, settings.replica_fetch_max_bytes, settings.replica_fetch_wait_max_ms
    )
    session_timeout_s = inf if settings.is_embedded else settings.session_timeout_ms / 1000  # no other node can lead
    return ReplicaLimits(
        settings.replica_lag_time_max_ms / 1000,
        settings.replica_catchup_bytes_per_second,
        fetches,
        session_timeout_s,
        settings.replica_cache_bytes_max // max(1, settings.shards),
    )
