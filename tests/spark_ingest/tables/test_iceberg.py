"""Each commit of a job is one snapshot of an Iceberg table: after kills, lost replies, and by two drivers at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from spark_ingest.errors import IngestRefused, NotPublished
from spark_ingest.layout import POSITIONS, Layout
from spark_ingest.plan import Recipe
from spark_ingest.tables.publish import pending
from tests.spark_ingest.jobs import drive_at_once
from tests.spark_ingest.killing_store import Killed
from tests.spark_ingest.tables.lakes import FaultyCatalog, Lake, counted_by_duckdb
from tests.spark_ingest.tiered import json_rows, row


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def errors(found: list) -> list[str]:
    return [str(one.error) for one in found if one.error]


def test_each_commit_is_one_snapshot_that_pyiceberg_and_duckdb_read(lake: Lake) -> None:
    lake.ingest()
    lake.log.add(1, json_rows(5, first=9_000))
    lake.ingest()
    [done] = lake.publish()
    assert (done.table, done.commits, done.rows, done.error) == ("events.flights", [1, 2], 35, None)
    lake.assert_table_is_log()
    files = [task.file.file_path.removeprefix("file://") for task in lake.table().scan().plan_files()]
    assert counted_by_duckdb(files) == [35, sum(lake.scan()["id"].to_pylist())]
    assert lake.publish()[0].commits == []
    assert len(lake.commits_of_snapshots()) == 2


def test_a_table_is_partitioned_by_the_hour_of_the_event(lake: Lake) -> None:
    lake.log.add(0, [row(b'{"id":%d}' % at, at * 1000) for at in range(20)])  # over six hours
    lake.ingest()
    lake.publish()
    table = lake.table()
    assert [str(one.transform) for one in table.spec().fields] == ["hour"]
    last = table.scan(row_filter="_event_time >= '2013-11-21T10:00:00+00:00'")
    assert len(list(last.plan_files())) == 1 < len(list(table.scan().plan_files()))
    assert {one.hour for one in last.to_arrow()["_event_time"].to_pylist()} == {10}


@pytest.mark.parametrize(
    ("layout", "transforms"),
    [
        (Layout(period="day"), ["day"]),
        (Layout(period="15min"), ["hour"]),
        (Layout(period="month", directories="%Y-%m"), ["month"]),
        (Layout(period="year"), ["year"]),
        (Layout(period="week"), []),
        (Layout(period="day", zone="Asia/Kathmandu"), []),
        (Layout(period=POSITIONS, positions=7), []),
    ],
)
def test_the_partition_of_a_table_follows_from_the_layout(lake: Lake, layout: Layout, transforms: list[str]) -> None:
    lake.log.add(0, [row(b'{"id":%d}' % at, at * 9000) for at in range(20)])  # over two days
    lake.ingest(recipe=Recipe(layout=layout))
    assert errors(lake.publish()) == []
    assert [str(one.transform) for one in lake.table().spec().fields] == transforms
    lake.assert_table_is_log()


def test_new_columns_and_new_members_of_structs_are_added_by_name(lake: Lake) -> None:
    lake.ingest()
    lake.log.add(0, [row(b'{"id":1,"place":{"x":1},"tags":["a"],"a.b":1.5}', key=b"k", headers=[("h", b"1")])])
    lake.ingest()
    lake.log.add(0, [row(b'{"id":2,"place":{"x":2,"y":"new"}}', 1)])
    lake.ingest()
    assert errors(lake.publish()) == []
    rows = sorted(lake.scan().to_pylist(), key=lambda one: (one["_topic_partition"], one["_offset"]))
    assert [one["place"] for one in rows[19:22]] == [None, {"x": 1, "y": None}, {"x": 2, "y": "new"}]
    assert (rows[20]["tags"], rows[20]["a.b"], rows[20]["_headers"], rows[20]["_key"]) == (
        ["a"],
        1.5,
        [("h", b"1")],
        b"k",
    )


def test_a_raw_table_is_published(lake: Lake) -> None:
    lake.ingest(recipe=Recipe(payload="raw"))
    lake.publish()
    assert lake.scan()["_value"][0].as_py().startswith(b'{"id"')


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2])
def test_a_kill_at_the_catalog_commit_neither_loses_nor_repeats_a_file(lake: Lake, at: int, is_after: bool) -> None:
    lake.ingest()
    lake.log.add(0, json_rows(5, first=50))
    lake.ingest()
    with pytest.raises(Killed):
        lake.publish(lambda: FaultyCatalog(lake.catalog(), at, is_after=is_after))
    assert errors(lake.publish()) == []
    lake.assert_table_is_log()


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2])
def test_after_a_lost_reply_the_same_call_looks_before_it_adds_again(lake: Lake, at: int, is_after: bool) -> None:
    lake.ingest()
    lake.log.add(0, json_rows(5, first=50))
    lake.ingest()
    faulty = FaultyCatalog(lake.catalog(), at, is_after=is_after, error=ConnectionError("reset"))
    assert errors(lake.publish(lambda: faulty)) == []
    assert faulty.commits == (2 if is_after else 3)
    lake.assert_table_is_log()


def test_a_driver_that_staged_before_another_committed_adds_nothing(lake: Lake) -> None:
    """pyiceberg alone would send its transaction again, on top of the other driver's."""
    lake.ingest()
    lake.publish()
    lake.log.add(0, json_rows(5, first=50))
    lake.ingest()

    class Overtaken(FaultyCatalog):
        def commit_table(self, *arguments: object) -> object:
            self.commits += 1
            if self.commits == 1:
                lake.publish()
            return self._inner.commit_table(*arguments)

    slow = Overtaken(lake.catalog(), 0, is_after=False)
    [late] = lake.publish(lambda: slow)
    assert (late.commits, late.error, slow.commits) == ([], None, 1)
    lake.assert_table_is_log()


