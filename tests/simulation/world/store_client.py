"""The store half of a life: session, registration, latch, partition states.

Registers, latches and writes as replication/cluster/membership.py, coordination/latch.py and
cluster/partition_state_store.py do, by commits of the same operations on the same keys. The other half is node.py's
Life.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from replication.cluster.keys import CLUSTER, deleted_key, node_key, starts_key
from replication.cluster.registration_state import RegistrationState
from replication.cluster.start_counter import StartCounter, StoredStarts, starts_from_bytes, starts_to_bytes
from replication.cluster.values import NodeInfo, node_to_bytes
from replication.coordination.interface import Check, Create, Delete, Operation, Put
from replication.cores.controller import Controller, Write
from replication.cores.partition_state import Member, PartitionState, Registration, TopicRules, VersionedState
from replication.cores.session import Session, SessionEvent
from tests.simulation.world.blocks import Blocks, StateWrite
from tests.simulation.world.network import Pipe
from tests.simulation.world.repairs import SteppedRepairs
from tests.simulation.world.store import EPOCH, HOLDER, STORE, Connection, Snapshot, block_key_of, topic_id_in

CONTROLLER_TAG = "controller"
REGISTER_TAG = "register"
LATCH_TAG = "latch"
DIRECTORY = "data"


@dataclass(frozen=True)
class Confirming:
    """A request for the store's current state of a partition."""

    partition: str
    then: Callable[[VersionedState], None]


