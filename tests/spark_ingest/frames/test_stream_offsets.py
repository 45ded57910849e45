"""Offsets of a stream: JSON there and back, and the admitted share of each partition."""

from __future__ import annotations

import json

import pytest

from spark_ingest.frames.stream_offsets import StreamOffset, Unread, admitted, advanced, from_json, to_json
from spark_ingest.plan import RETENTION, TOPIC_DELETED, Lost, TopicPosition


def unread(partition: int, start: int, end: int, size_bytes: int = 0) -> Unread:
    return Unread("t", "id", partition, start, end, size_bytes)


def test_an_offset_is_the_same_after_json() -> None:
    offset = StreamOffset(True, {"t": TopicPosition("id", {10: 5, 2: 7})}, {RETENTION: 3})
    text = json.dumps(to_json(offset))
    assert from_json(json.loads(text)) == offset
    assert json.dumps(to_json(from_json(json.loads(text)))) == text
    assert from_json({}) == StreamOffset()


@pytest.mark.parametrize(
    ("records_max", "bytes_max", "ends"),
    [
        (None, None, [110, 10]),
        (55, None, [50, 5]),
        (110, 10**9, [100, 10]),
        (None, 600, [50, 5]),
        (11, 10**9, [10, 1]),
        (1, None, [1]),
        (5, None, [4]),
    ],
)
def test_each_partition_gives_the_same_share(records_max: int | None, bytes_max: int | None, ends: list[int]) -> None:
    waiting = [unread(0, 0, 110 if records_max is None and bytes_max is None else 100, 1100), unread(1, 0, 10, 100)]
    taken = admitted(waiting, records_max, bytes_max)
    assert [one.end for one in taken] == ends
    assert admitted([], records_max, bytes_max) == []


def test_an_offset_goes_behind_lost_records_and_remembers_where_deleted_topics_ended() -> None:
    start = StreamOffset(True, {"t": TopicPosition("id", {0: 5, 1: 5}), "gone": TopicPosition("x", {0: 1})}, {"a": 1})
    lost = [Lost("t", "id", 1, 5, 9, RETENTION), Lost("gone", "x", 0, 1, 3, TOPIC_DELETED)]
    after = advanced(start, [unread(0, 5, 6)], lost, {"t": ["before"]})
    counts = {"a": 1, RETENTION: 4, TOPIC_DELETED: 2}
    ended = {"gone": {"x": {0: 1}}, "t": {"before": {}}}
    assert after == StreamOffset(True, {"t": TopicPosition("id", {0: 6, 1: 9})}, counts, ended)
    assert advanced(after, [], [], {}) == after
    back = advanced(after, [Unread("gone", "x", 0, 1, 4, 0)], [], {})
    assert (back.topics["gone"], back.ended) == (TopicPosition("x", {0: 4}), {"t": {"before": {}}})
