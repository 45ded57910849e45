"""Avro in its framings, with schemas of files, containers and a registry, and hostile bytes."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.errors import IngestRefused
from tests.spark_ingest.payload.test_text import converter, one

fastavro = pytest.importorskip("fastavro")

from engine.encodings import avro_bounds  # noqa: E402
from engine.encodings.avro_measure import Measure  # noqa: E402
from engine.encodings.avro_schema import parse_avro, read_avro  # noqa: E402
from engine.encodings.registry import Reference, RegisteredSchema, RegistryUnavailable  # noqa: E402
from spark_ingest.payload import avro  # noqa: E402

SCHEMA = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "raw", "type": ["null", "bytes"]},
    ],
}
TEXT = json.dumps(SCHEMA)
ORDER = {"id": 5, "at": datetime(2026, 1, 2, tzinfo=UTC), "price": Decimal("12345678901234567890.25")}
ORDER |= {"tags": ["a", "b"], "raw": b"\x00"}
ROW = {"id": 5, "at": "2026-01-02T00:00:00Z", "price": 12345678901234567890.25, "tags": ["a", "b"], "raw": "AA=="}


def datum(record: Any = ORDER, schema: Any = SCHEMA) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, schema, record)
    return stream.getvalue()


def container(records: list[Any], schema: Any = SCHEMA, codec: str = "null") -> bytes:
    stream = BytesIO()
    fastavro.writer(stream, schema, records, codec)
    return stream.getvalue()


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_a_container_of_one_record_has_its_own_schema(codec: str) -> None:
    assert one(converter("avro"), container([ORDER], codec=codec)) == ROW


def test_a_value_that_takes_much_memory_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes announce any number of items, or a byte is a record of many fields; a schema repeats its types."""
    monkeypatch.setattr(avro_bounds, "VALUE_BYTES_MAX", 1 << 16)
    fields = [{"name": f"m{at}", "type": "null"} for at in range(50)]
    wide = {"type": "record", "name": "wide", "fields": [*fields, {"name": "x", "type": "int"}]}

    def decoded(items: Any, data: bytes) -> object:
        text = json.dumps({"type": "record", "name": "row", "fields": [{"name": "a", "type": items}]})
        return one(converter("avro", schemas={"file": text}, framing="bare"), data)

    assert decoded({"type": "array", "items": "null"}, b"\x80\x80\x80\x80\x10\x00") == "too_large"
    assert decoded({"type": "array", "items": wide}, b"\x80\x10" + bytes(1024) + b"\x00") == "too_large"
    assert decoded({"type": "array", "items": wide}, b"\x02\x04\x00") == {"a": [{**dict.fromkeys(
        [f"m{at}" for at in range(50)]), "x": 2}]}  # fmt: skip
    nested: dict[str, Any] = {"type": "record", "name": "n0", "fields": fields}
    for depth in range(1, 5):
        others = [{"name": f"f{at}", "type": f"n{depth - 1}"} for at in range(1, 10)]
        nested = {"type": "record", "name": f"n{depth}", "fields": [{"name": "f0", "type": nested}, *others]}
    assert decoded(nested, b"") == "too_large"
    doubled: dict[str, Any] = {"type": "record", "name": "d0", "fields": []}
    for depth in range(1, 64):  # 2^64 records, if each were visited
        others = [{"name": "b", "type": f"d{depth - 1}"}]
        doubled = {"type": "record", "name": f"d{depth}", "fields": [{"name": "a", "type": doubled}, *others]}
    assert decoded(doubled, b"") == "too_large"
    assert decoded(["null", doubled], b"\x02") == "too_large"
    assert decoded({"type": "map", "values": doubled}, b"\x02\x00\x00") == "too_large"
    tree = {"type": "record", "name": "tree", "fields": [{"name": "next", "type": ["null", "tree"]}]}
    assert decoded(tree, b"\xff" * 1000) == "not_avro"
    assert decoded(tree, b"\x02" * 5000 + b"\x00") in ("nested_too_deeply", "too_large")


SCALAR = st.one_of(
    *(st.just(name) for name in ("null", "boolean", "int", "long", "float", "double", "string", "bytes"))
)
NAMED = st.builds(
    lambda size: {"type": "fixed", "name": f"f{size}", "size": size}, st.integers(0, 9)
) | st.just({"type": "enum", "name": "e", "symbols": ["A", "B"]})  # fmt: skip
KIND = st.recursive(
    SCALAR | NAMED,
    lambda inner: (
        st.builds(lambda one: {"type": "array", "items": one}, inner)
        | st.builds(lambda one: {"type": "map", "values": one}, inner)
        | st.builds(
            lambda one: one if isinstance(one, list) else ["null", one], inner.filter(lambda one: one != "null")
        )
    ),
    max_leaves=4,
)


