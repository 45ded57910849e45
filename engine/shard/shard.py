"""A shard: the partitions that this process owns, with the one writer, the one committer and the one reader they share.

The engine's composition root. It opens everything at start, seals by age, checkpoints, deletes expired segments, and
closes everything at a stop so that the next start need not scan. Topics are created and deleted here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, ParamSpec, TypeVar

from engine.cleaning.log_start import LogStartAdvancer
from engine.cleaning.quarantine import Quarantine
from engine.cleaning.retention import Bounds
from engine.cleaning.sealing import Sealer
from engine.cleaning.segment_check import Finding, SealedFile
from engine.compaction.swapping import SegmentSwapper, own_compacted_end
from engine.directory.catalog import Catalog
from engine.directory.ceilings import Ceiling
from engine.directory.data_directory import DataDirectory
from engine.directory.interrupted_moves import end_interrupted_moves
from engine.directory.log_directories import LogDirectories, log_offline
from engine.directory.log_directory_manager import LogDirectoryManager
from engine.directory.topics import TopicRecord
from engine.directory.unopened_recovery_points import UnopenedRecoveryPoints
from engine.errors import EngineError, UnknownPartition, UnknownTopic
from engine.format.batch import Buffer
from engine.log.recovery import Checkpoint, LastShutdown, RecoveryReport
from engine.log.truncation import batch_start
from engine.partition.committer import Committer
from engine.partition.fence_checkpoint import mark_fenced
from engine.partition.partition import Partition, PartitionEvents
from engine.partition.reader import Reader
from engine.partition.writer import WriterThread
from engine.producers.key_window import TOTAL_KEYS_MAX, KeyBudget
from engine.producers.state_transfer import encoded, take_snapshot
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk
from engine.runtime.slices import in_slices
from engine.runtime.tasks import BackgroundTasks, keep_running
from engine.runtime.throttled_thread import ThrottledThread
from engine.shard.deletion import TopicDeletion
from engine.shard.directory_moves import BYTES_PER_SECOND, DirectoryMoves
from engine.shard.divergence import DivergenceHandler
from engine.shard.housekeeping import Housekeeping
from engine.shard.opening import Opener, OpeningPartitions, OpenRequest, open_requests
from engine.shard.record_deletion import RecordDeletion
from engine.shard.served_topics import ServedTopics, Topic

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("penstock.engine")

_NOT_KNOWN = LastShutdown.POWER_LOSS  # for unexpected files: how they were left is unknown


def _nothing(*_: object) -> None:
    """No-op: nothing follows the event."""


def _own_epoch(partition: Partition) -> int | None:
    return partition.log.leader_epoch


class MovedPartition(NamedTuple):
    """A partition that has another data directory."""

    topic_id: str
    topic: str
    partition: int
    directory_id: str


async def record_in_catalog(shard: Shard, moved: MovedPartition) -> None:
    """Records a move where the process has the catalog itself."""
    await shard.catalog.record_move(moved.topic_id, moved.topic, moved.partition, moved.directory_id)


@dataclass(frozen=True, slots=True)
class ShardEvents:
    """The calls that a shard makes: what happens to its partitions, and two positions that others know."""

    opened: Callable[[Shard, Topic, Partition], None] = _nothing
    closed: Callable[[Topic], None] = _nothing  # deleted, or set aside
    moved_away: Callable[[Topic, list[Partition]], None] = _nothing  # to other nodes
    positions_moved: Callable[[Partition], None] = _nothing  # log_end or durable_end
    went_offline: Callable[[Partition], None] = _nothing
    read_failed: Callable[[Partition, int], None] = _nothing  # at an offset
    damaged: Callable[[Partition, int], None] = _nothing  # records at an offset were quarantined
    sealed: Callable[[Partition], None] = _nothing  # it has more to ship
    directory_failed: Callable[[DataDirectory], None] = log_offline
    moved: Callable[[Shard, MovedPartition], Awaitable[None]] = record_in_catalog  # to another data directory
    tiered_end: Callable[[Partition], int | None] = _nothing  # None: nothing is tiered
    leading_epoch: Callable[[Partition], int | None] = _own_epoch  # None: another node leads
    compacted_by_all: Callable[[Partition], int] = own_compacted_end  # of every replica


NO_EVENTS = ShardEvents()


class Shard:
    """Opens, serves and closes the partitions of a data directory."""

    def __init__(
        self,
        disk: Disk,
        directory: DataDirectory,
        clock: Clock,
        executor: Executor,
        new_id: Callable[[], str],
        owns: Callable[[str, int], bool] = lambda topic_id, partition: True,  # noqa: ARG005 - all of them
        additional: Sequence[DataDirectory] = (),
        keys_max: int = TOTAL_KEYS_MAX,
        events: ShardEvents = NO_EVENTS,
        move_bytes_per_second: int = BYTES_PER_SECOND,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.directories = LogDirectories(directory, additional, self._on_directory_failed)
        self.clock = clock
        self.owns = owns
        self.catalog = Catalog(disk, self.directories, clock, executor, new_id)
        self.topics = ServedTopics()
        self.writer = WriterThread(disk, "penstock-writer")
        self._background = BackgroundTasks()
        self._finding = BackgroundTasks()  # searches for high watermarks; a stop cancels these
        self.sealer = Sealer(disk, executor, self._background, events.sealed, self._record_damage)
        closed = self._closed = UnopenedRecoveryPoints(disk, self.directories)
        self._opening = OpeningPartitions()
        self.log_manager = LogDirectoryManager(disk, self.directories, executor, self._opened, self._key_of, closed)
        self.committer = Committer(self.writer, clock, self.sealer.start_saving)
        moved, offline, include = events.positions_moved, events.went_offline, self.committer.include
        reports = PartitionEvents(moved, include, offline, self._find_watermark, self.log_manager.mapped_error)
        self.opener = Opener(disk, self.directories, executor, clock, reports)
        self.advancer = LogStartAdvancer(disk, executor, self.log_manager.save_points, self.sealer.wait_saved)
        self.quarantine = Quarantine(disk, executor, self.sealer, self.committer.roll, events.damaged)
        self.reader = Reader(disk, executor, self.quarantine.examine, events.read_failed)
        positions = self.tiered_end, self.leading_epoch = events.tiered_end, events.leading_epoch
        self.deletion = RecordDeletion(disk, executor, clock, self.log_manager, self.advancer, *positions)
        self.segment_swapper = SegmentSwapper(disk, executor, clock, events.compacted_by_all, moved)
        self._delete_topic = TopicDeletion(
            self.catalog, self.close_without_event, self.open_topic, events.closed, events.moved_away
        )
        self.key_budget = KeyBudget(keys_max)
        self._divergence_handler = DivergenceHandler(
            disk, executor, clock, self.committer, self.log_manager, self.sealer, self.key_budget
        )
        self.moves = DirectoryMoves(
            disk,
            self.directories,
            self.committer,
            self.sealer,
            self.log_manager,
            new_id,
            ThrottledThread("penstock-move", move_bytes_per_second),
            self._on_moved,
            self.advancer.drop,
        )
        self.housekeeping = Housekeeping(
            self.partitions, self.committer, self.log_manager, clock, self.deletion.due, self._background
        )
        self._events = events
        self._executor = executor
        self._ticker: asyncio.Task[None] | None = None
        self._high_watermarks: dict[str, int] = {}

    @property
    def recovered(self) -> RecoveryReport:
        """The result of the last start's recovery."""
        return self.opener.report

    def __repr__(self) -> str:
        return f"Shard({self.directory}, topics={len(self.topics)}, {self.committer})"

    async def start(self, records: Sequence[TopicRecord] | None = None) -> None:
        """Opens every topic, or those that a supervisor names; after an unclean stop this scans files that may be torn.

        Raises Corrupt for a damaged topic.
        """
        checkpoints = self.directories.load_checkpoints()
        if records is None:
            await self.catalog.load()
            records = list(self.catalog.records.values())
        elif self.directories.is_several:
            await self._in_thread(self._end_interrupted_moves, records)
        if not (first := self.directory).was_clean:
            log.warning("the last run did not stop cleanly", extra={"last_shutdown": first.last_shutdown.value})
        self._high_watermarks = self.directories.load_high_watermarks()
        self._closed.load(checkpoints, records, self.owns)
        await self._open_topics(records, checkpoints, None)
        self._high_watermarks = {}
        await self.log_manager.mark_recovered()
        self._ticker = keep_running(self.housekeeping.run, "housekeeping")

    async def stop(self) -> bool:
        """Makes everything durable and leaves the directory clean. Returns whether that succeeded."""
        if self._ticker is not None:
            self._ticker.cancel()
        await self.moves.stop()
        await self.committer.sync_all(self.partitions)
        self.sealer.stop()
        self.segment_swapper.stop()
        for partition in self.partitions():
            partition.wake_all()
        self._finding.cancel()
        await self._finding.wait_ended()
        await self._background.wait_ended()
        await self.segment_swapper.wait_ended()
        await self.catalog.stop()
        self.writer.stop()
        return await self._in_thread(self.log_manager.close, self.clock.monotonic)

    def partitions(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def topic(self, name: str) -> Topic:
        """Returns a served topic. Raises UnknownTopic or Corrupt (`Catalog.unknown`)."""
        try:
            return self.topics[name]
        except KeyError:
            raise self.catalog.unknown_topic_error(name) from None

    def partition(self, name: str, number: int) -> Partition:
        """Returns a partition of this shard. Raises UnknownTopic, UnknownPartition."""
        topic = self.topic(name)
        partition = topic.partitions.get(number)
        if partition is None:
            last = topic.record.partitions - 1
            raise UnknownPartition(f"topic {name!r} has no partition {number}", hint=f"it has 0 to {last}")
        return partition

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        overrides: Mapping[str, object],
        ceiling: Ceiling | None = None,
    ) -> tuple[Topic, bool]:
        """Create a topic, or find an equal one. Returns it and whether it is new. Raises TopicExists, Invalid."""
        async with self.catalog.changing:
            await self._delete_topic.finish(name)
            record, is_new = await self.catalog.create(name, partitions, replication_factor, overrides, ceiling)
            if name not in self.topics:
                await self.open_topic(record)
            return self.topics[name], is_new

    async def alter_topic(
        self,
        name: str,
        overrides: Mapping[str, object],
        partitions: int | None = None,
        ceiling: Ceiling | None = None,
    ) -> Topic:
        """Changes the given settings. With `partitions` the topic grows to that count. Raises InvalidConfig."""
        async with self.catalog.changing:
            record = await self.catalog.alter(name, overrides, partitions, ceiling)
            await self.open_added(record)
            return self.apply_record(record)

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic. Its waits fail; its bytes are never served again. A cancel ends the wait only.

        Raises StorageFull, StorageFailed: it is then served as before, or a second call continues its deletion.
        """
        await self._background.finish(self._delete_topic.delete(name), "deleting a topic")

    async def open_topic(self, record: TopicRecord) -> Topic:
        """Starts serving a new topic, or one that returns: then its files are recovered as they are."""
        await self._open_topics([record], self._closed.of_topic(record.topic_id), _NOT_KNOWN)
        self._closed.drop(record.topic_id)
        return self.topics[record.name]

    async def open_added(self, record: TopicRecord) -> None:
        """Opens the new partitions of a topic. They are announced only after `apply_record` has run everywhere."""
        topic = self.topic(record.name)
        requests = [
            request for request in self._partitions_to_open(record, {}) if request.number not in topic.partitions
        ]
        await self._add({topic.record.name: topic}, requests, await self.opener.open_all(requests, _NOT_KNOWN))

    def apply_record(self, record: TopicRecord) -> Topic:
        """Applies new settings or a new partition count of a topic; its new partitions here are open."""
        topic = self.topic(record.name)
        self.topics.change(topic, record)
        for partition in topic.partitions.values():
            self.committer.use_settings(partition, topic.settings)
        return topic

    async def close_topic(self, name: str) -> None:
        """Stop serving a topic, which is deleted or set aside: its waits fail, and no write follows."""
        self._events.closed(await self.close_without_event(self.topic(name).record))

    async def close_without_event(self, record: TopicRecord) -> Topic:
        """Closes as `close_topic` does, without its event. Returns a topic without partitions if it is not open."""
        topic = self.topics.stop_serving(record.name) or Topic(record, record.settings)
        if topic.partitions:
            with self._closed.closing(record, topic.partitions.values()):
                await self._close(topic.partitions.values(), UnknownTopic(f"topic {record.name!r} has been deleted"))
        return topic

    async def close_partitions(self, name: str, numbers: Iterable[int]) -> None:
        """Stops serving partitions that have been moved to other nodes. The catalog removes their files."""
        topic = self.topic(name)
        gone = [topic.partitions.pop(number) for number in numbers if number in topic.partitions]
        await self._close(gone, UnknownPartition(f"partitions {numbers} of topic {name!r} were reassigned"))
        self._events.moved_away(topic, gone)
        with suppress(OSError):  # so that they do not count as damaged if they return; their return checks it too
            await self.log_manager.save_checkpoints()

    async def _close(self, partitions: Collection[Partition], reason: EngineError) -> None:
        async for partition in in_slices(partitions):
            partition.go_offline(reason)
            self.committer.drop(partition)
        async for partition in in_slices(partitions):
            await self.moves.wait_ended(partition)
            async with self.committer.pause(partition):  # wait for the group and the truncation in progress
                await self.sealer.wait_saved(partition)
            for segment in partition.log.segments:
                segment.mark_deleted()
            self.advancer.drop(partition)
            partition.validator.keys.window.clear()

    async def roll_topic(self, name: str) -> list[int]:
        """Seals every partition's active segment; returns each sealed_end."""
        partitions = self.topic(name).partitions.values()
        return list(await asyncio.gather(*(self.committer.roll(partition) for partition in partitions)))

    async def delete_before(self, partition: Partition, offset: int) -> int:
        """Deletes everything below an offset, here and in the store; returns log_start, which is durable then.

        Removes files as far as whole segments are below; seals the active one first, so that it can be removed later at
        least.
        Raises OffsetAboveHighWatermark, StorageFull, StorageFailed. A cancel ends the wait, not the work.
        """
        if partition.offline is not None:
            raise partition.offline
        if offset > partition.log.log_start:
            partition.check_readable(offset)
            await self._background.finish(self._delete_before(partition, offset), "deleting records")
        return partition.log.log_start

    async def raise_log_start(self, partition: Partition, offset: int) -> int:
        """Deletes expired records that only the store has; returns log_start, which is durable. Raises OSError.

        Only on a leader: a follower's log_start is its leader's.
        """
        if partition.offline is not None:
            raise partition.offline
        if self.leading_epoch(partition) is None:
            return partition.log.log_start
        bound = min(offset, partition.log.local_log_start)
        if bound > partition.log.log_start:
            await self._background.finish(self.advancer.advance(partition, Bounds(bound, bound)), "expiring records")
        return partition.log.log_start

    async def follow_log_start(self, partition: Partition, offset: int) -> None:
        """Follows the leader's log_start as far as this log is durable. Raises StorageFull, StorageFailed."""
        bound = min(offset, partition.durable_end)
        if partition.offline is None and bound > partition.log.log_start:
            await self._background.finish(self.deletion.delete_below(partition, bound), "deleting records")

    async def start_epoch(self, partition: Partition, epoch: int) -> None:
        """Starts an epoch as leader. Fails the appends in the partition's queue. Raises as `truncate` does."""
        await self._background.finish(self._divergence_handler.start_epoch(partition, epoch), "beginning an epoch")

    async def truncate(self, partition: Partition, offset: int) -> None:
        """Ends the log, durably, at the start of the batch that holds `offset`. The log has the records before it.

        Raises StorageFull, StorageFailed; if it fails half way, the partition is offline. A cancel ends only the wait.
        """
        await self._background.finish(self._divergence_handler.truncate(partition, offset), "cutting a log")

    async def reset_log(self, partition: Partition, offset: int, log_start: int, producer_state: Buffer = b"") -> None:
        """Drop every record and continue at an offset, with the producer state transferred by the leader.

        Raises Corrupt if that cannot be decoded; then nothing has changed.
        """
        work = self._divergence_handler.reset(partition, offset, log_start, producer_state)
        await self._background.finish(work, "restarting a log")

    async def export_producer_state(self, partition: Partition, offset: int) -> tuple[int, bytes]:
        """Returns the start of the offset's batch, and the producer state for a follower that begins there."""
        begin = await self._in_thread(batch_start, partition.log, offset)
        return begin, await self._in_thread(encoded, take_snapshot(partition.validator, begin))

    async def mark_fenced(self, partition: Partition) -> None:
        """Notes durably that a partition may have a token, before one is set. Raises StorageFull, StorageFailed."""
        await mark_fenced(self.disk, self._executor, partition)

    async def _delete_before(self, partition: Partition, offset: int) -> None:
        if offset > min(partition.log.sealed_end, partition.durable_end):
            await self.committer.roll(partition)  # also makes all durable: no log may end before it starts
        await self.deletion.delete_below(partition, offset)
        self._events.sealed(partition)  # the store follows log_start

    async def _open_topics(
        self, records: Iterable[TopicRecord], checkpoints: Mapping[str, Checkpoint], last_shutdown: LastShutdown | None
    ) -> None:
        requests = [request for record in records for request in self._partitions_to_open(record, checkpoints)]
        partitions = await self.opener.open_all(requests, last_shutdown)
        topics = {record.name: Topic(record, record.settings) for record in records}
        self.topics.serve({name: topic for name, topic in topics.items() if topic.record.hosted is not None})
        await self._add(topics, requests, partitions)

    def _partitions_to_open(self, record: TopicRecord, checkpoints: Mapping[str, Checkpoint]) -> list[OpenRequest]:
        owned = filter(partial(self.owns, record.topic_id), record.local_partitions)
        return open_requests(record, owned, checkpoints, self._high_watermarks)

    async def _add(self, topics: Mapping[str, Topic], requests: list[OpenRequest], partitions: list[Partition]) -> None:
        """In slices. Standalone, a topic is served once complete; in a cluster, partitions once their leader starts."""
        with self._opening.including(requests, partitions):
            async for request, partition in in_slices(zip(requests, partitions, strict=True)):
                topic = topics[request.record.name]
                topic.partitions[request.number] = partition
                self.log_manager.add(partition)
                partition.validator.keys.window.use_budget(self.key_budget, self.clock.steady_ms())
                self._events.opened(self, topic, partition)
            self.topics.serve(topics)

    async def _on_moved(self, topic_id: str, partition: Partition, directory: DataDirectory) -> None:
        moved = MovedPartition(topic_id, partition.topic, partition.number, directory.directory_id)
        await self._events.moved(self, moved)

    def _find_watermark(self, partition: Partition) -> None:
        work = partial(self.reader.find_watermark, partition, partition.watermark.generation)
        self._finding.keep(work, "finding the high watermark", of=partition.name)

    def _end_interrupted_moves(self, records: Sequence[TopicRecord]) -> None:
        """Ends the moves that a kill of this process has interrupted, while the supervisor went on."""
        for record in records:
            try:
                owned = partial(self.owns, record.topic_id)
                end_interrupted_moves(self.disk, self.directories, record, owned)
            except OSError as error:  # the partition is then missing, or has leftovers
                log.warning("an interrupted move was not ended", extra={"topic": record.name, "reason": str(error)})

    async def _record_damage(self, partition: Partition, file: SealedFile, finding: Finding) -> None:
        await self.quarantine.record(partition, file, finding)

    def _on_directory_failed(self, directory: DataDirectory) -> None:
        self.log_manager.take_offline(directory)
        self._events.directory_failed(directory)

    def _opened(self) -> Iterable[Partition]:
        return self._opening.and_served(self.partitions())

    def _key_of(self, partition: Partition) -> str:
        return self._opening.key_of(partition) or f"{self.topics[partition.topic].record.topic_id}/{partition.number}"

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **_: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)
