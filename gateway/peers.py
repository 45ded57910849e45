"""The other shards of this node: which of them owns a partition, and the links to them.

A node in one process is shard 0 of 1 and has no links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any

from engine.admission import Appended, Terms
from engine.errors import AckTimeout
from engine.placement import shard_of
from gateway.link import Busy, Caller, Link
from replication.acks import Acks
from replication.leader import MAYBE_STORED

REPLY_MARGIN_S = 1.0  # the owner answers a timeout itself; only a dead or stopped one makes us wait for longer


class Peers:
    """This shard among its siblings."""

    def __init__(self, index: int = 0, count: int = 1, callers: Mapping[int, Caller] | None = None) -> None:
        self.index = index
        self.count = count
        self.forwarded = 0
        self._callers = callers or {}

    def __repr__(self) -> str:
        return f"Peers({self.index} of {self.count})"

    def connect(self) -> None:
        for caller in self._callers.values():
            caller.connect()

    @property
    def bytes_under_way(self) -> int:
        """In calls to other shards that have no answer yet."""
        return sum(link.bytes_under_way for link in self.links())

    def owner(self, topic_id: str, partition: int) -> int:
        return shard_of(topic_id, partition, self.count)

    def owns(self, topic_id: str, partition: int) -> bool:
        return self.owner(topic_id, partition) == self.index

    def link_to_owner(self, topic_id: str, partition: int) -> Link:
        """Raises Busy while the owner restarts."""
        return self.link(self.owner(topic_id, partition))

    def link(self, index: int) -> Link:
        """To one other shard. Raises Busy while it restarts."""
        self.forwarded += 1
        return self._callers[index].link()

    def links(self) -> list[Link]:
        """To every other shard that is up."""
        links = []
        for caller in self._callers.values():
            with suppress(Busy):
                links.append(caller.link())
        return links

    def close(self) -> None:
        for caller in self._callers.values():
            caller.close()


class RemoteLeader:
    """A partition's leader in another shard, as a producer sees it."""

    def __init__(self, peers: Peers, topic: str, topic_id: str, partition: int) -> None:
        self._peers = peers
        self._topic = topic
        self._topic_id = topic_id
        self._partition = partition

    def append_nowait(self, batch: bytes | bytearray, terms: Terms | None = None) -> None:
        """acks=0: hand the batch over and never look back. Raises Busy, as long as nothing was sent."""
        self._begin(batch, Acks.NONE, 0, terms)

    def produce(
        self, batch: bytes | bytearray, acks: Acks, timeout_ms: int, terms: Terms | None = None
    ) -> Awaitable[Appended]:
        """As Leader.produce; the owner waits for the acknowledgement."""
        return self._reply(self._begin(batch, acks, timeout_ms, terms), timeout_ms)

    def _begin(
        self, batch: bytes | bytearray, acks: Acks, timeout_ms: int, terms: Terms | None
    ) -> asyncio.Future[tuple[list[Any], bytes]]:
        link = self._peers.link_to_owner(self._topic_id, self._partition)
        arguments = (self._topic_id, self._topic, self._partition, acks.value, timeout_ms, terms)
        return link.begin("append", arguments, batch)

    async def _reply(self, begun: asyncio.Future[tuple[list[Any], bytes]], timeout_ms: int) -> Appended:
        try:
            async with asyncio.timeout(timeout_ms / 1000 + REPLY_MARGIN_S):
                fields, _ = await begun
                return Appended(*fields)
        except TimeoutError:
            text = f"{self._topic}/{self._partition}: its shard did not answer within {timeout_ms} ms"
            raise AckTimeout(text, hint=MAYBE_STORED) from None
