"""Typed columns of a read, without Spark: schemas in Spark's JSON form, and what becomes of each value."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from engine.testing.memory_store import MemoryStore
from spark_ingest.errors import IngestRefused
from spark_ingest.frames.direct_read import plan_partitions, read_partition
from spark_ingest.frames.read_options import parse_options
from spark_ingest.frames.typed_rows import TypedRows
from spark_ingest.frames.typed_schema import published_fields
from tests.codecs import plainly
from tests.spark_ingest.json_values import OBJECTS
from tests.spark_ingest.tiered import TieredLog, row


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}} | more


def typed(*fields: dict[str, Any]) -> TypedRows:
    schema = {"type": "struct", "fields": list(fields)}
    return TypedRows(schema, to_arrow_schema(StructType.fromJson(schema), timezone="UTC"))


def read(rows: TypedRows, *values: bytes | None, **options: str) -> pa.Table:
    log = TieredLog(MemoryStore())
    log.add(0, [row(value, at, key=b"k") for at, value in enumerate(values)])
    wanted = parse_options({"store": "memory://", "topic": log.topic} | options)
    parts = plan_partitions(log.store, wanted)
    return pa.Table.from_batches(
        [one for topic, slices in parts for one in read_partition(log.store, wanted, topic, slices, rows)], rows.schema
    )


ARRAY = {"type": "array", "elementType": "long", "containsNull": True}
STRUCT = {"type": "struct", "fields": [field("ts", "timestamp"), field("n", "short")]}


def test_every_type_is_read() -> None:
    rows = typed(
        *(field(kind, kind) for kind in ("boolean", "byte", "short", "integer", "long", "float", "double", "string")),
        *(field(kind, kind) for kind in ("decimal(38,18)", "date", "timestamp")),
        field("array", ARRAY),
        field("struct", STRUCT),
        field("json", "string", metadata={"comment": "json"}),
    )
    value = (
        b'{"boolean":true,"byte":-128,"short":32767,"integer":-5,"long":9007199254740993,"float":0.5,"double":1e300,'
        b'"string":"\xc3\xa9","decimal(38,18)":12.5,"date":"2013-11-21","timestamp":"2013-11-21T05:00:00.25+01:00",'
        b'"array":[1,null],"struct":{"ts":"2013-11-21T05:00:00Z","n":1,"more":2},"json":{"a":[1, 2]}}'
    )
    [found] = read(rows, value).to_pylist()
    assert found == {
        "boolean": True,
        "byte": -128,
        "short": 32767,
        "integer": -5,
        "long": 9007199254740993,
        "float": 0.5,
        "double": 1e300,
        "string": "é",
        "decimal(38,18)": Decimal("12.5"),
        "date": date(2013, 11, 21),
        "timestamp": datetime(2013, 11, 21, 4, 0, 0, 250_000, tzinfo=UTC),
        "array": [1, None],
        "struct": {"ts": datetime(2013, 11, 21, 5, tzinfo=UTC), "n": 1},
        "json": '{"a":[1, 2]}',
    }


def test_without_extra_a_misfit_is_null_and_other_members_are_skipped() -> None:
    table = read(typed(field("n", "byte"), field("s", "string")), b'{"n":128,"s":"a","x":1}', b'{"n":1,"s":2}', b"{}")
    assert table.to_pylist() == [{"n": None, "s": "a"}, {"n": 1, "s": None}, {"n": None, "s": None}]


def test_with_extra_no_value_is_lost() -> None:
    rows = typed(field("n", "byte"), field("o", STRUCT), field("_extra", "string"))
    table = read(rows, b'{"n":128,"x":1}', b'{"n":1,"o":{"n":1,"more":2}}', b'{"n":2}')
    assert table.to_pylist() == [
        {"n": None, "o": None, "_extra": '{"n":128,"x":1}'},
        {"n": 1, "o": None, "_extra": '{"o":{"n":1,"more":2}}'},
        {"n": 2, "o": None, "_extra": None},
    ]


def test_a_value_that_is_no_object_gives_a_row_with_the_reason() -> None:
    rows = typed(field("_offset", "long"), field("n", "byte"), field("_reason", "string"), field("_value", "binary"))
    assert read(rows, b"[1]", b"{", b'{"n":1}', b"\xff", None).to_pylist() == [
        {"_offset": 0, "n": None, "_reason": "not_an_object", "_value": b"[1]"},
        {"_offset": 1, "n": None, "_reason": "not_json", "_value": b"{"},
        {"_offset": 2, "n": 1, "_reason": None, "_value": b'{"n":1}'},
        {"_offset": 3, "n": None, "_reason": "not_json", "_value": b"\xff"},
        {"_offset": 4, "n": None, "_reason": None, "_value": None},
    ]


def test_the_reason_is_that_of_a_job_also_without_extra() -> None:
    values = [b'{"other":"\xff"}', b'{"other":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"other":1', b"{}"]
    for names in (("_reason",), ("_extra", "_reason")):
        rows = typed(field("id", "long"), *(field(name, "string") for name in names))
        for decode in (read, plainly):
            found = decode(rows, *values) if decode is read else plainly(lambda rows=rows: read(rows, *values))
            assert found["_reason"].to_pylist() == ["not_utf8", "nested_too_deeply", "not_json", None]


def test_columns_of_the_record_alone_decode_no_value() -> None:
    rows = typed(field("_partition", "integer"), field("_timestamp", "timestamp"), field("_key", "binary"))
    when = datetime(2013, 11, 21, 5, tzinfo=UTC)
    assert read(rows, b"no json").to_pylist() == [{"_partition": 0, "_timestamp": when, "_key": b"k"}]


@pytest.mark.parametrize("names", [(), ("_extra",), ("_reason", "_value"), ("_extra", "_reason")])
@given(st.lists(OBJECTS, min_size=1, max_size=5))
def test_rows_are_those_of_the_plain_decoder(names: tuple[str, ...], objects: list[Any]) -> None:
    """Most blocks are read by the compiled codec, and the others by its twin."""
    kinds = {"a": "long", "b": "string", "id": "double", "naïve": "integer", "A": STRUCT, "_extra": "string"}
    kinds |= {"_reason": "string", "_value": "binary"}
    rows = typed(*(field(name, kinds[name]) for name in (*list(kinds)[:5], *names)))
    values = [json.dumps(one).encode() for one in objects]
    found = read(rows, *values)
    assert found.equals(plainly(lambda: read(rows, *values)))
    assert [one.null_count for one in found] == [one.null_count for one in plainly(lambda: read(rows, *values))]


def test_a_published_schema_reads_as_the_table_does() -> None:
    members = [["id", "bigint"], ["gone", "null"], ["any", ["array", "json"]], ["o", ["struct", [["d", "json"]]]]]
    rows = typed(*published_fields(members), field("_extra", "string"))
    assert read(rows, b'{"id":1,"any":[1,"a"],"o":{"d":[2]},"gone":3}').to_pylist() == [
        {"id": 1, "any": ["1", '"a"'], "o": {"d": "[2]"}, "_extra": '{"gone":3}'}
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([field("a", "binary")], "'a' has the type binary"),
        ([field("a", "decimal(10,2)")], r"'a' has the type decimal\(10,2\)"),
        ([field("a", {"type": "array", "elementType": "decimal(38,18)", "containsNull": True})], "type decimal"),
        ([field("a", "long", nullable=False)], "'a' is NOT NULL"),
        ([field("_offset", "long", nullable=False)], "'_offset' is NOT NULL"),
        ([field("_offset", "integer")], "_offset of the record is BIGINT"),
        ([field('say "hi"', "long")], "no member is read as"),
    ],
)
def test_a_schema_that_cannot_be_read_is_named(fields: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(IngestRefused, match=message):
        typed(*fields)
