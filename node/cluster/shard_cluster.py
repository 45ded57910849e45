"""One shard process as a part of the cluster: its view, its replicas, the links to other nodes and the port for them.

Puts the parts together and passes on what the supervisor tells; decides nothing and knows no coordination store. What
the supervisor calls is done before the next call is looked at, so the order in which it tells things is kept.
Invariant: what is told between joining and the whole view is not lost: the view is taken from a supervisor that counts
this process among its listeners already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from engine.errors import EngineError
from engine.partition.partition import Partition
from engine.shard.shard import Shard
from gateway.links.internal_link import Credentials
from gateway.links.internal_listener import InternalListener
from gateway.links.link import Handler, Link
from gateway.links.replica_exchange import ReplicaExchanges
from gateway.routing.other_nodes import NodeLinks
from gateway.routing.peers import Peers
from gateway.settings import NodeSettings
from node.messages import CHANGE_S, ClusterTask, ShardTask
from replication.cluster.values import (
    Outcome,
    Proposal,
    outcome_from_plain,
    proposal_to_plain,
    states_from_plain,
    topic_from_plain,
)
from replication.cluster.view import ClusterView
from replication.cores.partition_state import Member, VersionedState
from replication.replica.fetcher import FetchLimits
from replication.replica.replica_host import CONFIRM_S, ReplicaHost, ReplicaLimits

LOOPBACK = "127.0.0.1"  # of a cluster of one: nobody comes
DRAIN_S = 5.0  # leaderships have moved before: what waits here gets its acks from the new leaders within a few fetches
SETTLE_S, SETTLE_CHECK_S = 2.0, 0.01  # an append is committed within a fetch of each follower
PROPOSE_S = 30.0  # beyond that nobody knows what became of it, and the state is read again


class ShardCluster:
    """See the head of the file. Made before the shard that it hosts, since the shard asks what is its own."""

    def __init__(self, task: ShardTask, cluster: ClusterTask) -> None:
        self.view = ClusterView()
        self._credentials = Credentials(cluster.cluster_id, cluster.secret)
        self._task = task
        self._port = cluster.internal_port
        self._exchanges = ReplicaExchanges(self._credentials, task.settings.replica_fetch_wait_ms)
        self.links = NodeLinks(self.view, task.settings.node_id, self._credentials)

    def begin(
        self,
        shard: Shard,
        peers: Peers,
        supervisor: Callable[[], Link],
        new_session: Callable[[], str],
        boottime: Callable[[], float],
    ) -> ReplicaHost:
        """The replicas of this shard, before any of its partitions is opened."""
        settings = self._task.settings
        self._peers, self._shard, self._supervisor = peers, shard, supervisor
        self.host = ReplicaHost(
            shard,
            self._task.index,
            _limits(settings),
            connect=self._exchanges.to,
            propose=self._propose,
            confirm=None if settings.is_embedded else self._confirmed,
            boottime=boottime,
            partition_offline=self._partition_offline,
            new_session=new_session,
        )
        shard.leading_epoch = self._leading_epoch
        return self.host

    async def take_view(self, link: Link) -> None:
        """All that the supervisor knows now. What it tells from here on is newer."""
        fields, _ = await link.call("cluster", None, timeout_s=CHANGE_S)
        for topic in fields["topics"]:
            self.view.put_topic(topic_from_plain(topic))
        self._take_nodes(fields["nodes"])
        self._take_states(fields["states"])
        self.host.on_contact(fields["contact_at"])
        if fields["member"] is not None:
            self.host.on_registered(Member(*fields["member"]))

    async def open(self, handlers: Mapping[str, Handler]) -> None:
        """Take other nodes, and reach for them. Raises StartRefused."""
        self._listener = InternalListener(self._credentials, handlers, self.host.server.fetch)
        settings = self._task.settings
        await self._listener.open(LOOPBACK if settings.is_embedded else settings.host, self._port)
        self.links.follow()

    async def close(self) -> None:
        """Lead and follow no more. Links to other nodes are closed with the peers.

        Appends end first, then this node's membership, and only then following: see `left` of the supervisor.
        """
        await self._listener.until_idle(DRAIN_S)
        await self._listener.close()
        with suppress(EngineError):
            await self._supervisor().call("left", self._task.index, timeout_s=CHANGE_S)
        await self.host.stop()
        await self._exchanges.close()

    def handlers(self) -> dict[str, Handler]:
        """What the supervisor calls."""

        def done_at_once(take: Callable[[Any], None]) -> Handler:
            async def call(arguments: Any, _: bytes) -> tuple[None, bytes]:
                take(arguments)
                return None, b""

            return call

        async def leader_epochs(_: Any, __: bytes) -> tuple[Any, bytes]:
            rows = [
                (topic.record.topic_id, number, partition.log.leader_epoch)
                for topic in self._shard.topics.values()
                for number, partition in topic.partitions.items()
            ]
            return rows, b""

        async def pause(is_paused: Any, _: bytes) -> tuple[None, bytes]:
            await self._pause(is_paused)
            return None, b""

        calls: dict[str, Callable[[Any], None]] = {
            "nodes": self._take_nodes,
            "topics": self._take_topics,
            "states": self._take_states,
            "registered": lambda member: self.host.on_registered(Member(*member)),
            "session_lost": lambda _: self.host.on_session_lost(),
            "contact": self.host.on_contact,
        }
        asked: dict[str, Handler] = {"leader_epochs": leader_epochs, "pause": pause}
        return {**asked, **{name: done_at_once(take) for name, take in calls.items()}}

    async def _pause(self, is_paused: bool) -> None:
        """Returns once all that was appended here is committed, or after a moment."""
        for replica in self.host.replicas():
            replica.pause(is_paused)
        deadline = asyncio.get_running_loop().time() + SETTLE_S
        while is_paused and asyncio.get_running_loop().time() < deadline:
            if not self._shard.committer.queued_bytes and all(one.is_settled for one in self.host.replicas()):
                return
            await asyncio.sleep(SETTLE_CHECK_S)

    def _take_nodes(self, plain: Any) -> None:
        self.view.put_plain_nodes(plain)
        urls = {node_id: node.internal_urls for node_id, node in self.view.nodes.items()}
        self.host.on_nodes(self.view.registrations, urls)
        self.links.follow()
        self._peers.leaders_moved()

    def _take_states(self, plain: Any) -> None:
        """The replicas are told what is no news too: a leader may wait to hear that nothing came of its proposal."""
        changed = states_from_plain(plain)
        self.view.put_states(changed)
        self.host.on_states(changed)
        self._peers.leaders_moved()

    def _take_topics(self, plain: Any) -> None:
        for topic in plain["changed"]:
            self.view.put_topic(topic_from_plain(topic))
        for topic in map(topic_from_plain, plain["deleted"]):
            self.view.remove_topic(topic)
            self.host.on_deleted(topic.topic_id)

    def _leading_epoch(self, partition: Partition) -> int | None:
        """In which epoch this node leads, for the shipper; None: another one does."""
        core = self.host.replica(partition).core
        return None if core is None else core.leader_epoch

    async def _propose(self, proposals: Sequence[Proposal]) -> list[Outcome]:
        plain = [proposal_to_plain(proposal) for proposal in proposals]
        answers, _ = await self._supervisor().call("propose", plain, timeout_s=PROPOSE_S)
        return [outcome_from_plain(answer) for answer in answers]

    async def _confirmed(self, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], VersionedState]:
        plain, _ = await self._supervisor().call("confirmed", keys, timeout_s=CONFIRM_S)
        return {(topic_id, number): found for topic_id, number, found in states_from_plain(plain)}

    def _partition_offline(self, topic_id: str, number: int) -> None:
        told = self._supervisor().begin("partition_offline", (topic_id, number))
        told.add_done_callback(lambda future: future.cancelled() or future.exception())


def _limits(settings: NodeSettings) -> ReplicaLimits:
    fetches = FetchLimits(
        settings.replica_fetch_min_bytes, settings.replica_fetch_max_bytes, settings.replica_fetch_wait_ms
    )
    session_timeout_s = inf if settings.is_embedded else settings.session_timeout_ms / 1000  # no other node can lead
    return ReplicaLimits(
        settings.replica_lag_ms_max / 1000, settings.replica_catchup_bytes_per_second, fetches, session_timeout_s
    )
