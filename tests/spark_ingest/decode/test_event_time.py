"""Event times: which forms are read, which are rejected, and that a column gives the same results as single values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ingest.decode.event_time import parse, parse_column
from spark_ingest.payload.member_path import path_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FLIGHT = "2013-11-21T05:00:00Z"
FLIGHT_S = 1_385_010_000


@pytest.mark.parametrize(
    "value",
    [
        FLIGHT,
        "2013-11-21T05:00:00",
        "2013-11-21 05:00",
        "2013-11-21t05:00:00z",
        "2013-11-21T00:00:00-05:00",
        "2013-11-21T10:30:00+0530",
        "2013-11-21T05:00:00.000000999Z",
        " 2013-11-21T05:00:00Z ",
        FLIGHT_S,
        float(FLIGHT_S),
        FLIGHT_S * 10**3,
        FLIGHT_S * 10**6,
        FLIGHT_S * 10**9,
        str(FLIGHT_S),
        str(FLIGHT_S * 10**3),
    ],
)
def test_one_moment_in_many_forms(value: object) -> None:
    assert parse(value) == FLIGHT_S * 10**6


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, 5, -1, 20131121, 1e300, [], {}),
        *("", "soon", "12345", "20131121", "2013-02-30", "2013-11-21Z", "0000-01-01"),
        *("2013-11-21T25:00:00Z", "2013-11-21T05:00:00+24:00", "9999-12-31T23:59:59-01:00"),
    ],
)
def test_what_is_no_time_is_never_given_one(value: object) -> None:
    assert parse(value) is None


def test_a_leap_second_is_the_next_second() -> None:
    assert parse("2016-12-31T23:59:60Z") == parse("2017-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("field", "path"),
    [("ts", ("ts",)), ("a.b", ("a", "b")), ("/a/b", ("a", "b")), ("/a.b", ("a.b",)), ("/a~1b/~0", ("a/b", "~"))],
)
def test_a_field_is_a_pointer_or_a_dotted_name(field: str, path: tuple[str, ...]) -> None:
    assert path_of(field) == path


MOMENTS = st.integers(-62_135_500_000_000_000, 253_402_200_000_000_000).map(
    lambda us: EPOCH + timedelta(microseconds=us)
)
ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(MOMENTS, ZONES)
def test_a_time_survives_being_written(moment: datetime, zone: timezone) -> None:
    expected = (moment - EPOCH) // timedelta(microseconds=1)
    try:
        local = moment.astimezone(zone)
    except OverflowError:
        return
    assert parse(local.isoformat()) == expected


@settings(deadline=None)
@given(st.lists(st.none() | MOMENTS.map(datetime.isoformat) | MOMENTS.map(lambda one: one.isoformat()[:-6])))
def test_a_column_of_times_reads_as_its_values(values: list[str | None]) -> None:
    assert parse_column(pa.array(values, pa.string())).to_pylist() == [parse(value) for value in values]


SHORT = st.text("0123456789-:TtZz+. ,", max_size=26)
NEAR = st.sampled_from([FLIGHT, "2013-11-21", "2013-11-21T05:00:00.5+01:00", "0001-01-01T00:00:00Z", "1384992000"])


@given(st.lists(SHORT | NEAR | st.tuples(NEAR, SHORT).map("".join), max_size=3))
def test_a_column_of_near_times_reads_as_its_values(values: list[str]) -> None:
    assert parse_column(pa.array(values, pa.string())).to_pylist() == [parse(value) for value in values]


UNITS = st.sampled_from([1, 10**3, 10**6, 10**9])


@given(st.lists(st.none() | st.integers(10**8, 3 * 10**9)), UNITS)
def test_a_column_of_numbers_reads_as_its_values(values: list[int | None], unit: int) -> None:
    scaled = [None if value is None else value * unit for value in values]
    assert parse_column(pa.array(scaled, pa.int64())).to_pylist() == [parse(value) for value in scaled]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_a_column_of_any_numbers_reads_as_its_values(values: list[int | None]) -> None:
    assert parse_column(pa.array(values, pa.int64())).to_pylist() == [parse(value) for value in values]


@given(st.lists(st.none() | st.floats()))
def test_a_column_of_floats_reads_as_its_values(values: list[float | None]) -> None:
    assert parse_column(pa.array(values, pa.float64())).to_pylist() == [parse(value) for value in values]
