"""Read errors of a simulated node's disk: the real handling of failed reads and the real repair, step by step.

UnreadableReplicas and Quarantine are driven without an event loop. Their threads work at once; each of their waits is
virtual time. A repair fetches from the leader over the simulated network. As in the product, a failed read or the
scrubber of a follower starts it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from engine.cleaning.quarantine import Quarantine
from engine.errors import Corrupt
from engine.format.batch import walk
from engine.log.epochs import epoch_before
from engine.log.segment import Segment
from replication.cores import follower
from replication.cores.fetch import BatchesEnd, Send
from replication.cores.role import Follow
from replication.replica.unreadable import RepairMeans, UnreadableReplicas, damaged_segments
from tests.simulation.world.replica_log import check_batches

if TYPE_CHECKING:
    from tests.simulation.world.hosted import Hosted
    from tests.simulation.world.node import Life

FETCH_S = 0.6  # until a fetch of a repair counts as lost
LOOK_S = 0.02  # between two looks for its answer


class Wait:
    """Awaitable that ends after some virtual time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __await__(self) -> Generator[float, None, None]:
        yield self._seconds


class Works:
    """In place of BackgroundTasks: each work goes on after its waits while the process lives."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def start(self, work: Coroutine[Any, Any, None], doing: str, *, of: str = "") -> None:
        self._life.node.works.append(work)  # else the work of a dead process would clean up when it becomes garbage
        self._go_on(work)

    def _go_on(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._life.after(work.send(None), self._go_on, work)
        except StopIteration:
            return


class QuarantineAtOnce(Quarantine):
    def __init__(self, life: Life) -> None:
        super().__init__(life.node.disk, None, None, None, lambda *_: None)  # type: ignore[arg-type] # no threads

    async def examine(self, partition: Any, segment: Segment) -> None:
        if segment is not partition.log.active:  # the fault is one of sealed segments
            await self._search(partition, segment)

    async def _in_thread(self, function: Callable[..., Any], *args: Any, **_: Any) -> Any:
        return function(*args)


class SteppedRepairs(UnreadableReplicas):
    """The replicas of one process whose reads have failed."""

    def __init__(self, life: Life) -> None:
        means = RepairMeans(
            now=lambda: life.world.now,
            went_offline=lambda replica: replica.hosted.stop_leading(),
            came_back=lambda _: life.register(),
            send_position=lambda replica: replica.hosted.following.fetch(),
            leader_exchange=lambda replica: replica.hosted.role if isinstance(replica.hosted.role, Follow) else None,
        )
        super().__init__(means, lambda: "")
        self._life = life
        self._background = Works(life)  # type: ignore[assignment]
        self._quarantine = QuarantineAtOnce(life)

    def read_failed(self, hosted: Hosted, offset: int) -> None:
        self._life.world.count("reads that failed")
        self._life.log("%s: cannot read %d", hosted.partition, offset)
        self.on_failed_read(self._replica(hosted), hosted.following, offset)  # type: ignore[arg-type]

    def scrub(self, hosted: Hosted) -> None:
        """Examine the segments of a replica, as the scrubber does in the course of a week, and repair a follower's."""
        if hosted.log.offline or hosted.log.settings.is_compacted:
            return
        for segment in hosted.log.log.segments[:-1]:
            if segment.damage or not _is_readable(segment):
                self._background.start(self._quarantine.examine(_Partition(hosted), segment), "scrubbing")  # type: ignore[arg-type]
            if segment.damage and isinstance(hosted.role, Follow):
                self.on_failed_read(self._replica(hosted), hosted.following, segment.base_offset)  # type: ignore[arg-type]

    def _leave(self, replica: Any) -> bool:
        was_leading = replica.core is not None
        is_repaired = super()._leave(replica)
        self._life.world.counts["leaderships given away for read errors"] += was_leading and is_repaired
        return is_repaired

    async def _repair_segment(self, replica: Any, following: Any, segment: Segment, exchange: Any) -> None:
        if replica.partition.settings.is_compacted:  # no fault of these runs damages a file
            raise AssertionError(
                f"T6 swap: {replica.key} at {self._life.node.name} has neither an old nor a new segment"
            )
        before = self.repaired
        await super()._repair_segment(replica, following, segment, exchange)
        self._life.world.counts["segments repaired"] += self.repaired - before
        self._life.log("%s: repaired %r", replica.key, segment)

    async def _in_thread(self, function: Callable[..., Any], *args: Any, **_: Any) -> Any:
        return function(*args)

    async def _pause(self, seconds: float) -> None:
        await Wait(seconds)

    async def _fetch(self, replica: Any, following: Any, offset: int, exchange: Follow) -> tuple[bytes, int]:
        """Fetch as the product does, without its wire format."""
        life, key = self._life, replica.key
        epoch = epoch_before(replica.partition.log.epochs, offset)
        fetch = follower.next_fetch(
            life.node_id, life.member.broker_epoch, following.position(), BatchesEnd(offset, epoch)
        )
        if epoch < 0:
            fetch = replace(fetch, log_end=offset, durable_end=offset, last_epoch=None, ahead=None)
        answers: list[tuple[Any, bytes]] = []
        life.ask_leader(exchange.leader, key, fetch, lambda *answer: answers.append(answer))
        until = life.world.now + FETCH_S
        while not answers and life.world.now < until:
            await Wait(LOOK_S)
        answer, data = answers[0] if answers else (None, b"")
        if not data or not isinstance(answer, Send):
            raise Corrupt(f"{key}: the leader has no batch at offset {offset} on its disk ({answer})")
        return data, answer.high_watermark

    def _replica(self, hosted: Hosted) -> Replica:
        return Replica(hosted, self._quarantine)


class Replica:
    """A hosted partition as the product's Replica, as far as repairs use it."""

    def __init__(self, hosted: Hosted, quarantine: Quarantine) -> None:
        life = hosted.life
        self.hosted, self.key = hosted, hosted.partition
        self.partition = _Partition(hosted)
        self.shard = SimpleNamespace(quarantine=quarantine, disk=life.node.disk)

    core = property(lambda self: self.hosted.leader)
    role = property(lambda self: self.hosted.role)
    state = property(lambda self: self.hosted.known)
    host = property(lambda self: self.hosted.life)  # has `member` and `registrations`


class _Partition:
    def __init__(self, hosted: Hosted) -> None:
        self._hosted, self.name = hosted, hosted.partition

    log = property(lambda self: self._hosted.log.log)
    offline = property(lambda self: self._hosted.log.offline)
    segments_lock = property(lambda self: self._hosted.log.segments_lock)

    @property
    def settings(self) -> Any:
        """The settings of the topic that say how many replicas must be in sync, with the log's."""
        rules = self._hosted.life.rules
        return SimpleNamespace(
            is_compacted=self._hosted.log.settings.is_compacted,
            min_insync_replicas=rules.min_insync_replicas,
            unclean_election=rules.is_unclean_allowed,
            durability="group" if rules.is_fsync_demanded else "os",
        )


def _is_readable(segment: Segment) -> bool:
    try:
        data = segment.pread(segment.size_bytes, 0)
        check_batches(data, segment.path)
        return sum(header.size_bytes for _, header in walk(data)) == segment.size_bytes
    except (Corrupt, OSError):
        return False


def has_damage_above(hosted: Hosted, offset: int) -> bool:
    return any(segment.next_offset > offset for segment in damaged_segments(_Partition(hosted)))  # type: ignore[arg-type]
