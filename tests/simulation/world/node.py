"""A simulated node: a machine with a disk, and the successive processes ("lives") on it.

A life starts with the engine's own recovery. It ends by a kill, a power loss or the loss of the disk. It holds the
session with the store, the partitions, and the controller if it is elected. A life that has ended receives nothing
more; a paused one receives everything late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from engine.directory.data_directory import open_data_directory
from engine.errors import UnknownTopic
from engine.format.paths import swap_base_of
from engine.topic_settings import TopicSettings
from replication.cluster.registration_state import load_registration_state, save_registration_state
from replication.cluster.start_counter import StartCounter, load_start_counter, save_start_counter
from replication.cores.fetch import FetchAnswer, FollowerFetch
from tests.simulation.groups.hosting import Coordinators, Decide
from tests.simulation.world.bucket import Bucket
from tests.simulation.world.compaction import Compaction, Swapped, TableOptions
from tests.simulation.world.hosted import Hosted, Reply
from tests.simulation.world.network import Network
from tests.simulation.world.repairs import SteppedRepairs
from tests.simulation.world.replica_log import ReplicaLog
from tests.simulation.world.sim_disk import SimDisk
from tests.simulation.world.store import Snapshot, Store
from tests.simulation.world.store_client import StoreClient
from tests.simulation.world.world import World

DATA_DIR = "/data"
CHECKPOINT_LOST = 0.8  # the file is a hint: a node that knows little of what was committed must be safe too
THREADS_MAX = 4  # limit of all nodes' threads that wait at once


@dataclass(frozen=True)
class NodeOptions:
    lag_s_max: float = 1.0
    session_timeout_s: float = 1.5
    linger_s: float = 0.002
    segment_bytes: int = 700
    retention_bytes: int | None = None
    local_retention_bytes: int | None = None
    reads_ahead: bool = False
    table: TableOptions | None = None


class NodeClock:
    """The clocks of a node: wall time may be wrong and may jump; monotonic time is the world's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.offset_ms = 0
        self._began_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self._world.now * 1000) + self.offset_ms

    def monotonic(self) -> float:
        return self._world.now

    def steady_ms(self) -> int:
        return self._began_ms + int(self._world.now * 1000)

    def restart(self) -> None:
        """Start the monotonic clock of a new process at the current wall time."""
        self._began_ms = self.now_ms() - int(self._world.now * 1000)


class ProcessEnded(BaseException):
    """The process has ended, and its threads with it."""


