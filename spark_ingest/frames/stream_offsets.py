"""The offsets of a stream: how far each partition is read, and how many records of the next batch are admitted. Pure.

Spark keeps an offset as JSON in the checkpoint, before the batch that ends there. A batch is therefore a function of
two offsets, and a replay reads the same records.

    {"started": true, "topics": {"flights": {"topic_id": "ab…", "ends": {"0": 120}}}, "lost": {"retention": 5}}

The offset of a new query is `{}`. Its first batch is empty and ends where the query starts to read: the checkpoint has
the start from then on, however the store changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from spark_ingest.plan import RETENTION, Lost, Positions, TopicPosition


class StreamOffset(msgspec.Struct, frozen=True):
    """`topics` has the first offset that is not read, of each partition; `lost` the skipped records by reason."""

    started: bool = False
    topics: Positions = {}
    lost: dict[str, int] = {}

    def reached(self, topic: str, topic_id: str, partition: int) -> int | None:
        """Returns how far a partition is read; None if it is new to the query."""
        position = self.topics.get(topic)
        return position.ends.get(partition) if position and position.topic_id == topic_id else None


class Unread(NamedTuple):
    """Offsets `start` to `end` (exclusive) of a partition, and the bytes of their segments."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    size_bytes: int

    @property
    def records(self) -> int:
        return self.end - self.start


def from_json(document: dict[str, Any]) -> StreamOffset:
    """Converts an offset of Spark's. Raises msgspec.ValidationError."""
    return msgspec.convert(document, StreamOffset, str_keys=True)


def to_json(offset: StreamOffset) -> dict[str, Any]:
    """Converts an offset for Spark, which compares the text."""
    document: dict[str, Any] = msgspec.to_builtins(offset, str_keys=True, order="deterministic")
    return document


def admitted(unread: Sequence[Unread], records_max: int | None, bytes_max: int | None) -> list[Unread]:
    """Returns the same share of each partition's unread records, so that none falls behind; one record at least.

    Records are counted by their offsets, and bytes as if all records of a partition had one size.
    """
    records, size_bytes = sum(one.records for one in unread), sum(one.size_bytes for one in unread)
    share = Fraction(1)
    if records_max is not None and records:
        share = min(share, Fraction(records_max, records))
    if bytes_max is not None and size_bytes:
        share = min(share, Fraction(bytes_max, size_bytes))
    taken = [one._replace(end=one.start + int(one.records * share)) for one in unread]
    if records and not any(one.records for one in taken):
        at = max(range(len(unread)), key=lambda at: unread[at].records)
        taken[at] = unread[at]._replace(end=unread[at].start + 1)
    return [one for one in taken if one.records]


def advanced(
    start: StreamOffset, living: Iterable[tuple[str, str]], taken: Iterable[Unread], lost: Sequence[Lost]
) -> StreamOffset:
    """Returns the offset after a batch, behind the lost records. Drops topics whose name and id are not living."""
    alive = dict(living)
    topics = {topic: one for topic, one in start.topics.items() if alive.get(topic) == one.topic_id}
    behind = [(one.topic, one.topic_id, one.partition, one.end) for one in lost if one.reason == RETENTION]
    read = [(one.topic, one.topic_id, one.partition, one.end) for one in taken]
    for topic, topic_id, partition, end in [*behind, *read]:
        known = topics.get(topic, TopicPosition(topic_id, {}))
        topics[topic] = TopicPosition(topic_id, {**known.ends, partition: end or 0})
    counts = Counter(start.lost)
    for one in lost:
        counts[one.reason] += one.records or 0
    return StreamOffset(True, topics, dict(counts))
