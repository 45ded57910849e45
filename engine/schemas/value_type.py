"""The msgspec type of a JSON Schema: a value that decodes as it is checked while it is parsed, but for its rests.

A rest is a subschema with keywords that msgspec does not check in the same way. Its values are decoded as objects and
remain to be checked. Not the reverse: a value that does not decode may follow the schema, and `ValueSchema` then looks
at it exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple, Union
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from engine.schemas.schema_text import Schema, escape, resolve

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


class Step(NamedTuple):
    """From values to their parts: a field of a class, or all items of lists or dicts. Others have no such part."""

    kind: type
    field: str = ""


class Rest(NamedTuple):
    """Where values are that remain to be checked, and the pointer of their subschema as the fragment of a URI."""

    steps: tuple[Step, ...]
    pointer: str


class Typed(NamedTuple):
    """The type of a value, and what remains to be checked of it."""

    kind: Any
    rests: tuple[Rest, ...] = ()
    has_doubles: bool = False


class _Place(NamedTuple):
    """A subschema, and where it is."""

    schema: Schema
    pointer: str
    root: Schema

    def at(self, *steps: str) -> _Place:
        schema: Any = self.schema
        for step in steps:
            schema = schema[int(step) if isinstance(schema, list) else step]
        return _Place(schema, self.pointer + "".join(f"/{quote(escape(step), safe='')}" for step in steps), self.root)

    def resolve(self, reference: object) -> _Place:
        pointer, schema = resolve(self.root, reference)
        return _Place(schema, pointer, self.root)


def type_of(schema: Schema) -> Typed:
    """Returns the type of a schema that `read_schema` has returned."""
    return _type_or_rest(_Place(schema, "#", schema))


def any_value() -> Typed:
    """Returns the type of any schema: all remains to be checked."""
    return Typed(Any, (Rest((), "#"),))


def parts_of(values: list[Any], steps: tuple[Step, ...]) -> list[Any]:
    """Returns the parts of values that some steps lead to."""
    for kind, field in steps:
        if field:
            values = _members_of(values, kind, field)
        elif kind is list:
            values = [item for value in values if type(value) is list for item in value]
        else:
            values = [item for value in values if type(value) is dict for item in value.values()]
    return values


def _members_of(values: list[Any], kind: type, field: str) -> list[Any]:
    try:
        members = list(map(attrgetter(field), values))  # of values that are all of the class
    except AttributeError:
        members = [getattr(value, field) for value in values if type(value) is kind]
    return [member for member in members if member is not UNSET]


def _type_or_rest(place: _Place) -> Typed:
    try:
        return _type_of(place)
    except NoType:
        kind = _kind_of(place.schema)
        decoded = {"string": str, "number": int | float}.get(kind, Any)
        return Typed(decoded, (Rest((), place.pointer),), kind == "number")


def _kind_of(schema: Schema) -> str:
    """Returns the type that each value of a schema has; empty if it is not one that is known."""
    if not isinstance(schema, dict):
        return ""
    kinds = {str(schema.get("type", ""))}
    for word in ("anyOf", "oneOf"):
        if kinds == {""} and word in schema:
            kinds = {_kind_of(branch) for branch in schema[word]}
    return kinds.pop() if len(kinds) == 1 else ""


def _type_of(place: _Place) -> Typed:
    """Raises NoType. No rest of the type is the value itself: a union with another type may follow."""
    schema = place.schema
    if schema is False:
        raise NoType
    if schema is True:
        return Typed(Raw)
    if not isinstance(schema, dict):  # `items` with a schema for each position
        raise NoType
    words = schema.keys() - _SAID
    if not words:
        return Typed(Raw)
    if words == {"$ref"}:
        return _type_of(place.resolve(schema["$ref"]))
    if words in ({"anyOf"}, {"oneOf"}):
        return _alternatives(place, *words)
    if words in ({"const"}, {"const", "type"}):
        return Typed(_literal([schema["const"]], schema))
    if words in ({"enum"}, {"enum", "type"}):
        return Typed(_literal(schema["enum"], schema))
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    if not kinds or words - _words_of(kinds):
        raise NoType
    if "number" in kinds and "integer" in kinds:
        kinds.remove("integer")
    return _union([_of_kind(kind, place, schema) for kind in kinds])


def _alternatives(place: _Place, word: str) -> Typed:
    """Returns the type of alternatives that exclude each other, by their types or by a member that differs in each."""
    assert isinstance(place.schema, dict)
    places = [place.at(word, str(at)) for at in range(len(place.schema[word]))]
    branches: list[tuple[_Place, dict[str, Any]]] = []
    for branch in places:
        while isinstance(branch.schema, dict) and branch.schema.keys() - _SAID == {"$ref"}:
            branch = branch.resolve(branch.schema["$ref"])
        if not isinstance(branch.schema, dict):
            raise NoType
        branches.append((branch, branch.schema))
    if word == "anyOf" and len(branches) == 2 and any(schema == {"type": "null"} for _, schema in branches):
        return _union([_type_of(branch) for branch, _ in branches])
    kinds = [schema.get("type") for _, schema in branches]
    if not all(isinstance(kind, str) for kind in kinds):
        raise NoType
    if len(set(kinds)) == len(kinds) and not {"integer", "number"} <= set(kinds):
        return _union([_type_of(branch) for branch, _ in branches])
    if set(kinds) != {"object"} or any(schema.keys() - _SAID - _OF_OBJECT for _, schema in branches):
        raise NoType
    tags = [_tags_of(schema) for _, schema in branches]
    for name in tags[0]:
        values = [of_branch.get(name) for of_branch in tags]
        if None not in values and len(set(values)) == len(values):
            return _union([_object(branch, schema, name, at) for at, (branch, schema) in enumerate(branches)])
    raise NoType


def _tags_of(schema: Mapping[str, Any]) -> dict[str, str]:
    """Returns the members that each object of a schema has, with the one text that they may be."""
    tags: dict[str, str] = {}
    required = schema.get("required", ())
    for name, member in schema.get("properties", {}).items():
        if name in required and isinstance(member, dict) and member.keys() - _SAID <= {"const", "enum", "type"}:
            allowed = member.get("enum", [member.get("const")])
            is_text = len(allowed) == 1 and type(allowed[0]) is str and member.get("type", "string") == "string"
            if is_text and member.get("const", allowed[0]) == allowed[0]:
                tags[name] = allowed[0]
    return tags


def _union(members: list[Typed]) -> Typed:
    kinds = tuple(member.kind for member in members)
    rests = tuple(rest for member in members for rest in member.rests)
    return Typed(Union[kinds], rests, any(member.has_doubles for member in members))  # noqa: UP007 - of a tuple


def _words_of(kinds: list[str]) -> frozenset[str]:
    """Returns the words that a schema of these types may have: each is about one of the types only."""
    words = frozenset(("type",))
    for kind in kinds:
        words |= {"string": _OF_STRING, "integer": _OF_NUMBER, "number": _OF_NUMBER, "array": _OF_ARRAY,
                  "object": _OF_OBJECT}.get(kind, words)  # fmt: skip
    return words


def _of_kind(kind: str, place: _Place, schema: dict[str, Any]) -> Typed:
    match kind:
        case "null":
            return Typed(None)
        case "boolean":
            return Typed(bool)
        case "string":
            return Typed(_bound_length(str, schema, "minLength", "maxLength"))
        case "integer":
            return Typed(_number(int, schema))
        case "number":
            return Typed(_number(int, schema) | _number(float, schema), has_doubles=True)
        case "array":
            items = _type_or_rest(place.at("items")) if "items" in schema else Typed(Raw)
            of_list = _bound_length(list[items.kind], schema, "minItems", "maxItems")  # type: ignore[name-defined]
            return Typed(of_list, _below(Step(list), items), items.has_doubles)
        case "object":
            return _object(place, schema)
    raise NoType


def _below(step: Step, part: Typed) -> tuple[Rest, ...]:
    return tuple(Rest((step, *steps), pointer) for steps, pointer in part.rests)


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


def _object(place: _Place, schema: dict[str, Any], tag: str | None = None, at: int = 0) -> Typed:
    """Returns a class for objects. It is alternative `at`, and the member `tag` differs in each."""
    properties, further = schema.get("properties", {}), schema.get("additionalProperties", True)
    required = set(schema.get("required", ()))
    is_open = further is True or further == {}
    if not properties and not required and not is_open and further is not False:
        members = _type_or_rest(place.at("additionalProperties"))
        of_dict = dict[str, members.kind]  # type: ignore[name-defined]
        return Typed(of_dict, _below(Step(dict), members), members.has_doubles)
    if not is_open and (further is not False or required - properties.keys()):
        raise NoType
    fields: list[Any] = []
    names: dict[str, str] = {}
    parts: dict[str, Typed] = {}
    ordered = sorted((properties.keys() | required) - {tag}, key=lambda name: name not in required)
    for number, name in enumerate(ordered):
        part = _type_or_rest(place.at("properties", name)) if name in properties else Typed(Raw)
        field = f"f{at}_{number}"  # no other alternative has it
        names[field], parts[field] = name, part
        fields.append((field, part.kind) if name in required else (field, part.kind | UnsetType, UNSET))
    more: dict[str, Any] = {} if tag is None else {"tag_field": tag, "tag": _tags_of(schema)[tag]}
    made = msgspec.defstruct("Value", fields, rename=names, forbid_unknown_fields=not is_open, gc=False, **more)
    rests = tuple(rest for field in parts for rest in _below(Step(made, field), parts[field]))
    return Typed(made, rests, any(part.has_doubles for part in parts.values()))
