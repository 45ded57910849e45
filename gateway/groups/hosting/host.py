"""The coordinators of this process: one for each partition of the groups topic that it leads, made at its first call.

A coordinator replays its partition first. Every member gets a full session then. One sweep a second serves all
coordinators: it ends sessions, follows changed topics, and drops those whose partition another process leads.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar

from msgspec import structs

from engine.errors import EngineError
from engine.format import batch as record_batch
from engine.format.paths import GROUPS_TOPIC, INTERNAL_TOPICS
from engine.partition.partition import Partition
from engine.runtime.clock import Clock
from engine.runtime.tasks import in_background, keep_running, start_task
from gateway.fetch.context import ReadContext
from gateway.fetch.reader import read_chunk
from gateway.groups.core import classic_calls, instances
from gateway.groups.core.carried_locks import carry_locks
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.core.group_table import Ceilings
from gateway.groups.hosting.dead_letter_copies import CopyDeadLetter, DeadLetterCopies
from gateway.groups.hosting.hosted import Hosted
from gateway.groups.hosting.lags import GroupLags, TopicLag, sum_by_name
from gateway.groups.model.errors import CoordinatorMoved
from gateway.groups.model.settings import PUSH_PREFIX, CoordinatorLimits
from gateway.groups.model.state import Group
from gateway.groups.model.values import GroupRow, Now, PartitionRacks, Row, TopicSize, TopicSource
from gateway.metrics.metrics import Numbers
from gateway.routing.partitions import Partitions, Topics
from gateway.settings import NodeSettings
from gateway.usage.holdings import HeldGroup, Holdings

A = TypeVar("A")
R = TypeVar("R")
Decide = Callable[[Coordinator, A, Now, TopicSource], R]

LAG_SWEEPS = 10  # between two measurements of lag: one message to each process that leads partitions of the topics
SWEEP_S = 1.0  # late enough to cost nothing, early enough for sessions of a second
READ_BYTES = 1024 * 1024
TOPICS_AT_ONCE = 32


class GroupHost:
    """Finds or begins the coordinator of a partition. `copy` copies a dead letter, and returns its records' number."""

    def __init__(
        self,
        settings: NodeSettings,
        topics: Topics,
        partitions: Partitions,
        reads: ReadContext,
        clock: Clock,
        copy: CopyDeadLetter,
        holdings: Holdings,
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._reads = reads
        self._clock = clock
        self._source = KnownTopics(topics, partitions)
        self._topics = topics
        self._hosted: dict[int, Hosted] = {}
        self._dropped: dict[int, Hosted] = {}  # the last of each partition: its last batch may be on its way
        self._loading: dict[int, asyncio.Task[Hosted]] = {}
        self._hostings = itertools.count(clock.now_ms() * 1000)  # no other process, nor this one before, had them
        self._sweeping: asyncio.Task[None] | None = None
        self._copies = DeadLetterCopies(copy)
        self._holdings = holdings
        self._lags: GroupLags | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._ended = (0, 0)  # records acquired and acknowledged at coordinators that have ended

    def __repr__(self) -> str:
        return f"GroupHost({list(self._hosted.values())})"

    def measure_lags(self, lags: GroupLags) -> None:
        """Measures the lag of groups from now on."""
        self._lags = lags

    def check_new_group(self, name: str) -> None:
        """Checks the ceilings of the tenant that a new group is of. Raises QuotaExhausted."""
        self._holdings.check_new_group(name.removeprefix(PUSH_PREFIX), is_subscription=name.startswith(PUSH_PREFIX))

    def check_new_member(self, group: str) -> None:
        """Checks the ceiling of the tenant that the group of a new member is of. Raises QuotaExhausted."""
        self._holdings.check_new_member(group)

    def held(self) -> Iterator[HeldGroup]:
        """Yields the groups that this process coordinates."""
        for group in self._groups():
            is_subscription = group.name.startswith(PUSH_PREFIX)
            yield HeldGroup(group.name.removeprefix(PUSH_PREFIX), is_subscription, group.member_count)

    async def load(self) -> None:
        """Loads the coordinators of all partitions of the groups topic that this process leads."""
        topic = self._topics.get(GROUPS_TOPIC)
        for partition in () if topic is None else list(topic.partitions.values()):
            with suppress(EngineError, KeyError):  # another process leads it, or its log cannot be read
                self._partitions.replica(partition).check_serves_reads()
                await self.at(partition)

    def deciding(
        self, decide: Decide[A, R], *, needs_room: bool = False
    ) -> Callable[[Partition, A], Awaitable[tuple[R, bytes]]]:
        """Returns the call of another process that may store something, also on a disk that was full a moment ago.

        `needs_room`: it always stores something, and a full disk refuses it before it changes anything.
        """

        async def function(partition: Partition, call: A) -> tuple[R, bytes]:
            hosted = await self.at(partition)
            if needs_room:
                hosted.check_room()
            answer, sequence = hosted.decide(lambda core, now, source: decide(core, call, now, source), call)
            await hosted.wait_stored(sequence or hosted.prove_lead(0))
            return answer, b""

        return function

    def families(self) -> Iterator[Numbers]:
        """Yields the metrics of each group that this process coordinates."""
        members = sum_by_name((group.name, group.member_count) for group in self._groups())
        yield Numbers("penstock_group_members", "Members of a group", "group", members)
        letters = sum_by_name(self.dead_letters().items())
        text = "Records of a group that became dead letters, since its coordinator began"
        yield Numbers("penstock_group_dead_letters_total", text, "group", letters)
        steady_ms = self._clock.steady_ms()
        delayed = sum_by_name((group.name, group.delayed_partitions(steady_ms)) for group in self._groups())
        text = "Partitions of a consumer group that wait for a record that failed"
        yield Numbers("penstock_group_delayed_partitions", text, "group", delayed)
        if self._lags is not None:
            yield from self._lags.families()

    def dead_letters(self) -> dict[str, int]:
        """Returns how many records of each group that this process coordinates became dead letters."""
        return {group.name: group.dead_letters for group in self._groups()}

    def lags(self) -> Iterator[tuple[str, int, int, float]]:
        """Yields name, members, and the lag in records and in seconds of each group that this process coordinates."""
        by_group = {} if self._lags is None else self._lags.by_group
        for group in self._groups():
            yield group.name, group.member_count, *by_group.get(group.name, (0, 0.0))

    def with_lag(self, row: GroupRow) -> GroupRow:
        """Returns the line of a group with its lag, if that is measured."""
        if self._lags is None or row.group not in self._lags.rows:
            return row
        records, seconds = self._lags.by_group[row.group]
        return structs.replace(row, lags=self._lags.rows[row.group], lag_records=records, lag_s=seconds)

    @property
    def worst_lags(self) -> Mapping[str, TopicLag]:
        """The lag of the group that is the furthest behind in each topic, as far as this process coordinates groups."""
        return {} if self._lags is None else self._lags.worst

    def _groups(self) -> Iterator[Group]:
        for hosted in self._hosted.values():
            yield from hosted.coordinator.groups.values()

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each metric of the share groups that this process coordinates."""
        cores = [hosted.coordinator for hosted in self._hosted.values()]
        shares = [share for core in cores for group in core.groups.values() if (share := group.share) is not None]
        parts = [part for share in shares for part in share.partitions.values()]
        yield (
            "penstock_share_records_acquired_total",
            "Records of share groups that were handed out, redeliveries included",
            self._ended[0] + sum(core.acquired for core in cores),
        )
        yield (
            "penstock_share_records_acknowledged_total",
            "Outcomes of records of share groups",
            self._ended[1] + sum(core.settled for core in cores),
        )
        yield (
            "penstock_share_dead_letters_pending",
            "Dead letters of share groups that are not copied yet",
            sum(part.dead_count for part in parts),
        )

    async def at(self, partition: Partition) -> Hosted:
        """Returns the coordinator of a partition that this process leads. Raises EngineError."""
        hosted = self._hosted.get(partition.number)
        if hosted is not None and not self._is_over(hosted, partition):
            return hosted
        if hosted is not None:
            self._drop(hosted)
        loading = self._loading.get(partition.number)
        if loading is None:
            loading = self._loading[partition.number] = start_task(self._load(partition))
            loading.add_done_callback(lambda _: self._loading.pop(partition.number))
        return await asyncio.shield(loading)

    def present(self, partition: Partition) -> Hosted | None:
        """Returns the coordinator of a partition if it runs."""
        hosted = self._hosted.get(partition.number)
        return None if hosted is None or self._is_over(hosted, partition) else hosted

    def at_once(self, partition: Partition, hosting: int) -> Hosted:
        """Returns the coordinator that made a decision before. Raises CoordinatorMoved if it was replaced."""
        hosted = self.present(partition)
        if hosted is None or hosted.hosting != hosting:
            raise CoordinatorMoved("the coordinator of the group was replaced during the call")
        return hosted

    def decider(self, partition: Partition, hosting: int) -> Hosted:
        """Returns the coordinator that made a decision, also one that has ended: it knows whether that is stored.

        Raises CoordinatorMoved once the next one is there.
        """
        for hosted in (self._hosted.get(partition.number), self._dropped.get(partition.number)):
            if hosted is not None and hosted.hosting == hosting:
                return hosted
        raise CoordinatorMoved("the coordinator of the group was replaced during the call")

    def stop(self) -> None:
        """Ends the sweep and all waits."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        if self._measuring is not None:
            self._measuring.cancel()
        for hosted in list(self._hosted.values()):
            self._drop(hosted)

    async def _load(self, partition: Partition) -> Hosted:
        replica, epoch = self._partitions.replica(partition), partition.log.leader_epoch
        settings = self._settings
        limits = CoordinatorLimits(
            settings.groups_max, settings.group_members_max, subscriptions_max=settings.subscriptions_max
        )
        coordinator = Coordinator(limits, Ceilings(self.check_new_group, self.check_new_member))
        deadline = asyncio.get_running_loop().time() + self._settings.leader_wait_ms / 1000
        try:
            if (dropped := self._dropped.get(partition.number)) is not None:
                async with asyncio.timeout_at(deadline):
                    await dropped.wait_written()
            end = partition.log_end
            await partition.watermark.acks.wait_until(deadline, end)
        except TimeoutError:
            raise CoordinatorMoved(f"{partition.name}: its records are not committed yet") from None
        replica.check_latest()
        offset = partition.log.log_start
        while offset < end and (chunk := await read_chunk(self._reads, partition, offset, READ_BYTES)) is not None:
            for record in record_batch.decode(chunk.data):
                if record.key is not None and record.offset < end:
                    coordinator.replay(Row(bytes(record.key), None if record.value is None else bytes(record.value)))
            offset = chunk.next_offset
            await asyncio.sleep(0)
        await self._confirm_topics(coordinator)
        if partition.log.leader_epoch != epoch:
            raise CoordinatorMoved(f"{partition.name}: leadership moved during the replay")
        before = self._dropped.get(partition.number)
        if before is not None and (before.partition is not partition or before.leader_epoch != epoch):
            before = None  # others may have led in between, and given out what its locks hold
        hosted = Hosted(
            next(self._hostings),
            partition,
            replica,
            coordinator,
            self._source,
            self._clock,
            self._settings.produce_timeout_ms,
            None if before is None else before.refusal_of_disk,
        )
        hosted.decide(Coordinator.begin, is_patient=True)
        if before is not None:
            carry_locks(before.coordinator.groups, before.refused_calls, coordinator)
        self._hosted[partition.number] = hosted
        self._dropped.pop(partition.number, None)
        if self._sweeping is None:
            self._sweeping = keep_running(self._sweep, "sweeping groups")
        return hosted

    async def _confirm_topics(self, coordinator: Coordinator) -> None:
        """Learns of topics that the groups know and this process does not: no group may lose its positions in them."""
        groups = coordinator.groups.values()
        read_topics = {(name, topic.topic_id) for group in groups for name, topic in group.topics.items()}
        unsure = sorted({name for name, topic_id in read_topics if not self._is_known(name, topic_id)})
        for begin in range(0, len(unsure), TOPICS_AT_ONCE):
            await asyncio.gather(*(self._topics.confirm(name) for name in unsure[begin : begin + TOPICS_AT_ONCE]))

    def _is_known(self, name: str, topic_id: str) -> bool:
        size = self._source.find(name)
        return size is not None and size.topic_id == topic_id

    async def _sweep(self) -> None:
        for number in itertools.count():
            await asyncio.sleep(SWEEP_S)
            is_measured = self._measuring is None or self._measuring.done()
            if self._lags is not None and is_measured and number % LAG_SWEEPS == 0:
                self._measuring = in_background(self._lags.measure(self._groups()), "measuring the lag of groups")
            for hosted in list(self._hosted.values()):
                if self._is_over(hosted, hosted.partition) or not self._is_leading(hosted):
                    self._drop(hosted)
                else:
                    hosted.decide(Coordinator.sweep, is_patient=True)
                    hosted.decide(classic_calls.sweep, is_patient=True)
                    hosted.decide(instances.sweep, is_patient=True)
                    self._copies.begin(hosted)
                await asyncio.sleep(0)

    def _is_over(self, hosted: Hosted, partition: Partition) -> bool:
        return (
            hosted.error is not None
            or hosted.partition is not partition
            or hosted.leader_epoch != partition.log.leader_epoch
        )

    def _is_leading(self, hosted: Hosted) -> bool:
        try:
            self._partitions.replica(hosted.partition).check_serves_reads()
        except (EngineError, KeyError):
            return False
        return hosted.partition.offline is None

    def _drop(self, hosted: Hosted) -> None:
        if self._hosted.get(hosted.partition.number) is hosted:
            del self._hosted[hosted.partition.number]
            core = hosted.coordinator
            self._ended = (self._ended[0] + core.acquired, self._ended[1] + core.settled)
            self._dropped[hosted.partition.number] = hosted
        hosted.close(hosted.error or CoordinatorMoved("another process coordinates the group now"))


class KnownTopics:
    """The topics of this process as a coordinator sees them. Implements TopicSource."""

    def __init__(self, topics: Topics, partitions: Partitions) -> None:
        self._topics = topics
        self._partitions = partitions

    def find(self, name: str) -> TopicSize | None:
        topic = self._topics.get(name)
        return None if topic is None else TopicSize(topic.record.topic_id, topic.record.partitions)

    def names(self) -> Collection[str]:
        return [topic.record.name for topic in self._topics.all() if topic.record.name not in INTERNAL_TOPICS]

    def racks(self, name: str) -> tuple[PartitionRacks, ...]:
        topic = self._topics.get(name)
        if topic is None:
            return ()
        topic_id, partitions = topic.record.topic_id, topic.record.partitions
        return tuple(PartitionRacks(*self._partitions.racks(topic_id, number)) for number in range(partitions))
