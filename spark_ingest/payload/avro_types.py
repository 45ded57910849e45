"""The types that an Avro schema declares for the members of its records.

A union of types that no column holds together is JSON text. The types of maps, and of a type within itself, come from
their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from spark_ingest.types.declared_types import array, decimal, struct
from spark_ingest.types.json_types import DEPTH_MAX, Members, Type, merge_all

_OF_AVRO = {
    "boolean": "boolean",
    "int": "bigint",
    "long": "bigint",
    "float": "double",
    "double": "double",
    "string": "string",
    "enum": "string",
    "bytes": "binary",
    "fixed": "binary",
}
_LOGICAL = {  # of the decoder, by the type below; a local time is not an instant, so it is text
    "int": {"date": "date", "time-millis": "string"},
    "long": {
        "timestamp-millis": "timestamp",
        "timestamp-micros": "timestamp",
        "time-micros": "string",
        "local-timestamp-millis": "string",
        "local-timestamp-micros": "string",
    },
}


class AvroTypes:
    """Makes types of an Avro schema, as fastavro parses it."""

    def __init__(self, tree: Any) -> None:
        self._named: dict[str, Any] = dict(tree.get("__named_schemas", {})) if isinstance(tree, dict) else {}
        self._by_name: dict[tuple[str, int], Type] = {}
        self._open: set[str] = set()
        self._tree = tree

    def members(self) -> Members:
        """Returns the members of a record; none for another schema."""
        fields = self._tree.get("fields", ()) if isinstance(self._tree, Mapping) else ()
        self._open.add(self._tree["name"] if fields else "")
        return self._members(fields, 1)

    def _members(self, fields: Iterable[Mapping[str, Any]], depth: int) -> Members:
        return [[field["name"], self._of(field["type"], depth)] for field in fields]

    def _of(self, kind: Any, depth: int) -> Type:
        match kind:
            case str():
                return _OF_AVRO.get(kind) or self._of_name(kind, depth)
            case list():
                return merge_all(self._of(branch, depth) for branch in kind)
            case {"type": "bytes" | "fixed", "logicalType": "decimal"}:
                return decimal(kind.get("precision"), kind.get("scale", 0))
            case {"type": "int" | "long" as base, "logicalType": logical}:
                return _LOGICAL[base].get(logical, "bigint")
            case {"type": "record" | "error", "name": name}:
                self._named.setdefault(name, kind)
                return self._of_name(name, depth)
            case {"type": "array", "items": items}:
                return "json" if depth >= DEPTH_MAX else array(self._of(items, depth + 1))
            case {"type": "map"}:
                return "null"
            case {"type": inner}:
                return self._of(inner, depth)
        return "null"

    def _of_name(self, name: str, depth: int) -> Type:
        named = self._named.get(name)
        if not isinstance(named, Mapping):
            return "null"
        if "fields" not in named:
            return self._of(named, depth)
        if name in self._open or depth >= DEPTH_MAX:
            return "null" if name in self._open else "json"
        if (name, depth) not in self._by_name:
            self._open.add(name)
            self._by_name[name, depth] = struct(self._members(named["fields"], depth + 1))
            self._open.discard(name)
        return self._by_name[name, depth]
