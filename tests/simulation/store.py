"""The coordination store of the simulation: ZooKeeper as its clients see it.

One linear history of commits, each with a greater number (zxid). Sessions that end with silence, and their
registrations with them; a latch for the controller; compare-and-set of partition states, checked against the controller
epoch when a controller writes. Every commit is told to every connection, whole and in order. What a connection had not
delivered when it broke never arrives, as after ZooKeeper has moved a session; what had arrived may be done without the
caller ever knowing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from replication.cores.partition_state import PartitionState, Registration, VersionedState
from tests.simulation.network import Network, Pipe
from tests.simulation.world import World

STORE = "store"


@dataclass(frozen=True)
class Snapshot:
    """What everybody may read, as of one commit."""

    zxid: int
    registrations: dict[int, Registration]
    partitions: dict[str, VersionedState]
    controller: int | None
    controller_epoch: int


@dataclass
class Connection:
    """One TCP connection of a session, both ways."""

    there: Pipe
    back: Pipe
    receive: Callable[..., None]
    session: Session | None = None


@dataclass
class Session:
    node_id: int
    number: int
    timeout_s: float
    heard_at: float
    connection: Connection
    is_expired: bool = False
    incarnation: int | None = None


@dataclass
class Store:
    world: World
    network: Network
    timeout_s: float
    snapshot: Snapshot = field(default_factory=lambda: Snapshot(0, {}, {}, None, 0))
    sessions: list[Session] = field(default_factory=list)
    controller_session: Session | None = None
    history: list[tuple[float, str, VersionedState]] = field(default_factory=list)
    is_down: bool = False
    _sequence: int = 0

    def __post_init__(self) -> None:
        self._sweep()

    # Called by nodes' connections, through a Pipe.

    def connect(self, connection: Connection, node_id: int, number: int | None) -> None:
        """Begin a session, or go on with one on a new connection."""
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
        session.heard_at = self.world.now
        connection.session = session
        connection.back.send(connection.receive, "connected", session.number, self.snapshot)

    def request(self, connection: Connection, what: str, *args: Any) -> None:
        session = connection.session
        if self.is_down or session is None or session.connection is not connection or session.is_expired:
            connection.there.is_broken = connection.back.is_broken = True
            return
        session.heard_at = self.world.now
        getattr(self, f"_on_{what}")(session, *args)

    def expire(self, session: Session) -> None:
        if session.is_expired:
            return
        session.is_expired = True
        self.sessions.remove(session)
        self.world.count("sessions expired")
        self.world.tell(STORE, "session %d of node %d expired", session.number, session.node_id)
        session.connection.back.send(session.connection.receive, "expired")
        registrations = {n: r for n, r in self.snapshot.registrations.items() if r.incarnation != session.incarnation}
        changes: dict[str, Any] = {"registrations": registrations}
        if self.controller_session is session:
            self.controller_session = None
            changes["controller"] = None
        self._commit(**changes)

    def create(self, partition: str, state: PartitionState) -> None:
        self._commit(partitions={**self.snapshot.partitions, partition: VersionedState(state, 0)})
        self.history.append((self.world.now, partition, VersionedState(state, 0)))

    # Requests of a session.

    def _on_ping(self, session: Session, sent_at: float) -> None:
        self._answer(session, "pong", sent_at)

    def _on_register(self, session: Session, registration: Registration) -> None:
        """An older session of the node is ended by its new life: `penstock` deletes its leftovers."""
        for old in [s for s in self.sessions if s.node_id == session.node_id and s is not session]:
            self.expire(old)
        session.incarnation = session.incarnation or self.snapshot.zxid + 1
        own = session.incarnation
        found = replace(
            registration,
            incarnation=own,
            survives_from=registration.survives_from or own,
            disk_from=registration.disk_from or own,
        )
        self._commit(registrations={**self.snapshot.registrations, session.node_id: found})
        self._answer(session, "registered", own)

    def _on_latch(self, session: Session) -> None:
        if self.controller_session is None:
            self.controller_session = session
            self.world.count("controllers")
            self._commit(controller=session.incarnation, controller_epoch=self.snapshot.controller_epoch + 1)
            self._answer(session, "latched", self.snapshot.controller_epoch)

    def _on_cas(
        self,
        session: Session,
        partition: str,
        partition_epoch: int,
        state: PartitionState,
        controller_epoch: int | None,
        tag: object,
    ) -> None:
        found = self.snapshot.partitions[partition]
        is_fenced = controller_epoch is not None and controller_epoch != self.snapshot.controller_epoch
        if is_fenced or not self._may_replace(found, partition_epoch):
            self.world.count("writes refused")
            self._answer(session, "refused", tag, partition, found)
            return
        written = VersionedState(state, found.partition_epoch + 1)
        self._note(partition, found.state, written)
        self._commit(partitions={**self.snapshot.partitions, partition: written})
        self._answer(session, "written", tag, partition, written)

    def _may_replace(self, found: VersionedState, partition_epoch: int) -> bool:
        return found.partition_epoch == partition_epoch

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
        self.world.tell(STORE, "%s v%d %s", partition, written.partition_epoch, _brief(state))

    def _answer(self, session: Session, *message: Any) -> None:
        session.connection.back.send(session.connection.receive, *message)

    def _commit(self, **changes: Any) -> None:
        self.snapshot = replace(self.snapshot, zxid=self.snapshot.zxid + 1, **changes)
        for session in self.sessions:
            self._answer(session, "changed", self.snapshot)

    def _sweep(self) -> None:
        if not self.is_down:
            for session in list(self.sessions):
                if self.world.now - session.heard_at > session.timeout_s:
                    self.expire(session)
        self.world.after(self.timeout_s / 10, self._sweep)


def _brief(state: PartitionState) -> str:
    leader = state.leader.node_id if state.leader else "-"
    in_sync = [m.node_id for m in state.in_sync]
    eligible = f" eligible={[m.node_id for m in state.eligible]}" if state.eligible else ""
    moving = f" adding={state.adding} removing={state.removing}" if state.adding or state.removing else ""
    return f"leader={leader} epoch={state.leader_epoch} in_sync={in_sync}{eligible}{moving}"
