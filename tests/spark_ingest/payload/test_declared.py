"""Types that payloads declare become the types of columns, without a value, too, and hold every value exactly."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.orc
import pytest

from engine.testing.memory_store import MemoryStore
from spark_ingest.layout import JSONL, ORC, Layout
from spark_ingest.payload.message_pack import decoder_of as msgpack_of
from spark_ingest.plan import Recipe, TableSchema
from spark_ingest.protocol.results import Misfits
from spark_ingest.tables.hive import hive_table
from tests.spark_ingest.jobs import Remembering, assert_sound, head_of, listed_files, run_job, table_rows
from tests.spark_ingest.payload.test_message_pack import timestamp
from tests.spark_ingest.payload.test_text import converter
from tests.spark_ingest.tiered import TieredLog, row

fastavro = pytest.importorskip("fastavro")


def of(kind: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}


PRICE, PART = of("bytes", "decimal", precision=30, scale=10), record(("n", "int"), ("raw", "bytes"), name="Part")
KINDS: dict[str, tuple[Any, Any, Any, Any]] = {  # the Avro type, the column's, a value, and that of the row
    "flag": ("boolean", "boolean", True, True),
    "id": ("long", "bigint", 2**62, 2**62),
    "ratio": ("double", "double", 1.0, 1.0),
    "price": (PRICE, "decimal(30,10)", *[Decimal("12345678901234567890.0123456789")] * 2),
    "day": (of("int", "date"), "date", *[date(2026, 1, 2)] * 2),
    "at": (of("long", "timestamp-micros"), "timestamp", *[datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)] * 2),
    "local": (of("long", "local-timestamp-micros"), "string", 1_000_001, "1970-01-01T00:00:01.000001"),
    "raw": ("bytes", "binary", b"\0\xff", b"\0\xff"),
    "name": ("string", "string", "é", "é"),
    "list": (
        {"type": "array", "items": ["null", PRICE]},
        ["array", "decimal(30,10)"],
        [Decimal("0.0000000001"), None],
        [Decimal("0.0000000001"), None],
    ),
    "part": (PART, ["struct", [["n", "bigint"], ["raw", "binary"]]], *[{"n": 1, "raw": b"x"}] * 2),
}
SCHEMA = record(*((name, ["null", kind]) for name, (kind, *_) in KINDS.items()))
COLUMNS = [[name, kind] for name, (_, kind, *_) in KINDS.items()]
NULLS: dict[str, Any] = dict.fromkeys(KINDS)
VALUES = {name: value for name, (_, _, value, _) in KINDS.items()}
ROW = {name: value for name, (*_, value) in KINDS.items()}


def datum(value: Any, schema: Any) -> bytes:
    stream = BytesIO()
    fastavro.writer(stream, schema, [value])
    return stream.getvalue()


class Table:
    """A job whose runs take the values that are added."""

    def __init__(self, payload: str, **recipe: Any) -> None:
        self.log, self.output = TieredLog(MemoryStore()), MemoryStore()
        self.recipe = Recipe(payload, **recipe)
        self._count = 0

    def add(self, *values: bytes, **more: Any) -> Remembering:
        self.log.add(0, [row(one, self._count + at) for at, one in enumerate(values)])
        self._count += len(values)
        return run_job(self.log.store, self.output, recipe=self.recipe, **more)

    @property
    def members(self) -> list[list[Any]]:
        head = head_of(self.output)
        return head.schemas["flights"].members

    @property
    def rows(self) -> list[dict[str, Any]]:
        assert_sound(self.output)
        return table_rows(self.output)


@pytest.mark.parametrize("first", [NULLS, VALUES])
def test_a_schema_of_avro_declares_the_columns(first: dict[str, Any]) -> None:
    """Also if all values are null so far; the next ones then fit."""
    table = Table("avro")
    table.add(datum(first, SCHEMA))
    assert table.members == COLUMNS
    table.add(datum(VALUES, SCHEMA), misfit_max_percent=0)
    assert table.members == COLUMNS
    last = table.rows[-1]
    assert {name: last[name] for name in KINDS} == ROW
    assert last["_extra"] is None
    assert pa.types.is_date32(
        pa.parquet.read_schema(pa.BufferReader(table.output.get(listed_files(table.output)[0]))).field("day").type
    )


def test_a_published_column_keeps_its_type_and_other_values_are_misfits() -> None:
    """Text may look like base64 or a time; without a zone it has no place in a column of timestamps."""
    table = Table("avro")
    kinds = {"raw": "bytes", "at": of("long", "timestamp-micros"), "n": "int", "part": PART}
    instant = datetime(2026, 1, 2, tzinfo=UTC)
    one = {"raw": b"x", "at": instant, "n": 1, "part": {"n": 1, "raw": b"y"}}
    table.add(datum(one, record(*kinds.items())))
    before = table.members
    texts = record(("raw", "string"), ("at", "string"), ("n", PRICE), ("part", record(("raw", "string"), name="P")))
    other = {"raw": "abcd", "at": "2026-01-02T00:00:00", "n": Decimal("1.5"), "part": {"raw": "abcd"}}
    ran = table.add(datum(other, texts), datum(one, record(*kinds.items())))
    assert table.members == before
    rows = table.rows
    assert [rows[1][name] for name in kinds] == [None] * 4
    assert json.loads(rows[1]["_extra"], parse_float=Decimal) == other
    assert [rows[2][name] for name in kinds] == list(one.values())
    assert ran.commits[0].results[0].misfits == dict.fromkeys(kinds, Misfits(1, 2))


def test_members_that_the_sample_misses_get_the_declared_type_with_the_next_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from spark_ingest.protocol import sample

    monkeypatch.setattr(sample, "READ_RECORDS_MAX", 1)
    table = Table("avro")
    more = record(("id", "long"), ("raw", "bytes"), ("at", of("long", "timestamp-millis")))
    instant = datetime(2026, 1, 2, tzinfo=UTC)
    table.add(datum({"id": 1}, record(("id", "long"))), datum({"id": 1, "raw": b"x", "at": instant}, more))
    table.add(datum({"id": 2}, record(("id", "long"))))
    assert table.members == [["id", "bigint"], ["raw", "binary"], ["at", "timestamp"]]


def test_declared_types_do_not_widen_a_published_bigint() -> None:
    """A column that has held every value so far keeps its type."""
    table = Table("msgpack")
    table.add(msgspec.msgpack.encode({"n": 1}))
    table.recipe = Recipe("avro")
    whole = of("bytes", "decimal", precision=20, scale=0)
    table.add(datum({"n": Decimal(5)}, record(("n", whole))), widens=True)
    assert table.members == [["n", "bigint"]]
    assert [one["n"] for one in table.rows] == [1, 5]


def test_no_decimal_is_rounded_to_the_precision_of_its_schema() -> None:
    """The writer may have broken its own schema."""
    small, raw = record(("d", of("bytes", "decimal", precision=4, scale=2))), record(("d", "bytes"))
    stream = BytesIO()
    fastavro.schemaless_writer(stream, raw, {"d": (123456789).to_bytes(5, "big")})
    bare = converter("avro", framing="bare", schemas={"a": json.dumps(small)})
    assert bare.convert([stream.getvalue()]).texts == [b'{"d":1234567.89}']


def test_values_of_messagepack_are_binary_timestamps_and_text() -> None:
    table = Table("msgpack")
    instant = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    one = {"raw": b"\0", "at": instant, "tags": [b"a"], "in": {"raw": b"b", "n": None}}
    table.add(msgspec.msgpack.encode(one))
    assert table.members == [
        *(["raw", "binary"], ["at", "timestamp"], ["tags", ["array", "binary"]]),
        ["in", ["struct", [["raw", "binary"], ["n", "null"]]]],
    ]
    table.add(msgspec.msgpack.encode({"raw": "abcd", "at": None, "tags": ["abcd"]}))
    rows = table.rows
    assert {name: rows[0][name] for name in one} == one | {"in": {"raw": b"b"}}
    assert (rows[1]["raw"], json.loads(rows[1]["_extra"])) == (None, {"raw": "abcd", "tags": ["abcd"]})
    nanoseconds = msgspec.msgpack.encode({"at": "T"}).replace(b"\xa1T", timestamp(1, 678_901_234))
    ran = table.add(nanoseconds, msgspec.msgpack.encode({"at": instant}))
    assert [(one["at"], one["_extra"]) for one in table.rows[2:]] == [
        (None, '{"at":"1970-01-01T00:00:01.678901234Z"}'),
        (instant, None),
    ]
    assert ran.commits[0].results[0].misfits == {"at": Misfits(1, 2)}


@pytest.mark.parametrize(("texts", "kind"), [(1, "binary"), (50, "string"), (99, "string")])
def test_texts_and_bytes_of_one_member_are_text_unless_few_differ(texts: int, kind: str) -> None:
    table = Table("msgpack")
    values = [{"m": "abcd" if at < texts else b"x"} for at in range(100)]
    table.add(*map(msgspec.msgpack.encode, values))
    assert table.members == [["m", kind]]


def test_transformers_change_declared_types_as_they_change_values() -> None:
    steps = (
        {"do": "rename", "members": {"raw": "bytes", "part.raw": "inner"}},
        {"do": "hash", "members": ["at"]},
        {"do": "redact", "members": ["price"]},
        {"do": "drop", "members": ["day", "part.n"]},
        {"do": "filter", "member": "id", "values": ["7"], "keep": False},
    )
    table = Table("avro", transforms=steps)
    table.add(datum(VALUES, SCHEMA))
    members = dict(table.members)
    assert (members["bytes"], members["at"], members["price"]) == ("binary", "string", "string")
    assert members["part"] == ["struct", [["inner", "binary"]]]
    assert "raw" not in members
    assert "day" not in members
    assert table.rows[0]["bytes"] == b"\0\xff"


def test_a_time_that_orc_cannot_hold_stays_in_extra() -> None:
    table = Table("avro", layout=Layout(ORC))
    schema = record(("at", of("long", "timestamp-micros")))
    times = [datetime(year, 6, 1, tzinfo=UTC) for year in (1, 1500, 1677, 1678, 2261, 2262, 9999)]
    table.add(*(datum({"at": one}, schema) for one in times))
    assert table.members == [["at", "timestamp"]]
    [key] = listed_files(table.output)
    rows = pa.orc.ORCFile(pa.BufferReader(table.output.get(key))).read(["at", "_extra"]).to_pylist()
    assert [one["at"] for one in rows] == [None, None, None, *times[3:5], None, None]
    assert [one["_extra"] is None for one in rows] == [one["at"] is not None for one in rows]


def test_types_within_themselves_and_without_end_are_bounded() -> None:
    nested: Any = record(("a", "int"), name="T0")
    for level in range(1, 8):
        nested = record(*[(f"m{at}", nested if at == 0 else f"T{level - 1}") for at in range(20)], name=f"T{level}")
    tree = record(("next", ["null", "Tree"]), ("at", of("long", "timestamp-millis")), name="Tree")
    schema = record(("wide", ["null", nested]), ("tree", ["null", tree]), ("map", {"type": "map", "values": "bytes"}))
    declared = converter("avro").declared(datum({"wide": None, "tree": None, "map": {}}, schema))
    assert dict(declared)["tree"] == ["struct", [["next", "null"], ["at", "timestamp"]]]
    assert dict(declared)["map"] == "null"
    assert len(json.dumps(declared)) < 20_000


def test_bytes_that_cannot_be_decoded_declare_nothing() -> None:
    assert [converter(name).declared(b"\xff") for name in ("avro", "msgpack")] == [[], []]
    assert msgpack_of({}).declared(msgspec.msgpack.encode(5)) == []  # type: ignore[attr-defined]


def test_a_catalog_of_hive_reads_bytes_and_times_in_lines_of_json_as_text() -> None:
    members = [["raw", "binary"], ["in", ["struct", [["timestamp", "timestamp"], ["list", ["array", "binary"]]]]]]
    found = dict(hive_table("flights", "avro", TableSchema("id", members), Layout(JSONL, "none")).columns)
    assert (found["raw"], found["in"]) == ("string", "struct<timestamp:string,list:array<string>>")
