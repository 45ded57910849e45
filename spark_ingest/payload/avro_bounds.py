"""Bounds the memory of a decoded Avro value: from its schema and size alone, else while it is decoded.

A byte may become much more: an item of an array may have one byte, or none, and be a record of hundreds of fields; and
types that repeat others may make millions of fields without a byte. `Shape` finds how much a byte and the schema itself
can take. A value that may take more than VALUE_BYTES_MAX is read by fastavro's plain Python reader, with a decoder that
counts; it ends at the limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from fastavro import _read_py
from fastavro.io.binary_decoder import BinaryDecoder

from spark_ingest.payload.undecodable import Undecodable

VALUE_BYTES_MAX = 128 << 20
_ITEM_BYTES = 32  # of an array or a map, beside its value
_CONTAINER_BYTES = 128
_PRIMITIVE_BYTES = 80  # a short value, and its place in a dictionary or a list
_TEXT_FACTOR = 4  # the bytes of a character in memory
_LONG_BITS = 70
_OPTIONS = {
    "return_record_name": False,
    "return_record_name_override": False,
    "handle_unicode_errors": "strict",
    "return_named_type": False,
    "return_named_type_override": False,
}


class Shape:
    """Finds types within themselves, items without bytes, and bounds of the memory of values."""

    def __init__(self, tree: Any) -> None:
        self._named = tree.get("__named_schemas", {}) if isinstance(tree, dict) else {}
        self._open: set[str] = set()
        self._known: dict[str, tuple[int, int]] = {}
        self.is_recursive = self.has_empty_items = False
        self._bytes_of_byte = _PRIMITIVE_BYTES
        _, self._own_bytes = self._visit(tree)

    def __repr__(self) -> str:
        return f"Shape({self._own_bytes} bytes, {self._bytes_of_byte} of each byte)"

    def is_small(self, size_bytes: int) -> bool:
        """Returns whether no value of this size can take more memory than is allowed."""
        if self.is_recursive or self.has_empty_items:
            return False
        return self._own_bytes + size_bytes * (self._bytes_of_byte + _TEXT_FACTOR) <= VALUE_BYTES_MAX

    def _visit(self, kind: Any) -> tuple[int, int]:
        """Returns the least number of bytes of a value in Avro, and what one without items takes in memory."""
        match kind:
            case "null":
                return 0, _PRIMITIVE_BYTES
            case str():
                return self._visit_name(kind, None)
            case list():
                found = [self._visit(one) for one in kind]
                return 1 + min((one for one, _ in found), default=0), max((one for _, one in found), default=0)
            case {"type": "record" | "error", "name": name}:
                return self._visit_name(name, kind)
            case {"type": "array", "items": items}:
                return self._visit_items(items, 0)
            case {"type": "map", "values": values}:
                return self._visit_items(values, 1)
            case {"type": "fixed", "size": size}:
                return int(size), _PRIMITIVE_BYTES + int(size)
            case {"type": inner}:
                return self._visit(inner)
        return 1, _PRIMITIVE_BYTES

    def _visit_items(self, items: Any, key_bytes: int) -> tuple[int, int]:
        least, memory = self._visit(items)
        self.has_empty_items |= not least + key_bytes
        memory += _ITEM_BYTES + (_PRIMITIVE_BYTES if key_bytes else 0)
        self._bytes_of_byte = max(self._bytes_of_byte, memory // max(1, least + key_bytes))
        return 1, _CONTAINER_BYTES

    def _visit_name(self, name: str, record: Any) -> tuple[int, int]:
        self.is_recursive |= name in self._open
        record = record or self._named.get(name)
        if name in self._open or not isinstance(record, dict):
            return (0, 0) if name in self._open else (1, _PRIMITIVE_BYTES)
        if "fields" not in record:
            return self._visit(record) if record.get("type") == "fixed" else (1, _PRIMITIVE_BYTES)
        if name not in self._known:
            self._open.add(name)
            found = [self._visit(one["type"]) for one in record["fields"]]
            self._open.discard(name)
            self._known[name] = sum(one for one, _ in found), _CONTAINER_BYTES + sum(one for _, one in found)
        return self._known[name]


def read_bounded(data: bytes, tree: Any) -> tuple[Any, int]:
    """Returns the value and the number of bytes that it has. Raises Undecodable, and the errors of fastavro."""
    stream = BytesIO(data)
    named = tree.get("__named_schemas", {}) if isinstance(tree, dict) else {}
    schemas = {"writer": named, "reader": {}}
    found = _read_py.read_data(_CountingDecoder(stream), tree, schemas, None, _OPTIONS)
    return found, stream.tell()


class _CountingDecoder(BinaryDecoder):  # type: ignore[misc]
    """Counts the memory of what it reads. Raises Undecodable beyond the limit."""

    def __init__(self, stream: BytesIO) -> None:
        super().__init__(stream)
        self._left = VALUE_BYTES_MAX

    def _take(self, size_bytes: int) -> None:
        self._left -= size_bytes
        if self._left < 0:
            text = f"the value takes more than {VALUE_BYTES_MAX:,} bytes of memory"
            raise Undecodable("too_large", text)

    def read_null(self) -> None:
        self._take(_PRIMITIVE_BYTES)

    def read_boolean(self) -> bool:
        self._take(_PRIMITIVE_BYTES)
        return bool(super().read_boolean())

    def read_long(self) -> int:
        """Raises ValueError for a number of many bytes, which would take the processor a square of them."""
        self._take(_PRIMITIVE_BYTES)
        found = shift = 0
        piece: bytes
        while shift < _LONG_BITS:
            piece = self.fo.read(1)
            if not piece:
                raise EOFError
            found |= (piece[0] & 127) << shift
            if piece[0] < 128:
                return (found >> 1) ^ -(found & 1)
            shift += 7
        raise ValueError("a number has more than ten bytes")

    read_int = read_long
    read_enum = read_long
    read_index = read_long

    def read_float(self) -> float:
        self._take(_PRIMITIVE_BYTES)
        return float(super().read_float())

    def read_double(self) -> float:
        self._take(_PRIMITIVE_BYTES)
        return float(super().read_double())

    def read_bytes(self) -> bytes:
        size = self.read_long()
        found: bytes = self.fo.read(max(size, 0))
        if len(found) != size:
            raise EOFError(f"{size} bytes are announced, there are {len(found)}")
        self._take(_TEXT_FACTOR * size)
        return found

    def read_fixed(self, size: int) -> bytes:
        self._take(_PRIMITIVE_BYTES + size)
        found: bytes = super().read_fixed(size)
        return found

    def _items(self) -> Iterator[None]:
        for _ in self._iter_array_or_map():
            self._take(_ITEM_BYTES)
            yield

    iter_array = _items
    iter_map = _items
