"""The methods that manage topics, written once for the async client, the sync client and short commands.

The clients differ in what a call returns: a JSON document, or an awaitable of one. Each document is returned as the
node sent it, so fields that a newer node adds are included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from penstock.admin import api
from penstock.admin.api import given, group_path, with_json, with_query
from penstock.admin.table import Table
from penstock.transport.api import positions, topic_path
from penstock.transport.exchange import Json, Query, Request

_REASSIGNMENTS = "/v1/cluster/reassignments"
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
        """Creates a topic. Arguments left out take the node's defaults. Idempotent."""
        return self._call(api.create_topic(topic, partitions, replication_factor, config))

    def list_topics(self, **page: str | int | None) -> ResultT:
        """Lists topics by name: all, or a page by `prefix`, `limit` and `after`, the `next` of the page before."""
        return self._call(api.list_topics(**page))

    def describe_topic(self, topic: str) -> ResultT:
        return self._call(api.describe_topic(topic))

    def alter_topic(
        self,
        topic: str,
        config: Mapping[str, Any] | None = None,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        unset: Sequence[str] | None = None,
    ) -> ResultT:
        """Changes the settings named in `config`; those in `unset` get their defaults; others stay. `partitions` grows
        the topic to this many; `replication_factor` adds or removes replicas, which continues after the answer.
        """
        body: Json = {"config": config, "partitions": partitions, "replication_factor": replication_factor}
        if unset is not None:
            body["unset"] = list(unset)
        return self._call(with_json("PATCH", topic_path(topic), given(body)))

    def delete_topic(self, topic: str) -> ResultT:
        return self._call(Request("DELETE", topic_path(topic)))

    def roll_topic(self, topic: str) -> ResultT:
        """Closes the active segments now, so that they are uploaded."""
        return self._call(Request("POST", f"{topic_path(topic)}/roll"))

    def delete_records(self, topic: str, partition: int, before: int) -> ResultT:
        """Deletes the records of a partition below the offset `before`, permanently and for all readers."""
        return self._call(Request("DELETE", f"{topic_path(topic)}/partitions/{partition}/records", {"before": before}))

    def table(self, topic: str) -> Table[ResultT]:
        """Returns a compacted topic, to be read by key: `client.table("prices").get("apples")`."""
        return Table(topic, self._call)

    def tier_status(self, topic: str) -> ResultT:
        return self._call(Request("GET", f"{topic_path(topic)}/tier"))

    def find_positions(self, topic: str, partition: int, timestamp: int | str | None = None) -> ResultT:
        """Returns the bounds of a partition and, for a timestamp, the first position at or after it."""
        return self._call(positions(topic, partition, timestamp))

    def cluster(self) -> ResultT:
        return self._call(api.cluster())

    def reassignments(self) -> ResultT:
        """Lists the partitions that are being moved."""
        return self._call(Request("GET", _REASSIGNMENTS))

    def reassign(self, topic: str, targets: Mapping[int, Sequence[int]]) -> ResultT:
        """Moves partitions to these nodes, the preferred leader first. The move continues after the answer."""
        partitions = {str(number): list(nodes) for number, nodes in targets.items()}
        return self._call(with_json("POST", _REASSIGNMENTS, {"topic": topic, "partitions": partitions}))

    def cancel_reassignment(self, topic: str, partition: int) -> ResultT:
        return self._call(Request("DELETE", f"{_REASSIGNMENTS}/{quote(topic, safe='')}/{partition}"))

    def drain_node(self, node_id: int, is_drained: bool = True) -> ResultT:
        """Moves leadership off a node, or with `is_drained=False` allows it to lead again."""
        return self._call(with_json("POST", f"{_node(node_id)}/drain", {"drained": is_drained}))

    def decommission_node(self, node_id: int) -> ResultT:
        """Drains a node and moves everything off it."""
        return self._call(Request("POST", f"{_node(node_id)}/decommission"))

    def disks(self, node_id: int) -> ResultT:
        """Returns the data directories of a node, and the partitions that move between them."""
        return self._call(Request("GET", f"{_node(node_id)}/disks"))

    def move_partitions(
        self, node_id: int, moves: Sequence[tuple[str, int, str]] | None, is_dry_run: bool = False
    ) -> ResultT:
        """Moves partitions, each given as topic, number and path, to other disks of a node. None: by free bytes."""
        named = [{"topic": topic, "partition": number, "to": path} for topic, number, path in moves or ()]
        what: Json = {"balance": True} if moves is None else {"moves": named}
        return self._call(with_json("POST", f"{_node(node_id)}/disks/moves", {"dry_run": is_dry_run, **what}))

    def cancel_move(self, node_id: int, topic: str, partition: int) -> ResultT:
        """Ends the move of a partition to another disk; it stays where it is."""
        return self._call(Request("DELETE", f"{_node(node_id)}/disks/moves/{quote(topic, safe='')}/{partition}"))

    def balance(self, is_applied: bool = False) -> ResultT:
        """Returns moves that spread bytes over the nodes, and with `is_applied` starts them."""
        return self._call(with_json("POST", "/v1/cluster/balance", {"apply": is_applied}))

    def sign_url(
        self, url: str, *, method: str = "GET", life_ms: int | None = None, max_bytes: int | None = None
    ) -> ResultT:
        """Returns a signed URL for the path and query of a topic's records or table. It needs no token."""
        body = {"url": url, "method": method, "life_ms": life_ms, "max_bytes": max_bytes}
        return self._call(with_json("POST", "/v1/access/signed-urls", given(body)))

    def list_subscriptions(self, **page: str | int | None) -> ResultT:
        return self._call(with_query("/v1/subscriptions", page))

    def put_subscription(self, name: str, definition: Mapping[str, Any]) -> ResultT:
        """Creates or changes a push subscription: `{"url": ..., "topics": [...]}` and further fields."""
        return self._call(api.subscription("PUT", name, document=dict(definition)))

    def alter_subscription(self, name: str, changes: Mapping[str, Any]) -> ResultT:
        """Changes `url`, `filter`, `secrets` or single settings of the `delivery`. The positions stay."""
        return self._call(api.subscription("PATCH", name, document=dict(changes)))

    def describe_subscription(self, name: str) -> ResultT:
        """Returns the settings, positions and last deliveries of a subscription."""
        return self._call(api.subscription("GET", name))

    def delete_subscription(self, name: str) -> ResultT:
        return self._call(api.subscription("DELETE", name))

    def pause_subscription(self, name: str) -> ResultT:
        return self._call(api.subscription("POST", name, "pause"))

    def resume_subscription(self, name: str) -> ResultT:
        return self._call(api.subscription("POST", name, "resume"))

    def replay_subscription(
        self, name: str, to: str | int | None = None, offsets: Sequence[Json] | None = None
    ) -> ResultT:
        """Delivers from `to` earliest, latest or a time, or from `offsets`."""
        document: Json = {"to": to} if offsets is None else {"offsets": list(offsets)}
        return self._call(api.subscription("POST", name, "replay", document))

    def list_groups(self, **page: str | int | None) -> ResultT:
        return self._call(api.list_groups(**page))

    def describe_group(self, group: str) -> ResultT:
        """Returns a group's members, positions and lag."""
        return self._call(api.describe_group(group))

    def explain_group(self, group: str) -> ResultT:
        """Returns why a group lags or rebalances: findings, and its last events."""
        return self._call(Request("GET", f"{group_path(group)}/explanation"))

    def configure_group(self, group: str, config: Mapping[str, Any]) -> ResultT:
        """Creates a group or changes the settings named in `config`; None restores a default."""
        return self._call(api.configure_group(group, config))

    def delete_group(self, group: str) -> ResultT:
        return self._call(Request("DELETE", group_path(group)))

    def leave_group(self, group: str, member_id: str) -> ResultT:
        """Removes a member; its partitions go to the others at once."""
        return self._call(api.leave_group(group, member_id))

    def group_offsets(self, group: str) -> ResultT:
        return self._call(Request("GET", f"{group_path(group)}/offsets"))

    def commit_offsets(self, group: str, offsets: Sequence[Mapping[str, Any]], *, is_forced: bool = False) -> ResultT:
        """Commits positions without membership: dicts with `topic`, `partition` and `offset`."""
        return self._call(api.commit_offsets(group, offsets, is_forced))

    def acquire_records(self, group: str, wish: Mapping[str, Any]) -> ResultT:
        """Acquires records of a share group once; `wish` is the body of the request. queue() does it for a worker."""
        return self._call(api.acquire_records(group, wish))

    def acknowledge_records(self, group: str, wish: Mapping[str, Any]) -> ResultT:
        """Gives acquired records their outcome; `wish` is the body of the request."""
        return self._call(api.acknowledge_records(group, wish))

    def delete_group_offsets(self, group: str, topic: str, partition: int | None = None) -> ResultT:
        """Deletes the committed positions of a topic, or of one of its partitions. The group must have no members."""
        query: Query = {"topic": topic} if partition is None else {"topic": topic, "partition": partition}
        return self._call(Request("DELETE", f"{group_path(group)}/offsets", query))

    def reset_group(
        self,
        group: str,
        *,
        to: str | int | None = None,
        ago_ms: int | None = None,
        shift: int | None = None,
        offsets: Sequence[Mapping[str, Any]] | None = None,
        topics: Sequence[str] | None = None,
        is_dry_run: bool = False,
        is_forced: bool = False,
    ) -> ResultT:
        """Moves a group by one of `to`, `ago_ms`, `shift` and `offsets`. `is_dry_run` only returns the outcome."""
        ways = {"to": to, "ago_ms": ago_ms, "shift": shift, "offsets": offsets, "topics": topics}
        body = {**given(ways), "dry_run": is_dry_run, "force": is_forced}
        return self._call(with_json("POST", f"{group_path(group)}/reset", body))


def _node(node_id: int) -> str:
    return f"/v1/cluster/nodes/{node_id}"
