"""The processes that a request may have to go to: the other shards of this node, and those of other nodes.

Knows which process answers for a partition, and has the links. A node in one process is shard 0 of 1 and has no links;
a node that is alone computes the owner from the topic's id (engine/directory/placement.py); in a cluster it is where
the leader is (`OtherNodes`), which changes. Does not retry: gateway/routing/leader_failover.py and
gateway/routing/routing.py do.
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

REPLY_MARGIN_S = 1.0  # the owner answers a timeout itself; only a dead or stopped one makes us wait for longer


class Owner(NamedTuple):
    """The process that answers for a partition. `node_id` is None for this node."""

    node_id: int | None
    shard: int


class OtherNodes(Protocol):
    """The cluster as a shard's gateway needs it: who leads, and links to the shards of other nodes."""

    @property
    def node_id(self) -> int: ...
    @property
    def view(self) -> ClusterView: ...
    def leader_of(self, topic_id: str, number: int) -> Place | None: ...
    def leader_epoch_of(self, topic_id: str, number: int) -> int:
        """Of the newest state that is known here; 0 when none is."""
        ...

    def link(self, node_id: int, shard: int) -> Link:
        """The link to a shard of another node. Raises LinkDown while it is not up; asking makes it come up."""
        ...

    def links(self) -> list[Link]:
        """Those that are up."""
        ...

    def close(self) -> None: ...


class Peers:
    """This shard among its siblings and, in a cluster, among all."""

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
        self.direct_url = ""  # of this process, which a node of several shards has besides
        self._callers = callers or {}
        self._waiting: set[asyncio.Future[bool]] = set()

    def __repr__(self) -> str:
        return f"Peers({self.index} of {self.count}{'' if self.nodes is None else f', node {self.nodes.node_id}'})"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Name, text and value of each, for the metrics."""
        yield "penstock_forwarding_bytes", "Bytes on their way to another shard", self.bytes_under_way
        yield "penstock_forwarded_requests_total", "Requests brought to another shard", self.forwarded

    def connect(self) -> None:
        for caller in self._callers.values():
            caller.connect()

    @property
    def bytes_under_way(self) -> int:
        """In calls to other processes that have no answer yet."""
        elsewhere = [] if self.nodes is None else self.nodes.links()
        return sum(link.bytes_under_way for link in (*self.links(), *elsewhere))

    def owns(self, topic_id: str, partition: int) -> bool:
        """Whether the partition's files, if this node has any, are this shard's."""
        return shard_of(topic_id, partition, self.count) == self.index

    def owner(self, topic_id: str, partition: int) -> Owner:
        """The process that answers for a partition now. Raises NoLeader."""
        if self.nodes is None:
            return Owner(None, shard_of(topic_id, partition, self.count))
        place = self.nodes.leader_of(topic_id, partition)
        if place is None:
            raise NoLeader(f"nobody leads partition {partition} of topic {topic_id} now")
        return Owner(None if place.node_id == self.nodes.node_id else place.node_id, place.shard)

    def known_epoch(self, topic_id: str, partition: int) -> int:
        """The leader epoch that whoever answers for the partition must have reached."""
        return 0 if self.nodes is None else self.nodes.leader_epoch_of(topic_id, partition)

    def is_here(self, owner: Owner) -> bool:
        return owner.node_id is None and owner.shard == self.index

    def answers_for(self, topic_id: str, partition: int) -> bool:
        """Whether it is this process. Raises NoLeader."""
        return self.is_here(self.owner(topic_id, partition))

    def leader_url(self, topic_id: str, partition: int) -> str | None:
        """Of a leader in another process of a cluster, as far as it is known."""
        place = None if self.nodes is None else self.nodes.leader_of(topic_id, partition)
        return None if place is None or self.answers_for(topic_id, partition) else place.url

    def nearby(self, topic_id: str, partition: int, rack: str) -> Owner | None:
        """A process with a follower in sync that stands in that rack; None when the leader does too, or nobody does."""
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
        """Raises NoLeader, and LinkDown while the owner restarts."""
        return self.link(self.owner(topic_id, partition))

    def link(self, owner: Owner) -> Link:
        """To one other process. Raises LinkDown while it restarts."""
        self.forwarded += 1
        if owner.node_id is None:
            return self._callers[owner.shard].link()
        if self.nodes is None:
            raise LinkDown(f"this node is alone and knows no node {owner.node_id}")
        return self.nodes.link(owner.node_id, owner.shard)

    def links(self) -> list[Link]:
        """To every other shard of this node that is up."""
        links = []
        for caller in self._callers.values():
            with suppress(Busy):
                links.append(caller.link())
        return links

    def leaders_moved(self) -> None:
        """States or nodes have changed: whoever waits for a leader looks again at once."""
        for waiting in self._waiting:
            loop_waits().polls.wake(_have_moved, waiting)
        self._waiting.clear()

    async def wait_for_leaders(self, seconds: float) -> bool:
        """Until leaders have moved, or for so long; whether they have."""
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
        """acks=0: hand the batch over and never look back. Raises NoLeader and Busy, as long as nothing was sent."""
        self._begin(batch, Acks.NONE, 0, conditions)

    def produce(
        self, batch: bytes | bytearray, acks: Acks, timeout_ms: int, conditions: AppendConditions | None = None
    ) -> Awaitable[Appended]:
        """As Leader.produce; the owner waits for the acknowledgement."""
        return self._reply(self._begin(batch, acks, timeout_ms, conditions), timeout_ms)

    async def check_append(self, acks: Acks, timeout_s: float) -> None:
        """As Leader.check_append."""
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
