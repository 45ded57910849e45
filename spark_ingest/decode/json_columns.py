"""Builds Arrow columns from typed rows, one column at a time.

Invariant: a column's Arrow type depends on the schema only, never on the values, so all files of one
schema have the same types.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from spark_ingest.decode.json_rows import Rows, attribute_of, struct_of
from spark_ingest.types.json_types import Members, Type, columns
from spark_ingest.types.numbers import decimal_of, is_decimal, precision_of

_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "json": pa.string(),
}


def arrow_fields(members: Members) -> list[pa.Field]:
    return [pa.field(name, arrow_type(kind)) for name, kind in columns(members)]


def arrow_type(kind: Type) -> pa.DataType:
    if isinstance(kind, str):
        return pa.decimal128(*precision_of(kind)) if is_decimal(kind) else _ARROW[kind]
    if kind[0] == "array":
        return pa.list_(_element(kind[1]))
    return pa.struct(arrow_fields(kind[1]))


def payload_arrays(members: Members, structs: Sequence[Any]) -> list[pa.Array]:
    """Returns one array for each column, in the schema's order."""
    return [
        column(kind, list(map(attrgetter(attribute_of(at)), structs)))
        for at, (_, kind) in enumerate(members)
        if kind != "null"
    ]


def column(kind: Type, values: list[Any]) -> pa.Array:
    if kind == "json":
        return pa.array([_text(raw) for raw in values], pa.string())
    if is_decimal(kind):
        return pa.array([decimal_of(raw, kind) for raw in values], arrow_type(kind))
    if isinstance(kind, str):
        return pa.array(values, _ARROW[kind])
    if kind[0] == "array":
        return _array_column(kind[1], values)
    return _struct_column(kind[1], values)


def extra_array(rows: Rows) -> pa.Array:
    """Returns the `_extra` column: members that did not fit, as the text of one JSON object; null without any."""
    if not rows.leftovers:
        return pa.nulls(len(rows.structs), pa.string())
    left = rows.leftovers
    texts = [msgspec.json.encode(left[at]) if at in left else None for at in range(len(rows.structs))]
    return pa.array(texts, pa.binary()).cast(pa.string())


def _text(raw: msgspec.Raw | None) -> str | None:
    """Returns the text of a member; None if it is absent or null."""
    if not raw:
        return None
    text = str(bytes(raw), "utf-8")
    return None if text == "null" else text


def _array_column(kind: Type, values: list[list[Any] | None]) -> pa.Array:
    lengths = [0 if value is None else len(value) for value in values]
    ends = pa.array(chain((0,), _running(lengths)), pa.int32())
    elements = column(kind, list(chain.from_iterable(value for value in values if value is not None)))
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(ends, elements, pa.list_(_element(kind)), mask=absent)


def _running(lengths: list[int]) -> list[int]:
    total = 0
    return [total := total + length for length in lengths]


def _struct_column(members: Members, values: list[Any]) -> pa.Array:
    """A null object has null members, taken from an empty struct."""
    nothing = struct_of(members)()
    arrays = payload_arrays(members, [nothing if value is None else value for value in values])
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=arrow_fields(members), mask=absent)


def _element(kind: Type) -> pa.Field:
    return pa.field("element", arrow_type(kind))  # Spark's and the Parquet format's name for it
