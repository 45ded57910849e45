"""A simulated node: a machine with a disk, and the lives of the process on it.

A life begins with the engine's own recovery and ends by a kill, a power loss or the loss of the disk. It holds the
session with the store, the partitions, and the controller if it is elected. A life that is over hears nothing more; a
paused one hears everything late.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from engine.data_directory import open_data_directory
from engine.settings import TopicSettings
from replication.cores.controller import Controller, Write
from replication.cores.fetch import FetchAnswer, FollowerFetch
from replication.cores.partition_state import Member, PartitionState, Registration, TopicRules, VersionedState
from replication.cores.session import Session, SessionEvent
from replication.vouching import load_vouching, save_vouching
from tests.simulation.bucket import Bucket
from tests.simulation.hosted import Hosted, Reply
from tests.simulation.network import Network, Pipe
from tests.simulation.replica_log import ReplicaLog
from tests.simulation.sim_disk import SimDisk
from tests.simulation.store import STORE, Connection, Snapshot, Store
from tests.simulation.world import World

DATA_DIR = "/data"
THREADS_MAX = 4  # of all nodes, in a wait at once
FOREVER_MS = 1 << 40  # producers are forgotten by wall time, so a clock that jumps by a day may forget them all


@dataclass(frozen=True)
class NodeOptions:
    lag_s_max: float = 1.0
    session_timeout_s: float = 1.5
    linger_s: float = 0.002
    segment_bytes: int = 700
    retention_bytes: int | None = None
    local_retention_bytes: int | None = None


class NodeClock:
    """Wall time may be off, and jump; monotonic time is the world's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.offset_ms = 0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self._world.now * 1000) + self.offset_ms

    def monotonic(self) -> float:
        return self._world.now


class ProcessEnded(BaseException):
    """The process is gone, and its threads with it."""


class Node:
    """The machine."""

    def __init__(
        self,
        node_id: int,
        world: World,
        network: Network,
        store: Store,
        bucket: Bucket,
        rules: TopicRules,
        options: NodeOptions,
        when_watermark: Callable[[str, int, int, int], None],
        when_cut_below: Callable[[int, str, int, int], None],
        when_deleted: Callable[[str, int], None],
    ) -> None:
        self.node_id = node_id
        self.name = f"node {node_id}"
        self.world, self.network, self.store, self.bucket = world, network, store, bucket
        self.rules, self.options = rules, options
        self.clock = NodeClock(world)
        self.disk = SimDisk(self.clock)
        self.life: Life | None = None
        self.peers: dict[int, Node] = {}
        self.slow_until = 0.0
        self.paused_until = 0.0
        self._when_watermark = when_watermark
        self._when_cut_below = when_cut_below
        self.deleted = when_deleted

    def start(self) -> None:
        if self.life is None:
            self.life = Life(self)
            try:
                self.life.begin()
            except OSError as error:  # the process ends, and whoever looks after it starts it again
                self.tell("cannot start: %s", error)
                self.kill()
                self.world.after(0.5, self.start)

    def kill(self) -> None:
        if self.life is not None:
            self.tell("killed")
            self.life, self.disk = None, self.disk.after_kill()
            self.paused_until = 0.0

    def lose_power(self) -> None:
        self.tell("loses power")
        self.world.count("power losses")
        self.life, self.disk = None, self.disk.after_power_loss(self.world.random)
        self.paused_until = 0.0

    def lose_disk(self) -> None:
        self.tell("loses its disk")
        self.world.count("disks lost")
        self.life, self.disk = None, SimDisk(self.clock, boots=self.disk.boots + 1)

    def pause(self, seconds: float) -> None:
        self.tell("pauses for %.1f s", seconds)
        self.paused_until = self.world.now + seconds

    def sync_s(self) -> float:
        """How long this fsync takes."""
        if self.world.now < self.slow_until:
            self.world.count("slow syncs")
            return 0.3 + 2.0 * self.world.random.random()
        return 0.001 + 0.004 * self.world.random.random()

    def hosted(self, partition: str) -> Hosted | None:
        return self.life.partitions.get(partition) if self.life else None

    def tell(self, text: str, *args: Any) -> None:
        self.world.tell(self.name, text, *args)

    def saw_watermark(self, partition: str, leader_epoch: int, position: int) -> None:
        self._when_watermark(partition, self.node_id, leader_epoch, position)

    def truncated_below_watermark(self, partition: str, to: int, watermark: int) -> None:
        self._when_cut_below(self.node_id, partition, to, watermark)

    def deliver(self, call: str, *args: Any) -> None:
        """A request from the network; nobody answers for a process that is not there."""
        if self.life is not None:
            self.life.run(getattr(self.life, call), args)


