"""Bounds the memory of a decoded Avro value: from its schema and size alone, else from its bytes before it is decoded.

A byte may become much more: an item of an array may have one byte, or none, and be a record of hundreds of fields; and
types that repeat others may make millions of fields without a byte. `Shape` finds how much a byte and the schema itself
can take. If that may be more than VALUE_BYTES_MAX, the bytes of the value are measured (avro_measure.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

VALUE_BYTES_MAX = 128 << 20
ITEM_BYTES = 32  # of an array or a map, beside its value
CONTAINER_BYTES = 128
PRIMITIVE_BYTES = 80  # a short value, and its place in a dictionary or a list
TEXT_FACTOR = 4  # the bytes of a character in memory
SCALAR_TEXT_BYTES = 12  # of a number as JSON, with its comma; few are longer
NAME_TEXT_BYTES = 4  # of a member, beside its name


def named_types(tree: Any) -> dict[str, Any]:
    """Returns the named types of a schema that fastavro has parsed. In a union each record carries them."""
    records = [record for record in (tree if isinstance(tree, list) else [tree]) if isinstance(record, dict)]
    return {name: kind for record in records for name, kind in record.get("__named_schemas", {}).items()}


def longest_name(names: Iterable[str]) -> int:
    """Returns the bytes of the longest name."""
    return max((len(name.encode()) for name in names), default=0)


class Shape:
    """Finds types within themselves, items without bytes, and bounds of the memory of values."""

    def __init__(self, tree: Any) -> None:
        self._named = named_types(tree)
        self._open: set[str] = set()
        self._by_name: dict[str, tuple[int, int]] = {}
        self.is_recursive = self.has_empty_items = False
        self._bytes_of_byte = PRIMITIVE_BYTES
        self._name_bytes = 0  # of the longest name of a field or an enum's symbol
        _, self._own_bytes = self._visit(tree)

    def __repr__(self) -> str:
        return f"Shape({self._own_bytes} bytes, {self._bytes_of_byte} of each byte)"

    def is_small(self, size_bytes: int) -> bool:
        """Returns whether no value of this size can take more memory than is allowed."""
        return self.bytes_max(size_bytes) <= VALUE_BYTES_MAX

    def bytes_max(self, size_bytes: int) -> float:
        """Returns how much memory a value of this size can take: infinite if the schema alone does not bound it."""
        if self.is_recursive or self.has_empty_items:
            return math.inf
        return self._own_bytes + size_bytes * (self._bytes_of_byte + TEXT_FACTOR)

    def text_bytes_max(self, size_bytes: int) -> float:
        """Returns how many bytes of JSON a value of this size can take, about: each member takes PRIMITIVE_BYTES."""
        texts = self._name_bytes + NAME_TEXT_BYTES + SCALAR_TEXT_BYTES
        return self.bytes_max(size_bytes) * max(1 / TEXT_FACTOR, texts / PRIMITIVE_BYTES)

    def _visit(self, kind: Any) -> tuple[int, int]:
        """Returns the least number of bytes of a value in Avro, and what one without items takes in memory."""
        match kind:
            case "null":
                return 0, PRIMITIVE_BYTES
            case str():
                return self._visit_name(kind, None)
            case list():
                bounds = [self._visit(branch) for branch in kind]
                return 1 + min((bound for bound, _ in bounds), default=0), max(
                    (bound for _, bound in bounds), default=0
                )
            case {"type": "record" | "error", "name": name}:
                return self._visit_name(name, kind)
            case {"type": "array", "items": items}:
                return self._visit_items(items, 0)
            case {"type": "map", "values": values}:
                return self._visit_items(values, 1)
            case {"type": "fixed", "size": size}:
                return int(size), PRIMITIVE_BYTES + int(size)
            case {"type": "enum", "symbols": symbols}:
                self._name_bytes = max(self._name_bytes, longest_name(symbols))
            case {"type": inner}:
                return self._visit(inner)
        return 1, PRIMITIVE_BYTES

    def _visit_items(self, items: Any, key_bytes: int) -> tuple[int, int]:
        least, memory = self._visit(items)
        self.has_empty_items |= not least + key_bytes
        memory += ITEM_BYTES + (PRIMITIVE_BYTES if key_bytes else 0)
        self._bytes_of_byte = max(self._bytes_of_byte, memory // max(1, least + key_bytes))
        return 1, CONTAINER_BYTES

    def _visit_name(self, name: str, record: Any) -> tuple[int, int]:
        self.is_recursive |= name in self._open
        record = record or self._named.get(name)
        if name in self._open or not isinstance(record, dict):
            # A finite value of a type within itself passes a union, an array or a map, which has a byte.
            return (1, 0) if name in self._open else (1, PRIMITIVE_BYTES)
        if "fields" not in record:
            return self._visit(record) if record.get("type") in ("fixed", "enum") else (1, PRIMITIVE_BYTES)
        if name not in self._by_name:
            self._open.add(name)
            self._name_bytes = max(self._name_bytes, longest_name(field["name"] for field in record["fields"]))
            bounds = [self._visit(field["type"]) for field in record["fields"]]
            self._open.discard(name)
            self._by_name[name] = sum(bound for bound, _ in bounds), CONTAINER_BYTES + sum(bound for _, bound in bounds)
        return self._by_name[name]
