"""Finds records that a job cannot ingest because the store no longer has them: retention or a deleted topic.

Compares the newest commit with the store. planner.py fails or continues, as `--on-lost` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from engine.tiering.manifest.deleted_topic import deleted_ends, tiered_ends, untiered_ranges
from engine.tiering.store.store import ObjectStore
from spark_ingest.plan import NOT_TIERED, RETENTION, TOPIC_DELETED, Lost, Positions, TopicPosition
from spark_ingest.source.discovery import TieredPartition, discover
from spark_ingest.source.slices import Range


class HasPositions(Protocol):
    """The fields of a commit that this file reads."""

    @property
    def cluster(self) -> str: ...
    @property
    def positions(self) -> Positions: ...


def lost_to_retention(found: Iterable[TieredPartition], positions: Positions) -> list[Lost]:
    """Returns the ranges between a committed position and the first offset in the store."""
    lost = []
    for one in found:
        position = positions.get(one.topic)
        reached = position.ends.get(one.partition) if position and position.topic_id == one.topic_id else None
        if reached is not None and reached < one.log_start:
            lost.append(Lost(one.topic, one.topic_id, one.partition, reached, one.log_start, RETENTION))
    return lost


def lost_with_deleted_topics(
    store: ObjectStore,
    cluster: str,
    found: Iterable[TieredPartition],
    positions: Positions,
    is_wanted: Callable[[str], bool],
) -> list[Lost]:
    """Returns the ranges that were not ingested of topics that were deleted or recreated. Raises Corrupt.

    The marker of a deleted topic has the end of the tiered records. A topic that an older release deleted has no
    marker; the end of its lost range is None.
    """
    living = {(one.topic, one.topic_id) for one in found}
    lost: list[Lost] = []
    for topic, position in sorted(positions.items()):
        if is_wanted(topic) and (topic, position.topic_id) not in living:
            lost += _lost_with(store, cluster, topic, position)
    return lost


def _lost_with(store: ObjectStore, cluster: str, topic: str, position: TopicPosition) -> list[Lost]:
    ends = deleted_ends(store, cluster, topic, position.topic_id)
    if ends is None:
        ends = tiered_ends(store, cluster, topic, position.topic_id, position.ends)
    lost = []
    for partition in sorted({*ends, *position.ends}):
        start, end = ends.get(partition, (0, None))
        start = max(start, position.ends.get(partition, start))
        if end is None or start < end:
            lost.append(Lost(topic, position.topic_id, partition, start, end, TOPIC_DELETED))
    for partition, (start, end) in sorted(untiered_ranges(store, cluster, topic, position.topic_id).items()):
        lost.append(Lost(topic, position.topic_id, partition, start, end, NOT_TIERED))
    return lost


def pending_losses(store: ObjectStore, commits: Sequence[HasPositions]) -> list[Lost]:
    """Returns the losses since the newest commit. Reads manifests. Raises Corrupt."""
    if not commits:
        return []
    head = commits[-1]
    found = discover(store, head.cluster, lambda _: True)
    deleted = lost_with_deleted_topics(store, head.cluster, found, head.positions, lambda _: True)
    return [*lost_to_retention(found, head.positions), *deleted]


def lost_of(ranges: dict[str, list[Range]], positions: Positions, reason: str = RETENTION) -> list[Lost]:
    """Converts `skipped` or `unseen` of a plan or commit to lost ranges."""
    return [
        Lost(topic, positions[topic].topic_id, one.partition, one.start, one.end, reason)
        for topic, found in ranges.items()
        for one in found
    ]


def counted(lost: Sequence[Lost]) -> int:
    """Returns the number of records in ranges with a known end."""
    return sum(one.records or 0 for one in lost)


def rows_of(lost: Sequence[Lost]) -> list[dict[str, object]]:
    """Converts lost ranges for JSON documents."""
    return [{**msgspec.structs.asdict(one), "records": one.records} for one in lost]
