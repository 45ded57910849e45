"""The other nodes of the cluster for one process of this node: leaders, and links to their shards.

It does not know the calls over a link, and does not retry. A link is made to every shard of every registered node
before its first use: the first request after a failover must not wait for a connection.
Invariant: no link outlives the registration that named its address, so a call to a node that is declared dead ends at
once, with an unknown outcome, instead of at its deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from gateway.links.internal_link import Credentials, dial_internal
from gateway.links.link import Busy, Caller, Link, LinkDown
from replication.cluster.view import ClusterView, Place

_Which = tuple[int, int]  # a node and one of its shards
_Where = tuple[int, str]  # its broker epoch and its address


class NodeLinks:
    """Implements gateway.routing.peers.OtherNodes from the view."""

    def __init__(self, view: ClusterView, node_id: int, credentials: Credentials) -> None:
        self.node_id = node_id
        self.view = view
        self._credentials = credentials
        self._callers: dict[_Which, Caller] = {}
        self._made_for: dict[_Which, _Where] = {}

    def __repr__(self) -> str:
        return f"NodeLinks({self.node_id}, {list(self._callers.values())})"

    def leader_of(self, topic_id: str, number: int) -> Place | None:
        return self.view.leader_of(topic_id, number)

    def leader_epoch_of(self, topic_id: str, number: int) -> int:
        """Returns the epoch of the newest known state; 0 if none is known."""
        found = self.view.states.get((topic_id, number))
        return 0 if found is None else found.state.leader_epoch

    def link(self, node_id: int, shard: int) -> Link:
        """Returns the link to a shard of another node. Raises LinkDown while it is not up; it keeps connecting."""
        caller = self._callers.get((node_id, shard))
        if caller is None:
            raise LinkDown(f"node {node_id} is not there")
        return caller.link()

    def links(self) -> list[Link]:
        """Returns the links that are up."""
        links = []
        for caller in self._callers.values():
            with suppress(Busy):
                links.append(caller.link())
        return links

    def follow(self) -> None:
        """Applies changed registrations: ends links without a registration, and makes new ones."""
        wanted = self._addresses()
        for which in [which for which, where in self._made_for.items() if wanted.get(which) != where]:
            self._callers.pop(which).close()
            del self._made_for[which]
        for which, where in wanted.items():
            if which not in self._callers:
                url = where[1]
                self._callers[which] = Caller(url, dial=dial_internal(url, self._credentials))
                self._callers[which].connect()
                self._made_for[which] = where

    def close(self) -> None:
        for caller in self._callers.values():
            caller.close()
        self._callers, self._made_for = {}, {}

    def _addresses(self) -> Mapping[_Which, _Where]:
        return {
            (node_id, shard): (node.broker_epoch, url)
            for node_id, node in self.view.nodes.items()
            if node_id != self.node_id
            for shard, url in enumerate(node.internal_urls)
        }
