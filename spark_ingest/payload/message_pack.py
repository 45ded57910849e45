"""The decoder of MessagePack, by msgspec. Timestamps become text, binary base64 text, other extensions objects.

A byte may be an empty map or array, which takes 72 as an object. If a value may take more than VALUE_BYTES_MAX, its
containers are counted first, without decoding it.

msgspec rounds timestamps to microseconds. One with nanoseconds is therefore written as its text before msgspec sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from engine.encodings.undecodable import Undecodable
from spark_ingest.types.declared_types import array, struct
from spark_ingest.types.json_types import DEPTH_MAX, Members, Type, merge_all

VALUE_BYTES_MAX = 128 << 20
_CONTAINER_BYTES, _ELEMENT_BYTES, _PAIR_BYTES = 72, 40, 150
_ARRAYS, _MAPS = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD)), frozenset((*range(0x80, 0x90), 0xDE, 0xDF))
# How many bytes follow the first one: of a type with a fixed length, and of the length of the others.
_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4,
          0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}  # fmt: skip
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xDC: 2, 0xDD: 4,
            0xDE: 2, 0xDF: 4}  # fmt: skip
_EXTENSIONS = frozenset({0xC7, 0xC8, 0xC9})
_FIXED_EXTENSIONS = frozenset(range(0xD4, 0xD9))

# These bytes come before a timestamp with a part of a second. Its data are 8 bytes (30 bits of nanoseconds and 34 of
# seconds) or 12 (32 bits and 64), so the first four of them, shifted, are the nanoseconds.
_MARKS = ((b"\xd7\xff", 2), (b"\x08\xff", 2), (b"\x0c\xff", 0))
_TIMESTAMP = b"\xff"  # the type -1 of extensions
_NANOSECONDS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
            return self._decode(_with_exact_times(value) if _TIMESTAMP in value else value)  # a call takes longer
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
            return struct(
                [[name, _type_of(member, depth + 1)] for name, member in value.items() if isinstance(name, str)]
            )
        case list() if depth < DEPTH_MAX:
            return array(merge_all(_type_of(item, depth + 1) for item in value))
    return "null"


def _memory_of(value: bytes) -> int:
    """Returns a bound of the memory, up to the limit and a little more. Damaged bytes are left to the library."""
    total = len(value)
    for token in _tokens(value):
        if token.kind in _ARRAYS or token.kind in _MAPS:
            each = _PAIR_BYTES if token.kind in _MAPS else _ELEMENT_BYTES
            total += _CONTAINER_BYTES + each * min(token.length, len(value) - token.start)
        if total > VALUE_BYTES_MAX:
            break
    return total


class _Token(NamedTuple):
    """The bytes of one value, and of an array or a map its head alone.

    `kind` is the first byte, `length` that of the array or map, `data` the first byte of the content.
    """

    start: int
    kind: int
    data: int
    end: int
    length: int


def _tokens(value: bytes) -> Iterator[_Token]:
    """Yields the tokens in order. If bytes are damaged, tokens have wrong ends, and the decoder rejects the value."""
    at = 0
    while at < len(value):
        start, first = at, value[at]
        at += 1
        data, length = at, 0
        if first <= 0x7F or first >= 0xE0:
            pass
        elif first <= 0x9F:
            length = first & 15
        elif first <= 0xBF:
            at += first & 31
        elif first in _FIXED:
            at += _FIXED[first]
        elif first in _LENGTHS:
            data = at + _LENGTHS[first]
            length = int.from_bytes(value[at:data], "big")
            at = data if first >= 0xDC else data + length + (first in _EXTENSIONS)
        yield _Token(start, first, data, at, length)


def _with_exact_times(value: bytes) -> bytes:
    """Returns the value with the text of each timestamp that microseconds do not hold, in the form of RFC 3339."""
    if not _may_have_nanoseconds(value):
        return value
    parts, done = [], 0
    for token in _tokens(value):
        if token.kind in _EXTENSIONS or token.kind in _FIXED_EXTENSIONS:
            text = _text_of_time(value[token.data : token.end])
            if text is not None:
                parts += [value[done : token.start], b"\xd9", bytes([len(text)]), text]
                done = token.end
    return b"".join((*parts, value[done:])) if parts else value


def _may_have_nanoseconds(value: bytes) -> bool:
    """False if no timestamp has any. Other bytes may look like one."""
    for mark, shift in _MARKS:
        at = value.find(mark)
        while at >= 0:
            if (int.from_bytes(value[at + 2 : at + 6], "big") >> shift) % 1000:
                return True
            at = value.find(mark, at + 2)
    return False


def _text_of_time(extension: bytes) -> bytes | None:
    """Returns the text of the type and the data of a timestamp; None if the decoder reads it exactly, or rejects it."""
    if extension[:1] != _TIMESTAMP or len(extension) not in (9, 13):
        return None
    if len(extension) == 9:
        both = int.from_bytes(extension[1:], "big")
        nanoseconds, seconds = both >> 34, both & ((1 << 34) - 1)
    else:
        nanoseconds, seconds = int.from_bytes(extension[1:5], "big"), int.from_bytes(extension[5:], "big", signed=True)
    if not nanoseconds % 1000 or nanoseconds >= _NANOSECONDS:
        return None
    try:
        second = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None
    return f"{second.isoformat()[:19]}.{nanoseconds:09}Z".encode()
