"""Encodes rows as Avro object container files by fastavro, and reads the place and time of each row back.

A column becomes a field of its name. A name that Avro does not allow has `_x2d_` for a hyphen, and so on; the property
`penstock.name` has the name itself. Headers are an array of records, because a name may occur twice.

The same rows give the same bytes: the sync marker, which is random elsewhere, is a digest of the schema.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import msgspec
import pyarrow as pa

BATCH_ROWS = 10_000  # of Python objects in memory at once
BLOCK_BYTES = 1 << 20
_NOT_IN_A_NAME = re.compile(r"^[0-9]|[^A-Za-z0-9_]|_(?=x[0-9a-f]+_)")
_MICROS = {"type": "long", "logicalType": "timestamp-micros"}
_PRIMITIVES = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int64, "long"),
    (pa.types.is_integer, "int"),
    (pa.types.is_float64, "double"),
    (pa.types.is_floating, "float"),
    (pa.types.is_string, "string"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_timestamp, _MICROS),
    (pa.types.is_date32, {"type": "int", "logicalType": "date"}),
)
_PLACES = fastavro.parse_schema(
    {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "_partition", "type": "int"},
            {"name": "_offset", "type": "long"},
            {"name": "_event_time", "type": "long"},
            {"name": "_ingest_commit", "type": "long"},
        ],
    }
)

Change = Callable[[Any], Any]


def avro_bytes(table: pa.Table, codec: str) -> bytes:
    schema, changes = _record("row", table.schema)
    parsed = fastavro.parse_schema(schema)
    names = [field["name"] for field in schema["fields"]]
    sink = BytesIO()
    marker = hashlib.sha256(msgspec.json.encode(schema)).digest()[:16]
    rows = (row for batch in table.to_batches(BATCH_ROWS) for row in _rows(batch, names, changes))
    fastavro.writer(sink, parsed, rows, codec, BLOCK_BYTES, sync_marker=marker)
    return sink.getvalue()


def avro_places(data: bytes) -> list[tuple[int, int, int, int]]:
    """Returns partition, offset, microseconds and commit of each row. Raises ValueError and others of fastavro."""
    rows: Any = fastavro.reader(BytesIO(data), reader_schema=_PLACES)
    return [(row["_partition"], row["_offset"], row["_event_time"], row["_ingest_commit"]) for row in rows]


def avro_name(name: str) -> str:
    """Returns a column's name in Avro; different names of columns stay different."""
    return _NOT_IN_A_NAME.sub(lambda match: f"_x{ord(match[0]):x}_", name)


def _rows(batch: pa.RecordBatch, names: list[str], changes: list[Change | None]) -> Any:
    columns = []
    for column, change in zip(batch.columns, changes, strict=True):
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        values = column.to_pylist()
        columns.append(values if change is None else [None if value is None else change(value) for value in values])
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def _record(name: str, fields: Any) -> tuple[dict[str, Any], list[Change | None]]:
    """Returns the schema of a record, and what changes the values of each field to those of Avro."""
    schemas, changes = [], []
    for at, field in enumerate(fields):
        kind, change = _type_of(field.type, f"{name}_{at}")
        name_in_avro = avro_name(field.name)
        schema: dict[str, Any] = {"name": name_in_avro, "type": ["null", kind] if field.nullable else kind}
        if name_in_avro != field.name:
            schema["penstock.name"] = field.name
        schemas.append(schema)
        changes.append(change)
    return {"type": "record", "name": name, "fields": schemas}, changes


def _type_of(kind: pa.DataType, name: str) -> tuple[Any, Change | None]:
    for is_kind, primitive in _PRIMITIVES:
        if is_kind(kind):
            return primitive, None
    if pa.types.is_decimal(kind):
        logical = {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return logical, None
    if pa.types.is_list(kind):
        items, change = _type_of(kind.value_type, name)
        array = {"type": "array", "items": ["null", items]}
        return array, None if change is None else lambda values: [
            value if value is None else change(value) for value in values
        ]
    if pa.types.is_map(kind):
        pairs = [pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)]
        entry, _ = _record(name, pairs)
        return {"type": "array", "items": entry}, lambda values: [{"key": key, "value": value} for key, value in values]
    assert pa.types.is_struct(kind), kind
    schema, changes = _record(name, kind)
    members = [(field.name, avro_name(field.name), change) for field, change in zip(kind, changes, strict=True)]
    if all(change is None and name == renamed for name, renamed, change in members):
        return schema, None
    return schema, lambda value: {
        renamed: value[name] if change is None or value[name] is None else change(value[name])
        for name, renamed, change in members
    }
