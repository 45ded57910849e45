"""The processes that requests may be forwarded to: the other shards of this node, and those of other nodes.

Knows the process that answers for a partition: the leader that the view of the cluster names. A standalone node has the
view of a cluster of one. gateway/links/process_links.py has the link to a process; a node in one process has none. Does
not retry: gateway/routing/leader_failover.py and gateway/routing/router.py do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from engine.directory.placement import shard_of
from engine.runtime.loop_waits import loop_waits
from gateway.links.link import Link
from gateway.links.process_links import ProcessLinks
from replication.cluster.standalone_view import StandaloneView
from replication.cluster.view import ClusterView
from replication.errors import NoLeader


class Owner(NamedTuple):
    """The process that answers for a partition. `node_id` is None for this node."""

    node_id: int | None
    shard: int


class Peers:
    """This shard among all shards of the cluster, which may have this node only."""

    def __init__(
        self,
        index: int = 0,
        count: int = 1,
        links: ProcessLinks | None = None,
        cluster: ClusterView | None = None,
        node_id: int = 0,
    ) -> None:
        """`cluster` has what this process knows of the cluster: by default, of a standalone node in one process."""
        self.index = index
        self.count = count
        self.links = links or ProcessLinks()
        self.cluster = cluster or StandaloneView(node_id)
        self.node_id = node_id
        self.has_others = self.cluster.has_others  # processes that requests may be forwarded to
        self.forwarded = 0
        self.leader_changes = 0
        self.moved = 0  # connections, to other shards of this node
        self.url = ""  # of this node, as clients reach it
        self.direct_url = ""  # of this process; a node of several shards has one for each
        self._waiting: set[asyncio.Future[bool]] = set()

    def __repr__(self) -> str:
        return f"Peers({self.index} of {self.count}, node {self.node_id})"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each gauge."""
        yield (
            "penstock_forwarding_bytes",
            "Bytes of requests and responses in transit to other shards and nodes",
            self.bytes_in_flight,
        )
        yield "penstock_forwarded_requests_total", "Requests forwarded to another shard or node", self.forwarded
        yield (
            "penstock_moved_connections_total",
            "Connections moved to the shard that served their requests",
            self.moved,
        )

    def count_moved(self) -> None:
        """Counts a connection that has come from another shard."""
        self.moved += 1

    @property
    def bytes_in_flight(self) -> int:
        """Bytes of calls to other processes without an answer yet."""
        return sum(link.bytes_in_flight for link in self.links.links())

    def owns(self, topic_id: str, partition: int) -> bool:
        """Returns whether the partition's files on this node, if any, belong to this shard."""
        return shard_of(topic_id, partition, self.count) == self.index

    def owner(self, topic_id: str, partition: int) -> Owner:
        """Returns the process that answers for a partition now. Raises NoLeader."""
        endpoint = self.cluster.leader_of(topic_id, partition)
        if endpoint is None:
            raise NoLeader(f"partition {partition} of topic {topic_id} has no leader")
        return Owner(None if endpoint.node_id == self.node_id else endpoint.node_id, endpoint.shard)

    def known_epoch(self, topic_id: str, partition: int) -> int:
        """Returns the leader epoch that the partition's owner must have reached: the newest known; 0 if none is."""
        versioned = self.cluster.states.get((topic_id, partition))
        return 0 if versioned is None else versioned.state.leader_epoch

    def is_local(self, owner: Owner) -> bool:
        return owner.node_id is None and owner.shard == self.index

    def is_owned_here(self, topic_id: str, partition: int) -> bool:
        """Returns whether this process answers for the partition. Raises NoLeader."""
        return self.is_local(self.owner(topic_id, partition))

    def is_led_by_sibling(self, topic_id: str, partition: int) -> bool:
        """Returns whether another shard of this node leads the partition: both read the same disks."""
        endpoint = self.cluster.leader_of(topic_id, partition)
        return endpoint is not None and endpoint.node_id == self.node_id and endpoint.shard != self.index

    def count_live_nodes(self) -> int:
        return max(1, len(self.cluster.nodes))

    def leader_url(self, topic_id: str, partition: int) -> str | None:
        """Returns the URL of a leader in another process; None if unknown."""
        endpoint = self.cluster.leader_of(topic_id, partition)
        if endpoint is None or (endpoint.node_id == self.node_id and endpoint.shard == self.index):
            return None
        return endpoint.url

    def preferred_read_replica(self, topic_id: str, partition: int, rack: str) -> Owner | None:
        """Returns a process with an in-sync follower in the rack; None if the leader is in it, or no follower is."""
        view = self.cluster
        versioned = view.states.get((topic_id, partition))
        in_sync = [] if versioned is None else [member.node_id for member in versioned.state.in_sync]
        in_rack = [node_id for node_id in in_sync if node_id in view.nodes and view.nodes[node_id].rack == rack]
        leader = view.leader(topic_id, partition)
        if not in_rack or leader is None or leader.node_id in in_rack:
            return None
        node_id = self.node_id if self.node_id in in_rack else in_rack[partition % len(in_rack)]
        endpoint = view.endpoint_on(node_id, topic_id, partition)
        return None if endpoint is None else Owner(None if node_id == self.node_id else node_id, endpoint.shard)

    def racks(self, topic_id: str, partition: int) -> tuple[str, frozenset[str]]:
        """Returns the rack of a partition's leader, and those of its replicas on live nodes; empty where unknown."""
        view = self.cluster
        versioned = view.states.get((topic_id, partition))
        if versioned is None:
            return "", frozenset()
        leader = view.leader(topic_id, partition)
        of_nodes = {node_id: view.nodes[node_id].rack for node_id in versioned.state.replicas if node_id in view.nodes}
        return of_nodes.get(leader.node_id, "") if leader is not None else "", frozenset(of_nodes.values()) - {""}

    def link_to_owner(self, topic_id: str, partition: int) -> Link:
        """Returns the link to a partition's owner. Raises NoLeader, and LinkDown while the owner restarts."""
        return self.link(self.owner(topic_id, partition))

    def link(self, owner: Owner) -> Link:
        """Returns the link to one other process. Raises LinkDown while it restarts."""
        self.forwarded += 1
        return self.links.link(owner)

    def on_nodes_changed(self) -> None:
        """Follows the registrations of the view: links nodes that came, and ends the links to those that left."""
        self.links.follow(node for node_id, node in self.cluster.nodes.items() if node_id != self.node_id)
        self.on_leaders_changed()

    def on_leaders_changed(self) -> None:
        """Wakes all waits for a leader: states, nodes or topics have changed."""
        self.leader_changes += 1
        for waiting in self._waiting:
            loop_waits().polls.wake(_resolve_changed, waiting)
        self._waiting.clear()

    async def wait_leader_change(self, seconds: float) -> bool:
        """Waits until leaders have moved, for at most `seconds`. Returns whether they have."""
        waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        bucket = loop_waits().deadlines.put(asyncio.get_running_loop().time() + seconds, waiting, _resolve_unchanged)
        try:
            return await waiting
        finally:
            bucket.pop(waiting, None)
            self._waiting.discard(waiting)


def _resolve_changed(waiting: asyncio.Future[bool]) -> None:
    if not waiting.done():
        waiting.set_result(True)


def _resolve_unchanged(waiting: asyncio.Future[bool]) -> None:
    if not waiting.done():
        waiting.set_result(False)
