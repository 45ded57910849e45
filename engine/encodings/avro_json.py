"""Writes Avro from JSON, in Avro's own form or with the members of unions bare: `{"string": "a"}` or `"a"`.

A bare value has the one branch that its kind of JSON fits; a union with several of them needs the name.

All fields must be there, also those with a default: a large default would make much of little. Bytes are text whose
characters are their numbers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from engine.encodings.avro_schema import write_avro
from engine.encodings.undecodable import Undecodable

_NAMED = ("record", "error", "enum", "fixed")
_TYPES = {"int": int, "long": int, "boolean": bool, "string": str, "array": list}  # fastavro would cut a number off
_KINDS_OF = {  # of bare values in a union of several branches; bytes need their branch
    type(None): ("null",),
    bool: ("boolean",),
    int: ("int", "long", "float", "double"),
    float: ("float", "double"),
    str: ("string", "enum"),
    list: ("array",),
    dict: ("record", "error", "map"),
}
_Pointer = tuple[Any, ...]  # the pointer of what is around, and the name or the place in it; empty: the whole value
_BAD_JSON = (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)


class AvroWriter:
    """Writes values of one schema, which fastavro has parsed. Any thread may use it."""

    def __init__(self, tree: Any) -> None:
        self._named: dict[str, Any] = {}
        self._tree = self._without_defaults(tree)

    def write(self, text: bytes) -> bytes:
        """Returns the bytes of a value. Raises Undecodable."""
        try:
            return write_avro(self._prepare(msgspec.json.decode(text), self._tree), self._tree)
        except _BAD_JSON as error:  # its text may have a part of the value
            raise Undecodable("not_avro", type(error).__name__) from None

    def _without_defaults(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return [self._without_defaults(part) for part in tree]
        if not isinstance(tree, dict):
            return tree
        made = {name: self._without_defaults(part) for name, part in tree.items() if name != "default"}
        if made.get("type") in _NAMED:
            self._named[made["name"]] = made
        return made

    def _prepare(self, value: Any, schema: Any, at: _Pointer = ()) -> Any:
        """Returns a value as fastavro takes it: with the branches of its unions, and with bytes."""
        if isinstance(schema, list):
            return self._member(value, schema, at)
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self._prepare(value, kind, at)
        if kind in _TYPES and type(value) is not _TYPES[kind]:
            raise TypeError(kind)
        if kind == "int":
            value.to_bytes(4, "big", signed=True)  # raises for a longer one
        if kind in ("bytes", "fixed") and isinstance(value, str):
            return value.encode("latin-1")
        if kind in ("record", "error"):
            types = {field["name"]: field["type"] for field in schema["fields"]}
            return {name: self._prepare(part, types[name], (at, name)) for name, part in value.items()}
        if kind == "array":
            return [self._prepare(part, schema["items"], (at, place)) for place, part in enumerate(value)]
        if kind == "map":
            return {name: self._prepare(part, schema["values"], (at, name)) for name, part in value.items()}
        return value

    def _member(self, value: Any, members: list[Any], at: _Pointer) -> tuple[str, Any]:
        """Returns the branch of a union and its value: fastavro tries all of them at each level. Raises Undecodable."""
        by_name = {_name_of(member): member for member in members}
        if isinstance(value, dict) and len(value) == 1:
            [(name, inner)] = value.items()
            if name in by_name:
                return name, self._prepare(inner, by_name[name], (at, name))
        names = [name for name in by_name if name != "null"]
        if value is None or len(names) != 1:
            names = [name for name, member in by_name.items() if self._kind(member) in _KINDS_OF[type(value)]]
        if len(names) != 1:
            branches = ", ".join(by_name)[:300]
            text = f"the union at {_text_of(at)} is {{branch: value}}, with one of the branches {branches}"
            raise Undecodable("not_avro", text)
        return names[0], self._prepare(value, by_name[names[0]], at)

    def _kind(self, member: Any) -> str:
        schema = self._named.get(member, member) if isinstance(member, str) else member
        return str(schema["type"] if isinstance(schema, dict) else schema)


def _text_of(at: _Pointer) -> str:
    """Returns a JSON pointer."""
    names = list[str]()
    while at:
        at, name = at
        names.append(str(name)[:100])
    return "/" + "/".join(reversed(names))


def _name_of(schema: Any) -> str:
    """Returns the name of a member of a union, as Avro's JSON has it."""
    if isinstance(schema, dict):
        return str(schema["name"] if schema["type"] in _NAMED else schema["type"])
    return str(schema)
