"""Rules for event times: patterns, units, bounds; each value has the same time alone and in a column."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from engine.testing.memory_store import MemoryStore
from spark_ingest.decode.event_time import parse_column
from spark_ingest.decode.time_rules import beyond_bounds, format_problem, reader_of
from spark_ingest.errors import NoEventTime
from spark_ingest.plan import DEAD_LETTER, FAIL, Recipe
from tests.spark_ingest.jobs import dead_letters, run_job, table_rows
from tests.spark_ingest.tiered import START_MS, TieredLog, row

SECOND = 1_000_000
TIME = int(datetime(2013, 11, 21, 5, tzinfo=UTC).timestamp()) * SECOND


@pytest.mark.parametrize(
    ("recipe", "value", "found"),
    [
        (Recipe(event_time_formats=("%d/%b/%Y:%H:%M:%S %z",)), "21/Nov/2013:06:00:00 +0100", TIME),
        (Recipe(event_time_formats=("%Y", "%Y-%m-%d %H.%M")), " 2013-11-21 05.00", TIME),
        (Recipe(event_time_formats=("%Y",)), "2013-11-21T05:00:00Z", None),
        (Recipe(event_time_formats=("%Y",)), 1_385_010_000, TIME),
        (Recipe(event_time_formats=("%Y-%z",)), "0001-+2359", None),
        (Recipe(event_time_unit="s"), 5, 5 * SECOND),
        (Recipe(event_time_unit="s"), -5, -5 * SECOND),
        (Recipe(event_time_unit="s"), "5", 5 * SECOND),
        (Recipe(event_time_unit="s"), 1.5, 1_500_000),
        (Recipe(event_time_unit="ms"), "1385010000000", TIME),
        (Recipe(event_time_unit="us"), TIME, TIME),
        (Recipe(event_time_unit="ns"), TIME * 1000 + 999, TIME),
        (Recipe(event_time_unit="s"), 10**18, None),
        (Recipe(event_time_unit="s"), float("inf"), None),
        (Recipe(event_time_unit="s"), float("nan"), None),
        (Recipe(event_time_unit="s"), "2013-11-21T05:00:00Z", TIME),
        (Recipe(event_time_unit="s"), True, None),
        (Recipe(event_time_unit="s"), None, None),
    ],
)
def test_a_value_has_the_time_of_its_rule(recipe: Recipe, value: object, found: int | None) -> None:
    read = reader_of(recipe)
    assert read is not None
    assert read(value) == found
    if isinstance(value, str | int) and not isinstance(value, bool):
        assert parse_column(pa.array([value, None]), read).to_pylist() == [found, None]


def test_without_rules_values_are_parsed_in_bulk() -> None:
    assert reader_of(Recipe(event_time="a")) is None


@pytest.mark.parametrize("wrong", ["%Q", "%H:%M", "%"])
def test_patterns_that_cannot_be_read_are_mistakes(wrong: str) -> None:
    assert format_problem(["%Y", wrong])
    assert format_problem(["%Y-%m-%dT%H:%M:%S.%f%z", "%c"]) is None


def test_bounds_are_inclusive_and_need_a_timestamp() -> None:
    recipe = Recipe(event_time_past_max_s=10, event_time_future_max_s=1)
    own = pa.array([100, 100, 100, 100, None, 100], pa.int64())
    ahead = [-10 * SECOND, -10 * SECOND - 1, SECOND, SECOND + 1, 0, None]
    found = pa.array([None if one is None else 100 + one for one in ahead], pa.int64())
    beyond = beyond_bounds(found, own, recipe)
    assert beyond is not None
    assert beyond.to_pylist() == [False, True, False, True, False, False]
    assert beyond_bounds(pa.array([100]), pa.array([100]), recipe) is None
    assert beyond_bounds(found, own, Recipe()) is None


def job(fallback: str) -> tuple[list[object], list[tuple[object, str]]]:
    log, output = TieredLog(MemoryStore()), MemoryStore()
    times = [START_MS // 1000, START_MS // 1000 - 11, 5 * 10**9]
    log.add(0, [row(b'{"t":%d}' % one) for one in times])
    recipe = Recipe("json", "t", fallback, event_time_past_max_s=10, event_time_future_max_s=10)
    run_job(log.store, output, recipe=recipe, bad_percent_max=100)
    letters = [(one["_offset"], one["_reason"]) for one in dead_letters(output)]
    return [one["_event_time"] for one in table_rows(output)], letters


def test_a_time_beyond_the_bounds_follows_the_fallback() -> None:
    start = datetime(2013, 11, 21, 5, tzinfo=UTC)
    assert job("record") == ([start] * 3, [])
    far = "event_time_out_of_bounds"
    assert job(DEAD_LETTER) == ([start], [(1, far), (2, far)])
    with pytest.raises(NoEventTime, match="offset 1: the time in t is too far"):
        job(FAIL)
