"""Writes Avro from JSON, in Avro's own form or with the members of unions bare: `{"string": "a"}` or `"a"`.

All fields must be there, also those with a default: a large default would make much of little. Bytes are text whose
characters are their numbers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from engine.encodings.avro_schema import write_avro
from engine.encodings.undecodable import Undecodable

_NAMED = ("record", "error", "enum", "fixed")
_TYPES = {"int": int, "long": int, "boolean": bool, "string": str}  # fastavro would cut a number off
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

    def _prepare(self, value: Any, schema: Any) -> Any:
        """Returns a value as fastavro takes it: without the types of unions, and with bytes."""
        if isinstance(schema, list):
            return self._member(value, schema)
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in _TYPES and type(value) is not _TYPES[kind]:
            raise TypeError(kind)
        if kind == "int":
            value.to_bytes(4, "big", signed=True)  # raises for a longer one
        if kind in ("bytes", "fixed") and isinstance(value, str):
            return value.encode("latin-1")
        if kind in ("record", "error") and isinstance(value, dict):
            types = {field["name"]: field["type"] for field in schema["fields"]}
            return {name: self._prepare(part, types[name]) for name, part in value.items()}
        if kind == "array" and isinstance(value, list):
            return [self._prepare(part, schema["items"]) for part in value]
        if kind == "map" and isinstance(value, dict):
            return {name: self._prepare(part, schema["values"]) for name, part in value.items()}
        if isinstance(kind, dict | list):
            return self._prepare(value, kind)
        return value

    def _member(self, value: Any, members: list[Any]) -> Any:
        """Returns the value of a union."""
        if value is None:
            return None
        by_name = {_name_of(one): one for one in members}
        if isinstance(value, dict) and len(value) == 1:
            [(name, inner)] = value.items()
            if name in by_name:
                prepared = self._prepare(inner, by_name[name])
                return (name, prepared) if name in self._named else prepared
        others = [one for name, one in by_name.items() if name != "null"]
        return self._prepare(value, others[0]) if len(others) == 1 else value


def _name_of(schema: Any) -> str:
    """Returns the name of a member of a union, as Avro's JSON has it."""
    if isinstance(schema, dict):
        return str(schema["name"] if schema["type"] in _NAMED else schema["type"])
    return str(schema)
