"""A shard: the partitions that this process owns, with the one writer, the one committer and the one reader they share.

The engine's composition root. It opens everything at start, seals by age, checkpoints, deletes what has expired, and
closes everything at a stop so that the next start need not scan. Topics are created and deleted here; who may is the
gateway's business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

from engine.cleaning.log_start import LogStartAdvancer
from engine.cleaning.quarantine import Quarantine
from engine.cleaning.retention import Bounds, expired_below
from engine.cleaning.sealing import Sealer
from engine.directory.catalog import Catalog
from engine.directory.data_directory import DataDirectory
from engine.directory.log_directories import LogDirectories
from engine.directory.log_directory_manager import LogDirectoryManager
from engine.directory.topics import TopicRecord
from engine.directory.unopened_recovery_points import UnopenedRecoveryPoints
from engine.errors import EngineError, UnknownPartition, UnknownTopic, storage_error
from engine.format.batch import Buffer
from engine.log.recovery import Checkpoint, LastStop, RecoveryReport
from engine.log.truncation import batch_start
from engine.partition.committer import Committer
from engine.partition.fence_keeping import keep_fence, note_fenced
from engine.partition.partition import Partition
from engine.partition.reader import Reader
from engine.partition.writer import WriterThread
from engine.producers.key_window import TOTAL_KEYS_MAX, KeyBudget
from engine.producers.state_transfer import encoded, taken
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk
from engine.runtime.slices import in_slices
from engine.runtime.tasks import BackgroundTasks, keep_running
from engine.shard.deletion import delete_topic, finish_deletion
from engine.shard.divergence import DivergenceHandler
from engine.shard.housekeeping import Housekeeping
from engine.shard.opening import Opener, Wanted
from engine.shard.opening_partitions import Arriving
from engine.shard.served_topics import ServedTopics, Topic

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("penstock.engine")

_NOT_KNOWN = LastStop.POWER_LOSS  # of files that are found where none need be: nobody says how they were left


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
        further: Sequence[DataDirectory] = (),
        keys_max: int = TOTAL_KEYS_MAX,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.directories = LogDirectories(directory, further)
        self.clock = clock
        self.owns = owns
        self.catalog = Catalog(disk, self.directories, clock, executor, new_id)
        self.topics = ServedTopics()
        self.writer = WriterThread(disk, "penstock-writer")
        self._background = BackgroundTasks()
        self._finding = BackgroundTasks()  # high watermarks; a stop cancels these
        self.sealer = Sealer(disk, executor, self._background, lambda one: self.when_sealed(one))  # noqa: PLW0108 - set later
        self.committer = Committer(self.writer, clock, self.sealer.sealed)
        self.opener = Opener(disk, self.directories, executor, clock)
        self._closed = UnopenedRecoveryPoints(disk, self.directories)
        self._arriving = Arriving()
        self.keeper = LogDirectoryManager(disk, self.directories, executor, self._opened, self._key_of, self._closed)
        self.trimmer = LogStartAdvancer(disk, executor, self.keeper.save_log_start, self.sealer.saved)
        self.quarantine = Quarantine(disk, executor, self.sealer, self.committer.roll)
        self.reader = Reader(disk, executor, self.quarantine.examine)
        self.when_opened: Callable[[Topic, Partition], None] = _nothing
        self.when_closed: Callable[[Topic], None] = _nothing
        self.when_moved_away: Callable[[Topic, list[Partition]], None] = _nothing
        self.when_sealed: Callable[[Partition], None] = _nothing
        self.tiered_end: Callable[[Partition], int | None] = _nothing
        self.leading_epoch: Callable[[Partition], int | None] = lambda one: one.log.leader_epoch  # None: another leads
        self.key_budget = KeyBudget(keys_max)
        self._cutter = DivergenceHandler(
            disk, executor, clock, self.committer, self.keeper, self.sealer, self.key_budget
        )
        self.housekeeping = Housekeeping(
            self.partitions, self.committer, self.keeper, clock, self._expiry, self._background
        )
        self._executor = executor
        self._ticker: asyncio.Task[None] | None = None
        self._committed_hints: dict[str, int] = {}

    @property
    def recovered(self) -> RecoveryReport:
        """What the last start found."""
        return self.opener.report

    def __repr__(self) -> str:
        return f"Shard({self.directory}, topics={len(self.topics)}, {self.committer})"

    async def start(self, records: Sequence[TopicRecord] | None = None) -> None:
        """Open every topic, or those that a supervisor names; after an unclean stop this scans what may be torn.

        Raises Corrupt for a damaged topic.
        """
        checkpoints = self.directories.load_checkpoints()
        if records is None:
            await self.catalog.load()
            records = list(self.catalog.records.values())
        if not self.directory.was_clean:
            log.warning("the last run did not stop cleanly", extra={"last_stop": self.directory.last_stop.value})
        self._committed_hints = self.directories.load_hints()
        self._closed.learn(checkpoints, records, self.owns)
        await self._open_topics(records, checkpoints, None)
        self._committed_hints = {}
        await self.keeper.note_recovered()
        self._ticker = keep_running(self.housekeeping.tick_for_ever, "housekeeping")

    async def stop(self) -> bool:
        """Make everything durable and leave the directory clean. Returns whether that could be done."""
        if self._ticker is not None:
            self._ticker.cancel()
        await self.committer.sync_all(self.partitions)
        self.sealer.stop()
        for partition in self.partitions():
            partition.wake_all()
        self._finding.cancel()
        await self._finding.ended()
        await self._background.ended()
        await self.catalog.stop()
        self.writer.stop()
        return await self._in_thread(self.keeper.close, self.clock.monotonic)

    def partitions(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def topic(self, name: str) -> Topic:
        try:
            return self.topics[name]
        except KeyError:
            raise self.catalog.unknown(name) from None

    def partition(self, name: str, number: int) -> Partition:
        """A partition of this shard. Raises UnknownTopic, UnknownPartition."""
        topic = self.topic(name)
        partition = topic.partitions.get(number)
        if partition is None:
            last = topic.record.partitions - 1
            raise UnknownPartition(f"topic {name!r} has no partition {number}", hint=f"it has 0 to {last}")
        return partition

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, overrides: Mapping[str, object]
    ) -> tuple[Topic, bool]:
        """Make a topic, or find the same one there. Returns it and whether it is new. Raises TopicExists, Invalid."""
        async with self.catalog.changing:
            await finish_deletion(self, name)
            record, is_new = await self.catalog.create(name, partitions, replication_factor, overrides)
            if name not in self.topics:
                await self.open_topic(record)
            return self.topics[name], is_new

    async def alter_topic(self, name: str, overrides: Mapping[str, object], partitions: int | None = None) -> Topic:
        """Change settings; those not named stay. With `partitions` the topic grows to so many. Raises InvalidConfig."""
        async with self.catalog.changing:
            record = await self.catalog.alter(name, overrides, partitions)
            await self.open_added(record)
            return self.altered(record)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. Those who wait on it are told; its bytes are never served again. A cancel ends the wait only.

        Raises StorageFull, StorageFailed: then it is served as before, or its deletion goes on when asked for again.
        """
        await self._background.finish(delete_topic(self, name), "deleting a topic")

    async def open_topic(self, record: TopicRecord) -> Topic:
        """Begin to serve a topic that was just made, or that comes back: then its files are recovered as they are."""
        await self._open_topics([record], self._closed.of_topic(record.topic_id), _NOT_KNOWN)
        self._closed.opened(record.topic_id)
        return self.topics[record.name]

    async def open_added(self, record: TopicRecord) -> None:
        """Open the partitions that a topic has gained. Nobody is told of them before it is `altered` everywhere."""
        topic = self.topic(record.name)
        wanted = [one for one in self._wanted(record, {}) if one.number not in topic.partitions]
        await self._take_in({topic.record.name: topic}, wanted, await self.opener.open_all(wanted, _NOT_KNOWN))

    def altered(self, record: TopicRecord) -> Topic:
        """A topic's settings have changed, or how many partitions it has; those that are new here are open."""
        topic = self.topic(record.name)
        self.topics.change(topic, record)
        for partition in topic.partitions.values():
            self.committer.use_settings(partition, topic.settings)
        return topic

    async def close_topic(self, name: str) -> None:
        """Stop serving a topic, which is deleted or set aside: whoever waits is told, nothing is written any more."""
        self.when_closed(await self.closed(self.topic(name).record))

    async def closed(self, record: TopicRecord) -> Topic:
        """As `close_topic`; who calls tells the others of it. One that is not open is returned without partitions."""
        topic = self.topics.let_go(record.name) or Topic(record, record.settings)
        if topic.partitions:
            with self._closed.closing(record, topic.partitions.values()):
                await self._let_go(topic.partitions.values(), UnknownTopic(f"topic {record.name!r} has been deleted"))
        return topic

    async def close_partitions(self, name: str, numbers: Iterable[int]) -> None:
        """Stop serving partitions that have been moved to other nodes. Their files are removed by the catalog."""
        topic = self.topic(name)
        gone = [topic.partitions.pop(number) for number in numbers if number in topic.partitions]
        await self._let_go(gone, UnknownPartition(f"partitions {numbers} of topic {name!r} are on other nodes now"))
        self.when_moved_away(topic, gone)
        with suppress(OSError):  # lest they be taken for damaged if they come back; who lets them come sees to it too
            await self.keeper.save_checkpoints()

    async def _let_go(self, partitions: Collection[Partition], reason: EngineError) -> None:
        async for partition in in_slices(partitions):
            partition.go_offline(reason)
            self.committer.forget(partition)
        async for partition in in_slices(partitions):
            async with self.committer.held(partition):  # the group and the cut that have it come to their end
                await self.sealer.saved(partition)
            for segment in partition.log.segments:
                segment.deleted()
            self.trimmer.forget(partition)
            partition.validator.keys.window.clear()

    async def roll_topic(self, name: str) -> list[int]:
        """Seal every partition's active segment; returns each sealed_end."""
        partitions = self.topic(name).partitions.values()
        return list(await asyncio.gather(*(self.committer.roll(partition) for partition in partitions)))

    async def delete_before(self, partition: Partition, offset: int) -> int:
        """Give up everything below an offset, here and in the store; returns log_start, which is durable then.

        Files go as far as whole segments lie below; the active one is sealed first, so that it can go later at least.
        Raises OffsetAboveHighWatermark, StorageFull, StorageFailed. A cancel gives up the wait, not the work.
        """
        if partition.offline is not None:
            raise partition.offline
        if offset > partition.log.log_start:
            partition.check_readable(offset)
            await self._background.finish(self._delete_before(partition, offset), "deleting records")
        return partition.log.log_start

    async def raise_log_start(self, partition: Partition, offset: int) -> int:
        """Give up what has expired and is in the store only; returns log_start, which is durable. Raises OSError.

        Only a leader does: a follower's log_start is its leader's.
        """
        if partition.offline is not None:
            raise partition.offline
        if self.leading_epoch(partition) is None:
            return partition.log.log_start
        bound = min(offset, partition.log.local_log_start)
        if bound > partition.log.log_start:
            await self._background.finish(self.trimmer.trim(partition, Bounds(bound, bound)), "expiring records")
        return partition.log.log_start

    async def follow_log_start(self, partition: Partition, offset: int) -> None:
        """The leader has given up what lies below an offset: so far as it is durable here, this log does too.

        Raises StorageFull, StorageFailed.
        """
        bound = min(offset, partition.durable_end)
        if partition.offline is None and bound > partition.log.log_start:
            await self._background.finish(self._trim(partition, bound), "deleting records")

    async def start_epoch(self, partition: Partition, epoch: int) -> None:
        """This node leads from here on. What waits in the partition's queue is refused. Raises as `truncate` does."""
        await self._background.finish(self._cutter.start_epoch(partition, epoch), "beginning an epoch")

    async def truncate(self, partition: Partition, offset: int) -> None:
        """End the log, durably, at the start of the batch that holds an offset, of which it has the records before.

        Raises StorageFull and StorageFailed; if the cut itself failed, the partition is offline. A cancel gives up the
        wait, not the work.
        """
        await self._background.finish(self._cutter.truncate(partition, offset), "cutting a log")

    async def reset_log(self, partition: Partition, offset: int, log_start: int, handed_over: Buffer = b"") -> None:
        """Forget every record and go on from an offset, knowing of what lies before what its leader has handed over.

        Raises Corrupt for what cannot be read; then nothing has changed.
        """
        work = self._cutter.restart(partition, offset, log_start, handed_over)
        await self._background.finish(work, "restarting a log")

    async def hand_over(self, partition: Partition, offset: int) -> tuple[int, bytes]:
        """For a follower that begins here: the start of the batch that holds the offset, and what lies before that."""
        begin = await self._in_thread(batch_start, partition.log, offset)
        return begin, await self._in_thread(encoded, taken(partition.validator, begin))

    async def note_fenced(self, partition: Partition) -> None:
        """To be called before a token is set. Raises StorageFull, StorageFailed."""
        await note_fenced(self.disk, self._executor, partition)

    async def _delete_before(self, partition: Partition, offset: int) -> None:
        if offset > min(partition.log.sealed_end, partition.durable_end):
            await self.committer.roll(partition)  # makes all durable too: no log may end before it starts
        await self._trim(partition, offset)
        self.when_sealed(partition)  # the store follows log_start

    async def _trim(self, partition: Partition, offset: int) -> None:
        try:
            await keep_fence(self.disk, self._executor, partition, offset)
            await self.trimmer.trim(partition, Bounds(offset, offset))
        except OSError as error:
            self.keeper.note(partition, error, "deleting records")
            raise storage_error(f"{partition.name}: deleting records", error) from error

    async def _open_topics(
        self, records: Iterable[TopicRecord], checkpoints: Mapping[str, Checkpoint], last_stop: LastStop | None
    ) -> None:
        wanted = [one for record in records for one in self._wanted(record, checkpoints)]
        partitions = await self.opener.open_all(wanted, last_stop)
        topics = {record.name: Topic(record, record.settings) for record in records}
        self.topics.serve({name: topic for name, topic in topics.items() if topic.record.hosted is not None})
        await self._take_in(topics, wanted, partitions)

    def _wanted(self, record: TopicRecord, checkpoints: Mapping[str, Checkpoint]) -> list[Wanted]:
        return [
            Wanted(record, number, checkpoints.get(key, Checkpoint()), self._committed_hints.get(key, 0))
            for number in filter(partial(self.owns, record.topic_id), record.here)
            for key in (f"{record.topic_id}/{number}",)
        ]

    async def _take_in(self, topics: Mapping[str, Topic], wanted: list[Wanted], partitions: list[Partition]) -> None:
        """In slices. In a node that is alone a topic is not served before it is whole; in a cluster leaders begin."""
        with self._arriving.taking_in(wanted, partitions):
            async for one, partition in in_slices(zip(wanted, partitions, strict=True)):
                topic = topics[one.record.name]
                topic.partitions[one.number] = partition
                self.keeper.add(partition)
                partition.watermark.when_place_unknown = partial(self._find_watermark, partition)
                partition.validator.keys.window.join(self.key_budget, self.clock.steady_ms())
                self.when_opened(topic, partition)
            self.topics.serve(topics)

    def _find_watermark(self, partition: Partition) -> None:
        work = partial(self.reader.find_watermark, partition, partition.watermark.generation)
        self._finding.keep(work, "finding the high watermark", of=partition.name)

    def _expiry(self, partition: Partition) -> Coroutine[Any, Any, None] | None:
        """What is to be done, if anything."""
        return self._expire(partition) if self.trimmer.is_due(partition, self._expired(partition)) else None

    def _expired(self, partition: Partition) -> Bounds:
        is_leader = self.leading_epoch(partition) is not None
        return expired_below(partition, self.clock.steady_ms(), self.tiered_end(partition), is_leader=is_leader)

    async def _expire(self, partition: Partition) -> None:
        bounds = self._expired(partition)
        if self.trimmer.is_due(partition, bounds):
            try:
                await keep_fence(self.disk, self._executor, partition, bounds.local)
                await self.trimmer.trim(partition, bounds)
            except OSError as error:
                if not self.keeper.note(partition, error, "expiring records"):
                    raise

    def _opened(self) -> Iterable[Partition]:
        return self._arriving.and_served(self.partitions())

    def _key_of(self, partition: Partition) -> str:
        key = self._arriving.key_of(partition)
        return key or f"{self.topics[partition.topic].record.topic_id}/{partition.number}"

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **_: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)


def _nothing(*_: object) -> None:
    """Nobody is interested yet."""
