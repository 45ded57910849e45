"""Names that published tables cannot have go to `_extra`; one of them stops no table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from spark_ingest.tables.publish import publish
from spark_ingest.tables.settings import DELTA, GLUE, ICEBERG, NAME_RULES
from spark_ingest.types.json_types import columns
from tests.spark_ingest.jobs import invoke
from tests.spark_ingest.tables.lakes import Lake
from tests.spark_ingest.tables.test_delta import give, table
from tests.spark_ingest.tiered import TieredLog, json_rows, row

NAMES = [
    *(
        "a b",
        "a,b",
        "a;b",
        "a{b}",
        "a(b)",
        "a\nb",
        "a\tb",
        "a=b",
        "geo.lat",
        "Geo",
        "ID",
        "",
        "n" * 255,
        "naïve",
        "日本",
    ),
    *("日本", "select", "order", "_pos", "x.element", "x", "$", "`", "é" * 100, "dt", "_offset", " "),
]
VALUES: list[dict[str, Any]] = [
    {name: at for at, name in enumerate(NAMES)},
    {"geo": {"lat": 1.5, "a b": 2}, "x": [{"element": 1}]},
    {"geo": {"lat": 2.5}, "inner": {"a b": 1}, "list": [{"c d": 1}]},
]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def add(lake: Lake, at: int, *values: dict[str, Any]) -> None:
    lake.log.add(0, [row(json.dumps({"id": at * 100 + one, **value}).encode()) for one, value in enumerate(values)])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
@pytest.mark.parametrize("kind", [DELTA, ICEBERG])
def test_tables_take_every_commit_of_a_job_whatever_its_members_are_called(
    lake: Lake, kind: str, order: tuple[int, ...]
) -> None:
    for at, number in enumerate(order):
        add(lake, 900 + at, VALUES[number], VALUES[number])
        lake.ingest(names=NAME_RULES[kind])
        [done] = [give(lake)] if kind == DELTA else lake.publish()
        assert done.error is None
    rows = (table(lake).to_pyarrow_table() if kind == DELTA else lake.scan()).to_pylist()
    by_id = {one["id"]: one for one in rows}
    for at, number in enumerate(order):
        found = by_id[(900 + at) * 100]
        extra = json.loads(found["_extra"] or "{}")
        for name, value in VALUES[number].items():
            assert name in extra or found.get(f"_member{name}", found.get(name)) is not None, (name, value)


def test_a_table_that_was_refused_takes_the_rest_without_the_columns_it_cannot_name(lake: Lake) -> None:
    """The files of an earlier release have such columns."""
    add(lake, 900, VALUES[0], VALUES[2])
    lake.ingest()
    done = give(lake)
    assert (done.error, done.commits) == (None, [1])
    assert "a b" not in table(lake).to_pyarrow_table().schema.names
    assert [one.error for one in publish(lake.history(), lake.tables())] == [None]
    add(lake, 901, VALUES[1], VALUES[0])
    lake.ingest()
    assert give(lake).commits == [2]
    assert [one.error for one in publish(lake.history(), lake.tables())] == [None]
    assert "a b" in dict(columns(lake.history().head().schemas["flights"].members))  # type: ignore[union-attr]


def test_names_that_a_catalog_of_hive_cannot_have_stay_in_extra(lake: Lake) -> None:
    add(lake, 900, *VALUES)
    lake.ingest(names=NAME_RULES[GLUE])
    found = dict(columns(lake.history().head().schemas["flights"].members))  # type: ignore[union-attr]
    assert not {"a,b", "a;b", "`", "n" * 255} & found.keys()
    assert found["inner"] == "json"


@pytest.mark.parametrize("topics", [1, 3])
def test_the_exit_code_is_the_same_for_one_table_and_for_several(lake: Lake, topics: int) -> None:
    for at in range(1, topics):
        TieredLog(lake.source, topic=f"flights-{at}", topic_id=f"{at}" * 32).add(0, json_rows(3))
    lake.ingest()
    for directory in (lake.directory / "an output" / "tables").iterdir():
        deltalake.write_deltalake(str(directory), pa.table({"of": ["another program"]}))
    (lake.directory / "t.toml").write_text("[delta]\n")
    at_output = ["--output", str(lake.directory / "an output"), "--tables", str(lake.directory / "t.toml")]
    ran = invoke("publish", *at_output)
    assert ran.exit_code == 1, ran.output
    assert "of another job or program" in ran.output
