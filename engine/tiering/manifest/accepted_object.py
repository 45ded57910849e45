"""The counts of accepted records in the store: what one process of a node has accepted within one hour of its clock.

One object for each process and hour, replaced each minute while it grows. Counts are by topic and ten minutes since
1970 (engine/partition/accepted_counts.py), so ingestion compares them with what it has read, and asks no node. They are
outside of every topic's prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import orjson
from msgspec import Struct

from engine.tiering.manifest.json_reading import convert, read_object

FORMAT = 1
ALL_PERIODS = -2  # instead of a period: records of more than PERIODS_MAX
PERIODS_MAX = 1000  # of one topic in an object: it stays small when a client replays a year
HOUR_MS = 3_600_000


class CountedTopic(NamedTuple):
    topic: str
    topic_id: str


class _TopicCounts(Struct):
    topic: str
    topic_id: str
    counts: list[tuple[int, int]]


class _Document(Struct):
    topics: list[_TopicCounts]


Accepted = Mapping[CountedTopic, Mapping[int, int]]


def bounded_counts(counts: Mapping[int, int]) -> dict[int, int]:
    """Returns the counts, in one number if there are too many."""
    if len(counts) <= PERIODS_MAX and ALL_PERIODS not in counts:
        return dict(counts)
    return {ALL_PERIODS: sum(counts.values())}


def encode_accepted(accepted: Accepted) -> bytes:
    topics = [
        {"topic": topic.topic, "topic_id": topic.topic_id, "counts": [[at, counts[at]] for at in sorted(counts)]}
        for topic, counts in sorted(accepted.items())
    ]
    return orjson.dumps({"format": FORMAT, "topics": topics})


def decode_accepted(data: bytes, key: str) -> dict[CountedTopic, dict[int, int]]:
    """Decodes an object of counts. Raises Corrupt, UnsupportedFormat."""
    document = convert(read_object(data, key, FORMAT), _Document, key)
    return {CountedTopic(topic.topic, topic.topic_id): dict(topic.counts) for topic in document.topics}
