"""The demo's data, checks and output, without a node and without Spark."""

from dataclasses import replace
from typing import NamedTuple

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loadtests.demo import produce
from loadtests.demo.fetch import Checker
from loadtests.demo.flights import CarrierFigures, read_flights
from loadtests.demo.outcome import Outcome, checks
from loadtests.demo.plot import draw
from loadtests.demo.screen import AXIS_CELLS, WIDTH, Axis, bar, plain_screen
from loadtests.demo.spark_report import CarrierRow, DayRow
from tests.loadtests.demo.demo_values import LINES, flights, good_outcome


class Seen(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


ALL_SEEN = [Seen(0, 0, b"N1", LINES[0]), Seen(1, 0, None, LINES[1]), Seen(0, 1, b"N2", LINES[2])]


def checked(seen: list[Seen]) -> Checker:
    checker = Checker(flights())
    checker.accept(seen)
    return checker


def test_an_event_has_every_column_null_for_what_is_missing_and_the_tail_number_as_key():
    read = read_flights(2000)
    first, cancelled = orjson.loads(read.lines[0]), orjson.loads(read.lines[838])
    assert list(first) == [
        *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time"),
        *("arr_delay", "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute"),
        "time_hour",
    ]
    assert (first["tailnum"], first["time_hour"], first["dep_time"]) == ("N14228", "2013-01-01T10:00:00Z", 517)
    assert read.keys[0] == "N14228"
    assert cancelled["dep_time"] is None
    assert [orjson.loads(line)["tailnum"] for line in read.lines] == read.keys
    assert None in read.keys


def test_the_figures_of_carriers_are_those_of_the_flights_read():
    read = read_flights(2000)
    delays: dict[str, list[int | None]] = {}
    for line in read.lines:
        event = orjson.loads(line)
        delays.setdefault(event["carrier"], []).append(event["arr_delay"])
    known = {carrier: [one for one in found if one is not None] for carrier, found in delays.items()}
    assert read.by_carrier == {
        carrier: CarrierFigures(len(found), pytest.approx(sum(known[carrier]) / len(known[carrier])))
        for carrier, found in delays.items()
    }
    assert read.carrier_names["UA"] == "United Air Lines Inc."


@given(st.lists(st.binary(min_size=1, max_size=40).map(lambda data: data.replace(b"\n", b" ")), max_size=60))
def test_bodies_hold_every_line_once_and_are_no_larger_than_one_line_beyond_the_limit(lines):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce, "BODY_BYTES", 100)
        bodies = list(produce.bodies_of(lines))
    assert [line for body in bodies for line in body.split(b"\n")] == lines
    assert all(len(body) <= 140 for body in bodies)
    assert all(len(body) >= 99 for body in bodies[:-1])


def test_every_flight_once_under_its_key_without_a_gap_has_no_faults():
    checker = checked(ALL_SEEN)
    assert (checker.fetched, checker.missing, checker.faults()) == (3, 0, [])


@pytest.mark.parametrize(
    ("seen", "faults"),
    [
        (ALL_SEEN[:2], ["1 missing"]),
        ([*ALL_SEEN, Seen(1, 1, None, LINES[1])], ["1 repeated or unknown"]),
        ([*ALL_SEEN[:2], Seen(0, 1, b"N2", b"{}")], ["1 missing", "1 repeated or unknown"]),
        ([*ALL_SEEN[:2], Seen(0, 1, b"N3", LINES[2])], ["1 with a wrong key"]),
        ([*ALL_SEEN[:2], Seen(0, 2, b"N2", LINES[2])], ["1 gaps in the offsets"]),
        ([ALL_SEEN[2]], ["2 missing", "1 gaps in the offsets"]),
    ],
)
def test_each_fault_of_the_log_is_reported(seen, faults):
    assert checked(seen).faults() == faults


def wrong_lines(outcome: Outcome) -> list[str]:
    return [check.name for check in checks(outcome).values() if not check.is_good]


def test_a_run_in_which_all_counts_agree_is_good(tmp_path):
    assert wrong_lines(good_outcome(tmp_path)) == []


@pytest.mark.parametrize(
    ("name", "part", "change"),
    [
        ("produced", "produced", {"records": 2}),
        ("produced", "produced", {"http_version": "HTTP/1.1"}),
        ("fetched", "fetched", {"records": 4}),
        ("fetched", "fetched", {"faults": ["1 gaps in the offsets"]}),
        ("tiered", "tiered", {"records": 2}),
        ("ingested", "ingested", {"rows": 2}),
        ("ingested", "ingested", {"dead_letters": 1}),
        ("again", "second_ingest", {"rows": 1}),
    ],
)
def test_any_count_that_differs_makes_its_own_line_wrong(tmp_path, name, part, change):
    good = good_outcome(tmp_path)
    spoilt = replace(good, **{part: getattr(good, part)._replace(**change)})
    assert wrong_lines(spoilt) == [name]
    assert "✗" in plain_screen(spoilt)


@pytest.mark.parametrize(
    "carriers",
    [
        [CarrierRow("UA", 2, 4.5)],
        [CarrierRow("UA", 2, 4.6), CarrierRow("AS", 1, None)],
        [CarrierRow("UA", 1, 4.5), CarrierRow("AS", 1, None)],
        [CarrierRow("UA", 2, 4.5), CarrierRow("AS", 1, 0.0)],
    ],
)
def test_a_carrier_of_whom_spark_says_otherwise_than_the_package_is_wrong(tmp_path, carriers):
    good = good_outcome(tmp_path)
    from msgspec.structs import replace as with_fields

    assert wrong_lines(replace(good, report=with_fields(good.report, carriers=carriers))) == ["ingested"]
    assert wrong_lines(replace(good, report=with_fields(good.report, positions=2))) == ["ingested"]


def test_the_screen_has_every_count_and_carrier_and_fits_its_width(tmp_path):
    screen = plain_screen(good_outcome(tmp_path))
    for text in ("produced", "fetched", "tiered", "ingested", "again", "United Air Lines Inc.", "4.5", "1 min 01 s"):
        assert text in screen
    assert screen.count("✓") == 5
    assert all(len(line) <= WIDTH for line in screen.splitlines())


def test_what_is_not_nothing_shows_in_a_bar():
    assert (bar(0), bar(0.01), bar(2.5), bar(2.5, is_leftward=True)) == ("", "╸", "━━╸", "╺━━")


@example([1e-9, -347.0])  # 347 * (24 / 347) is more than 24 in floating point
@given(st.lists(st.floats(-500, 500), min_size=1))
def test_all_bars_of_an_axis_stand_on_one_zero_and_within_its_width(values):
    axis = Axis.over(values)
    drawn = [axis.bar(value, "").plain for value in values]
    assert {one.index("│") for one in drawn} == {axis.left_cells}
    assert all(len(one) <= AXIS_CELLS + 2 for one in drawn)


def test_the_plot_is_a_png_even_of_a_single_day(tmp_path):
    for days in ([DayRow(2013, 1, 1, 3, None)], [DayRow(2013, 1, day, 800 + day, day - 10.0) for day in range(1, 32)]):
        draw(days, tmp_path / "plot.png")
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