class StoreClient:
    """The store half of `Life`, which inherits it. See the head of the file."""

    node: Any
    registration_state: RegistrationState
    start_counter: StartCounter
    partitions: dict[str, Any]
    repairs: SteppedRepairs

    def begin_session(self) -> None:
        self.registrations: dict[int, Registration] = {}
        self.controller: Controller | None = None
        self.member = Member(self.node.node_id, 0)
        self.is_leaving = False
        self.log_from: dict[str, int] = {}
        self.rules = TopicRules()
        self._blocks = Blocks(self)  # type: ignore[arg-type]
        self._number: int | None = None
        self._connection: Connection | None = None
        self._generation = 0
        self._is_registering = False
        self._timeout_s = self.node.options.session_timeout_s
        self.session = Session(self._timeout_s, self.node.world.now)
        self._connect()

    def commit(self, operations: Sequence[Operation], tag: object) -> None:
        self._ask("commit", list(operations), tag)

    def confirm(self, partition: str, then: Callable[[VersionedState], None]) -> None:
        """Confirm as StateBlocks.confirm does, by a commit that only checks; unanswered if the connection breaks."""
        seen = self.node_snapshot.keys.get(block_key_of(partition))
        if seen is not None:
            self.commit([Check(block_key_of(partition), seen.version)], Confirming(partition, then))

    def ping(self) -> None:
        """Ping as kazoo does: no answer for a third of the timeout means that the connection is dead."""
        now = self.node.world.now
        if now - self._contact_at > self._timeout_s / 3:
            self.session.on(SessionEvent.DISCONNECTED, now)
            self._connect()
        elif self._number is not None:
            self._ask("ping", now)

    def _connect(self) -> None:
        self._generation += 1
        world, network, name = self.node.world, self.node.network, self.node.name
        there, back = Pipe(world, network, name, STORE), Pipe(world, network, STORE, name)
        generation = self._generation

        def receive(what: str, *args: Any) -> None:
            self.run(self._receive, (generation, what, args))  # type: ignore[attr-defined] # later, if it is paused

        connection = Connection(there, back, receive)
        self._connection = connection
        self._contact_at = world.now
        there.send(self.node.store.connect, connection, self.node.node_id, self._number)

    def _receive(self, generation: int, what: str, args: tuple[Any, ...]) -> None:
        if generation == self._generation:
            getattr(self, f"_on_{what}")(*args)

    def _ask(self, what: str, *args: Any) -> None:
        connection = self._connection
        assert connection is not None
        connection.there.send(self.node.store.request, connection, what, *args)

    def _on_pong(self, sent_at: float) -> None:
        self._contact_at = self.node.world.now
        self.session.on(SessionEvent.ANSWERED, sent_at)

    def _on_connected(self, number: int, snapshot: Snapshot) -> None:
        now = self.node.world.now
        self._contact_at = now
        is_new = self._number is None
        self._number = number
        self._blocks.forget()
        self._is_registering = False
        self.node_snapshot = snapshot
        if self._has_lost_topics(snapshot):
            self.refuse_emptied_store()
            return
        if is_new:
            self.session = Session(self._timeout_s, now)
            self.register()
            return
        self.session.on(SessionEvent.ANSWERED, now - self._timeout_s / 3)
        self.register()  # a change of it may have been lost on the old connection
        if self.member.broker_epoch:
            for partition, hosted in self.partitions.items():
                if partition in snapshot.partitions:
                    hosted.on_read_again(snapshot.partitions[partition])
            if self.controller is not None:
                self.controller = Controller(self.controller.controller_epoch)
        self._on_changed(snapshot)

    def distrust(self, partition: str) -> None:
        """Register again as one whose log of this partition is not trusted."""
        self.log_from[partition] = 0
        connection = self._connection
        if connection is not None and connection.session is not None:
            self.node.store.expire(connection.session)

    def _has_lost_topics(self, snapshot: Snapshot) -> bool:
        """True if a topic is gone that nothing has deleted, as replication/cluster/watch.py finds it."""
        gone = [partition for partition in self.partitions if partition not in snapshot.partitions]
        return any(deleted_key(topic_id_in(partition)) not in snapshot.keys for partition in gone)

    def refuse_emptied_store(self) -> None:
        """End the session and keep all data; the next ping tries again."""
        self.node.world.count("sessions ended for an emptied store")
        self._end_session()
        self._generation += 1

    def _on_expired(self) -> None:
        self._end_session()
        self._connect()

    def _end_session(self) -> None:
        self.node.log("session lost")
        self.session.on(SessionEvent.EXPIRED, self.node.world.now)
        self.controller, self._number, self.member = None, None, Member(self.node.node_id, 0)
        for hosted in self.partitions.values():
            hosted.resign()

    # Registration.

    def register(self) -> None:
        """Register this node with its failed partitions; replace the registration of an earlier life."""
        if self._number is None or self._is_registering:
            return
        key, value = node_key(self.node.node_id), self._registration()
        there = self.node_snapshot.keys.get(key)
        is_own = there is not None and self.node_snapshot.nodes[self.node.node_id].nonce == self._nonce
        if there is not None and is_own:
            operations: list[Operation] = [Put(key, value, there.version)] if there.value != value else []
        else:
            gone = [Delete(key, there.version)] if there is not None else []
            counted = self._count_start()
            operations = [counted, *gone, Create(key, self._registration(), is_ephemeral=True)]
        if operations:
            self._is_registering = True
            self.commit(operations, REGISTER_TAG)

    def _count_start(self) -> Operation:
        """Count on the disk, then in the store; an older copy of the disk counts as a new disk."""
        key = starts_key(self.node.node_id)
        there = self.node_snapshot.keys.get(key)
        starts = None if there is None else starts_from_bytes(key, there.value)
        stored = None if starts is None else starts.counters[DIRECTORY]
        if self.start_counter.is_older_than(stored):
            self.node.world.count("disks found to be rolled back")
            self.node.log("its disk is older than the store knows: %s, %s", self.start_counter, stored)
            self.condemn()  # type: ignore[attr-defined]
        elif starts is not None and starts.is_rebuilt:
            self.take_over(self.node_snapshot.keys[CLUSTER].created)  # type: ignore[attr-defined]
        self.save_start_counter(self.start_counter.counted(stored, self._nonce))  # type: ignore[attr-defined]
        newest = StartCounter(self.start_counter.number, self.start_counter.nonces[:1])
        value = starts_to_bytes(StoredStarts(DIRECTORY, {DIRECTORY: newest}))
        return Create(key, value) if there is None else Put(key, value, there.version)

    @property
    def _nonce(self) -> str:
        return f"session-{self._number}"

    def _registration(self) -> bytes:
        offline = frozenset(name for name, hosted in self.partitions.items() if hosted.log.offline)
        offline |= self.repairs.reported
        return node_to_bytes(
            NodeInfo(
                self.node.node_id,
                0,
                f"http://{self.node.node_id}",
                rack=self.node.rack,
                survives_from=self.registration_state.survives_from or 0,
                disk_from=self.registration_state.disk_from or 0,
                is_leaving=self.is_leaving,
                offline=offline,
                nonce=self._nonce,
                log_from=self.log_from,
            )
        )

    # Messages of the store.

    def _on_changed(self, snapshot: Snapshot) -> None:
        self._contact_at = self.node.world.now
        self.node_snapshot = snapshot
        if self._has_lost_topics(snapshot):
            self.refuse_emptied_store()
            return
        registration = snapshot.nodes.get(self.node.node_id)
        if registration is None or registration.nonce != self._nonce:
            self._look_after_own()
            return
        if self.member.broker_epoch != registration.broker_epoch:
            for hosted in self.partitions.values() if self.member.broker_epoch else ():
                hosted.resign()
            self.node.log("registered as broker_epoch %d", registration.broker_epoch)
            self.member = Member(self.node.node_id, registration.broker_epoch)
            self.on_registered(registration.broker_epoch)  # type: ignore[attr-defined]
        self.registrations = dict(snapshot.registrations)
        self.rules = snapshot.rules
        self.on_states(snapshot)  # type: ignore[attr-defined]
        if snapshot.controller is None:
            self._latch(snapshot)
        elif snapshot.controller == self.member.broker_epoch and self.controller is None:
            self._become_controller(snapshot)
        elif self.controller is not None:
            self._control(snapshot)

    def _look_after_own(self) -> None:
        """A late request of an earlier life has replaced this registration: start over with a new session."""
        if self.member.broker_epoch and not self._is_registering:
            self.node.world.count("registrations replaced by a dead life")
            self._on_expired()

    def _on_committed(self, tag: object, snapshot: Snapshot) -> None:
        """Handle the answer to a commit; its changes have arrived before it, as those of every commit."""
        if isinstance(tag, StateWrite):
            self._blocks.on_committed(tag, snapshot)
        elif isinstance(tag, Confirming):
            if tag.partition in snapshot.partitions:
                tag.then(snapshot.partitions[tag.partition])
        elif tag == REGISTER_TAG:
            self._is_registering = False
            self.register()  # it may have changed meanwhile

    def _on_conflict(self, tag: object, why: str, snapshot: Snapshot) -> None:
        self.node_snapshot = snapshot
        if isinstance(tag, StateWrite):
            self._blocks.on_conflict(tag, snapshot)
        elif isinstance(tag, Confirming):
            self.confirm(tag.partition, tag.then)
        elif tag == REGISTER_TAG:
            self._is_registering = False
            self.register()

    # The controller.

    def _latch(self, snapshot: Snapshot) -> None:
        epoch, name = snapshot.keys.get(EPOCH), str(self.member.broker_epoch).encode()
        counted = Create(EPOCH, b"1") if epoch is None else Put(EPOCH, b"%d" % (int(epoch.value) + 1), epoch.version)
        self.commit([Create(HOLDER, name, is_ephemeral=True), counted], LATCH_TAG)

    def _become_controller(self, snapshot: Snapshot) -> None:
        self.node.log("is the controller, epoch %d", snapshot.controller_epoch)
        self.controller = Controller(snapshot.controller_epoch)
        self._control(snapshot)

    def _control(self, snapshot: Snapshot) -> None:
        assert self.controller is not None
        writes = self.controller.on_nodes(snapshot.registrations)
        for partition, versioned in snapshot.partitions.items():
            writes += self.controller.on_partition(partition, versioned, snapshot.rules)
        self.write(writes)

    def write(self, writes: list[Write]) -> None:
        """Write as controller: each write carries the fence of its term."""
        for write in writes:
            fence = write.controller_epoch - 1  # the epoch's key is created with version 1, and each put adds one
            state_write = StateWrite(write.partition, write.partition_epoch, write.state, CONTROLLER_TAG, fence)
            self._blocks.write(state_write, self.node_snapshot)

    def propose(self, partition: str, partition_epoch: int, state: PartitionState) -> None:
        state_write = StateWrite(partition, partition_epoch, state, self.partitions[partition].leader)
        self._blocks.write(state_write, self.node_snapshot)

    def request_move(self, partition: str, state: PartitionState) -> None:
        """Send an administrator's move request to the controller."""
        assert self.controller is not None
        versioned = self.node_snapshot.partitions[partition]
        self.write([Write(partition, state, versioned.partition_epoch, self.controller.controller_epoch)])

    def on_written(self, tag: object, partition: str, versioned: VersionedState) -> None:
        if tag != CONTROLLER_TAG:
            if partition in self.partitions:
                self.partitions[partition].on_confirmed(tag, versioned)
        elif self.controller is not None:
            self.write(self.controller.on_partition(partition, versioned, self.rules))

    def on_rejected(self, tag: object, partition: str, versioned: VersionedState) -> None:
        if tag != CONTROLLER_TAG:
            self.partitions[partition].on_state(versioned)
        elif self.controller is not None:
            self.controller.on_rejected(partition)
            self.write(self.controller.on_partition(partition, versioned, self.rules))