def test_two_drivers_at_once_add_each_file_once(lake: Lake) -> None:
    for first in (50, 60, 70):
        lake.log.add(0, json_rows(5, first=first))
        lake.ingest()
    lake.catalog()  # creates the database
    added: list[int] = []
    failed: list[str] = []

    def drive() -> None:
        [done] = lake.publish()
        added.extend(done.commits)
        failed.extend(errors([done]))

    drive_at_once(drive)
    assert failed == []
    assert sorted(added) == [1, 2, 3]
    lake.assert_table_is_log()


def test_expired_snapshots_do_not_make_files_come_twice(lake: Lake) -> None:
    lake.ingest()
    lake.publish()
    table = lake.table()
    with table.transaction() as transaction:
        transaction.delete("_offset >= 0")  # a snapshot of another program, which drops all files
    [ours] = [one.snapshot_id for one in table.metadata.snapshots if one.summary.get("penstock.commit")]
    table.maintenance.expire_snapshots().by_id(ours).commit()
    assert all(one.summary.get("penstock.commit") is None for one in lake.table().metadata.snapshots)
    assert lake.publish()[0].commits == []


def test_a_table_made_before_is_used_if_its_columns_fit(lake: Lake) -> None:
    catalog = lake.catalog()
    catalog.create_namespace("events")
    catalog.create_table(("events", "flights"), Schema(NestedField(1, "id", IntegerType(), required=False)))
    lake.ingest()
    assert errors(lake.publish()) == []
    lake.assert_table_is_log()
    assert str(lake.table().schema().find_type("id")) == "long"


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (NestedField(1, "id", StringType(), required=False), "Cannot change column type: id: string -> long"),
        (NestedField(1, "other", LongType(), required=True), "do not have its required columns other"),
    ],
    ids=["type", "required"],
)
def test_a_table_with_foreign_columns_is_refused_with_the_reason(
    lake: Lake, column: NestedField, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    catalog = lake.catalog()
    catalog.create_namespace("events")
    catalog.create_table(("events", "flights"), Schema(column))
    lake.ingest()
    [done] = lake.publish()
    assert isinstance(done.error, IngestRefused)
    assert reason in str(done.error)
    assert "\n" not in str(done.error)
    assert capfd.readouterr().out == ""
    assert [one.commits for one in pending(lake.history(), lake.tables())] == [[1]]


def test_a_table_of_another_job_is_refused(lake: Lake) -> None:
    lake.ingest()
    lake.publish()
    with pytest.raises(IngestRefused, match=r"table events.flights .* belongs to topic flights of job default"):
        lake.tables(job="second").state("flights")


def test_a_table_with_files_of_another_program_is_refused(lake: Lake) -> None:
    lake.ingest()
    lake.publish()
    table = lake.table()
    with table.transaction() as transaction:
        transaction.remove_properties("penstock.job", "penstock.output", "penstock.topic")
    assert "has files of another program" in errors(lake.publish())[0]


def test_a_catalog_that_is_away_is_named_in_one_line(lake: Lake, tmp_path: Path) -> None:
    lake.ingest()
    lake.settings = type(lake.settings)(f"sqlite:///{tmp_path}/absent/c.db", "events", warehouse="file:///nowhere")
    [done] = lake.publish()
    assert isinstance(done.error, NotPublished)
    assert str(done.error).startswith(f"catalog sqlite:///{tmp_path}/absent/c.db cannot be opened: ")
    assert "\n" not in str(done.error)


def test_a_data_file_that_is_gone_is_named(lake: Lake) -> None:
    lake.ingest()
    key = next(one.key for one in lake.output.list("tables/flights/"))
    lake.output.delete(key)
    assert key in errors(lake.publish())[0]
