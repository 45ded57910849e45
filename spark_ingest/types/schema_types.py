"""The types that a topic's JSON Schema declares for the members of its values. Pure.

A part that says no one type has none, and its type comes from the values. `format` is an annotation: a text that is no
time goes to `_extra`.
"""

from __future__ import annotations

from typing import Any

from engine.errors import InvalidConfig
from engine.schemas.schema_text import Schema, read_schema, resolve
from spark_ingest.types.declared_types import array, struct
from spark_ingest.types.json_types import DEPTH_MAX, Members, Type

_SCALARS = {"boolean": "boolean", "integer": "bigint", "number": "double", "string": "string"}
_FORMATS = {"date-time": "timestamp", "date": "date"}
_NUMBERS = {"integer", "number"}


def schema_members(text: str) -> Members:
    """Returns the members of an object that follows a schema; none for another value, or for a schema of no use."""
    try:
        schema = read_schema(text)
        kind = _type_of(schema, schema, 1)
    except (InvalidConfig, AttributeError, TypeError):  # of a later version
        return []
    return [] if isinstance(kind, str) or kind[0] != "struct" else kind[1]


def _type_of(part: Schema, root: Schema, depth: int) -> Type:
    if isinstance(part, bool):
        return "null"
    if "$ref" in part and "type" not in part:
        return _type_of(resolve(root, part["$ref"])[1], root, depth)
    match _kind_of(part):
        case "string":
            return _FORMATS.get(part.get("format", ""), "string")
        case "array":
            items = part.get("items", True)
            if depth >= DEPTH_MAX or not isinstance(items, dict):
                return "json" if depth >= DEPTH_MAX else "null"
            return array(_type_of(items, root, depth + 1))
        case "object":
            members = [[name, _type_of(member, root, depth + 1)] for name, member in part.get("properties", {}).items()]
            return "json" if depth >= DEPTH_MAX else struct(members)
        case "any":
            return _common(part, root, depth)
        case kind:
            return _SCALARS.get(kind, "null")


def _kind_of(part: dict[str, Any]) -> str:
    """Returns the one type of JSON that a schema allows beside null; `any` if it allows several or does not say."""
    given = part.get("type", ())
    kinds = {given} if isinstance(given, str) else set(given) - {"null"}
    if kinds == _NUMBERS:
        return "number"
    if not kinds and ("enum" in part or "const" in part):
        values = part.get("enum", [part.get("const")])
        return "string" if all(isinstance(value, str) for value in values) else "any"
    return kinds.pop() if len(kinds) == 1 else "any"


def _common(part: dict[str, Any], root: Schema, depth: int) -> Type:
    """Returns the type that all alternatives have; null if they differ."""
    branches = part.get("anyOf") or part.get("oneOf") or []
    kinds = [_type_of(branch, root, depth) for branch in branches if not _is_null(branch)]
    return kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else "null"


def _is_null(branch: Schema) -> bool:
    return isinstance(branch, dict) and branch.get("type") == "null"