def value_of(kind: Any, draw: Any) -> Any:
    if isinstance(kind, list):
        return value_of(draw(st.sampled_from(kind)), draw)
    match kind:
        case {"type": "array", "items": items}:
            return [value_of(items, draw) for _ in range(draw(st.integers(0, 3)))]
        case {"type": "map", "values": values}:
            return {str(at): value_of(values, draw) for at in range(draw(st.integers(0, 3)))}
        case {"type": "fixed", "size": size}:
            return bytes(size)
        case {"type": "enum"}:
            return "B"
    values = {"null": None, "boolean": True, "int": -70, "long": 1 << 60, "float": 0.5, "double": 1.5, "string": "é"}
    return values.get(kind, b"bytes")


@given(st.lists(KIND, max_size=4), st.data())
def test_a_value_is_measured_to_its_end(kinds: list[Any], data: Any) -> None:
    """The measure passes over the bytes that fastavro reads, and finds every cut."""
    fields = [{"name": f"m{at}", "type": kind} for at, kind in enumerate(kinds)]
    with suppress(fastavro.schema.SchemaParseException):  # a name twice
        tree = fastavro.parse_schema({"type": "record", "name": "row", "fields": fields})
        encoded = datum({one["name"]: value_of(one["type"], data.draw) for one in fields}, tree)
        assert Measure(tree).end_of(encoded) == len(encoded)
        for size in range(len(encoded)):
            with pytest.raises((EOFError, ValueError)):
                Measure(tree).end_of(encoded[:size])


def test_decimals_stay_exact() -> None:
    assert b'"price":12345678901234567890.25' in (converter("avro").convert([container([ORDER])]).texts[0] or b"")


def test_single_object_encoding_finds_its_schema_by_the_fingerprint() -> None:
    decoder = converter("avro", schemas={"file": TEXT})
    assert one(decoder, b"\xc3\x01" + bytes.fromhex(avro.fingerprint_of(TEXT)) + datum()) == ROW
    assert one(decoder, b"\xc3\x01" + bytes(8) + datum()) == "unknown_schema"
    assert avro.fingerprint_of('"int"') == "8f5c393f1ad57572"  # 0x7275d51a3f395c8f of the specification, little-endian


def test_the_header_of_a_registry_names_a_schema_file_or_one_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    part = {"type": "record", "name": "shop.Part", "fields": [{"name": "n", "type": "int"}]}
    parts = {"type": "record", "name": "shop.Parts", "fields": [{"name": "part", "type": "shop.Part"}]}

    def schema(registry: object, number: int) -> RegisteredSchema | None:
        asked.append(number)
        if number == 9:
            raise RegistryUnavailable("away")
        of = Reference("shop.Part", "part", 1)
        known = {8: RegisteredSchema(json.dumps(parts), references=(of,)), 6: RegisteredSchema("x", "JSON")}
        return known.get(number)

    monkeypatch.setattr(avro.Registry, "schema", schema)
    monkeypatch.setattr(avro.Registry, "read_referenced", lambda registry, one: RegisteredSchema(json.dumps(part)))
    decoder = converter("avro", schemas={"7": TEXT}, registry_url="http://registry:8081")
    assert one(decoder, b"\0\0\0\0\x07" + datum()) == ROW
    assert one(decoder, b"\0\0\0\0\x08\x04") == one(decoder, b"\0\0\0\0\x08\x04") == {"part": {"n": 2}}
    reasons = [one(decoder, b"\0\0\0\0%c" % number) for number in (5, 5, 6)]
    assert reasons == ["unknown_schema"] * 3
    with pytest.raises(RegistryUnavailable):
        one(decoder, b"\0\0\0\0\x09")
    assert asked == [8, 5, 6, 9]


def test_bare_values_have_the_schema_of_the_file() -> None:
    assert one(converter("avro", framing="bare", schemas={"file": TEXT}), datum()) == ROW
    with pytest.raises(IngestRefused, match="needs schema_file"):
        converter("avro", framing="bare")
    with pytest.raises(IngestRefused, match="not an Avro schema"):
        converter("avro", schemas={"file": '{"type":"recor"}'})