class Node:
    """The machine."""

    def __init__(
        self,
        node_id: int,
        world: World,
        network: Network,
        store: Store,
        bucket: Bucket,
        rack: str,
        options: NodeOptions,
        on_watermark: Callable[[str, int, int, int], None],
        on_truncate_below: Callable[[int, str, int, int], None],
        on_delete: Callable[[str, int], None],
    ) -> None:
        self.node_id = node_id
        self.name = f"node {node_id}"
        self.world, self.network, self.store, self.bucket = world, network, store, bucket
        self.rack, self.options = rack, options
        self.clock = NodeClock(world)
        self.disk = SimDisk(self.clock)
        self.life: Life | None = None
        self.copied: SimDisk | None = None
        self.copied_at = 0  # the start counter of the copy
        self.high_watermark_checkpoint: dict[str, int] = {}  # the file high-watermarks, which a power loss may take
        self.peers: dict[int, Node] = {}
        self.slow_until = 0.0
        self.paused_until = 0.0
        self._on_watermark = on_watermark
        self._on_truncate_below = on_truncate_below
        self.deleted = on_delete
        self.swapped: Callable[[Swapped], None] = lambda _: None
        self.begins_again: Callable[[int, str], None] = lambda *_: None  # an empty log: of one partition, or all
        self.works: list[Any] = []  # of all its processes, see repairs.py
        self.crashes_in_swap: Callable[[], None] = lambda: None

    def start(self) -> None:
        if self.life is None:
            self.clock.restart()
            self.life = Life(self)
            try:
                self.life.begin()
            except OSError as error:  # the process ends, and its supervisor restarts it
                self.log("cannot start: %s", error)
                self.kill()
                self.world.after(0.5, self.start)

    def kill(self) -> None:
        if self.life is not None:
            self.log("killed")
            if Random(f"{self.node_id} at {self.world.now}").random() < CHECKPOINT_LOST:
                self.high_watermark_checkpoint.clear()
            self.life, self.disk = None, self.disk.after_kill()
            self.paused_until = 0.0

    def lose_power(self) -> None:
        self.log("loses power")
        self.world.count("power losses")
        self.life, self.disk = None, self.disk.after_power_loss(self.world.random)
        self.high_watermark_checkpoint.clear()
        self.paused_until = 0.0

    def copy_disk(self) -> None:
        """Take a snapshot of the disk, as of a volume, whether the process runs or not."""
        self.copied = self.disk.copied()
        self.copied_at = load_start_counter(self.disk, DATA_DIR).number
        self.log("its disk is copied")

    def roll_back(self) -> None:
        """End the process, and put the copy back in the place of the disk."""
        assert self.copied is not None
        self.log("its disk is rolled back")
        self.world.count("disks rolled back")
        self.begins_again(self.node_id, "")
        self.life, self.disk, self.copied = None, self.copied.rebooted(self.disk.boots + 1), None
        self.high_watermark_checkpoint.clear()
        self.paused_until = 0.0

    def lose_disk(self) -> None:
        self.log("loses its disk")
        self.world.count("disks lost")
        self.begins_again(self.node_id, "")
        self.high_watermark_checkpoint.clear()
        self.life, self.disk = None, SimDisk(self.clock, boots=self.disk.boots + 1)

    def pause(self, seconds: float) -> None:
        self.log("pauses for %.1f s", seconds)
        self.paused_until = self.world.now + seconds

    def resume(self) -> None:
        self.paused_until = 0.0
        if self.life is not None:
            self.life.resume()

    def keep(self, retention_bytes: int | None, local_retention_bytes: int | None) -> None:
        """Change settings of the topic, for hosted and future partitions."""
        self.options = replace(
            self.options, retention_bytes=retention_bytes, local_retention_bytes=local_retention_bytes
        )
        if self.life is not None:
            self.life.options = self.options
            for hosted in self.life.partitions.values():
                hosted.log.settings = self.life.settings()

    def sync_s(self) -> float:
        """Return the duration of this fsync."""
        if self.world.now < self.slow_until:
            self.world.count("slow syncs")
            return 0.3 + 2.0 * self.world.random.random()
        return 0.001 + 0.004 * self.world.random.random()

    def hosted(self, partition: str) -> Hosted | None:
        return self.life.partitions.get(partition) if self.life else None

    def log(self, text: str, *args: Any) -> None:
        self.world.log(self.name, text, *args)

    def saw_watermark(self, partition: str, leader_epoch: int, position: int) -> None:
        self._on_watermark(partition, self.node_id, leader_epoch, position)

    def note_truncation_below_watermark(self, partition: str, to: int, watermark: int) -> None:
        self._on_truncate_below(self.node_id, partition, to, watermark)

    def deliver(self, call: str, *args: Any) -> None:
        """Deliver a request from the network; without a process there is no answer."""
        if self.life is not None:
            self.life.run(getattr(self.life, call), args)


