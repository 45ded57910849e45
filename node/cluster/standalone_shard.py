"""A shard's part in a cluster of one: a standalone node. It has a view and replicas, and nothing to exchange.

node/cluster/shard_cluster.py replaces it on a node with a coordination store. node/cluster/standalone_topics.py is the
supervisor's side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from engine.partition.spool import Spool
from engine.shard.shard import Shard
from gateway.admin.standalone_operations import operate_standalone
from gateway.connections.socket_passing import SocketPassing
from gateway.links.link import Handler, Link
from gateway.routing.peers import Peers
from gateway.routing.topic_finder import AllTopicsKnown
from node.messages import ShardTask, hand_over_socket
from node.setup.listener import Listener
from replication.cluster.standalone_view import StandaloneView
from replication.replica.standalone import StandaloneReplicas


class StandaloneShard:
    """The part of a shard whose node has no other nodes. `credentials`: the secret of the links to them."""

    credentials = None
    replication_factor_max = 1

    def __init__(self, task: ShardTask) -> None:
        self.view = StandaloneView(task.settings.node_id, task.direct_urls)
        self.topic_finder = AllTopicsKnown()
        self.operate = operate_standalone(task.settings.node_id)
        self._task = task

    def create_replicas(
        self,
        peers: Peers,
        supervisor: Callable[[], Link],
        new_session: Callable[[], str],
        boottime: Callable[[], float],
        spool: Spool,
    ) -> StandaloneReplicas:
        return StandaloneReplicas(self._task.settings.node_id, spool)

    def socket_passing(self, peers: Peers) -> SocketPassing | None:
        """Returns None if `requests_before_move` is 0."""
        requests_min = self._task.settings.requests_before_move
        if not requests_min:
            return None
        run_dir = self._task.run_dir
        return SocketPassing(self._task.index, partial(hand_over_socket, run_dir), requests_min, peers.count_moved)

    def handlers(self, shard: Shard) -> Mapping[str, Handler]:
        return {}

    async def load_view(self, link: Link) -> None:
        """No-op: the view does not change."""

    async def open(self, handlers: Mapping[str, Handler]) -> None:
        """No-op: there is no other node."""

    async def move_clients(self, listener: Listener) -> None:
        """No-op: there is no other node."""

    async def close(self) -> None:
        """No-op: no other replica follows, and none is followed."""
