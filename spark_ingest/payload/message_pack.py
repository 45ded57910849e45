"""The decoder of MessagePack, by msgspec. Timestamps become text, binary base64 text, other extensions objects.

A byte may be an empty map or array, which takes 72 as an object. If a value may take more than VALUE_BYTES_MAX, its
containers are counted first, without decoding it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from spark_ingest.payload.undecodable import Undecodable
from spark_ingest.types.declared_types import array, struct
from spark_ingest.types.json_types import DEPTH_MAX, Members, Type, merge_all

VALUE_BYTES_MAX = 128 << 20
_CONTAINER_BYTES, _ELEMENT_BYTES, _PAIR_BYTES = 72, 40, 150
# How many bytes follow the first one: of a type with a fixed length, and of the length of the others.
_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4,
          0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}  # fmt: skip
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4}
_EXTENSIONS = frozenset({0xC7, 0xC8, 0xC9})
_CONTAINERS = {0xDC: (2, _ELEMENT_BYTES), 0xDD: (4, _ELEMENT_BYTES), 0xDE: (2, _PAIR_BYTES), 0xDF: (4, _PAIR_BYTES)}


def decoder_of(options: Mapping[str, Any]) -> Callable[[bytes], Any]:
    """Returns the decoder; it has no options. Nesting is limited by msgspec, lengths by the bytes that are there."""
    return _MessagePack()


class _MessagePack:
    def __init__(self) -> None:
        self._decode = msgspec.msgpack.Decoder().decode

    def __call__(self, value: bytes) -> Any:
        if len(value) * _PAIR_BYTES > VALUE_BYTES_MAX and _memory_of(value) > VALUE_BYTES_MAX:
            raise Undecodable("too_large", f"the value takes more than {VALUE_BYTES_MAX:,} bytes of memory")
        try:
            return self._decode(value)
        except msgspec.DecodeError as error:
            raise Undecodable("not_msgpack", str(error)) from error

    def declared(self, value: bytes) -> Members:
        """Returns the members that are binary, timestamps or text, or have these within. Raises Undecodable."""
        kind = _type_of(self(value))
        return kind[1] if kind[0] == "struct" else []


def _type_of(value: object, depth: int = 0) -> Type:
    """Returns the type of a decoded value, null if it is that of its JSON."""
    match value:
        case bytes():
            return "binary"
        case datetime():
            return "timestamp"
        case str():
            return "string"
        case dict() if depth < DEPTH_MAX:
            return struct([[name, _type_of(one, depth + 1)] for name, one in value.items() if isinstance(name, str)])
        case list() if depth < DEPTH_MAX:
            return array(merge_all(_type_of(one, depth + 1) for one in value))
    return "null"


def _memory_of(value: bytes) -> int:
    """Returns a bound of the memory, up to the limit and a little more. Damaged bytes are left to the library."""
    at, total = 0, len(value)
    while at < len(value) and total <= VALUE_BYTES_MAX:
        first = value[at]
        at += 1
        if first <= 0x7F or first >= 0xE0:
            continue
        if first <= 0x8F:
            total += _CONTAINER_BYTES + _PAIR_BYTES * (first & 15)
        elif first <= 0x9F:
            total += _CONTAINER_BYTES + _ELEMENT_BYTES * (first & 15)
        elif first <= 0xBF:
            at += first & 31
        elif first in _FIXED:
            at += _FIXED[first]
        elif first in _LENGTHS:
            width = _LENGTHS[first]
            at += width + int.from_bytes(value[at : at + width], "big") + (first in _EXTENSIONS)
        elif first in _CONTAINERS:
            width, each = _CONTAINERS[first]
            count = int.from_bytes(value[at : at + width], "big")
            total += _CONTAINER_BYTES + each * min(count, len(value) - at)
            at += width
    return total
