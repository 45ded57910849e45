"""Records that a job can never ingest, because the store no longer has them: by retention, or with a deleted topic.

Compares the newest commit with what the store has now. Decides nothing: planner.py stops or goes on, by `--on-lost`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from engine.tiering.manifest.deleted_topic import deleted_ends, tiered_ends
from engine.tiering.store.store import ObjectStore
from spark_ingest.plan import RETENTION, TOPIC_DELETED, Lost, Positions, TopicPosition
from spark_ingest.source.cut import Range
from spark_ingest.source.source import TieredPartition, discover


class HasPositions(Protocol):
    """The part of a commit that counts here."""

    @property
    def cluster(self) -> str: ...
    @property
    def positions(self) -> Positions: ...


def lost_to_retention(found: Iterable[TieredPartition], positions: Positions) -> list[Lost]:
    """What is missing between a committed position and the first offset of the store."""
    lost = []
    for one in found:
        position = positions.get(one.topic)
        reached = position.ends.get(one.partition) if position and position.topic_id == one.topic_id else None
        if reached is not None and reached < one.log_start:
            lost.append(Lost(one.topic, one.topic_id, one.partition, reached, one.log_start, RETENTION))
    return lost


def lost_with_topics(
    store: ObjectStore,
    cluster: str,
    found: Iterable[TieredPartition],
    positions: Positions,
    is_wanted: Callable[[str], bool],
) -> list[Lost]:
    """What was not ingested of topics that are gone, or were created again under the same name. Raises Corrupt.

    The marker of a deleted topic says how far the store had it. Of a topic that was deleted by a release without
    markers, an unknown number of records is lost from the committed position on.
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
    return lost


def pending_losses(store: ObjectStore, commits: Sequence[HasPositions]) -> list[Lost]:
    """What the store lost and the newest commit does not know of. Reads manifests only."""
    if not commits:
        return []
    head = commits[-1]
    found = discover(store, head.cluster, lambda _: True)
    deleted = lost_with_topics(store, head.cluster, found, head.positions, lambda _: True)
    return [*lost_to_retention(found, head.positions), *deleted]


def lost_of(skipped: dict[str, list[Range]], positions: Positions) -> list[Lost]:
    """What a plan or a commit of an older form has under `skipped`."""
    return [
        Lost(topic, positions[topic].topic_id, one.partition, one.start, one.end, RETENTION)
        for topic, ranges in skipped.items()
        for one in ranges
    ]


def counted(lost: Sequence[Lost]) -> int:
    """The records that are known to be lost."""
    return sum(one.records or 0 for one in lost)


def rows_of(lost: Sequence[Lost]) -> list[dict[str, object]]:
    """For JSON documents."""
    return [{**msgspec.structs.asdict(one), "records": one.records} for one in lost]
