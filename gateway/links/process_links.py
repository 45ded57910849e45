"""The links of one process: to the other shards of its node and, in a cluster, to all shards of the other nodes.

It does not know the calls over a link, nor who leads a partition, and does not retry. A link is made to every shard of
every registered node before its first use: the first request after a failover must not wait for a connection.
Invariant: no link outlives the registration that named its address, so a call to a node that is declared dead ends at
once, with an unknown outcome, instead of at its deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from gateway.links.internal_link import Credentials, dial_internal
from gateway.links.link import Busy, Link, LinkDown
from gateway.links.link_client import LinkClient
from replication.cluster.values import NodeInfo

Process = tuple[int | None, int]  # a node, None for this one, and one of its shards
_Where = tuple[int, str]  # its broker epoch and its address


class ProcessLinks:
    def __init__(
        self, callers: Mapping[Process, LinkClient] | None = None, credentials: Credentials | None = None
    ) -> None:
        """`callers` reach processes that stay the same; with `credentials`, `follow` adds those of other nodes."""
        self._callers = dict(callers or {})
        self._credentials = credentials
        self._registered: dict[Process, _Where] = {}

    def __repr__(self) -> str:
        return f"ProcessLinks({list(self._callers.values())})"

    def connect(self) -> None:
        """Begins to connect to the other shards of this node."""
        for caller in self._of_this_node():
            caller.connect()

    async def wait_connected(self) -> None:
        """Waits until every other shard of this node has answered.

        A node is ready after this: its first requests may be for partitions of any of them.
        """
        for caller in self._of_this_node():
            await caller.wait_connected()

    def link(self, process: Process) -> Link:
        """Returns the link to a process. Raises LinkDown while it is not up; it keeps connecting."""
        caller = self._callers.get(process)
        if caller is None:
            raise LinkDown(f"node {process[0]} is not there")
        return caller.link()

    def links(self, *, of_this_node: bool = False) -> list[Link]:
        """Returns the links that are up."""
        links = []
        for caller in self._of_this_node() if of_this_node else self._callers.values():
            with suppress(Busy):
                links.append(caller.link())
        return links

    def of_other_nodes(self) -> list[tuple[int, LinkClient]]:
        """Returns each shard of the other registered nodes, with the node's id, whether its link is up or not."""
        return [(node_id, caller) for (node_id, _), caller in self._callers.items() if node_id is not None]

    def follow(self, nodes: Iterable[NodeInfo]) -> None:
        """Applies the registrations of the other nodes: ends links without one, and makes new ones."""
        present: dict[Process, _Where] = {
            (node.node_id, shard): (node.broker_epoch, url)
            for node in nodes
            for shard, url in enumerate(node.internal_urls)
        }
        for process in [process for process, where in self._registered.items() if present.get(process) != where]:
            self._callers.pop(process).close()
            del self._registered[process]
        for process, where in present.items():
            if process not in self._callers:
                assert self._credentials is not None
                url = where[1]
                self._callers[process] = LinkClient(url, dial=dial_internal(url, self._credentials))
                self._callers[process].connect()
                self._registered[process] = where

    def close(self) -> None:
        for caller in self._callers.values():
            caller.close()
        self._callers, self._registered = {}, {}

    def _of_this_node(self) -> list[LinkClient]:
        return [caller for (node_id, _), caller in self._callers.items() if node_id is None]
