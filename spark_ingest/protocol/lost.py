"""Finds records that a job cannot ingest because the store no longer has them: retention or a deleted topic.

Compares the newest commit with the store. planner.py fails or continues, as `--on-lost` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from engine.errors import EngineError
from engine.tiering.manifest.deleted_topic import deleted_ends, list_deleted, untiered_ranges
from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import IngestRefused
from spark_ingest.plan import NOT_TIERED, RETENTION, TOPIC_DELETED, Lost, Positions
from spark_ingest.progress import Progress
from spark_ingest.source.discovery import TieredPartition, discover, resolve_cluster
from spark_ingest.source.requests import request_all, value_of
from spark_ingest.source.slices import Range


@dataclass(frozen=True, slots=True)
class Changed:
    """The lost ranges of deleted ids by topic, or its error; and what Progress.advanced takes as settled."""

    lost: dict[str, list[Lost] | EngineError]
    settled: dict[str, list[str]]

    def all_lost(self) -> list[Lost]:
        """Raises the first error."""
        return [loss for result in self.lost.values() for loss in value_of(result)]


def lost_to_retention(partitions: Iterable[TieredPartition], progress: Progress) -> list[Lost]:
    """Returns the ranges between a position and the first offset in the store."""
    lost = []
    for partition in partitions:
        reached = progress.reached(partition.topic, partition.topic_id, partition.partition)
        if reached is not None and reached < partition.log_start:
            lost.append(
                Lost(partition.topic, partition.topic_id, partition.partition, reached, partition.log_start, RETENTION)
            )
    return lost


def changed_ids(
    store: ObjectStore, cluster: str, living: Mapping[str, str], progress: Progress, is_wanted: Callable[[str], bool]
) -> Changed:
    """Returns what was lost with topics that were deleted or recreated, by the markers of their deletion.

    `living` has the id in the store by topic. An id that is read, and is neither there nor has a marker, is the error
    of its topic: the store is another one, or is not whole. Also counts ids that came and went since the last read.
    """
    known_topics = {*progress.positions, *progress.ended}
    changed = {
        topic for topic in known_topics if is_wanted(topic) and not _is_at(progress, topic, living.get(topic, ""))
    }
    changed |= {topic for topic in living if topic not in known_topics}
    if not progress.is_complete:
        changed |= known_topics
    markers = list_deleted(store, cluster, changed)
    unread = {topic: sorted(ids - progress.ids_of(topic) - {living.get(topic, "")}) for topic, ids in markers.items()}
    settled = {
        topic: ids for topic, ids in unread.items() if ids and not (topic in known_topics and progress.is_complete)
    }
    topics = [topic for topic in sorted(markers) if topic in known_topics and is_wanted(topic)]
    lost_with = partial(_lost_with, store, cluster)

    def lost_of_topic(topic: str) -> list[Lost]:
        lost = [loss for each in unread[topic] if topic not in settled for loss in lost_with(topic, each, {})]
        position = progress.positions.get(topic)
        if position is None or _is_at(progress, topic, living.get(topic, "")):
            return lost
        if position.topic_id not in markers[topic]:
            raise _missing(store, topic, position.topic_id, living.get(topic))
        return [*lost_with(topic, position.topic_id, position.ends), *lost]

    return Changed(dict(zip(topics, request_all(lost_of_topic, topics), strict=True)), settled)


def _is_at(progress: Progress, topic: str, topic_id: str) -> bool:
    return topic in progress.positions and progress.positions[topic].topic_id == topic_id


def _missing(store: ObjectStore, topic: str, topic_id: str, other_id: str | None) -> IngestRefused:
    there = "does not have it" if other_id is None else f"has {other_id} of this name"
    return IngestRefused(
        f"{topic} is read up to positions of topic {topic_id}, but {store.url} {there}, and no marker of a deletion",
        hint="check that the store is the right one, is mounted and is whole; penstock ingest offsets drop makes a job "
        "forget a topic that was deleted without a node",
    )


def _lost_with(
    store: ObjectStore, cluster: str, topic: str, topic_id: str, reached: Mapping[int, int]
) -> Iterator[Lost]:
    """Yields what the marker of a deleted topic has above the ends that were reached."""
    ends = deleted_ends(store, cluster, topic, topic_id) or {}
    for partition in sorted({*ends, *reached}):
        start, end = reached.get(partition, 0), ends[partition][1] if partition in ends else None
        if end is None or start < end:
            yield Lost(topic, topic_id, partition, start, end, TOPIC_DELETED)
    for partition, (start, end) in sorted(untiered_ranges(store, cluster, topic, topic_id).items()):
        yield Lost(topic, topic_id, partition, start, end, NOT_TIERED)


def living_ids(partitions: Iterable[TieredPartition]) -> dict[str, str]:
    return {partition.topic: partition.topic_id for partition in partitions}


def pending_losses(store: ObjectStore, cluster: str, progress: Progress) -> list[Lost]:
    """Returns the losses since the newest commit. Reads manifests. Raises IngestRefused, Corrupt."""
    partitions = discover(store, resolve_cluster(store, None, cluster), progress.knows)
    changed = changed_ids(store, cluster, living_ids(partitions), progress, lambda _: True)
    return [*lost_to_retention(partitions, progress), *changed.all_lost()]


def lost_of(ranges: dict[str, list[Range]], positions: Positions, reason: str = RETENTION) -> list[Lost]:
    """Converts `skipped` or `unseen` of a plan or commit to lost ranges."""
    return [
        Lost(topic, positions[topic].topic_id, span.partition, span.start, span.end, reason)
        for topic, spans in ranges.items()
        for span in spans
    ]


def counted(lost: Sequence[Lost]) -> int:
    """Returns the number of records in ranges with a known end."""
    return sum(loss.records or 0 for loss in lost)


def rows_of(lost: Sequence[Lost]) -> list[dict[str, object]]:
    """Converts lost ranges for JSON documents."""
    return [{**msgspec.structs.asdict(loss), "records": loss.records} for loss in lost]
