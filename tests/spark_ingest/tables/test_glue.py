"""Glue, by moto: each commit's partitions and columns are in the catalog, whatever is killed; and the DDL of Hive."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from click.testing import CliRunner
from moto import mock_aws

from spark_ingest.commands.tables import ddl
from spark_ingest.errors import IngestRefused
from spark_ingest.layout import AVRO, CSV, JSONL, Field, Layout
from spark_ingest.plan import Recipe, TableSchema
from spark_ingest.tables.compare import Compared, compare_tables
from spark_ingest.tables.glue import GlueTables
from spark_ingest.tables.hive import hive_table, partition_values, table_name
from spark_ingest.tables.publish import Publication, pending, publish
from spark_ingest.tables.settings import GlueSettings
from spark_ingest.upkeep.compact import Compaction, compact
from tests.spark_ingest.killing_store import Killed
from tests.spark_ingest.tables.lakes import Lake
from tests.spark_ingest.tiered import json_rows, row

BY_NAME = Layout(period="day", fields=(Field("by_name", "name"),))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def client() -> Iterator[Any]:
    with mock_aws():
        found = boto3.client("glue", "us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
        found.create_database(DatabaseInput={"Name": "events"})
        yield found


class FaultyClient:
    """A client that is killed, or gets no answer, at the n-th change of the catalog, before or after its effect."""

    def __init__(self, inner: Any, at: int, *, is_after: bool, error: BaseException) -> None:
        self._inner, self._at, self._is_after, self._error = inner, at, is_after, error
        self.changes = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        return call if name.startswith("get") else lambda **arguments: self._changed(call, arguments)

    def _changed(self, call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        self.changes += 1
        if self.changes == self._at and not self._is_after:
            raise self._error
        done = call(**arguments)
        if self.changes == self._at:
            raise self._error
        return done


def tables(lake: Lake, client: Any, **settings: Any) -> GlueTables:
    return GlueTables(GlueSettings("events", **settings), lake.history(), lambda: client)


def give(lake: Lake, client: Any) -> Publication:
    [done] = publish(lake.history(), tables(lake, client))
    return done


def listed(lake: Lake, client: Any) -> Compared:
    """Return what a comparison of the partitions with the commits says."""
    found = pending(lake.history(), tables(lake, client))
    history = lake.history()
    return compare_tables(found, list(history.commits()), tables(lake, client), history.effect())["flights"]


def values_of(client: Any) -> list[list[str]]:
    return sorted(
        one["Values"] for one in client.get_partitions(DatabaseName="events", TableName="flights")["Partitions"]
    )


def test_commits_columns_and_partitions_are_in_the_catalog(lake: Lake, client: Any) -> None:
    lake.ingest(recipe=Recipe(layout=BY_NAME))
    assert (give(lake, client).commits, give(lake, client).commits) == ([1], [])
    lake.log.add(0, [row(b'{"id":1,"name":"a/b","Price":1.5,"tags":[{"x":1}]}', 90_000)])
    lake.ingest(recipe=Recipe(layout=BY_NAME))
    done = give(lake, client)
    assert (done.table, done.commits, done.error) == ("events.flights", [2], None)
    table = client.get_table(DatabaseName="events", Name="flights")["Table"]
    columns = {one["Name"]: one["Type"] for one in table["StorageDescriptor"]["Columns"]}
    assert {"id": "bigint", "price": "double", "tags": "array<struct<x:bigint>>"}.items() <= columns.items()
    assert columns["_headers"] == "map<string,binary>"
    assert [(one["Name"], one["Type"]) for one in table["PartitionKeys"]] == [("dt", "date"), ("by_name", "string")]
    assert values_of(client) == [*(["2013-11-21", f"n{at}"] for at in range(7)), ["2013-11-22", "a/b"]]
    assert table["Parameters"]["penstock.commit"] == "2"
    assert (listed(lake, client).problems, not lake.history().is_published()) == ((), True)
    client.delete_partition(DatabaseName="events", TableName="flights", PartitionValues=["2013-11-22", "a/b"])
    assert len(listed(lake, client).problems) == 1


@pytest.mark.parametrize(
    "error", [Killed("here"), EndpointConnectionError(endpoint_url="x")], ids=["kill", "no answer"]
)
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_change_is_made_good_by_the_next_call(
    lake: Lake, client: Any, is_after: bool, error: BaseException
) -> None:
    lake.ingest()
    lake.log.add(0, [row(b'{"id":7,"more":1}', 9000)])
    lake.ingest()
    counting = FaultyClient(client, 0, is_after=False, error=error)
    give(lake, counting)
    assert counting.changes == 5
    for at in range(1, counting.changes + 1):
        client.delete_table(DatabaseName="events", Name="flights")
        faulty = FaultyClient(client, at, is_after=is_after, error=error)
        if isinstance(error, Killed):
            with pytest.raises(Killed):
                give(lake, faulty)
        else:
            assert give(lake, faulty).error
        assert give(lake, client).error is None
        assert listed(lake, client).problems == ()
        assert [one.commits for one in pending(lake.history(), tables(lake, client))] == [[]]


def test_compaction_needs_no_catalog_and_the_table_follows(lake: Lake, client: Any) -> None:
    lake.ingest()
    lake.log.add(0, json_rows(5))
    lake.ingest()
    give(lake, client)
    done = compact(lake.output, "default", Compaction(re.compile(".*")), 0, new_id=lambda: "x")
    assert done.rewrites == [1]
    assert give(lake, client).rewrites == [1]
    assert listed(lake, client).problems == ()


def test_a_table_of_another_job_and_an_absent_database_are_refused(lake: Lake, client: Any) -> None:
    lake.ingest()
    client.create_table(DatabaseName="events", TableInput={"Name": "flights"})
    assert "is of another job or program" in str(give(lake, client).error)
    [done] = publish(lake.history(), tables(lake, client, tables={"flights": "planes"}))
    assert (done.table, done.error) == ("events.planes", None)
    [done] = publish(lake.history(), GlueTables(GlueSettings("nowhere"), lake.history(), lambda: client))
    assert "Glue has no database nowhere" in str(done.error)


def test_names_that_a_catalog_would_merge_stay_apart() -> None:
    topics = ["rides", "Rides", "RIDES", "web.log", "web-log", "web_log", "x" * 200, "x" * 199]
    found = [table_name(one) for one in topics]
    assert len(set(found)) == len(topics)
    assert (found[0], found[5]) == ("rides", "web_log")
    assert all(re.fullmatch("[a-z0-9_]{1,120}", one) for one in found)
    schema = TableSchema("x", [["a,b", "bigint"], ["s", ["struct", [["x:y", "bigint"]]]], ["Ok", "json"]])
    table = hive_table("t", "json", schema, Layout())
    assert table.left_out == ("a,b", "s")
    assert table.columns[-2:] == (("ok", "string"), ("_extra", "string"))


@pytest.mark.parametrize(
    ("layout", "types"),
    [
        (Layout(AVRO), {"_key": "binary", "_headers": "array<struct<key:string,value:binary>>", "a_x2d_b": "bigint"}),
        (Layout(JSONL), {"_key": "string", "_event_time": "string", "a-b": "bigint"}),
        (Layout(CSV), {"_offset": "string", "a-b": "string"}),
    ],
)
def test_types_are_those_of_the_format(layout: Layout, types: dict[str, str]) -> None:
    table = hive_table("t", "json", TableSchema("x", [["a-b", "bigint"]]), layout)
    assert types.items() <= dict(table.columns).items()
    assert partition_values(table, "tables/t/dt=2026-01-01/hr=05/") == ["2026-01-01", "05"]
    with pytest.raises(IngestRefused, match="directories of the form %Y/%m/%d/%H"):
        hive_table("t", "json", TableSchema("x", []), layout._replace(directories="%Y/%m/%d/%H"))


def test_the_ddl_has_the_columns_and_the_partitions(lake: Lake) -> None:
    lake.ingest()
    runner, options = CliRunner(), ["--output", lake.output.url, "--database", "d"]
    found = runner.invoke(ddl, options, catch_exceptions=False).output
    assert found.startswith("CREATE EXTERNAL TABLE IF NOT EXISTS `d`.`flights` (\n  `_topic` string,\n")
    assert "PARTITIONED BY (`dt` date, `hr` string)" in found
    assert found.rstrip().endswith("MSCK REPAIR TABLE `d`.`flights`;")
    named = runner.invoke(ddl, [*options, "--partitions"], catch_exceptions=False).output.splitlines()
    location = f"{lake.output.url.rstrip('/')}/tables/flights/dt=2013-11-21/hr=05/"
    added = "ALTER TABLE `d`.`flights` ADD IF NOT EXISTS PARTITION (`dt` = '2013-11-21', `hr` = '05')"
    assert f"{added} LOCATION '{location}';" in named
