"""Each commit of a job is one transaction of a Delta table, which deltalake and DuckDB read."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_ingest.errors import IngestRefused
from spark_ingest.layout import POSITIONS, Layout
from spark_ingest.plan import Recipe
from spark_ingest.protocol.verify import verify
from spark_ingest.tables import delta
from spark_ingest.tables.compare import Compared, compare_tables
from spark_ingest.tables.delta import DeltaTables
from spark_ingest.tables.publish import Publication, pending, publish
from spark_ingest.upkeep.compact import Compaction, compact
from tests.spark_ingest.jobs import drive_at_once, new_id
from tests.spark_ingest.killing_store import Killed
from tests.spark_ingest.tables.lakes import Lake, counted_by_duckdb
from tests.spark_ingest.tiered import json_rows, row


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def tables(lake: Lake, job: str = "default") -> DeltaTables:
    return DeltaTables(job, lake.output.url)


def give(lake: Lake) -> Publication:
    [done] = publish(lake.history(), tables(lake))
    return done


def table(lake: Lake) -> DeltaTable:
    return DeltaTable(f"{lake.output.url}/tables/flights")


def assert_rows_are_log(lake: Lake) -> list[dict[str, Any]]:
    rows = table(lake).to_pyarrow_table().to_pylist()
    found = sorted((one["_partition"], one["_offset"], one["id"]) for one in rows)
    assert found == [(part, at, orjson.loads(value or b"")["id"]) for part, at, _, value in lake.log.records()]
    return rows


@pytest.mark.parametrize(
    ("layout", "first"),
    [
        (Layout(period="day"), {"dt": date(2013, 11, 21)}),
        (Layout(period="15min", zone="Asia/Kathmandu"), {"dt": date(2013, 11, 21), "hr": 10, "min": 45}),
        (Layout(period="month"), {"month": "2013-11"}),
        (Layout(period="year"), {"year": 2013}),
        (Layout(period=POSITIONS, positions=7), {"offset": 0}),
        (Layout(period="none", file_name="{topic}_{partition}-{first_offset}+{commit}"), {}),
    ],
)
def test_the_partitions_of_a_table_follow_from_the_layout(lake: Lake, layout: Layout, first: dict[str, Any]) -> None:
    lake.ingest(recipe=Recipe(layout=layout))
    assert give(lake).error is None
    rows = assert_rows_are_log(lake)
    least = min(rows, key=lambda one: (one["_partition"], one["_offset"]))
    assert table(lake).metadata().partition_columns == list(first)
    assert {name: least[name] for name in first} == first


def test_commits_and_rewrites_are_transactions_that_deltalake_and_duckdb_read(lake: Lake) -> None:
    lake.ingest()
    lake.log.add(1, json_rows(5, first=30))
    lake.ingest()
    done = give(lake)
    assert (done.table, done.commits, done.rows, done.error) == ("tables/flights", [1, 2], 35, None)
    assert (table(lake).version(), table(lake).transaction_version("penstock/default")) == (1, 2)
    rows = assert_rows_are_log(lake)
    assert {(str(one["dt"]), one["hr"]) for one in rows} == {
        (f"{one['_event_time']:%Y-%m-%d}", one["_event_time"].hour) for one in rows
    }
    assert give(lake).commits == []

    def must() -> None:
        if error := give(lake).error:
            raise error

    wanted = Compaction(re.compile(".*"))
    made = compact(lake.output, "default", wanted, 0, new_id=new_id, publish=must)
    assert (made.removed, table(lake).version()) == (2, 2)
    assert_rows_are_log(lake)
    files = [str(lake.directory / "an output" / one.key) for one in tables(lake).files("flights")]
    assert counted_by_duckdb(files)[0] == 35
    findings, commits = verify(lake.output, "default")
    assert findings.problems == []
    found = pending(lake.history(), tables(lake))
    effect = lake.history().effect()
    assert compare_tables(found, commits, tables(lake), effect)["flights"] == Compared(len(files))


def test_new_columns_and_new_members_of_structs_are_added_by_name(lake: Lake) -> None:
    lake.ingest()
    lake.log.add(0, [row(b'{"id":1,"place":{"x":1},"tags":["a"]}', key=b"k", headers=[("h", b"1")])])
    lake.ingest()
    lake.log.add(0, [row(b'{"id":2,"place":{"x":2,"y":"new"}}', 1)])
    lake.ingest()
    assert give(lake).error is None
    rows = sorted(assert_rows_are_log(lake), key=lambda one: (one["_partition"], one["_offset"]))
    assert [one["place"] for one in rows[19:22]] == [None, {"x": 1, "y": None}, {"x": 2, "y": "new"}]
    assert rows[20]["tags"] == ["a"]


@pytest.mark.parametrize("error", [Killed("commit"), ConnectionError("reset")], ids=["killed", "lost"])
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_kill_or_a_lost_reply_neither_loses_nor_repeats_a_file(
    lake: Lake, error: BaseException, is_after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.ingest()
    lake.log.add(0, json_rows(5, first=50))
    lake.ingest()
    send, create = DeltaTable.create_write_transaction, delta.create_table_with_add_actions

    for owner, name, real in (
        (delta, "create_table_with_add_actions", create),
        (DeltaTable, "create_write_transaction", send),
    ):
        with monkeypatch.context() as patched:

            def faulty(*arguments: Any, real: Any = real, patched: Any = patched, **more: Any) -> None:
                patched.undo()
                if is_after:
                    real(*arguments, **more)
                raise error

            patched.setattr(owner, name, faulty)
            if isinstance(error, Killed):
                with pytest.raises(Killed):
                    give(lake)
            else:
                assert give(lake).error is None
                break
    assert give(lake).error is None
    assert_rows_are_log(lake)
    assert table(lake).version() == 1


def test_two_drivers_at_once_add_each_file_once(lake: Lake) -> None:
    for first in (50, 60, 70):
        lake.log.add(0, json_rows(5, first=first))
        lake.ingest()
    done: list[Publication] = []
    drive_at_once(lambda: done.append(give(lake)))
    assert [str(one.error) for one in done if one.error] == []
    assert sorted(number for one in done for number in one.commits) == [1, 2, 3]
    assert_rows_are_log(lake)


def test_what_a_table_cannot_take_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="a column is int64 in the table and string in the files"):
        delta._merged([pa.schema([("id", pa.int64())]), pa.schema([("id", pa.string())])])
    with pytest.raises(IngestRefused, match="not written with the store option sse"):
        DeltaTables("default", "s3://bucket/lake?sse=AES256")
    with pytest.raises(IngestRefused, match="a character that Delta readers take for another"):
        DeltaTables("default", "s3://bucket/a%23b")


def test_a_table_of_another_job_is_refused(lake: Lake) -> None:
    lake.ingest()
    give(lake)
    with pytest.raises(IngestRefused, match="tables/flights is of another job or program"):
        tables(lake, "second").state("flights")
