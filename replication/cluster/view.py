"""The view of the cluster in one process: live nodes, topics, the state of every partition, reassignments.

A plain container in the supervisor and in each shard. watch.py and the link between processes fill it, so it may be
slightly behind the store. Invariant: a partition's state is only replaced by one with a greater partition_epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypedDict

from engine.directory.placement import shard_of
from engine.errors import EngineError, InvalidConfig, StartRefused
from engine.runtime.histogram import Histogram
from replication.cluster.keys import PartitionKey
from replication.cluster.values import (
    LEVEL_MAX,
    ClusterIdentity,
    NodeFields,
    NodeInfo,
    TopicEntry,
    TopicFields,
    node_from_plain,
    node_to_plain,
    states_to_plain,
    topic_to_plain,
)
from replication.cores.partition_state import Member, Registrations, VersionedState, node_ids
from replication.errors import NodesAbsent, NotLeader

StateChange = tuple[str, int, VersionedState]


class NodesFields(TypedDict):
    """The plain form of the nodes of a view."""

    nodes: list[NodeFields]
    drained: list[int]
    controller: int | None


class ViewFields(TypedDict):
    """The plain form of a view. `states` is that of `states_to_plain`."""

    nodes: NodesFields
    topics: list[TopicFields]
    states: list[Any]


class ReplicaEndpoint(NamedTuple):
    """The address of a replica: its node and shard, and the URL for clients."""

    node_id: int
    shard: int
    url: str


SINGLE_NODE_HINT = "with --coordination embedded there is this node only; several nodes need zookeeper://"


class ClusterListener(Protocol):
    """Receives the changes of the cluster. All methods are called in the event loop, are synchronous and cheap."""

    def on_registered(self, member: Member) -> None: ...

    def on_session_lost(self) -> None:
        """Stops leading everything; a new registration follows."""

    def on_fenced(self, error: StartRefused) -> None:
        """Ends this process: one with a newer copy of its data directory has registered as this node."""

    def on_contact(self, at: float) -> None:
        """Notes that the store has answered a request sent at this time of Clock.boottime."""

    def on_identity(self, identity: ClusterIdentity) -> None:
        """Accepts the secrets of the cluster, sends the first one, and shows its feature level."""

    def on_nodes(self, view: ClusterView) -> None: ...

    def on_topics(self, changed: list[TopicEntry], deleted: list[TopicEntry]) -> None:
        """Handles changed topics. `deleted` have left the store; their files may be deleted only if `is_deleted`
        confirms it.
        """

    def on_states(self, changed: list[StateChange]) -> None: ...


class ClusterView:
    has_elections = True  # leaders move, and a partition may lack one; not on a standalone node
    has_others = True  # requests may be for partitions of other processes

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self._now_ms = now_ms
        self.nodes: dict[int, NodeInfo] = {}
        self.topics: dict[str, TopicEntry] = {}
        self.states: dict[PartitionKey, VersionedState] = {}
        self.drained: frozenset[int] = frozenset()
        self.registrations: Registrations = {}
        self.controller: int | None = None
        self.feature_level = LEVEL_MAX  # of the cluster, as last read
        self.is_single_node = False  # no other node can join (embedded)
        self.seen_nodes: frozenset[int] = frozenset()  # registered at any time since this process started
        self.elections = self.unclean_elections = 0  # since this process started: deleted topics count on
        self.last_unclean_ms = 0  # when this process saw the last unclean election; 0: none since it started
        self.election_times = Histogram()  # of those of this process as the controller
        self.shrinks = self.expands = 0  # of replicas in sync, since this process started
        self.session_losses = 0
        self._by_id: dict[str, TopicEntry] = {}

    def __repr__(self) -> str:
        return f"ClusterView(nodes={sorted(self.nodes)}, topics={len(self.topics)}, partitions={len(self.states)})"

    def hint_of_more(self, hint: str) -> str:
        """Returns the hint for problems that more nodes would solve."""
        return SINGLE_NODE_HINT if self.is_single_node else hint

    def put_nodes(self, nodes: Mapping[int, NodeInfo], drained: Iterable[int] = ()) -> None:
        """Replaces the registered nodes. A drained node counts as leaving: it is not elected."""
        self.nodes = dict(nodes)
        self.seen_nodes |= self.nodes.keys()
        self.drained = frozenset(drained)
        self.registrations = {
            node_id: replace(node.registration, is_leaving=node.is_leaving or node_id in self.drained)
            for node_id, node in self.nodes.items()
        }

    def put_topic(self, topic: TopicEntry) -> None:
        old = self.topics.get(topic.name)
        if old is not None and old.topic_id != topic.topic_id:
            self.remove_topic(old)
        self.topics[topic.name] = self._by_id[topic.topic_id] = topic

    def remove_topic(self, topic: TopicEntry) -> None:
        if self._by_id.pop(topic.topic_id, None) is None:
            return
        if self.topics[topic.name].topic_id == topic.topic_id:
            del self.topics[topic.name]
        for number in range(topic.partitions):
            self.states.pop((topic.topic_id, number), None)

    def topic_by_id(self, topic_id: str) -> TopicEntry | None:
        return self._by_id.get(topic_id)

    def put_states(self, changed: Iterable[StateChange]) -> list[StateChange]:
        """Applies states. Returns those that are newer than the known ones."""
        newer = []
        for topic_id, number, versioned in changed:
            old = self.states.get((topic_id, number))
            if old is None or old.partition_epoch < versioned.partition_epoch:
                if old is not None:
                    self.elections += old.state.leader_epoch < versioned.state.leader_epoch
                    more = versioned.state.unclean_elections - old.state.unclean_elections
                    if more > 0:
                        self.unclean_elections += more
                        self.last_unclean_ms = self._now_ms()
                    before, now = node_ids(old.state.in_sync), node_ids(versioned.state.in_sync)
                    self.shrinks += len(before - now)
                    self.expands += len(now - before)
                self.states[topic_id, number] = versioned
                newer.append((topic_id, number, versioned))
        return newer

    def partitions_of(self, topic: TopicEntry) -> Iterator[tuple[int, VersionedState]]:
        """Yields the partitions with a known state."""
        for number in range(topic.partitions):
            versioned = self.states.get((topic.topic_id, number))
            if versioned is not None:
                yield number, versioned

    def leader(self, topic_id: str, number: int) -> Member | None:
        """Returns the leader if its node is still registered in the broker epoch of its election."""
        versioned = self.states.get((topic_id, number))
        leader = None if versioned is None else versioned.state.leader
        node = None if leader is None else self.nodes.get(leader.node_id)
        return leader if leader is not None and node is not None and node.broker_epoch == leader.broker_epoch else None

    def leader_of(self, topic_id: str, number: int) -> ReplicaEndpoint | None:
        leader = self.leader(topic_id, number)
        return None if leader is None else self.endpoint_on(leader.node_id, topic_id, number)

    def missing_topic(self, name: str) -> EngineError:
        """Returns the error of a call for a topic, by its id, that this node does not have."""
        return NotLeader(f"this node does not know the topic {name!r} of that id (any more, or yet)")

    def endpoint_on(self, node_id: int, topic_id: str, number: int) -> ReplicaEndpoint | None:
        """Returns where a node serves a partition; None if the node is not registered."""
        node = self.nodes.get(node_id)
        if node is None or not node.internal_urls:
            return None
        shard = shard_of(topic_id, number, len(node.internal_urls))
        url = node.shard_urls[shard] if shard < len(node.shard_urls) else node.url
        return ReplicaEndpoint(node_id, shard, url)

    def has(self, topic: TopicEntry) -> bool:
        """True if the view has this version of the topic and the states of all its partitions."""
        entry = self.topic_by_id(topic.topic_id)
        has_all = (topic.topic_id, topic.partitions - 1) in self.states
        return entry is not None and has_all and entry.config == topic.config

    def has_transferable_leadership(self, node_id: int) -> bool:
        """True if the node leads a partition that another in-sync replica, on a node that stays, could lead."""
        staying = {n for n, registration in self.registrations.items() if not registration.is_leaving and n != node_id}
        states = (versioned.state for versioned in self.states.values())
        return any(
            state.leader is not None
            and state.leader.node_id == node_id
            and any(member.node_id in staying for member in state.in_sync)
            for state in states
        )

    def hosted_on(self, node_id: int, topic: TopicEntry) -> tuple[int, ...]:
        """Returns the partitions of a topic with a replica on a node."""
        return tuple(number for number, versioned in self.partitions_of(topic) if node_id in versioned.state.replicas)

    def absent_nodes(self) -> list[int]:
        """Returns nodes that may come back: seen before or with replicas, and neither registered nor drained."""
        holding = {node_id for versioned in self.states.values() for node_id in versioned.state.replicas}
        return sorted((self.seen_nodes | holding) - self.nodes.keys() - self.drained)

    # Between processes.

    def to_plain(self) -> ViewFields:
        return {
            "nodes": self.nodes_to_plain(),
            "topics": [topic_to_plain(topic) for topic in self.topics.values()],
            "states": states_to_plain([(*key, versioned) for key, versioned in self.states.items()]),
        }

    def nodes_to_plain(self) -> NodesFields:
        return {
            "nodes": [node_to_plain(node) for node in self.nodes.values()],
            "drained": sorted(self.drained),
            "controller": self.controller,
        }

    def put_plain_nodes(self, plain: NodesFields) -> None:
        nodes = (node_from_plain(node) for node in plain["nodes"])
        self.put_nodes({node.node_id: node for node in nodes}, plain["drained"])
        self.controller = plain["controller"]


def too_few_nodes(view: ClusterView, replication_factor: int, there: int) -> InvalidConfig | NodesAbsent:
    """Returns NodesAbsent if absent nodes would be enough once they are back, else InvalidConfig."""
    nodes, absent = "1 node" if there == 1 else f"{there} nodes", view.absent_nodes()
    text = f"replication_factor is {replication_factor}, and {nodes} can hold a replica"
    if replication_factor <= there + len(absent):
        names = ", ".join(map(str, absent))
        return NodesAbsent(f"{text}; absent: {names}", hint="retry when those nodes are back, or give fewer")
    hint = view.hint_of_more("give fewer, or start more nodes")
    return InvalidConfig(text, hint=hint, setting="replication_factor")


class Reassignment(NamedTuple):
    """A reassignment in progress: it is complete once all of `target` is in sync."""

    topic: str
    partition: int
    target: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    in_sync: tuple[int, ...]


def reassignments(view: ClusterView) -> list[Reassignment]:
    """Returns the reassignments in progress."""
    return [
        _reassignment(topic, number, versioned)
        for topic in view.topics.values()
        for number, versioned in view.partitions_of(topic)
        if versioned.state.adding or versioned.state.removing
    ]


def _reassignment(topic: TopicEntry, number: int, versioned: VersionedState) -> Reassignment:
    state = versioned.state
    target = tuple(node for node in state.replicas if node not in state.removing)
    in_sync = tuple(member.node_id for member in state.in_sync)
    return Reassignment(topic.name, number, target, state.adding, state.removing, in_sync)
