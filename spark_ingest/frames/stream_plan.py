"""Plans the batches of a stream from manifests: where it starts, what comes next, what is lost. Reads no segment.

Knows nothing of Spark. Reads the store at most every `pollMs`, because Spark asks a hundred times a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import LostRecords, RepeatedRecords
from spark_ingest.frames.stream_offsets import StreamOffset, Unread, admitted, advanced
from spark_ingest.frames.stream_options import StreamOptions
from spark_ingest.protocol.lost import changed_ids, living_ids, lost_to_retention
from spark_ingest.source.discovery import TieredPartition, discover, load_folded, resolve_cluster, slices_between
from spark_ingest.source.slices import Slice, cut

_HINT = "onLost=skip goes on behind them, and counts them in the offsets of the query"


class _Look(NamedTuple):
    """The partitions of the store at a time."""

    at: float
    cluster: str
    partitions: list[TieredPartition]


class StreamPlan:
    """Answers Spark's questions about one stream. `clock` returns seconds."""

    def __init__(self, options: StreamOptions, store: ObjectStore, clock: Callable[[], float]) -> None:
        self._options = options
        self._store = store
        self._clock = clock
        self._is_topic = re.compile(options.read.topics).fullmatch
        self._look: _Look | None = None
        self._target: dict[tuple[str, str, int], int] | None = None

    def stop_at_present_end(self) -> None:
        """Hides what is tiered from now on, for Trigger.AvailableNow."""
        self._target = {_id(partition): partition.tiered_end for partition in self._read_by(self._look_now())}

    def ends(self) -> StreamOffset:
        """Returns the ends of the partitions at the last look."""
        partitions = self._read_by(self._look or self._look_now())
        return advanced(
            StreamOffset(), [_unread(partition, 0, partition.tiered_end, 0) for partition in partitions], (), {}
        )

    def next_offset(self, start: StreamOffset, *, is_limited: bool) -> StreamOffset:
        """Returns where the next batch ends; `start` if there is nothing to read.

        Raises LostRecords; IngestRefused if the store has neither a topic of the query nor a marker of its deletion.
        """
        look = self._look_if_due()
        partitions = self._read_by(look)
        changed = changed_ids(self._store, look.cluster, living_ids(look.partitions), start.progress, self._reads)
        if not start.started:
            return advanced(start, [self._first(partition) for partition in partitions], (), changed.settled)
        numbers = self._options.read.partitions
        deleted = [loss for loss in changed.all_lost() if numbers is None or loss.partition in numbers]
        lost = [*lost_to_retention(partitions, start.progress), *deleted]
        if lost and not self._options.skips_lost:
            raise LostRecords("; ".join(map(str, lost)), hint=_HINT)
        unread = [unread_part for unread_part in self._unread(start, partitions) if unread_part.records]
        options = self._options
        taken = admitted(unread, options.records_max, options.bytes_max) if is_limited else unread
        return advanced(start, taken, lost, changed.settled)

    def tasks(self, start: StreamOffset, end: StreamOffset) -> list[tuple[str, tuple[Slice, ...]]]:
        """Returns the topic and the slices of each task of a batch. Raises LostRecords."""
        if not start.started:
            return []
        ranges = list(self._ranges(start, end))
        folded = load_folded(self._store, ranges)
        by_topic: dict[str, list[Slice]] = {}
        read = self._options.read
        for partition, first, last in ranges:
            by_topic.setdefault(partition.topic, []).extend(
                slices_between(partition, first, last, folded, read.start_ms, read.end_ms)
            )
        return [(topic, group) for topic, slices in by_topic.items() for group in cut(slices, read.partition_bytes)]

    def _ranges(self, start: StreamOffset, end: StreamOffset) -> Iterator[tuple[TieredPartition, int, int]]:
        partitions = {_id(partition): partition for partition in (self._look or self._look_now()).partitions}
        for topic, position in sorted(end.topics.items()):
            for partition, last in sorted(position.ends.items()):
                reached = start.progress.reached(topic, position.topic_id, partition)
                if reached == last:
                    continue
                if reached is not None and last < reached:
                    text = f"{topic} partition {partition}: the checkpoint has offsets {last} to {reached - 1} as read"
                    raise RepeatedRecords(f"{text}, and a later batch with them", hint="use another checkpoint")
                partition_there = partitions.get((topic, position.topic_id, partition))
                if partition_there is None or partition_there.tiered_end < last:  # tiered since, or gone
                    partitions = {_id(partition): partition for partition in self._look_now().partitions}
                    partition_there = partitions.get((topic, position.topic_id, partition))
                is_cut = partition_there is not None and reached is not None and reached < partition_there.log_start
                if (
                    partition_there is None or partition_there.tiered_end < last or is_cut
                ) and not self._options.skips_lost:
                    title = f"{topic} partition {partition}"
                    text = f"{title}: the store lacks some of offsets {reached or 0} to {last - 1}"
                    raise LostRecords(f"{text}, and the checkpoint has a batch with them", hint=_HINT)
                if partition_there is not None:
                    first = max(reached or 0, partition_there.log_start)
                    yield partition_there, first, max(first, min(last, partition_there.tiered_end))

    def _reads(self, topic: str) -> bool:
        return bool(self._is_topic(topic))

    def _unread(self, start: StreamOffset, partitions: Sequence[TieredPartition]) -> Iterator[Unread]:
        ranges = []
        for partition in partitions:
            reached = start.progress.reached(partition.topic, partition.topic_id, partition.partition)
            end = self._end(partition)
            if reached is not None and partition.tiered_end < reached:
                title = f"{partition.topic} partition {partition.partition}"
                text = f"{title} ends at {partition.tiered_end}, the query is at {reached}"
                raise LostRecords(text, hint="the store was restored to an earlier time; use another checkpoint")
            first = max(reached or 0, partition.log_start)
            ranges.append((partition, first, max(first, end)))
        needs_bytes = self._options.bytes_max is not None
        folded = load_folded(self._store, ranges) if needs_bytes else {}
        for partition, first, end in ranges:
            slices = slices_between(partition, first, end, folded, None, None) if needs_bytes else ()
            yield _unread(partition, first, end, sum(part.weight_bytes for part in slices))

    def _first(self, partition: TieredPartition) -> Unread:
        """Returns where a new query starts to read a partition, as the end of its empty first batch."""
        first = partition.log_start if (start := self._options.read.starts.of(partition.partition)) is None else start
        end = self._end(partition)
        at = end if self._options.starts_at_end else min(max(first, partition.log_start), end)
        return _unread(partition, at, at, 0)

    def _end(self, partition: TieredPartition) -> int:
        return (
            partition.tiered_end
            if self._target is None
            else min(partition.tiered_end, self._target.get(_id(partition), 0))
        )

    def _read_by(self, look: _Look) -> list[TieredPartition]:
        """Returns the partitions to read."""
        numbers = self._options.read.partitions
        partitions = [partition for partition in look.partitions if numbers is None or partition.partition in numbers]
        return (
            partitions
            if self._target is None
            else [partition for partition in partitions if _id(partition) in self._target]
        )

    def _look_if_due(self) -> _Look:
        look = self._look
        is_old = look is None or self._clock() - look.at >= self._options.poll_ms / 1000
        return self._look_now() if look is None or is_old else look

    def _look_now(self) -> _Look:
        cluster = resolve_cluster(self._store, self._options.read.cluster)
        partitions = discover(self._store, cluster, self._reads)
        self._look = _Look(self._clock(), cluster, partitions)
        return self._look


def _id(partition: TieredPartition) -> tuple[str, str, int]:
    return partition.topic, partition.topic_id, partition.partition


def _unread(partition: TieredPartition, start: int, end: int, size_bytes: int) -> Unread:
    return Unread(partition.topic, partition.topic_id, partition.partition, start, end, size_bytes)
