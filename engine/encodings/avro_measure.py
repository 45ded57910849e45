"""Measures the memory that an encoded Avro value takes when it is decoded, and its JSON, without decoding it.

Passes over the bytes by the schema, and charges each part before its values are looked at. Parts of one size in every
value, such as a record of nulls, are charged at once however many fields they have, so the work is bounded by the bytes
of the value and by the limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.encodings import avro_bounds
from engine.encodings.avro_bounds import (
    CONTAINER_BYTES,
    ITEM_BYTES,
    NAME_TEXT_BYTES,
    PRIMITIVE_BYTES,
    SCALAR_TEXT_BYTES,
    TEXT_FACTOR,
)
from engine.encodings.undecodable import Undecodable

_LONG_BITS = 70
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_VARYING = {"int", "long", "string", "bytes"}


class Measure:
    """Measures values of one schema."""

    def __init__(self, tree: Any) -> None:
        """Raises ValueError for a schema with unknown types."""
        self._named = avro_bounds.named_types(tree)
        self._by_name: dict[str, _Part] = {}
        self._part = self._of(tree)

    def end_of(self, data: bytes, text_bytes_max: float = math.inf) -> int:
        """Returns the number of bytes that a value has.

        Raises Undecodable for a value that takes too much memory, or that has about more JSON; EOFError, ValueError and
        RecursionError for bytes that are not a value.
        """
        cursor = _Place(data, avro_bounds.VALUE_BYTES_MAX, text_bytes_max)
        self._part.pass_over(cursor)
        return cursor.at

    def memory_of(self, data: bytes) -> int:
        """Returns how much memory a value takes at most. Raises as `end_of`."""
        cursor = _Place(data, avro_bounds.VALUE_BYTES_MAX)
        self._part.pass_over(cursor)
        return avro_bounds.VALUE_BYTES_MAX - cursor.memory

    def _of(self, kind: Any) -> _Part:
        match kind:
            case str() if kind in _SIZES:
                return _Fixed(_SIZES[kind], PRIMITIVE_BYTES, SCALAR_TEXT_BYTES)
            case str() if kind in _VARYING:
                return _TEXT if kind in ("string", "bytes") else _NUMBER
            case str():
                return self._of_name(kind)
            case list():
                return _Union([self._of(branch) for branch in kind])
            case {"type": "record" | "error" | "fixed" | "enum", "name": name}:
                self._named.setdefault(name, kind)
                return self._of_name(name)
            case {"type": "array", "items": items}:
                return _Items(self._of(items), has_keys=False)
            case {"type": "map", "values": values}:
                return _Items(self._of(values), has_keys=True)
            case {"type": inner}:
                return self._of(inner)
        raise ValueError(f"unknown type {kind!r:.100}")

    def _of_name(self, name: str) -> _Part:
        if name not in self._by_name:
            match self._named.get(name):
                case {"type": "fixed", "size": size}:
                    self._by_name[name] = _Fixed(int(size), PRIMITIVE_BYTES + int(size), SCALAR_TEXT_BYTES + int(size))
                case {"type": "enum", "symbols": symbols}:
                    self._by_name[name] = _Number(NAME_TEXT_BYTES + avro_bounds.longest_name(symbols))
                case {"fields": fields}:
                    record = _Record()
                    self._by_name[name] = record  # for a type within itself
                    self._by_name[name] = record.complete(
                        [self._of(field["type"]) for field in fields],
                        sum(NAME_TEXT_BYTES + len(field["name"].encode()) for field in fields),
                    )
                case _:
                    raise ValueError(f"unknown type {name!r:.100}")
        return self._by_name[name]


class _Place:
    """A place in the bytes of a value, and what is left of its memory and of its JSON."""

    def __init__(self, data: bytes, memory: int, text: float = math.inf) -> None:
        self._data = data
        self.at = 0
        self.memory = memory
        self.text = text

    def charge(self, memory: int, text: int) -> None:
        self.memory -= memory
        self.text -= text
        if self.memory < 0:
            why = f"the value takes more than {avro_bounds.VALUE_BYTES_MAX:,} bytes of memory"
            raise Undecodable("too_large", why)
        if self.text < 0:
            raise Undecodable("too_large", "the value has too many bytes as JSON")

    def skip(self, size_bytes: int) -> None:
        self.at += size_bytes
        if size_bytes < 0 or self.at > len(self._data):
            raise EOFError(f"{size_bytes} bytes are announced, there are fewer")

    def long(self) -> int:
        """Raises ValueError for a number of many bytes, which would take the processor a square of them."""
        number = shift = 0
        for at in range(self.at, min(self.at + _LONG_BITS // 7, len(self._data))):
            byte = self._data[at]
            number |= (byte & 127) << shift
            if byte < 128:
                self.at = at + 1
                return (number >> 1) ^ -(number & 1)
            shift += 7
        if shift < _LONG_BITS:
            raise EOFError("the value ends within a number")
        raise ValueError("a number has more than ten bytes")


class _Part(Protocol):
    """A type. Its method moves the place behind one value."""

    def pass_over(self, cursor: _Place) -> None: ...


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Values of one size, which take the same memory."""

    size_bytes: int
    memory: int
    text: int  # of its JSON, about

    def pass_over(self, cursor: _Place) -> None:
        cursor.charge(self.memory, self.text)
        cursor.skip(self.size_bytes)


