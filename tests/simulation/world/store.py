"""The coordination store of the simulation: the Tree of the embedded one, with sessions as in ZooKeeper.

It has one linear history of commits over versioned keys, in the layout and the bytes of a real cluster (keys.py and
values.py of replication/cluster/). A silent session expires, and its registrations are removed. Every commit is
sent to every connection, complete and in order. Messages that a connection had not delivered when it broke never
arrive, as when ZooKeeper moves a session. A request that had arrived may be executed without an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from replication.cluster.keys import (
    CONTROLLER,
    NODES,
    STATES,
    TOPICS,
    block_key,
    block_of,
    deleted_key,
    topic_id_of,
    topic_key,
)
from replication.cluster.values import (
    NodeInfo,
    TopicEntry,
    block_from_bytes,
    block_to_bytes,
    node_from_bytes,
    tombstone_to_bytes,
    topic_from_bytes,
    topic_to_bytes,
)
from replication.coordination.interface import Conflict, Create, Delete, Operation, Put, Versioned
from replication.coordination.tree import Tree
from replication.cores.partition_state import PartitionState, Registration, TopicRules, VersionedState
from tests.simulation.world.network import Network, Pipe
from tests.simulation.world.world import World

STORE = "store"
TOPIC = "t"  # the only topic, and its first id; its partitions share a block
HOLDER, EPOCH = f"{CONTROLLER}/holder", f"{CONTROLLER}/epoch"


def number_of(partition: str) -> int:
    return int(partition.rpartition("-")[2])


def topic_id_in(partition: str) -> str:
    return partition.rpartition("-")[0]


def block_key_of(partition: str) -> str:
    return block_key(block_of(topic_id_in(partition), number_of(partition)))


def topic_of(rules: TopicRules, partitions: int) -> TopicEntry:
    """Return a topic with these rules as its settings."""
    config = {
        "min_insync_replicas": rules.min_insync_replicas,
        "unclean_election": rules.is_unclean_allowed,
        "durability": "group" if rules.is_fsync_demanded else "os",
    }
    return TopicEntry(TOPIC, TOPIC, partitions, 3, config)


@dataclass(frozen=True)
class Snapshot:
    """The state as of one commit, decoded; `keys` has it as it is stored."""

    keys: Mapping[str, Versioned]
    nodes: Mapping[int, NodeInfo]
    registrations: Mapping[int, Registration]
    partitions: Mapping[str, VersionedState]  # of the topic that is not deleted
    rules: TopicRules
    topic_id: str | None
    controller: int | None  # a broker epoch
    controller_epoch: int


@dataclass
class Connection:
    """One TCP connection of a session, both directions."""

    there: Pipe
    back: Pipe
    receive: Callable[..., None]
    session: Session | None = None


@dataclass
class Session:
    node_id: int
    number: int
    timeout_s: float
    contact_at: float
    connection: Connection
    is_expired: bool = False


@dataclass
class Store:
    world: World
    network: Network
    timeout_s: float
    tree: Tree = field(default_factory=Tree)
    sessions: list[Session] = field(default_factory=list)
    history: list[tuple[float, str, VersionedState]] = field(default_factory=list)
    is_down: bool = False
    _decoded: dict[str, tuple[Versioned, Any]] = field(default_factory=dict)
    _sequence: int = 0

    def __post_init__(self) -> None:
        self.snapshot = self._read()
        self._sweep()

    # Called by nodes' connections, through a Pipe.

    def connect(self, connection: Connection, node_id: int, number: int | None) -> None:
        """Begin a session, or continue one on a new connection."""
        if self.is_down:
            return
        session = next((s for s in self.sessions if s.number == number and not s.is_expired), None)
        if number is not None and session is None:
            connection.back.send(connection.receive, "expired")
            return
        if session is None:
            self._sequence += 1
            session = Session(node_id, self._sequence, self.timeout_s, self.world.now, connection)
            self.sessions.append(session)
        session.connection = connection
        session.contact_at = self.world.now
        connection.session = session
        connection.back.send(connection.receive, "connected", session.number, self.snapshot)

    def request(self, connection: Connection, what: str, *args: Any) -> None:
        session = connection.session
        if self.is_down or session is None or session.connection is not connection or session.is_expired:
            connection.there.is_broken = connection.back.is_broken = True
            return
        session.contact_at = self.world.now
        getattr(self, f"_on_{what}")(session, *args)

    def expire(self, session: Session) -> None:
        if session.is_expired:
            return
        session.is_expired = True
        self.sessions.remove(session)
        self.world.count("sessions expired")
        self.world.log(STORE, "session %d of node %d expired", session.number, session.node_id)
        session.connection.back.send(session.connection.receive, "expired")
        if self.tree.ended(session.number):
            self._send_changes()

    # Administration.

    def create(self, entry: TopicEntry, states: Mapping[str, PartitionState]) -> None:
        """Create a topic and its states, in one commit."""
        block = {number_of(name): VersionedState(state, 0) for name, state in states.items()}
        self._commit(
            [
                Create(topic_key(entry.name), topic_to_bytes(entry)),
                Create(block_key(block_of(entry.topic_id, 0)), block_to_bytes(block)),
            ],
            session=0,
        )

    def delete(self) -> None:
        """Delete the topic: its entry for a tombstone, then its states, as replication/cluster/topics.py does."""
        topic_id, there = self.topic().topic_id, self.snapshot.keys
        tombstone = tombstone_to_bytes(TOPIC, 0)
        self._commit(
            [Delete(topic_key(TOPIC), there[topic_key(TOPIC)].version), Create(deleted_key(topic_id), tombstone)],
            session=0,
        )
        self.world.after(0.2 * self.world.random.random(), self._remove_states, block_key(block_of(topic_id, 0)))

    def _remove_states(self, key: str) -> None:
        self._commit([Delete(key, self.snapshot.keys[key].version)], session=0)

    def alter(self, entry: TopicEntry) -> None:
        key = topic_key(entry.name)
        self._commit([Put(key, topic_to_bytes(entry), self.snapshot.keys[key].version)], session=0)

    def topic(self) -> TopicEntry:
        key = topic_key(TOPIC)
        return topic_from_bytes(key, self.snapshot.keys[key].value)

    def empty(self, *, is_new: bool) -> None:
        """Lose all content while sessions go on. `is_new`: the counting of commits begins again, too."""
        self.world.log(STORE, "is emptied")
        self.tree = Tree(0 if is_new else self.tree.number)
        self._send_changes()

    def was_written(self) -> None:
        """Send all sessions what was written into `tree`."""
        self._send_changes()

    # Requests of a session.

    def _on_ping(self, session: Session, sent_at: float) -> None:
        self._answer(session, "pong", sent_at)

    def _on_commit(self, session: Session, operations: list[Operation], tag: object) -> None:
        """Apply all operations or none; on a conflict answer with the current state, as a later read would."""
        try:
            self._commit(self._demanded(operations), session.number)
        except Conflict as error:
            self.world.count("commits refused")
            self._answer(session, "conflict", tag, str(error), self.snapshot)
        else:
            self._answer(session, "committed", tag, self.snapshot)

    def _demanded(self, operations: list[Operation]) -> list[Operation]:
        return operations

    def _commit(self, operations: list[Operation], session: int) -> None:
        self.tree.apply(self.tree.plan(operations, session))
        self._send_changes()

    def _send_changes(self) -> None:
        before, self.snapshot = self.snapshot, self._read()
        for partition, written in self.snapshot.partitions.items():
            old = before.partitions.get(partition)
            if old != written:
                self._note(partition, old.state if old is not None else written.state, written)
        if self.snapshot.controller_epoch != before.controller_epoch:
            self.world.count("controllers")
        for session in self.sessions:
            self._answer(session, "changed", self.snapshot)

    def _read(self) -> Snapshot:
        keys = {key: entry.seen() for key, entry in self.tree.entries.items()}
        nodes: dict[int, NodeInfo] = {}
        partitions: dict[str, VersionedState] = {}
        rules, topic_id = TopicRules(), None
        for key, seen in keys.items():
            if key.startswith(NODES):
                node = self._once(key, seen, lambda k, s: node_from_bytes(k, s.value, s.created))
                nodes[node.node_id] = node
            elif key.startswith(STATES):
                owner = topic_id_of(key.removeprefix(f"{STATES}/"))
                block = self._once(key, seen, lambda k, s: block_from_bytes(k, s.value))
                if deleted_key(owner) not in keys:
                    partitions |= {f"{owner}-{number}": versioned for number, versioned in block.items()}
            elif key.startswith(TOPICS):
                topic = self._once(key, seen, lambda k, s: topic_from_bytes(k, s.value))
                rules, topic_id = topic.rules, topic.topic_id
        nodes = {node_id: nodes[node_id] for node_id in sorted(nodes)}
        holder, epoch = keys.get(HOLDER), keys.get(EPOCH)
        return Snapshot(
            keys,
            nodes,
            {node_id: node.registration for node_id, node in nodes.items()},
            partitions,
            rules,
            topic_id,
            int(holder.value) if holder is not None else None,
            int(epoch.value) if epoch is not None else 0,
        )

    def _once(self, key: str, seen: Versioned, decode: Callable[[str, Versioned], Any]) -> Any:
        """Decode a value; the result is cached."""
        decoded = self._decoded.get(key)
        if decoded is None or decoded[0] != seen:
            decoded = self._decoded[key] = (seen, decode(key, seen))
        return decoded[1]

    def _note(self, partition: str, before: PartitionState, written: VersionedState) -> None:
        state = written.state
        self.history.append((self.world.now, partition, written))
        if state.leader != before.leader and state.leader is not None:
            self.world.count("elections")
            if before.leader is None and not before.in_sync and not state.unclean_elections > before.unclean_elections:
                self.world.count("elections from eligible")
        self.world.counts["unclean elections"] += state.unclean_elections - before.unclean_elections
        self.world.counts["in-sync shrinks"] += len(state.in_sync) < len(before.in_sync)
        self.world.counts["in-sync expands"] += len(state.in_sync) > len(before.in_sync)
        self.world.log(STORE, "%s v%d %s", partition, written.partition_epoch, _brief(state))

    def _answer(self, session: Session, *message: Any) -> None:
        session.connection.back.send(session.connection.receive, *message)

    def _sweep(self) -> None:
        if not self.is_down:
            for session in list(self.sessions):
                if self.world.now - session.contact_at > session.timeout_s:
                    self.expire(session)
        self.world.after(self.timeout_s / 10, self._sweep)


def _brief(state: PartitionState) -> str:
    leader = state.leader.node_id if state.leader else "-"
    in_sync = [m.node_id for m in state.in_sync]
    eligible = f" eligible={[m.node_id for m in state.eligible]}" if state.eligible else ""
    moving = f" adding={state.adding} removing={state.removing}" if state.adding or state.removing else ""
    return f"leader={leader} epoch={state.leader_epoch} in_sync={in_sync}{eligible}{moving}"
