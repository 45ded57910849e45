"""The processes that requests may be forwarded to: the other shards of this node, and those of other nodes.

Knows the process that answers for a partition, and has the links. A node in one process is shard 0 of 1 and has no
links; a standalone node computes the owner from the topic's id (engine/directory/placement.py); in a cluster the owner
is the leader (`OtherNodes`), which changes. Does not retry: gateway/routing/leader_failover.py and
gateway/routing/router.py do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from engine.directory.placement import shard_of
from engine.errors import AckTimeout
from engine.producers.append_validator import AppendConditions, Appended
from engine.runtime.loop_waits import loop_waits
from gateway.links.link import Busy, Caller, Link, LinkDown
from replication.cluster.view import ClusterView, Place
from replication.errors import NoLeader
from replication.refusals import MAYBE_STORED
from replication.replica.acks import Acks

REPLY_MARGIN_S = 1.0  # the owner answers a timeout itself; only a dead or stopped one causes this longer wait


class Owner(NamedTuple):
    """The process that answers for a partition. `node_id` is None for this node."""

    node_id: int | None
    shard: int


class OtherNodes(Protocol):
    """The cluster as a shard's gateway needs it: leaders, and links to the shards of other nodes."""

    @property
    def node_id(self) -> int: ...
    @property
    def view(self) -> ClusterView: ...
    def leader_of(self, topic_id: str, number: int) -> Place | None: ...
    def leader_epoch_of(self, topic_id: str, number: int) -> int:
        """Returns the epoch of the newest known state; 0 if none is known."""
        ...

    def link(self, node_id: int, shard: int) -> Link:
        """Returns the link to a shard of another node, and starts connecting it. Raises LinkDown while it is not up."""
        ...

    def links(self) -> list[Link]:
        """Returns the links that are up."""
        ...

    def close(self) -> None: ...


class Peers:
    """This shard among its siblings and, in a cluster, among all shards."""

    def __init__(
        self,
        index: int = 0,
        count: int = 1,
        callers: Mapping[int, Caller] | None = None,
        nodes: OtherNodes | None = None,
    ) -> None:
        self.index = index
        self.count = count
        self.nodes = nodes
        self.forwarded = 0
        self.url = ""  # of this node, as clients reach it
        self.direct_url = ""  # of this process; a node of several shards has one for each
        self._callers = callers or {}
        self._waiting: set[asyncio.Future[bool]] = set()

    def __repr__(self) -> str:
        return f"Peers({self.index} of {self.count}{'' if self.nodes is None else f', node {self.nodes.node_id}'})"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each gauge."""
        yield "penstock_forwarding_bytes", "Bytes on their way to another shard", self.bytes_under_way
        yield "penstock_forwarded_requests_total", "Requests brought to another shard", self.forwarded

    def connect(self) -> None:
        for caller in self._callers.values():
            caller.connect()

    async def wait_connected(self) -> None:
        """Wait until every sibling has answered.

        A node is ready after this: its first requests may be for partitions of any of them.
        """
        for caller in self._callers.values():
            await caller.wait_connected()

    @property
    def bytes_under_way(self) -> int:
        """Bytes of calls to other processes without an answer yet."""
        elsewhere = [] if self.nodes is None else self.nodes.links()
        return sum(link.bytes_under_way for link in (*self.links(), *elsewhere))

    def owns(self, topic_id: str, partition: int) -> bool:
        """Returns whether the partition's files on this node, if any, belong to this shard."""
        return shard_of(topic_id, partition, self.count) == self.index

    def owner(self, topic_id: str, partition: int) -> Owner:
        """Returns the process that answers for a partition now. Raises NoLeader."""
        if self.nodes is None:
            return Owner(None, shard_of(topic_id, partition, self.count))
        place = self.nodes.leader_of(topic_id, partition)
        if place is None:
            raise NoLeader(f"nobody leads partition {partition} of topic {topic_id} now")
        return Owner(None if place.node_id == self.nodes.node_id else place.node_id, place.shard)

    def known_epoch(self, topic_id: str, partition: int) -> int:
        """Returns the leader epoch that the partition's owner must have reached."""
        return 0 if self.nodes is None else self.nodes.leader_epoch_of(topic_id, partition)

    def is_here(self, owner: Owner) -> bool:
        return owner.node_id is None and owner.shard == self.index

    def answers_for(self, topic_id: str, partition: int) -> bool:
        """Returns whether this process answers for the partition. Raises NoLeader."""
        return self.is_here(self.owner(topic_id, partition))

    def leader_url(self, topic_id: str, partition: int) -> str | None:
        """Returns the URL of a leader in another process of a cluster; None if unknown."""
        place = None if self.nodes is None else self.nodes.leader_of(topic_id, partition)
        return None if place is None or self.answers_for(topic_id, partition) else place.url

    def nearby(self, topic_id: str, partition: int, rack: str) -> Owner | None:
        """Returns a process with an in-sync follower in the rack; None if the leader is in it, or no follower is."""
        if self.nodes is None:
            return None
        view, found = self.nodes.view, self.nodes.view.states.get((topic_id, partition))
        in_sync = [] if found is None else [member.node_id for member in found.state.in_sync]
        there = [node_id for node_id in in_sync if node_id in view.nodes and view.nodes[node_id].rack == rack]
        leader = view.leader(topic_id, partition)
        if not there or leader is None or leader.node_id in there:
            return None
        node_id = self.nodes.node_id if self.nodes.node_id in there else there[partition % len(there)]
        place = view.place_on(node_id, topic_id, partition)
        return None if place is None else Owner(None if node_id == self.nodes.node_id else node_id, place.shard)

    def link_to_owner(self, topic_id: str, partition: int) -> Link:
        """Returns the link to a partition's owner. Raises NoLeader, and LinkDown while the owner restarts."""
        return self.link(self.owner(topic_id, partition))

    def link(self, owner: Owner) -> Link:
        """Returns the link to one other process. Raises LinkDown while it restarts."""
        self.forwarded += 1
        if owner.node_id is None:
            return self._callers[owner.shard].link()
        if self.nodes is None:
            raise LinkDown(f"this node is alone and knows no node {owner.node_id}")
        return self.nodes.link(owner.node_id, owner.shard)

    def links(self) -> list[Link]:
        """Returns the links to every other shard of this node that are up."""
        links = []
        for caller in self._callers.values():
            with suppress(Busy):
                links.append(caller.link())
        return links

    def leaders_moved(self) -> None:
        """Wakes all waits for a leader: states or nodes have changed."""
        for waiting in self._waiting:
            loop_waits().polls.wake(_have_moved, waiting)
        self._waiting.clear()

    async def wait_for_leaders(self, seconds: float) -> bool:
        """Waits until leaders have moved, for at most `seconds`. Returns whether they have."""
        waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        bucket = loop_waits().deadlines.put(asyncio.get_running_loop().time() + seconds, waiting, _have_not_moved)
        try:
            return await waiting
        finally:
            bucket.pop(waiting, None)
            self._waiting.discard(waiting)

    def close(self) -> None:
        for caller in self._callers.values():
            caller.close()
        if self.nodes is not None:
            self.nodes.close()


