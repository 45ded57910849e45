"""The decoder of MessagePack, by msgspec. Timestamps become text, binary base64 text, other extensions objects.

A byte may be an empty map or array, which takes 72 as an object. If a value may take more than VALUE_BYTES_MAX, its
containers are counted first, without decoding it.

msgspec rounds timestamps to microseconds. One with nanoseconds is therefore written as its text before msgspec sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from spark_ingest.payload.message_pack_bytes import ARRAYS, MAPS, TIMESTAMP, tokens, with_exact_times
from spark_ingest.payload.undecodable import Undecodable
from spark_ingest.types.declared_types import array, struct
from spark_ingest.types.json_types import DEPTH_MAX, Members, Type, merge_all

VALUE_BYTES_MAX = 128 << 20
_CONTAINER_BYTES, _ELEMENT_BYTES, _PAIR_BYTES = 72, 40, 150


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
            return self._decode(with_exact_times(value) if TIMESTAMP in value else value)  # a call takes longer
        except msgspec.DecodeError as error:
            raise Undecodable("not_msgpack", str(error)) from error

    def declared(self, value: bytes) -> Members:
        """Returns the members that are binary, timestamps or text, or have these within. Raises Undecodable.

        A timestamp with nanoseconds is text: no timestamp column holds it.
        """
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
    total = len(value)
    for token in tokens(value):
        if token.kind in ARRAYS or token.kind in MAPS:
            each = _PAIR_BYTES if token.kind in MAPS else _ELEMENT_BYTES
            total += _CONTAINER_BYTES + each * min(token.length, len(value) - token.start)
        if total > VALUE_BYTES_MAX:
            break
    return total
