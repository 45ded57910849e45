"""Columns of types that payloads declare have the same values in Delta and Iceberg tables, to the last digit."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyiceberg.expressions import EqualTo

from engine.tiering.store.store import open_store
from spark_ingest.plan import Recipe
from spark_ingest.tables.delta import DeltaTables
from spark_ingest.tables.publish import publish
from spark_ingest.upkeep.compact import Compaction, compact
from tests.spark_ingest.payload.test_declared import datum, of, record
from tests.spark_ingest.payload.test_protobuf import OPTIONS, order_class
from tests.spark_ingest.tables.lakes import Lake
from tests.spark_ingest.tiered import TieredLog, row

PART = record(
    ("d", of("bytes", "decimal", precision=38, scale=18)),
    ("day", ["null", of("int", "date")]),
    ("at", ["null", of("long", "timestamp-micros")]),
    name="Part",
)
SCALARS: dict[str, tuple[Any, Any, Any]] = {  # the Avro type, the least value, the greatest
    "whole": (of("bytes", "decimal", precision=38, scale=0), Decimal("-" + "9" * 38), Decimal("9" * 38)),
    "fraction": (of("bytes", "decimal", precision=38, scale=38), Decimal("-0." + "9" * 38), Decimal("0." + "9" * 38)),
    "price": (of("bytes", "decimal", precision=9, scale=2), Decimal("-1234567.89"), Decimal("0.01")),
    "day": (of("int", "date"), date(1, 1, 1), date(9999, 12, 31)),
    "at": (
        of("long", "timestamp-micros"),
        datetime(1, 1, 1, 0, 0, 0, 1, UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    ),
    "raw": ("bytes", b"", bytes(range(256))),
}
KINDS = {name: kind for name, (kind, *_) in SCALARS.items()} | {
    "days": {"type": "array", "items": ["null", of("int", "date")]},
    "part": PART,
    "parts": {"type": "array", "items": record(("raw", "bytes"), name="Item")},
}
WHEN = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
WITHIN = {
    "days": [date(1582, 10, 10), None],
    "part": {"d": Decimal("12345678901234567890.123456789012345678"), "day": date(1969, 12, 31), "at": WHEN},
    "parts": [{"raw": b"\0"}],
}
ROWS = [{name: one[at] for name, one in SCALARS.items()} | WITHIN for at in (1, 2)]
NEW = {  # a column, and a member of the structs
    "more": of("bytes", "decimal", precision=30, scale=10),
    "parts": {"type": "array", "items": record(("raw", "bytes"), ("when", of("int", "date")), name="Item")},
}
NEW_ROW = ROWS[0] | {"more": Decimal("-0.0000000001"), "parts": [{"raw": b"x", "when": date(1, 1, 1)}]}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.log = TieredLog(open_store((tmp_path / "another store").as_uri()))
    lake.source = lake.log.store
    return lake


def give(lake: Lake) -> None:
    for done in (*publish(lake.history(), DeltaTables("default", lake.output.url)), *lake.publish()):
        if done.error:
            raise done.error


def delta(lake: Lake) -> DeltaTable:
    return DeltaTable(f"{lake.output.url}/tables/flights")


def assert_tables_have(lake: Lake, wanted: list[dict[str, Any]]) -> None:
    for found in (delta(lake).to_pyarrow_table(), lake.scan()):
        rows = sorted(found.to_pylist(), key=lambda one: one["_offset"])
        assert [{name: one[name] for name in wanted[0]} for one in rows] == wanted
        assert [one["_extra"] for one in rows] == [None] * len(wanted)


def test_values_of_avro_are_exact_also_after_new_members_and_a_compaction(lake: Lake) -> None:
    lake.log.add(0, [row(datum(one, record(*KINDS.items()))) for one in ROWS])
    lake.ingest(recipe=Recipe("avro"))
    give(lake)
    assert_tables_have(lake, ROWS)
    for name, (_, *values) in SCALARS.items():  # the least and the greatest values that files name are right
        for value in values:
            assert lake.table().scan(row_filter=EqualTo(name, value)).to_arrow()[name].to_pylist() == [value]
            rows = delta(lake).to_pyarrow_dataset()
            same = pc.field(name) == pa.scalar(value, rows.schema.field(name).type)
            assert rows.to_table(filter=same)[name].to_pylist() == [value]
    lake.log.add(0, [row(datum(NEW_ROW, record(*(KINDS | NEW).items())))])
    lake.ingest(recipe=Recipe("avro"))
    give(lake)
    grown = [one | {"more": None, "parts": [{"raw": b"\0", "when": None}]} for one in ROWS]
    assert_tables_have(lake, [*grown, NEW_ROW])
    numbers = count(1)
    wanted = Compaction(re.compile(".*"))
    compact(lake.output, "default", wanted, 0, new_id=lambda: f"n-{next(numbers)}", publish=lambda: give(lake))
    assert_tables_have(lake, [*grown, NEW_ROW])


def test_values_of_messagepack_are_exact(lake: Lake) -> None:
    values = [{"raw": one["raw"], "at": one["at"], "in": {"at": WHEN, "list": [b"x", None]}} for one in ROWS]
    lake.log.add(0, [row(msgspec.msgpack.encode(one)) for one in values])
    lake.ingest(recipe=Recipe("msgpack", "at"))  # the hours of the partitions are of the years 1 and 9999
    give(lake)
    assert_tables_have(lake, values)


def test_values_of_protobuf_are_exact(lake: Lake) -> None:
    order = order_class()(id=-(2**63), tags=[b"\0", b"\xff"], counts={"a": 1})
    order.at.FromDatetime(WHEN)
    lake.log.add(0, [row(order.SerializeToString())])
    lake.ingest(recipe=Recipe("protobuf", decoder=OPTIONS))
    give(lake)
    assert_tables_have(lake, [{"id": -(2**63), "tags": [b"\0", b"\xff"], "at": WHEN}])
