"""The methods that manage topics, written once for the async client, the sync client and short commands.

The clients differ in what a call returns: a JSON document, or an awaitable of one. Each document is returned as the
node sent it, so fields that a newer node adds are included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from penstock.admin import api
from penstock.transport.api import positions
from penstock.transport.exchange import Request

ResultT = TypeVar("ResultT")


class Admin(Generic[ResultT]):
    def _call(self, request: Request) -> ResultT:
        raise NotImplementedError

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> ResultT:
        """Create a topic. Arguments left out take the node's defaults. Idempotent."""
        return self._call(api.create_topic(topic, partitions, replication_factor, config))

    def list_topics(self) -> ResultT:
        return self._call(api.list_topics())

    def describe_topic(self, topic: str) -> ResultT:
        return self._call(api.describe_topic(topic))

    def alter_topic(
        self,
        topic: str,
        config: Mapping[str, Any] | None = None,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
    ) -> ResultT:
        """Change the settings named in `config`, and no others. `partitions` grows the topic to this many;
        `replication_factor` adds or removes replicas, which continues after the answer.
        """
        return self._call(api.alter_topic(topic, config, partitions, replication_factor))

    def delete_topic(self, topic: str) -> ResultT:
        return self._call(api.delete_topic(topic))

    def roll_topic(self, topic: str) -> ResultT:
        """Seal the open segments now, so that they can be tiered."""
        return self._call(api.roll_topic(topic))

    def tier_status(self, topic: str) -> ResultT:
        return self._call(api.tier_status(topic))

    def find_positions(self, topic: str, partition: int, timestamp: int | str | None = None) -> ResultT:
        """Return the bounds of a partition and, for a timestamp, the first position at or after it."""
        return self._call(positions(topic, partition, timestamp))

    def cluster(self) -> ResultT:
        return self._call(api.cluster())

    def reassignments(self) -> ResultT:
        """List the partitions that are being moved."""
        return self._call(api.reassignments())

    def reassign(self, topic: str, targets: Mapping[int, Sequence[int]]) -> ResultT:
        """Move partitions to these nodes, the preferred leader first. The move continues after the answer."""
        return self._call(api.reassign(topic, targets))

    def cancel_reassignment(self, topic: str, partition: int) -> ResultT:
        return self._call(api.cancel_reassignment(topic, partition))

    def drain_node(self, node_id: int, is_drained: bool = True) -> ResultT:
        """Move leadership off a node, or with `is_drained=False` allow it to lead again."""
        return self._call(api.drain_node(node_id, is_drained))

    def decommission_node(self, node_id: int) -> ResultT:
        """Drain a node and move everything off it."""
        return self._call(api.decommission_node(node_id))

    def balance(self, is_applied: bool = False) -> ResultT:
        """Return moves that spread bytes over the nodes, and with `is_applied` start them."""
        return self._call(api.balance(is_applied))
