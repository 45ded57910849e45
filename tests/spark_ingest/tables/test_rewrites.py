"""A rewrite of a job's files is one snapshot of an Iceberg table: after kills, lost replies, and for tables behind."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from spark_ingest.errors import IngestRefused, NotPublished
from spark_ingest.protocol.verify import verify
from spark_ingest.tables.compare import Compared, compare_tables
from spark_ingest.tables.publish import pending, publish
from spark_ingest.upkeep.compact import Compaction, compact
from spark_ingest.upkeep.rewrite import Done
from tests.spark_ingest.jobs import new_id
from tests.spark_ingest.killing_store import Killed
from tests.spark_ingest.tables.lakes import FaultyCatalog, Lake, counted_by_duckdb
from tests.spark_ingest.tiered import json_rows, row


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.ingest()
    lake.log.add(1, json_rows(5, first=30))
    lake.ingest()
    return lake


def compacted(lake: Lake, catalog: Callable[[], Any] | None = None, *, is_published: bool = True) -> Done:
    def give() -> None:
        [done] = publish(lake.history(), lake.tables(catalog))
        if done.error:
            raise done.error

    wanted = Compaction(re.compile(".*"))
    publish_ = give if is_published else None
    return compact(lake.output, "default", wanted, 0, new_id=new_id, publish=publish_)


def assert_rows_are_log(lake: Lake) -> None:
    rows = lake.scan().select(["_topic_partition", "_offset", "id"]).to_pylist()
    found = sorted((one["_topic_partition"], one["_offset"], one["id"]) for one in rows)
    assert found == [(part, at, orjson.loads(value or b"")["id"]) for part, at, _, value in lake.log.records()]


def compared(lake: Lake) -> Compared:
    findings, commits = verify(lake.output, "default")
    assert findings.problems == []
    found = pending(lake.history(), lake.tables())
    return compare_tables(found, commits, lake.tables(), lake.history().effect())["flights"]


def test_a_rewrite_is_one_snapshot_and_the_old_files_go(lake: Lake) -> None:
    lake.publish()
    assert compacted(lake).removed == 2
    assert_rows_are_log(lake)
    summaries = [one.summary for one in lake.table().metadata.snapshots]
    assert [(one.operation.value, one.get("penstock.rewrite")) for one in summaries][-1] == ("overwrite", "1")
    assert len(summaries) == 3
    files = [task.file.file_path.removeprefix("file://") for task in lake.table().scan().plan_files()]
    assert len(files) == 2
    assert counted_by_duckdb(files) == [35, sum(lake.scan()["id"].to_pylist())]
    assert compared(lake) == Compared(2)
    lake.log.add(0, json_rows(5, first=300))
    lake.ingest()
    [done] = lake.publish()
    assert (done.commits, done.rewrites, done.error) == ([3], [], None)
    assert compacted(lake).rewrites == [2]
    assert_rows_are_log(lake)


def test_a_table_that_is_behind_or_new_needs_no_file_that_is_gone(lake: Lake) -> None:
    compacted(lake, is_published=False)
    lake.log.add(0, json_rows(5, first=300))
    lake.ingest()
    [done] = lake.publish()
    assert (done.rewrites, done.commits, done.error) == ([1], [3], None)
    assert_rows_are_log(lake)
    assert compared(lake) == Compared(3)


def test_a_table_without_the_commits_that_a_rewrite_replaced_takes_its_file(lake: Lake) -> None:
    lake.log.add(0, json_rows(5, first=300))
    tables = lake.tables()
    first = next(iter(lake.history().commits()))
    publish(lake.history(), tables)
    lake.ingest()
    compacted(lake)
    assert first.number == 1
    assert_rows_are_log(lake)
    assert compared(lake) == Compared(2)


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", [None, ConnectionError("reset")], ids=["killed", "lost"])
def test_a_kill_or_a_lost_reply_at_the_catalog_commit_changes_nothing_twice(
    lake: Lake, error: BaseException | None, is_after: bool
) -> None:
    lake.publish()
    faulty = FaultyCatalog(lake.catalog(), 1, is_after=is_after, error=error)
    if error is None:
        with pytest.raises(Killed):
            compacted(lake, lambda: faulty)
        assert_rows_are_log(lake)
    compacted(lake, None if error is None else lambda: faulty)
    assert_rows_are_log(lake)
    assert len(lake.table().metadata.snapshots) == 3
    assert compared(lake) == Compared(2)


def test_while_the_catalog_is_away_the_old_files_stay(lake: Lake) -> None:
    lake.publish()

    def away() -> Any:
        raise ConnectionError("no route")

    with pytest.raises(NotPublished):
        compacted(lake, away)
    assert_rows_are_log(lake)
    assert compared(lake).problems == ()
    assert compacted(lake).removed == 2
    assert_rows_are_log(lake)


def test_files_that_another_program_rewrote_are_refused(lake: Lake) -> None:
    lake.publish()
    with lake.table().transaction() as transaction:
        transaction.delete("_offset >= 0")
    with pytest.raises(IngestRefused, match="another program has replaced file://"):
        compacted(lake)
    assert lake.scan().num_rows == 0
    assert verify(lake.output, "default")[0].leftovers == 2, "the old files stay"


def test_later_columns_come_with_a_rewrite(lake: Lake) -> None:
    lake.publish()
    lake.log.add(0, [row(b'{"id":1,"place":{"x":1}}')])
    lake.ingest()
    compacted(lake)
    assert lake.scan().column("place").to_pylist().count({"x": 1}) == 1
    assert compared(lake) == Compared(2)
