"""From JSON text to typed rows and columns: exact in every code path."""

from __future__ import annotations

import json
import sys

import msgspec
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ingest.decode.json_columns import arrow_fields, extra_array, payload_arrays
from spark_ingest.decode.json_rows import JsonRows, leftover_members
from spark_ingest.types.json_types import Type, columns, evolve, infer, merge_all
from tests.spark_ingest.json_values import OBJECTS

MEMBERS = [["id", "bigint"], ["name", "string"], ["price", "double"], ["any", "json"], ["gone", "null"]]


def table_of(members: list[list[Type]], values: list[bytes | None]) -> list[dict[str, object]]:
    rows = JsonRows(members).decode(values)
    assert not rows.bad
    arrays = [*payload_arrays(members, rows.structs), extra_array(rows)]
    return pa.table(arrays, schema=pa.schema([*arrow_fields(members), pa.field("_extra", pa.string())])).to_pylist()


def test_values_that_fit_fill_their_columns() -> None:
    [row] = table_of(MEMBERS, [b' {"id":1,"name":"x","price":2,"any":{"k": [1]},"gone":null}\n'])
    assert row == {"id": 1, "name": "x", "price": 2.0, "any": '{"k": [1]}', "_extra": None}


def test_what_does_not_fit_is_kept_as_json_text_beside_what_does() -> None:
    [row] = table_of(MEMBERS, [b'{"id":1.5,"name":"x","new":[1, 2],"gone":{}}'])
    assert (row["id"], row["name"]) == (None, "x")
    assert row["_extra"] == '{"id":1.5,"new":[1, 2],"gone":{}}'


def test_a_number_beyond_int64_is_not_rounded() -> None:
    [row] = table_of(MEMBERS, [b'{"id":9223372036854775808}'])
    assert row["_extra"] == '{"id":9223372036854775808}'


def test_a_tombstone_is_a_row_without_members() -> None:
    [row] = table_of(MEMBERS, [None])
    assert set(row.values()) == {None}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "not_json"),
        (b"{", "not_json"),
        (b'{"id":1} {"id":2}', "not_json"),
        (b'{"id":1},{"id":2}', "not_json"),
        (b'{"price":NaN}', "not_json"),
        (b"[1]", "not_an_object"),
        (b"null", "not_an_object"),
        (b'"text"', "not_an_object"),
        (b'{"name":"\xff"}', "not_utf8"),
        (b'{"any":"\xff"}', "not_utf8"),
        (b'{"unknown":"\xff"}', "not_utf8"),
        (b'{"any":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested_too_deeply"),
    ],
)
def test_what_is_no_json_object_is_refused_alone(value: bytes, reason: str) -> None:
    rows = JsonRows(MEMBERS).decode([b'{"id":1}', value, b'{"id":3}'])
    assert {at: bad.reason for at, bad in rows.bad.items()} == {1: reason}
    assert rows.structs[1] is None
    assert payload_arrays(MEMBERS, [rows.structs[0], rows.structs[2]])[0].to_pylist() == [1, 3]


@given(st.lists(OBJECTS, min_size=1, max_size=6), st.integers(0, 6))
@settings(deadline=None)
def test_no_member_is_ever_lost(objects: list[dict[str, object]], sampled: int) -> None:
    sample = merge_all(map(infer, objects[:sampled]))
    members = evolve([], sample[1] if sample != "null" else [])
    values = [orjson.dumps(one) if _fits_int64(one) else json.dumps(one).encode() for one in objects]
    rows = table_of(members, values)
    for row, one in zip(rows, objects, strict=True):
        assert rebuilt(members, row) == without_nulls(one)


@given(st.lists(OBJECTS, min_size=1, max_size=6))
@settings(deadline=None)
def test_a_block_comes_out_as_its_values_do_one_by_one(objects: list[dict[str, object]]) -> None:
    members = evolve([], infer(objects[0])[1])
    values = [json.dumps(one).encode() for one in objects]
    assert table_of(members, values) == [row for value in values for row in table_of(members, [value])]


@given(st.lists(OBJECTS, min_size=1, max_size=4))
@settings(deadline=None)
def test_leftovers_are_enough_for_the_next_schema(objects: list[dict[str, object]]) -> None:
    values = [json.dumps(one).encode() for one in objects]
    members = evolve([], leftover_members(JsonRows([]).decode(values), 100))
    seen = merge_all(map(infer, objects))
    assert columns(members) == columns(evolve([], seen[1] if seen != "null" else []))


def _fits_int64(value: object) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def without_nulls(value: object) -> object:
    """Remove nulls: null and absent are the same in a column, also inside a struct."""
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [without_nulls(one) for one in value]
    return value


def rebuilt(members: list[list[Type]], row: dict[str, object]) -> object:
    """Return the object that a row represents."""
    extra = row["_extra"]
    found = {name: _value(kind, row[name]) for name, kind in columns(members) if row[name] is not None}
    found |= msgspec.json.decode(extra) if isinstance(extra, str) else {}
    return without_nulls(found)


def _value(kind: Type, value: object) -> object:
    if value is None:
        return None
    if kind == "json":
        return json.loads(value)
    if isinstance(kind, str):
        return value
    if kind[0] == "array":
        return [_value(kind[1], one) for one in value]
    return {name: _value(one, value[name]) for name, one in columns(kind[1])}


def test_values_that_fit_cost_no_python_call_each() -> None:
    rows, values = JsonRows([["id", "bigint"], ["name", "string"]]), [b'{"id":1,"name":"x"}'] * 1000
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        rows.decode(values)
    finally:
        sys.setprofile(None)
    assert calls < 20