def _have_moved(waiting: asyncio.Future[bool]) -> None:
    if not waiting.done():
        waiting.set_result(True)


def _have_not_moved(waiting: asyncio.Future[bool]) -> None:
    if not waiting.done():
        waiting.set_result(False)


class RemoteLeader:
    """A partition's leader in another process, as a producer sees it."""

    def __init__(self, peers: Peers, topic: str, topic_id: str, partition: int) -> None:
        self._peers = peers
        self._topic = topic
        self._topic_id = topic_id
        self._partition = partition

    def append_nowait(self, batch: bytes | bytearray, conditions: AppendConditions | None = None) -> None:
        """Hands a batch over with acks=0, without a reply. Raises NoLeader and Busy if nothing was sent."""
        self._begin(batch, Acks.NONE, 0, conditions)

    def produce(
        self, batch: bytes | bytearray, acks: Acks, timeout_ms: int, conditions: AppendConditions | None = None
    ) -> Awaitable[Appended]:
        """Produces as Leader.produce does; the owner waits for the acknowledgement."""
        return self._reply(self._begin(batch, acks, timeout_ms, conditions), timeout_ms)

    async def check_append(self, acks: Acks, timeout_s: float) -> None:
        """Checks as Leader.check_append does."""
        link = self._peers.link_to_owner(self._topic_id, self._partition)
        arguments = (self._topic_id, self._topic, self._partition, self._known_epoch, acks.value)
        await link.call("check_append", arguments, timeout_s=timeout_s)

    def _begin(
        self, batch: bytes | bytearray, acks: Acks, timeout_ms: int, conditions: AppendConditions | None
    ) -> asyncio.Future[tuple[list[Any], bytes]]:
        link = self._peers.link_to_owner(self._topic_id, self._partition)
        arguments = (
            self._topic_id,
            self._topic,
            self._partition,
            self._known_epoch,
            acks.value,
            timeout_ms,
            conditions,
        )
        return link.begin("append", arguments, batch)

    @property
    def _known_epoch(self) -> int:
        return self._peers.known_epoch(self._topic_id, self._partition)

    async def _reply(self, begun: asyncio.Future[tuple[list[Any], bytes]], timeout_ms: int) -> Appended:
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000 + REPLY_MARGIN_S
        try:
            fields, _ = await loop_waits().deadlines.done_by(deadline, begun)
            return Appended.of(fields)
        except TimeoutError:
            text = f"{self._topic}/{self._partition}: its leader did not answer within {timeout_ms} ms"
            raise AckTimeout(text, hint=MAYBE_STORED) from None
