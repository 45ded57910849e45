"""Columns whose names Iceberg has for its own have others in its tables, also in tables of earlier releases."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_ingest.tables.iceberg_names import RESERVED, file_name, in_table, table_name
from tests.spark_ingest.tables.lakes import Lake
from tests.spark_ingest.tiered import row

# MetadataColumns of iceberg-core 1.12, which its Spark module refuses in a table
OF_ICEBERG = ["_partition", "_file", "_pos", "_deleted", "_spec_id", "_row_id", "_last_updated_sequence_number"]
OF_ICEBERG += ["_change_type", "_change_ordinal", "_commit_snapshot_id"]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_no_column_has_a_name_that_iceberg_has_for_its_own() -> None:
    assert sorted(RESERVED) == sorted(OF_ICEBERG)
    assert in_table(pa.schema({"_partition": pa.int32(), "id": pa.int64()})).names == ["_topic_partition", "id"]
    names = [*OF_ICEBERG, "_topic_partition", "id", "_member", "member_pos", "_member_partition"]
    names += [f"_member{name}" for name in names] + [f"_member_member{name}" for name in names]
    assert not {*map(table_name, names)} & {*OF_ICEBERG}
    assert [file_name(table_name(name)) for name in names] == names
    assert len({*map(table_name, names)}) == len({*names})


def test_members_with_the_new_names_of_others_get_names_of_their_own(lake: Lake) -> None:
    lake.log.add(0, [row(b'{"id":90001,"_topic_partition":5}')])
    lake.ingest()
    lake.log.add(0, [row(b'{"id":90002,"_pos":6}')])
    lake.ingest()
    lake.log.add(0, [row(b'{"id":90003,"_member_pos":7}')])
    lake.ingest()
    assert [one.error for one in lake.publish()] == [None]
    lake.assert_table_is_log()
    for name, value, wanted in (
        ("_member_topic_partition", 5, 90001),
        ("_member_pos", 6, 90002),
        ("_member_member_pos", 7, 90003),
    ):
        assert lake.table().scan(f"{name} = {value}").to_arrow()["id"].to_pylist() == [wanted]


def test_members_with_such_names_are_read_under_others_also_after_a_rewrite(lake: Lake) -> None:
    lake.ingest()
    lake.publish()
    lake.log.add(0, [row(b'{"id":90001,"_pos":%d,"_file":"a"}' % at) for at in (5, 7)])
    lake.ingest()
    assert [one.error for one in lake.publish()] == [None]
    found = lake.scan().select(["id", "_member_pos", "_member_file"]).to_pylist()
    assert sorted(one["_member_pos"] for one in found if one["_member_file"] == "a") == [5, 7]
    [file, *_] = lake.table().scan(row_filter="_member_pos = 7").plan_files()  # by the statistics of its columns
    assert file.file.record_count == 2


def test_a_table_of_an_earlier_release_gets_the_new_name_and_keeps_its_rows(lake: Lake) -> None:
    lake.ingest()
    lake.publish()
    table = lake.table()
    paths = [task.file.file_path for task in table.scan().plan_files()]
    properties = {name: value for name, value in table.properties.items() if not name.startswith("schema.")}
    catalog = lake.catalog()
    catalog.drop_table(("events", "flights"))
    schema = pa.schema([one.with_nullable(True) for one in pq.read_schema(paths[0].removeprefix("file://"))])
    earlier = catalog.create_table(("events", "flights"), schema, properties=properties)
    with earlier.transaction() as transaction:
        transaction.add_files(paths, snapshot_properties={"penstock.job": "default", "penstock.commit": "1"})
    assert "_partition" in lake.table().schema().column_names

    lake.log.add(1, [row(b'{"id":90002}')])
    lake.ingest()
    assert [(one.commits, one.error) for one in lake.publish()] == [([2], None)]
    assert "_partition" not in lake.table().schema().column_names
    lake.assert_table_is_log()
