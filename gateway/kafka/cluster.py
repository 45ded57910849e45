"""The cluster as clients of Kafka's protocol see it: brokers with their addresses, leaders with their epochs.

A broker is a node, whose shards share its address and hand requests on. Leader and epoch of a partition come from one
state of the view. Invariant: an epoch that is not known is -1, never 0, since clients ignore what goes back.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from engine.format.paths import INTERNAL_TOPICS
from engine.shard.served_topics import Topic
from gateway.http.rights import Operation
from gateway.kafka.context import KafkaContext
from gateway.kafka.requests import KafkaRequest
from gateway.routing.peers import Owner, Peers
from replication.errors import NoLeader

UNKNOWN_EPOCH = -1
NO_LEADER = -1
NO_ID = bytes(16)  # of a topic that is not named by its id


class Broker(NamedTuple):
    """A node with a listener of Kafka's protocol."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Leadership(NamedTuple):
    """The leader of a partition, its epoch, and the nodes of its replicas. `leader` is -1 if there is none."""

    leader: int
    epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


def brokers(context: KafkaContext) -> list[Broker]:
    """Returns the live nodes that listen, with this one."""
    peers = context.peers
    host, port = context.own_address
    own_rack = context.settings.rack
    found = [Broker(peers.node_id, host, port, own_rack or None)]
    for node_id, node in sorted(peers.cluster.nodes.items()):
        if node_id != peers.node_id and node.kafka:
            host, _, text = node.kafka.rpartition(":")
            found.append(Broker(node_id, host.strip("[]"), int(text), node.rack or None))
    return found


class HasPeers(Protocol):
    """A context whose peers know the cluster."""

    @property
    def peers(self) -> Peers: ...


def leadership(context: HasPeers, topic: Topic, number: int) -> Leadership:
    """Returns who leads a partition, as far as this process knows."""
    peers = context.peers
    view, topic_id = peers.cluster, topic.record.topic_id
    versioned, leader = view.states.get((topic_id, number)), view.leader(topic_id, number)
    if versioned is None:
        if leader is None:
            return Leadership(NO_LEADER, UNKNOWN_EPOCH, [], [], [])
        partition, own = topic.partitions.get(number), [leader.node_id]  # the only replica of a standalone node
        epoch = UNKNOWN_EPOCH if partition is None else partition.log.leader_epoch
        return Leadership(leader.node_id, epoch, own, own, [])
    state = versioned.state
    replicas = list(state.replicas)
    in_sync = [member.node_id for member in state.in_sync if member.node_id in view.nodes]
    offline = [node_id for node_id in replicas if node_id not in view.nodes]
    return Leadership(NO_LEADER if leader is None else leader.node_id, state.leader_epoch, replicas, in_sync, offline)


def is_of_this_node(context: KafkaContext, topic_id: str, number: int) -> bool:
    """Returns whether a process of this node leads the partition; another node's clients are sent to it."""
    if not context.peers.has_others:
        return True
    try:
        return context.peers.owner(topic_id, number).node_id is None
    except NoLeader:
        return False


def own_follower(context: KafkaContext, topic_id: str, number: int) -> Owner | None:
    """Returns the process of this node that has a follower of the partition in sync; None without one."""
    view, node_id = context.peers.cluster, context.peers.node_id
    versioned = view.states.get((topic_id, number))
    if versioned is None or not versioned.state.is_in_sync(node_id):
        return None
    endpoint = view.endpoint_on(node_id, topic_id, number)
    return None if endpoint is None else Owner(None, endpoint.shard)


def closest_replica(context: KafkaContext, topic_id: str, number: int, rack: str) -> int | None:
    """Returns the node of a follower in sync in a client's rack (KIP-392); None: the client stays with the leader."""
    if not rack or not context.peers.has_others:
        return None
    owner = context.peers.preferred_read_replica(topic_id, number, rack)
    if owner is None or owner.node_id is None:
        return None
    node = context.peers.cluster.nodes.get(owner.node_id)
    return owner.node_id if node is not None and node.kafka else None


def find_topic(context: KafkaContext, name: str) -> Topic | None:
    """Returns a topic that clients may name; None if it is not known to this process."""
    return None if name in INTERNAL_TOPICS else context.topics.get(name)


def find_topic_by_id(context: KafkaContext, topic_id: bytes) -> Topic | None:
    """Returns a topic that clients may name by its id; None if it is not known to this process."""
    topic = context.topics.by_id(topic_id.hex())
    return None if topic is None or topic.record.name in INTERNAL_TOPICS else topic


def find_topic_by_key(context: KafkaContext, key: str | bytes) -> Topic | None:
    return find_topic_by_id(context, key) if isinstance(key, bytes) else find_topic(context, key)


def may_know(request: KafkaRequest, name: str) -> bool:
    """Returns whether a client may know that a topic is there."""
    space = request.space
    return (space is None or name.startswith(space.prefix)) and request.caller.allows(Operation.DESCRIBE, name)


def id_bytes(topic_id: str) -> bytes:
    """Returns a topic's id as Kafka's protocol has it; zeros for one of another form."""
    try:
        found = bytes.fromhex(topic_id.replace("-", ""))
    except ValueError:
        return NO_ID
    return found if len(found) == 16 else NO_ID


def visible_topics(request: KafkaRequest, context: KafkaContext) -> list[Topic]:
    """Returns the topics that the caller may describe, by name."""
    caller = request.caller
    return sorted(
        (
            topic
            for topic in context.topics.all()
            if topic.record.name not in INTERNAL_TOPICS and caller.allows(Operation.DESCRIBE, topic.record.name)
        ),
        key=lambda topic: topic.record.name,
    )