@dataclass(frozen=True, slots=True)
class _Number:
    text: int

    def pass_over(self, cursor: _Place) -> None:
        cursor.charge(PRIMITIVE_BYTES, self.text)
        cursor.long()


class _Text:
    def pass_over(self, cursor: _Place) -> None:
        size = cursor.long()
        cursor.charge(PRIMITIVE_BYTES + TEXT_FACTOR * max(size, 0), NAME_TEXT_BYTES + max(size, 0))
        cursor.skip(size)


_NUMBER, _TEXT = _Number(SCALAR_TEXT_BYTES), _Text()


@dataclass(frozen=True, slots=True)
class _Union:
    branches: list[_Part]

    def pass_over(self, cursor: _Place) -> None:
        at = cursor.long()
        if not 0 <= at < len(self.branches):
            raise ValueError(f"a union has no branch {at}")
        self.branches[at].pass_over(cursor)


@dataclass(frozen=True, slots=True)
class _Items:
    """An array, or a map, whose items have keys."""

    item: _Part
    has_keys: bool

    def pass_over(self, cursor: _Place) -> None:
        cursor.charge(CONTAINER_BYTES, NAME_TEXT_BYTES)
        while count := cursor.long():
            if count < 0:  # then the bytes of the block follow
                count = -count
                cursor.long()
            cursor.charge(ITEM_BYTES * count, 0)
            if isinstance(self.item, _Fixed) and not self.has_keys:
                cursor.charge(self.item.memory * count, self.item.text * count)
                cursor.skip(self.item.size_bytes * count)
                continue
            for _ in range(count):
                if self.has_keys:
                    _TEXT.pass_over(cursor)
                self.item.pass_over(cursor)


@dataclass(slots=True)
class _Record:
    parts: list[_Part] = field(default_factory=list)

    def complete(self, fields: list[_Part], names: int) -> _Part:
        """Returns the part with these fields, whose names have so many bytes as JSON.

        Adjacent fields of a fixed size become one part.
        """
        self.parts = [_Fixed(0, CONTAINER_BYTES, NAME_TEXT_BYTES + names)]
        for part in fields:
            last = self.parts[-1]
            if isinstance(last, _Fixed) and isinstance(part, _Fixed):
                size_bytes, memory = last.size_bytes + part.size_bytes, last.memory + part.memory
                self.parts[-1] = _Fixed(size_bytes, memory, last.text + part.text)
            else:
                self.parts.append(part)
        whole = self.parts[0]
        return whole if len(self.parts) == 1 else self

    def pass_over(self, cursor: _Place) -> None:
        for part in self.parts:
            part.pass_over(cursor)
