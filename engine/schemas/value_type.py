"""The msgspec type of a JSON Schema: a value that decodes as it follows the schema, and is checked while it is parsed.

Not the reverse: a value that does not decode may follow the schema, and `ValueSchema` then looks at it exactly. Many
schemas have no such type, for they use keywords that msgspec does not check in the same way.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from engine.schemas.schema_text import Schema, resolve

_SAID = frozenset((
    "$comment", "$defs", "$id", "$schema", "contentEncoding", "contentMediaType", "contentSchema", "default",
    "definitions", "deprecated", "description", "examples", "format", "readOnly", "title", "writeOnly",
))  # fmt: skip
_OF_STRING = frozenset(("type", "minLength", "maxLength"))
_OF_NUMBER = frozenset(("type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
_OF_ARRAY = frozenset(("type", "items", "minItems", "maxItems"))
_OF_OBJECT = frozenset(("type", "properties", "required", "additionalProperties"))
_WHOLE_MAX = 2**53  # above it a double may be another number
_LENGTH_MAX = 2**31


class NoType(Exception):
    """The schema has no type."""


def type_of(schema: Schema) -> Any:
    """Returns the type of a schema that `read_schema` has returned. Raises NoType."""
    return _type_of(schema, schema)


def _type_of(schema: Schema, root: Schema) -> Any:
    if schema is False:
        raise NoType
    if schema is True:
        return Raw
    assert isinstance(schema, dict)
    words = schema.keys() - _SAID
    if not words:
        return Raw
    if words == {"$ref"}:
        return _type_of(resolve(root, schema["$ref"])[1], root)
    if words == {"anyOf"} and len(schema["anyOf"]) == 2 and {"type": "null"} in schema["anyOf"]:
        [other] = [item for item in schema["anyOf"] if item != {"type": "null"}] or [False]
        return _type_of(other, root) | None
    if words in ({"const"}, {"const", "type"}):
        return _literal([schema["const"]], schema)
    if words in ({"enum"}, {"enum", "type"}):
        return _literal(schema["enum"], schema)
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    if not kinds or words - _words_of(kinds):
        raise NoType
    if "number" in kinds and "integer" in kinds:
        kinds.remove("integer")
    return Union[tuple(_of_kind(kind, schema, root) for kind in kinds)]  # noqa: UP007 - of a tuple


def _words_of(kinds: list[str]) -> frozenset[str]:
    """Returns the words that a schema of these types may have: each is about one of the types only."""
    words = frozenset(("type",))
    for kind in kinds:
        words |= {"string": _OF_STRING, "integer": _OF_NUMBER, "number": _OF_NUMBER, "array": _OF_ARRAY,
                  "object": _OF_OBJECT}.get(kind, words)  # fmt: skip
    return words


def _of_kind(kind: str, schema: dict[str, Any], root: Schema) -> Any:
    match kind:
        case "null":
            return None
        case "boolean":
            return bool
        case "string":
            return _bound_length(str, schema, "minLength", "maxLength")
        case "integer":
            return _number(int, schema)
        case "number":
            return _number(int, schema) | _number(float, schema)
        case "array":
            return _bound_length(list[_type_of(schema.get("items", True), root)], schema, "minItems", "maxItems")  # type: ignore[misc]
        case "object":
            return _object(schema, root)
    raise NoType


def _literal(values: list[Any], schema: dict[str, Any]) -> Any:
    kinds = {type(value) for value in values}
    if kinds == {str} and schema.get("type", "string") == "string":
        return Literal[tuple(values)]
    if kinds == {int} and schema.get("type", "integer") in ("integer", "number") and max(map(abs, values)) < _WHOLE_MAX:
        return Literal[tuple(values)]
    raise NoType


def _bound_length(kind: Any, schema: dict[str, Any], least: str, most: str) -> Any:
    bounds: dict[str, Any] = {
        name: schema[word] for name, word in (("min_length", least), ("max_length", most)) if word in schema
    }
    if not all(type(bound) is int and 0 <= bound < _LENGTH_MAX for bound in bounds.values()):
        raise NoType
    return Annotated[kind, Meta(**bounds)] if bounds else kind


def _number(kind: type[int | float], schema: dict[str, Any]) -> Any:
    """Returns integers or doubles within the bounds; integers are compared exactly."""
    bounds: dict[str, Any] = {}
    for name, word, to_whole in (
        ("ge", "minimum", math.ceil), ("le", "maximum", math.floor),
        ("gt", "exclusiveMinimum", math.floor), ("lt", "exclusiveMaximum", math.ceil),
    ):  # fmt: skip
        if word in schema:
            bound = schema[word]
            if type(bound) not in (int, float) or abs(bound) >= _WHOLE_MAX:
                raise NoType
            bounds[name] = to_whole(bound) if kind is int else float(bound)
    if {"ge", "gt"} <= bounds.keys() or {"le", "lt"} <= bounds.keys():
        raise NoType
    return Annotated[kind, Meta(**bounds)] if bounds else kind


def _object(schema: dict[str, Any], root: Schema) -> Any:
    properties, further = schema.get("properties", {}), schema.get("additionalProperties", True)
    required = set(schema.get("required", ()))
    is_open = further is True or further == {}
    if not properties and not required and not is_open and further is not False:
        return dict[str, _type_of(further, root)]  # type: ignore[misc]
    if not is_open and (further is not False or required - properties.keys()):
        raise NoType
    fields: list[Any] = []
    names: dict[str, str] = {}
    for number, name in enumerate(sorted(properties.keys() | required, key=lambda name: name not in required)):
        kind, field = _type_of(properties.get(name, True), root), f"f{number}"
        names[field] = name
        fields.append((field, kind) if name in required else (field, kind | UnsetType, UNSET))
    return msgspec.defstruct("Value", fields, rename=names, forbid_unknown_fields=not is_open, gc=False)
