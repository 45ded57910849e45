"""Keys of the output."""

from __future__ import annotations

import pytest

from spark_ingest.layout import DEFAULT, JSONL, Layout
from spark_ingest.output.directories import time_directory
from spark_ingest.output.names import (
    TEMPLATE_CHARS_MAX,
    data_file_name,
    day_directory,
    number_of,
    owner_key,
    plan_key,
    plan_number_of,
    rewrite_of,
    rewritten_file_name,
    template_problem,
)
from spark_ingest.source.slices import Range


def test_names_carry_the_bounds_and_the_plan() -> None:
    one = data_file_name("flights", [Range(3, 0, 100)], 12)
    assert one == "flights+3+00000000000000000000-00000000000000000099+12.parquet"
    several = data_file_name("_f.x", [Range(3, 50, 100), Range(4, 0, 9), Range(7, 0, 2)], 12)
    assert several == "+_f.x+3-7+00000000000000000050-00000000000000000001+12.parquet"
    assert plan_number_of("tables/f/dt=2013-01-01/hr=05/" + one) == plan_number_of(several) == 12


def test_a_template_gives_other_names_with_the_same_plan() -> None:
    layout = Layout(JSONL, "gzip", file_name="v2.{topic}_{partition}-{first_offset}+{commit}")
    ranges = [Range(3, 0, 100), Range(4, 0, 9)]
    name = data_file_name("flights", ranges, 12, layout)
    assert name == "v2.flights_3-4-00000000000000000000+12.jsonl.gz"
    assert data_file_name("flights", ranges, 13, layout) != name, "of a replay, or of a topic that was created again"
    rewritten = rewritten_file_name("flights", (3, 0), (3, 9), 12, 5, 1, layout.file_name)
    assert rewritten == "v2.flights_3-00000000000000000000+12+5.1.parquet"
    assert [(plan_number_of(one), rewrite_of(one)) for one in (name, rewritten)] == [(12, None), (12, 5)]


def test_names_of_the_longest_topics_fit_into_255_bytes_and_differ() -> None:
    ranges = [Range(99_998, 0, 100), Range(99_999, 0, 10**19)]
    literal = "y" * (TEMPLATE_CHARS_MAX - len("{topic}-{partition}-{first_offset}+{commit}"))
    template = f"{literal}{{topic}}-{{partition}}-{{first_offset}}+{{commit}}"
    assert template_problem(template) is None
    for layout in (DEFAULT, Layout(JSONL, "gzip", file_name=template)):
        names = {data_file_name(topic, ranges, 10**5, layout) for topic in ("_" * 249, "_" * 248, "_" * 248 + "x")}
        assert len(names) == 3
        assert max(map(len, names)) <= 255
        assert {plan_number_of(name) for name in names} == {10**5}
    assert len(owner_key("_" * 249).rpartition("/")[2]) <= 255


@pytest.mark.parametrize("key", ["part-000.parquet", "tables/f/x", "f+1+2-3+4.parquet", "f-000000000000000000001+4.x"])
def test_a_foreign_file_has_no_plan(key: str) -> None:
    assert plan_number_of(key) is None


def test_hours_and_days_are_utc() -> None:
    assert time_directory(DEFAULT, 0) == "dt=1970-01-01/hr=00/"
    assert time_directory(DEFAULT, -3600) == "dt=1969-12-31/hr=23/"
    assert time_directory(DEFAULT, -17259876 * 3600) == "dt=0001-01-01/hr=12/"
    assert day_directory(86_399_999) == "dt=1970-01-01/"
    assert day_directory(None) == "dt=__HIVE_DEFAULT_PARTITION__/"


def test_numbers_are_read_back_from_keys() -> None:
    assert number_of(plan_key("default", 7)) == 7
    assert number_of("_ingest/default/plans/latest.json") is None