class Life:
    """The process."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.world, self.network = node.world, node.network
        self.node_id, self.options, self.rules, self.clock = node.node_id, node.options, node.rules, node.clock
        self.partitions: dict[str, Hosted] = {}
        self.registrations: dict[int, Registration] = {}
        self.controller: Controller | None = None
        self.member = Member(self.node_id, 0)
        self.is_leaving = False
        self._number: int | None = None
        self._connection: Connection | None = None
        self._generation = 0

    def begin(self) -> None:
        """Recover what the disk has, then look for the store."""
        disk = self.node.disk
        boot_id = f"boot {disk.boots}"
        self.data = open_data_directory(
            disk, DATA_DIR, node_id=self.node_id, cluster_id="sim", boot_id=boot_id, new_id=lambda: "sim"
        )
        self.vouching = load_vouching(disk, DATA_DIR, self.data.last_stop)
        self._points = dict(self.data.load_checkpoints())
        self.tell("starts (%s)", self.data.last_stop.value)
        for name in disk.listdir(f"{DATA_DIR}/topics"):
            self._host(name)
        self.data.note_recovered()
        self.session = Session(self.options.session_timeout_s, self.world.now)
        self._connect()
        self._tick()

    def tell(self, text: str, *args: Any) -> None:
        self.node.tell(text, *args)

    def _host(self, name: str) -> None:
        settings = TopicSettings(
            segment_bytes=self.options.segment_bytes,
            producer_expiry_ms=FOREVER_MS,
            retention_ms=None,
            retention_bytes=self.options.retention_bytes,
            local_retention_ms=None,
            local_retention_bytes=self.options.local_retention_bytes,
        )
        log = ReplicaLog(self.data, name, settings, self.clock.now_ms(), self._points)
        self.world.counts["holes after power losses"] += log.report.holes
        self.partitions[name] = Hosted(self, name, log)
        self.tell("%s", repr(log))

    # Time.

    def after(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        self.world.after(delay_s, self.run, call, args)

    def run(self, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Now, or when the process goes on; never in another life."""
        if self.node.life is not self:
            return
        if self.node.paused_until > self.world.now:
            self.world.after(self.node.paused_until - self.world.now, self.run, call, args)
        else:
            with suppress(ProcessEnded):
                call(*args)

    def wait_in_thread(self, seconds: float) -> None:
        """A thread of this process waits, and everything else goes on, this process too. Raises ProcessEnded.

        Threads wait within each other: who began last goes on first. Deep down nobody waits any more.
        """
        if self.world.depth < THREADS_MAX:
            self.world.run_nested(seconds)
            while self.node.life is self and self.node.paused_until > self.world.now:
                self.world.run_nested(self.node.paused_until - self.world.now)
        if self.node.life is not self:
            raise ProcessEnded

    def _tick(self) -> None:
        for hosted in self.partitions.values():
            hosted.tick()
        if self.controller is not None:
            self._write(self.controller.moves_to_preferred() if self.world.random.random() < 0.1 else [])
        for hosted in self.partitions.values():
            if self.world.random.random() < 0.2 and not hosted.log.offline:
                hosted.log.checkpoint()
        self._ping()
        self.after(self.options.session_timeout_s / 5, self._tick)

    # The store.

    def _connect(self) -> None:
        self._generation += 1
        name = self.node.name
        there = Pipe(self.world, self.network, name, STORE)
        back = Pipe(self.world, self.network, STORE, name)
        generation = self._generation

        def receive(what: str, *args: Any) -> None:
            if generation == self._generation:
                self.run(getattr(self, f"_on_{what}"), args)

        connection = Connection(there, back, receive)
        self._connection = connection
        self._heard_at = self.world.now
        there.send(self.node.store.connect, connection, self.node_id, self._number)

    def _ask(self, what: str, *args: Any) -> None:
        connection = self._connection
        assert connection is not None
        connection.there.send(self.node.store.request, connection, what, *args)

    def _ping(self) -> None:
        """As kazoo: no answer for a third of the timeout means that the connection is dead."""
        silence = self.world.now - self._heard_at
        if silence > self.options.session_timeout_s / 3:
            self.session.on(SessionEvent.DISCONNECTED, self.world.now)
            self._connect()
        elif self._number is not None:
            self._ask("ping", self.world.now)

    def _on_pong(self, sent_at: float) -> None:
        self._heard_at = self.world.now
        self.session.on(SessionEvent.ANSWERED, sent_at)

    def _on_connected(self, number: int, snapshot: Snapshot) -> None:
        self._heard_at = self.world.now
        is_new = self._number is None
        self._number = number
        if is_new:
            self.session = Session(self.options.session_timeout_s, self.world.now)
            self.register()
            return
        self.session.on(SessionEvent.ANSWERED, self.world.now - self.options.session_timeout_s / 3)
        if self.member.incarnation not in [r.incarnation for r in snapshot.registrations.values()]:
            self.register()  # it was lost on the old connection, or is there twice, which changes nothing
            return
        for partition, hosted in self.partitions.items():
            hosted.on_read_again(snapshot.partitions[partition])
        if self.controller is not None:
            self.controller = Controller(self.controller.controller_epoch)
        self._on_changed(snapshot)

    def _on_expired(self) -> None:
        self.tell("session lost")
        self.session.on(SessionEvent.EXPIRED, self.world.now)
        self.controller, self._number, self.member = None, None, Member(self.node_id, 0)
        for hosted in self.partitions.values():
            hosted.resign()
        self._connect()

    def register(self) -> None:
        """Say who we are, and of which partitions the disk has failed us."""
        if self._number is None:
            return
        offline = frozenset(name for name, hosted in self.partitions.items() if hosted.log.offline)
        vouching = self.vouching
        registration = Registration(
            0, vouching.survives_from or 0, vouching.disk_from or 0, "", self.is_leaving, offline
        )
        self._ask("register", registration)

    def _on_registered(self, incarnation: int) -> None:
        if self.member.incarnation == incarnation:
            return
        self.tell("registered as incarnation %d", incarnation)
        self.vouching = self.vouching.registered(incarnation)
        save_vouching(self.node.disk, DATA_DIR, self.vouching)
        self.member = Member(self.node_id, incarnation)
        self._on_changed(self.node_snapshot)

    def _on_changed(self, snapshot: Snapshot) -> None:
        self._heard_at = self.world.now
        self.node_snapshot = snapshot
        if self.member.incarnation == 0:
            return
        self.registrations = snapshot.registrations
        for partition in snapshot.partitions:
            if partition not in self.partitions:
                self._host(partition)
        for partition, hosted in self.partitions.items():
            if hosted.leader is not None:
                hosted.leader.on_nodes(self.registrations)
            hosted.on_state(snapshot.partitions[partition])
        if snapshot.controller is None:
            self._ask("latch")
        elif snapshot.controller == self.member.incarnation and self.controller is None:
            self._on_latched(snapshot.controller_epoch)  # the answer was lost, the latch is ours
        elif self.controller is not None:
            self._control(snapshot)

    def _on_latched(self, controller_epoch: int) -> None:
        self.tell("is the controller, epoch %d", controller_epoch)
        self.controller = Controller(controller_epoch)
        self._control(self.node_snapshot)

    def _control(self, snapshot: Snapshot) -> None:
        assert self.controller is not None
        writes = self.controller.on_nodes(snapshot.registrations)
        for partition, found in snapshot.partitions.items():
            writes += self.controller.on_partition(partition, found, self.rules)
        self._write(writes)

    def _write(self, writes: list[Write]) -> None:
        for write in writes:
            self._ask("cas", write.partition, write.partition_epoch, write.state, write.controller_epoch, "controller")

    def propose(self, partition: str, partition_epoch: int, state: PartitionState) -> None:
        self._ask("cas", partition, partition_epoch, state, None, self.partitions[partition].leader)

    def _on_written(self, tag: object, partition: str, found: VersionedState) -> None:
        hosted = self.partitions[partition]
        if tag == "controller":
            if self.controller is not None:
                self._write(self.controller.on_partition(partition, found, self.rules))
        else:
            hosted.on_confirmed(tag, found)

    def _on_refused(self, tag: object, partition: str, found: VersionedState) -> None:
        if tag == "controller":
            if self.controller is not None:
                self.controller.on_refused(partition)
                self._write(self.controller.on_partition(partition, found, self.rules))
        else:
            self.partitions[partition].on_refused(found)

    # Other nodes and clients.

    def send_fetch(self, leader: int, partition: str, fetch: FollowerFetch, asked: int) -> None:
        peer = self.node.peers[leader]

        def reply(answer: FetchAnswer, data: bytes) -> None:
            self.network.send(
                peer.name, self.node.name, self.run, self._fetched, (partition, fetch, answer, data, asked)
            )

        self.network.send(self.node.name, peer.name, peer.deliver, "on_fetch", partition, fetch, reply)

    def _fetched(self, partition: str, fetch: FollowerFetch, answer: FetchAnswer, data: bytes, asked: int) -> None:
        self.partitions[partition].following.on_answer(fetch, answer, data, asked)

    def on_fetch(self, partition: str, fetch: FollowerFetch, reply: Reply) -> None:
        if partition in self.partitions:
            self.partitions[partition].on_fetch(fetch, reply)

    def on_produce(self, partition: str, batch: bytearray, count: int, acks: str, reply: Reply) -> None:
        if partition in self.partitions:
            self.partitions[partition].produce(batch, count, acks, reply)
        else:
            reply("fail", "not_leader")

    def on_read(self, partition: str, offset: int, reply: Reply) -> None:
        if partition in self.partitions:
            self.partitions[partition].read(offset, reply)

    def on_latest(self, partition: str, reply: Reply) -> None:
        if partition in self.partitions:
            self.partitions[partition].latest(reply)