class Life(StoreClient):
    """The process."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.world, self.network = node.world, node.network
        self.node_id, self.options, self.clock = node.node_id, node.options, node.clock
        self.partitions: dict[str, Hosted] = {}
        self.coordinators = Coordinators(self)
        self.repairs = SteppedRepairs(self)
        self._late: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()  # arrived during a pause

    def begin(self) -> None:
        """Recover the disk, then connect to the store."""
        disk = self.node.disk
        boot_id = f"boot {disk.boots}"
        self.data = open_data_directory(
            disk, DATA_DIR, node_id=self.node_id, cluster_id="sim", boot_id=boot_id, new_id=lambda: "sim"
        )
        self.registration_state = load_registration_state(disk, DATA_DIR, self.data.last_shutdown)
        self.start_counter = load_start_counter(disk, DATA_DIR)
        self._points = dict(self.data.load_checkpoints())
        self.log("starts (%s)", self.data.last_shutdown.value)
        for name in disk.listdir(f"{DATA_DIR}/topics"):
            self._host(name)
        self.data.mark_recovered()
        self.begin_session()
        self._tick()

    def log(self, text: str, *args: Any) -> None:
        self.node.log(text, *args)

    def _host(self, name: str) -> None:
        files = self.node.disk.listdir(f"{DATA_DIR}/topics/{name}")
        self.world.counts["swaps completed at a start"] += sum(swap_base_of(file) is not None for file in files)
        log = ReplicaLog(self.data, name, self.settings(), self.clock.steady_ms(), self._points)
        self.world.counts["holes after power losses"] += log.report.mid_log_truncations
        self.partitions[name] = hosted = Hosted(self, name, log)
        hint = min(self.node.high_watermark_checkpoint.get(name, 0), log.log.log_end)
        hosted.high_watermark = max(hosted.high_watermark, hint)
        if self.options.table is not None:
            Compaction(hosted, self.options.table)
        self.log("%s", repr(log))

    def settings(self) -> TopicSettings:
        settings = TopicSettings(
            segment_bytes=self.options.segment_bytes,
            retention_ms=None,
            retention_bytes=self.options.retention_bytes,
            local_retention_ms=None,
            local_retention_bytes=self.options.local_retention_bytes,
        )
        return settings if self.options.table is None else self.options.table.settings(settings)

    # Time.

    def after(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        self.world.after(delay_s, self.run, call, args)

    def run(self, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Run the call now, or after a pause in arrival order; never in another life."""
        if self.node.life is not self:
            return
        if self._late or self.node.paused_until > self.world.now:
            self._late.append((call, args))
            if len(self._late) == 1:
                self.world.after(self.node.paused_until - self.world.now, self.resume)
            return
        self._run(call, args)

    def resume(self) -> None:
        """Run what arrived during a pause, in order: a connection is a stream."""
        while self._late and self.node.life is self:
            if self.node.paused_until > self.world.now:
                self.world.after(self.node.paused_until - self.world.now, self.resume)
                return
            self._run(*self._late.popleft())

    def _run(self, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        with suppress(ProcessEnded):
            call(*args)

    def wait_in_thread(self, seconds: float) -> None:
        """Make a thread of this process wait while everything else continues, this process too. Raises ProcessEnded.

        Waits are nested: the last one to begin ends first. Beyond a depth limit the wait is skipped.
        """
        if seconds and self.world.depth < THREADS_MAX:
            self.world.run_nested(seconds)
            while self.node.life is self and self.node.paused_until > self.world.now:
                self.world.run_nested(self.node.paused_until - self.world.now)
        if self.node.life is not self:
            raise ProcessEnded

    def _tick(self) -> None:
        for hosted in self.partitions.values():
            hosted.tick()
            hosted.log.validator.expire(self.clock.steady_ms(), hosted.log.settings)
            if self.node.disk.has_bad_sectors:
                self.repairs.scrub(hosted)
        if self.controller is not None:
            self.write(self.controller.moves_to_preferred() if self.world.random.random() < 0.1 else [])
        for hosted in self.partitions.values():
            if self.world.random.random() < 0.2 and not hosted.log.offline:
                hosted.log.checkpoint()
                self.node.high_watermark_checkpoint[hosted.partition] = hosted.high_watermark
        self.coordinators.sweep()
        self.ping()
        self.after(self.options.session_timeout_s / 5, self._tick)

    # Messages of the store.

    def condemn(self) -> None:
        self.registration_state = replace(self.registration_state, disk_from=None, survives_from=None)
        save_registration_state(self.node.disk, DATA_DIR, self.registration_state)

    def take_over(self, since: int) -> None:
        """Take over what a rebuild of the store judged, as membership.py does."""
        survives_from = None if self.registration_state.survives_from is None else since
        self.registration_state = replace(self.registration_state, disk_from=since, survives_from=survives_from)
        save_registration_state(self.node.disk, DATA_DIR, self.registration_state)

    def save_start_counter(self, counter: StartCounter) -> None:
        self.start_counter = counter
        save_start_counter(self.node.disk, DATA_DIR, counter)

    def on_registered(self, broker_epoch: int) -> None:
        self.log_from = {name: epoch or broker_epoch for name, epoch in self.log_from.items()}
        self.registration_state = self.registration_state.registered(broker_epoch)
        save_registration_state(self.node.disk, DATA_DIR, self.registration_state)

    def on_states(self, snapshot: Snapshot) -> None:
        for partition in [name for name in self.partitions if name not in snapshot.partitions]:
            self._delete(partition)
        for partition in snapshot.partitions:
            if partition not in self.partitions:
                self._host(partition)
        for partition, hosted in self.partitions.items():
            if hosted.leader is not None:
                hosted.leader.rules = self.rules
                hosted.leader.on_nodes(self.registrations)
            hosted.on_state(snapshot.partitions[partition])

    def _delete(self, partition: str) -> None:
        """Delete a partition of a topic that has a tombstone."""
        hosted, path = self.partitions.pop(partition), f"{DATA_DIR}/topics/{partition}"
        hosted.resign()
        hosted.log.offline = UnknownTopic(f"{partition} is deleted")
        if self.controller is not None:
            self.controller.on_deleted(partition)
        self._points.pop(partition, None)
        self.node.high_watermark_checkpoint.pop(partition, None)
        self._remove(path)
        self.log("%s: deleted", partition)
        self.world.count("partitions deleted")

    def _remove(self, path: str) -> None:
        """Remove a directory: it has another name, durably, before the first file goes."""
        disk, gone = self.node.disk, path.replace("/topics/", "/deleted-")
        disk.rename(path, gone)
        disk.fsync_dir(f"{DATA_DIR}/topics")
        disk.fsync_dir(DATA_DIR)
        for file in disk.listdir(gone):
            disk.unlink(f"{gone}/{file}")
        disk.rmdir(gone)

    # Requests of other nodes and clients.

    def send_fetch(self, leader: int, partition: str, fetch: FollowerFetch, asked: int) -> None:
        def on_answer(answer: FetchAnswer, data: bytes) -> None:
            if partition in self.partitions:
                self.partitions[partition].following.on_answer(fetch, answer, data, asked)

        self.ask_leader(leader, partition, fetch, on_answer)

    def ask_leader(self, leader: int, partition: str, fetch: FollowerFetch, on_answer: Reply) -> None:
        peer = self.node.peers[leader]

        def reply(answer: FetchAnswer, data: bytes) -> None:
            self.network.send(peer.name, self.node.name, self.run, on_answer, (answer, data))

        self.network.send(self.node.name, peer.name, peer.deliver, "on_fetch", partition, fetch, reply)

    def on_fetch(self, partition: str, fetch: FollowerFetch, reply: Reply) -> None:
        if partition in self.partitions:
            self.partitions[partition].on_fetch(fetch, reply)

    def on_named(self, call: str, number: int, topic_id: str | None, *args: Any) -> None:
        """Serve a request that names the topic, and perhaps the id that the client knows. Answers begin with the id."""
        *rest, reply = args
        snapshot: Snapshot | None = getattr(self, "node_snapshot", None)
        topic_id_here = None if snapshot is None else snapshot.topic_id
        if topic_id_here is None:
            reply("", "fail", "unknown_topic")
        elif self.is_other_topic(topic_id, topic_id_here):
            reply(topic_id_here, "topic_id_mismatch", None)
        else:
            getattr(self, call)(f"{topic_id_here}-{number}", *rest, lambda *values: reply(topic_id_here, *values))

    def is_other_topic(self, topic_id: str | None, topic_id_here: str) -> bool:
        return topic_id is not None and topic_id != topic_id_here

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

    def on_group(self, partition: str, decide: Decide, reply: Reply) -> None:
        if partition in self.partitions:
            self.coordinators.call(self.partitions[partition], decide, reply)
        else:
            reply("moved", None)

    def on_group_stored(self, hosting: int, sequence: int, reply: Reply) -> None:
        self.coordinators.answer_when_stored(hosting, sequence, reply)
