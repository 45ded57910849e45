"""Which records a read still fetches after filters were pushed down. Spark evaluates the filters all the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from spark_ingest.frames.filters import narrowed
from spark_ingest.frames.read_options import ReadOptions, parse_options

TIME = datetime(2013, 11, 21, 5, tzinfo=UTC)
TIME_MS = 1_385_010_000_000
OFFSET, PARTITION, TIMESTAMP = ("offset",), ("partition",), ("timestamp",)


def after(*filters: Filter, prefix: str = "", **options: str) -> ReadOptions:
    return narrowed(parse_options({"store": "s", "topic": "t"} | options), filters, prefix)


@pytest.mark.parametrize(
    ("one", "start", "end"),
    [
        (EqualTo(OFFSET, 5), 5, 6),
        (GreaterThan(OFFSET, 5), 6, None),
        (GreaterThanOrEqual(OFFSET, 5), 5, None),
        (LessThan(OFFSET, 5), None, 5),
        (LessThanOrEqual(OFFSET, 5), None, 6),
        (In(OFFSET, (9, 3)), 3, 10),
        (Not(EqualTo(OFFSET, 5)), None, None),
        (IsNotNull(OFFSET), None, None),
        (EqualTo(OFFSET, None), None, None),
        (EqualTo(("offset", "x"), 5), None, None),
        (EqualTo(("_offset",), 5), None, None),
    ],
)
def test_a_comparison_of_the_offset_bounds_it(one: Filter, start: int | None, end: int | None) -> None:
    found = after(one)
    assert (found.starts.of(0), found.ends.of(0)) == (start, end)


@pytest.mark.parametrize(
    ("one", "start_ms", "end_ms"),
    [
        (EqualTo(TIMESTAMP, TIME), TIME_MS, TIME_MS + 1),
        (GreaterThan(TIMESTAMP, TIME), TIME_MS + 1, None),
        (GreaterThanOrEqual(TIMESTAMP, TIME + timedelta(microseconds=1)), TIME_MS + 1, None),
        (LessThan(TIMESTAMP, TIME + timedelta(microseconds=1)), None, TIME_MS + 1),
        (LessThanOrEqual(TIMESTAMP, TIME), None, TIME_MS + 1),
        (LessThan(TIMESTAMP, TIME.replace(tzinfo=None)), None, None),
    ],
)
def test_a_comparison_of_the_timestamp_bounds_it(one: Filter, start_ms: int | None, end_ms: int | None) -> None:
    found = after(one)
    assert (found.start_ms, found.end_ms) == (start_ms, end_ms)


def test_filters_and_options_bound_together() -> None:
    options = {"startOffset": '{"0": 50, "1": 2}', "endOffset": "60", "partitions": "0-2", "endTime": str(TIME_MS)}
    found = after(GreaterThan(OFFSET, 9), LessThan(OFFSET, 70), In(PARTITION, (1, 2, 8)), **options)
    assert [found.starts.of(number) for number in range(3)] == [50, 10, 10]
    assert found.ends.of(0) == 60
    assert found.partitions == {1, 2}
    assert after(LessThan(TIMESTAMP, TIME + timedelta(days=1)), **options).end_ms == TIME_MS


def test_columns_of_a_typed_read_have_a_prefix() -> None:
    assert after(EqualTo(("_partition",), 3), prefix="_").partitions == {3}
    assert after(EqualTo(PARTITION, 3), prefix="_").partitions is None