ITSELF = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}
ENDLESS = {"type": "record", "name": "R", "fields": [{"name": "next", "type": "R"}]}
NOTHING = {"type": "record", "name": "N", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}
EMPTY = {"type": "record", "name": "N", "fields": [{"name": "a", "type": {"type": "array", "items": {
    "type": "record", "name": "E", "fields": []}}}]}  # fmt: skip


def with_schema(schema: Any, data: bytes, codec: str = "null", count: int = 1) -> bytes:
    header = fastavro.schemaless_writer
    stream = BytesIO()
    meta = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    header(stream, avro._HEADER, {"magic": b"Obj\x01", "meta": meta, "sync": bytes(16)})
    header(stream, avro._SIZES, {"count": count, "size": len(data)})
    return stream.getvalue() + data + bytes(16)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "not_avro"),
        (b"{}", "not_avro"),
        (b"Obj\x01", "not_avro"),
        (container([ORDER])[:-1], "several_records"),
        (container([ORDER, ORDER]), "several_records"),
        (with_schema(SCHEMA, datum() + b"x"), "not_avro"),
        (with_schema(SCHEMA, datum()[:-1]), "not_avro"),
        (with_schema(SCHEMA, b"\xff" * 40), "not_avro"),
        (with_schema(SCHEMA, datum(), codec="snappy"), "not_avro"),
        (with_schema(SCHEMA, b"junk", codec="deflate"), "not_avro"),
        (with_schema("int", b"\x02"), "not_an_object"),
        (with_schema(ITSELF, b"\x02" * 100_000 + b"\0"), "nested_too_deeply"),
        (with_schema(ENDLESS, b""), "nested_too_deeply"),
        (with_schema(NOTHING, b"\xfe\xff\xff\xff\xff\x0f\0"), "unknown_schema"),
        (with_schema(EMPTY, b"\xfe\xff\xff\xff\xff\x0f\0"), "unknown_schema"),
        (with_schema({"type": "what"}, b""), "unknown_schema"),
    ],
    ids=range(16),
)
def test_hostile_bytes_have_a_reason_and_no_row(value: bytes, reason: str) -> None:
    assert one(converter("avro"), value) == reason


def test_a_type_within_itself_is_read() -> None:
    assert one(converter("avro"), with_schema(ITSELF, b"\x02\x02\0")) == {"next": {"next": {"next": None}}}


def test_a_container_that_unpacks_to_too_much_has_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "CONTAINER_BYTES_MAX", 1 << 16)
    schema = {"type": "record", "name": "B", "fields": [{"name": "b", "type": "bytes"}]}
    bomb = container([{"b": bytes(1 << 20)}], schema, "deflate")
    assert len(bomb) < 2000
    assert one(converter("avro"), bomb) == "too_large"


def test_a_union_of_records_that_refer_to_other_schemas_is_read() -> None:
    named: dict[str, Any] = {}
    part = {"type": "record", "name": "x.Part", "fields": [{"name": "n", "type": "long"}]}
    parse_avro(json.dumps(part), named)
    whole = {"type": "record", "name": "x.Whole", "fields": [{"name": "part", "type": "x.Part"}]}
    schema = parse_avro(json.dumps(["null", whole]), named)
    assert schema.measure.end_of(b"\x02\x04") == 2
    assert read_avro(b"\x02\x04", schema) == {"part": {"n": 2}}


def test_a_union_of_names_of_other_schemas_is_read() -> None:
    """The schema of a topic with several types of events: each branch is a reference of the registry."""
    named: dict[str, Any] = {}
    made = {"type": "record", "name": "x.Made", "fields": [{"name": "n", "type": "long"}]}
    gone = {"type": "record", "name": "x.Gone", "fields": [{"name": "last", "type": ["null", "x.Made"]}]}
    for schema_of in (made, gone):
        parse_avro(json.dumps(schema_of), named)
    for text, values in (
        (json.dumps(["x.Made", "x.Gone"]), {b"\0\x04": {"n": 2}, b"\x02\x02\x04": {"last": {"n": 2}}}),
        ('"x.Gone"', {b"\0": {"last": None}}),
    ):
        schema = parse_avro(text, named)
        for data, value in values.items():
            assert read_avro(data, schema) == value
            assert schema.measure.end_of(data) == len(data)
            assert schema.shape.is_small(len(data))
