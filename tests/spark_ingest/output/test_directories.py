"""Directories of tables: each period has one, its end is read back from it, and values are escaped."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.config.job_topics import TOPIC_SETTINGS, choice_of, relation_problems
from spark_ingest.config.layout_settings import layout_of
from spark_ingest.errors import IngestRefused
from spark_ingest.layout import DEFAULT, POSITIONS, TIME_PERIODS, Field, Layout
from spark_ingest.output.directories import day_end_of, end_ms_of, pattern_problem, value_directory
from spark_ingest.output.splitting import directory_of, split_rows, starts_of

TIMES = st.integers(-40 * 365 * 86_400, 130 * 365 * 86_400).map(lambda at: datetime.fromtimestamp(at, UTC))
ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu"]


def rows_at(*moments: datetime, **columns: pa.Array) -> pa.Table:
    times = pa.array([int(one.timestamp()) * 1_000_000 for one in moments], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"_event_time": times, "_offset": pa.array(range(len(moments)), pa.int64()), **columns})


def directory(layout: Layout, moment: datetime) -> str:
    return directory_of(layout, int(starts_of(rows_at(moment), layout)[0]))


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (DEFAULT, "dt=2026-03-29/hr=01/"),
        (Layout(period="15min"), "dt=2026-03-29/hr=01/min=45/"),
        (Layout(period="15min", zone="Europe/Berlin"), "dt=2026-03-29/hr=03/min=45/"),
        (Layout(period="day", zone="America/St_Johns"), "dt=2026-03-28/"),
        (Layout(period="week"), "week=2026-03-23/"),
        (Layout(period="month"), "month=2026-03/"),
        (Layout(period="year"), "year=2026/"),
        (Layout(period="none"), ""),
        (Layout(directories="hourly/%Y/%m/%d/%H"), "hourly/2026/03/29/01/"),
        (Layout(period=POSITIONS, positions=10), "offset=0/"),
    ],
)
def test_the_directory_of_each_period(layout: Layout, expected: str) -> None:
    moment = datetime(2026, 3, 29, 1, 47, tzinfo=UTC)
    assert directory(layout, moment) == expected
    end = end_ms_of(layout, f"tables/t/{expected}x.parquet")
    assert (end is None) == (layout.period in ("none", POSITIONS))


@given(period=st.sampled_from(TIME_PERIODS), zone=st.sampled_from(ZONES), moment=TIMES)
def test_a_period_ends_after_its_events_and_not_before_the_next_begins(
    period: str, zone: str, moment: datetime
) -> None:
    layout = Layout(period=period, zone=zone)
    end_ms = end_ms_of(layout, f"tables/t/{directory(layout, moment)}")
    assert end_ms is not None
    assert end_ms > int(moment.timestamp()) * 1000
    after = datetime.fromtimestamp(end_ms / 1000 + 5400, UTC)
    assert directory(layout, after) != directory(layout, moment)


def test_an_hour_that_comes_twice_is_one_directory_and_ends_with_the_second() -> None:
    layout = Layout(zone="Europe/Berlin")
    moments = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)]
    assert [directory(layout, one) for one in moments] == ["dt=2026-10-25/hr=02/"] * 2
    end = datetime(2026, 10, 25, 3, tzinfo=ZoneInfo("Europe/Berlin"))
    assert end_ms_of(layout, "tables/t/dt=2026-10-25/hr=02/") == end.timestamp() * 1000


def test_the_ends_of_the_calendar_have_directories() -> None:
    for at in (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, tzinfo=UTC)):
        table = pa.table({"_event_time": pa.array([at], pa.timestamp("us", "UTC")), "_offset": pa.array([0])})
        for zone in ZONES:
            found = directory_of(DEFAULT, int(starts_of(table, Layout(zone=zone))[0]))
            assert found[:7] in ("dt=0001", "dt=9999"), found


def test_a_period_that_ends_after_the_calendar_ends_with_it() -> None:
    """9999-12-31 is a common text for `never`: such a row must not stop finalize, compact and retain."""
    last = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    for period, zone in product(TIME_PERIODS, ZONES):
        layout = Layout(period=period, zone=zone)
        key = f"tables/t/{directory(layout, last)}x.parquet"
        end_ms = end_ms_of(layout, key)
        assert end_ms is not None
        assert end_ms > last.timestamp() * 1000 - 86_400_000
        assert day_end_of(layout, key) == "9999-12-31"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("DE", "a=DE/"),
        (None, "a=__HIVE_DEFAULT_PARTITION__/"),
        ("", "a=__HIVE_DEFAULT_PARTITION__/"),
        ("a/b=c%d:e", "a=a%2Fb%3Dc%25d%3Ae/"),
        ("..", "a=../"),
        ("Köln\n", "a=Köln%0A/"),
    ],
)
def test_values_are_escaped_as_hive_does_it(value: str | None, expected: str) -> None:
    assert value_directory("a", value) == expected


@given(st.lists(st.text(), min_size=2, max_size=2, unique=True))
def test_different_values_have_different_directories(pair: list[str]) -> None:
    one, other = (value_directory("a", (text or "x" * 200) * 30) for text in pair)
    assert one != other
    assert max(len(one.encode()), len(other.encode())) < 255
    assert one.count("/") == 1


def texts_of(table: pa.Table, layout: Layout) -> dict[str, list[int]]:
    return {path: rows["_offset"].to_pylist() for path, rows in split_rows(table, layout)}


def test_rows_are_divided_by_the_period_and_then_by_values() -> None:
    moments = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (5, 5, 6, 5, 6)]
    at = pa.array([{"n": 1}, {"n": None}, None, {"n": 1}, {"n": 2}])
    layout = Layout(fields=(Field("by_n", "at.n"), Field("k", "_key")))
    table = rows_at(*moments, at=at, _key=pa.array([b"\xff", b"x", None, b"\xff", b"x"]))
    assert texts_of(table, layout) == {
        "dt=2026-01-01/hr=05/by_n=__HIVE_DEFAULT_PARTITION__/k=x/": [1],
        "dt=2026-01-01/hr=05/by_n=1/k=%5Cxff/": [0, 3],
        "dt=2026-01-01/hr=06/by_n=__HIVE_DEFAULT_PARTITION__/k=__HIVE_DEFAULT_PARTITION__/": [2],
        "dt=2026-01-01/hr=06/by_n=2/k=x/": [4],
    }
    absent = Layout(period="none", fields=(Field("f", "no.such"),))
    assert texts_of(table, absent) == {"f=__HIVE_DEFAULT_PARTITION__/": [0, 1, 2, 3, 4]}
    with pytest.raises(IngestRefused, match=r"at cannot be a directory: it is struct"):
        texts_of(table, Layout(fields=(Field("f", "at"),)))


def test_too_many_values_fail_or_share_a_directory() -> None:
    names = [f"v{at % 7}" if at < 40 else f"rare{at}" for at in range(60)]
    table = rows_at(*[datetime(2026, 1, 1, tzinfo=UTC)] * 60, name=pa.array(names))
    layout = Layout(period="none", fields=(Field("f", "name"),), values_max=7)
    with pytest.raises(IngestRefused, match="f: a task has 27 values, and 7 directories are allowed"):
        texts_of(table, layout)
    found = texts_of(table, layout._replace(on_values="other"))
    assert sorted(found) == ["f=__other__/", *(f"f=v{at}/" for at in range(7))]
    assert found["f=__other__/"] == list(range(40, 60))


def test_values_that_name_one_directory_share_its_file() -> None:
    """Two files of one name would hold the topic back at each run. Anyone who produces can choose such values."""
    long = "x" * 200
    digest = value_directory("f", long).removeprefix("f=").removesuffix("/")
    values = [None, "__HIVE_DEFAULT_PARTITION__", long, "b", digest, "__other__", "", "rare"]
    table = rows_at(*[datetime(2026, 1, 1, tzinfo=UTC)] * 8, name=pa.array(values))
    layout = Layout(period="none", fields=(Field("f", "name"),))
    parts = list(split_rows(table, layout))
    assert len({path for path, _ in parts}) == len(parts) == 5
    assert texts_of(table, layout) == {
        "f=__HIVE_DEFAULT_PARTITION__/": [0, 1, 6],
        f"f={digest}/": [2, 4],
        "f=b/": [3],
        "f=rare/": [7],
        "f=__other__/": [5],
    }
    bound = texts_of(table, layout._replace(on_values="other", values_max=3))
    assert bound["f=__other__/"] == [3, 5, 7]


def test_positions_are_divided_by_ranges() -> None:
    table = rows_at(*[datetime(2026, 1, 1, tzinfo=UTC)] * 25)
    found = texts_of(table, Layout(period=POSITIONS, positions=10))
    assert found == {f"offset={at}/": list(range(at, min(at + 10, 25))) for at in (0, 10, 20)}


class _Halves:
    """A partitioner as another distribution would install it."""

    names = ("half",)

    def __init__(self, options: dict[str, int]) -> None:
        self._middle = options["middle"]

    def values(self, rows: pa.Table) -> list[list[str | None]]:
        return [["low" if one < self._middle else None for one in rows["_offset"].to_pylist()]]


def test_a_partitioner_of_another_distribution_gives_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_ingest.output.splitting.load_entry_point", lambda group, name: _Halves)
    layout = choice_of(
        {"partition": "day", "partitioner": "halves", "partitioner_options": {"middle": 2}}
    ).recipe.layout
    assert layout.partition_columns == {"dt": "DATE", "half": "STRING"}
    table = rows_at(*[datetime(2026, 1, 1, tzinfo=UTC)] * 3)
    low, rest = "dt=2026-01-01/half=low/", "dt=2026-01-01/half=__HIVE_DEFAULT_PARTITION__/"
    assert texts_of(table, layout) == {low: [0, 1], rest: [2]}
    monkeypatch.setattr(_Halves, "values", lambda self, rows: 1 / 0)
    with pytest.raises(IngestRefused, match="partitioner halves: ZeroDivisionError"):
        texts_of(table, layout)
    with pytest.raises(IngestRefused, match="partitioner halves does not take its options: 'middle'"):
        choice_of({"partitioner": "halves"})


@pytest.mark.parametrize(
    ("settings", "name", "problem"),
    [
        ({"partition_path": "%Y/%m/%d"}, "partition_path", "does not have %H, so two periods would have one directory"),
        ({"partition_path": "%Y/%m/%d/%H/../x"}, "partition_path", "is not a path of letters"),
        ({"partition_path": "%Y-%j"}, "partition_path", "has '%j'; write"),
        ({"partition_path": "_x=%Y/%m/%d/%H"}, "partition_path", "has '_x=%Y'; begin it"),
        ({"partition_path": "hourly/_%Y/%m/%d/%H"}, "partition_path", "has '_%Y'; begin it"),
        ({"partition_path": "=%Y/%m/%d/%H"}, "partition_path", "has '=%Y'; begin it"),
        ({"partition_path": "dt=%Y/%m/DT=%d/%H"}, "partition_path", "has a column twice"),
        ({"partition_path": "%Y/%Y-%m-%d/%H"}, "partition_path", "has a directive twice"),
        ({"partition": "none", "partition_zone": "Europe/Berlin"}, "partition_zone", "has no effect"),
        ({"partition_positions": 5}, "partition_positions", "has no effect on partition hour"),
        ({"partition": "month", "columns": {"Month": "string"}}, "columns", "'Month' is a directory"),
        ({"partition_fields": {"x": "a"}, "columns": {"x": "string"}}, "columns", "'x' is a directory"),
        ({"partition_fields": {"dt": "a"}}, "partition_fields", "is a directory of the period"),
        ({"partition_fields": {"x": "a"}, "partitioner": "y"}, "partitioner", "cannot be beside partition_fields"),
    ],
)
def test_settings_that_do_not_fit_together_are_mistakes(settings: dict[str, object], name: str, problem: str) -> None:
    found = relation_problems(settings, settings)
    assert any(one == name and problem in text for one, text in found), found


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("partition_zone", "Europe/Atlantis", "is not in the time zones of this machine"),
        ("partition_zone", "../etc/passwd", "not a time zone"),
        ("partition_fields", {"a": "a.b"}, "is the member's own name"),
        ("partition_fields", {"a": "b", "b": "c"}, "'b' is the member's own name"),
        ("partition_fields", {"a": "x", "A": "y"}, "differ only by case"),
        ("partition_fields", {"a/b": "c"}, "cannot be the name of a directory"),
        ("partition_fields", {"a": ""}, "is not a member"),
        ("partition_fields", {f"a{at}": "c" for at in range(9)}, "write at most 3"),
        ("output_delimiter", '"', "write one ASCII character"),
        ("file_name", "{topic}+{partition}+{last_offset}+{commit}", "not have {first_offset}, so two files could have"),
        ("file_name", "{first_offset}+{commit}", "does not have {partition}"),
        ("file_name", "{partition}+{first_offset}", "does not have {commit}"),
        ("file_name", "{partition}+{first_offset}+{uuid}+{commit}", "has {uuid}; write {topic}, {partition}"),
        ("file_name", "{commit}+{partition}+{first_offset}", "does not end with +{commit}"),
        ("file_name", "{partition}{first_offset}+{commit}", "write a sign between them"),
        ("file_name", "1{partition}-{first_offset}+{commit}", "write a sign between them"),
        ("file_name", "{partition}-{partition}-{first_offset}+{commit}", "has a placeholder twice"),
        ("file_name", "a/{partition}-{first_offset}+{commit}", "has other characters"),
        ("file_name", "{partition!r}-{partition}-{first_offset}+{commit}", "has {partition!r}"),
        ("file_name", "_{partition}-{first_offset}+{commit}", "begins with '_'"),
        ("file_name", f"{'x' * 99}{{partition}}-{{first_offset}}+{{commit}}", "write at most 120"),
    ],
)
def test_a_wrong_value_of_a_layout_is_a_mistake(name: str, value: object, problem: str) -> None:
    found = TOPIC_SETTINGS[name].problem(value)
    assert found is not None
    assert problem in found


def test_every_period_has_a_pattern_that_is_right() -> None:
    for period in TIME_PERIODS:
        assert pattern_problem(Layout(period=period).pattern, period) is None
    defaults = {name: one.default for name, one in TOPIC_SETTINGS.items()}
    assert layout_of(defaults) == DEFAULT
    assert TOPIC_SETTINGS["file_name"].problem(defaults["file_name"]) is None
    assert np.all(starts_of(rows_at(), DEFAULT) == [])
