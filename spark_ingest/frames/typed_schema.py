"""Spark's schema of a typed read as members of JSON values, and the published members of a table as Spark's schema.

Pure; no Spark, no Arrow: takes and makes schemas in Spark's JSON form, because only a JVM parses DDL. A column with the
comment `json` is text that holds any JSON value; every other STRING holds text only, as in the tables of a job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spark_ingest.errors import IngestRefused
from spark_ingest.frames.record_array import COLUMNS
from spark_ingest.types.json_types import Members, Type, can_be_column, columns

EXTRA, REASON = "_extra", "_reason"
TYPED_COLUMNS = {f"_{name}": column.ddl for name, column in COLUMNS.items()} | {EXTRA: "STRING", REASON: "STRING"}
JSON_COMMENT = "json"
_DECIMAL = "decimal(38,18)"  # of the first level only, as in tables
_TYPES = {  # Spark's names in JSON, and those of json_types.py
    "boolean": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    _DECIMAL: "decimal",
    "string": "string",
    "date": "date",
    "timestamp": "timestamp",
}
_SPARK_TYPES = {kind: name for name, kind in _TYPES.items()} | {"json": "string"}


def members_of(schema: Mapping[str, Any]) -> Members:
    """Returns the members of a schema, without the columns of the record. Raises IngestRefused."""
    return [
        [field["name"], _member_type(field, field["name"], is_within=False)]
        for field in schema["fields"]
        if field["name"] not in TYPED_COLUMNS
    ]


def typed_ddl(names: Sequence[str], ddl: str) -> str:
    """Returns the DDL of columns of the record, then that of the members."""
    return ", ".join([*(f"`{name}` {TYPED_COLUMNS[name]}" for name in names), ddl])


def published_fields(members: Members) -> list[dict[str, Any]]:
    """Returns the fields of Spark's schema for the members with a column."""
    return [_field(name, kind) for name, kind in columns(members)]


def _member_type(field: Mapping[str, Any], path: str, *, is_within: bool) -> Type:
    if not field["nullable"]:
        raise IngestRefused(f"the column {path!r} is NOT NULL", hint="a member may be absent: leave that out")
    if not can_be_column(field["name"]):
        raise IngestRefused(
            f"no member is read as {path!r}", hint="its name has a quote, backslash or control character"
        )
    is_json = field.get("metadata", {}).get("comment") == JSON_COMMENT
    return _type(field["type"], path, is_json=is_json, is_within=is_within)


def _type(kind: Any, path: str, *, is_json: bool, is_within: bool) -> Type:
    if isinstance(kind, str) and kind in _TYPES and not (kind == _DECIMAL and is_within):
        return "json" if is_json and kind == "string" else _TYPES[kind]
    if isinstance(kind, dict) and kind["type"] == "array" and kind["containsNull"]:
        return ["array", _type(kind["elementType"], path, is_json=is_json, is_within=True)]
    if isinstance(kind, dict) and kind["type"] == "struct":
        inner = [
            (field["name"], _member_type(field, f"{path}.{field['name']}", is_within=True)) for field in kind["fields"]
        ]
        return ["struct", [list(member) for member in inner]]
    name = kind if isinstance(kind, str) else kind["type"]
    hint = f"there are {', '.join(_TYPES)}, arrays and structs of these; columns of the record are {_names()}"
    raise IngestRefused(f"the column {path!r} has the type {name}, which JSON values are not read as", hint=hint)


def _names() -> str:
    return ", ".join(TYPED_COLUMNS)


def _field(name: str, kind: Type) -> dict[str, Any]:
    metadata = {"comment": JSON_COMMENT} if _holds_json(kind) else {}
    return {"name": name, "type": _spark_type(kind), "nullable": True, "metadata": metadata}


def _holds_json(kind: Type) -> bool:
    return bool(kind == "json" or (isinstance(kind, list) and kind[0] == "array" and _holds_json(kind[1])))


def _spark_type(kind: Type) -> Any:
    if isinstance(kind, str):
        return _SPARK_TYPES.get(kind, kind)  # types that only payloads declare have Spark's names
    if kind[0] == "array":
        return {"type": "array", "elementType": _spark_type(kind[1]), "containsNull": True}
    return {"type": "struct", "fields": [_field(name, column) for name, column in columns(kind[1])]}
