"""Bounds the memory of a Protobuf message before it is decoded.

Two bytes of a message may be one within it, and that takes as much memory as its type has fields: here and in the
library. `MessageBounds` knows from the types what a byte can take. If a value may be too large, it walks the bytes,
without decoding them, and counts the messages and the packed numbers.
"""

from __future__ import annotations

import math

from google.protobuf.descriptor import Descriptor

from engine.encodings.undecodable import Undecodable

VALUE_BYTES_MAX = 128 << 20
_MESSAGE_BYTES, _FIELD_BYTES = 256, 16  # of the library, and the dictionary
_MEMBER_BYTES = 100  # a value that is always there, and its place in the dictionary
_NUMBER_BYTES = 48  # of a repeated field; a text or bytes have this beside their own
_VARINT_BYTES_MAX = 10
_MEMBER_TEXT_BYTES = 12  # of a member as JSON, beside its name and its bytes
_PACKED_TEXT_BYTES = 6  # of a byte of packed numbers


class MessageBounds:
    """The bounds of one message type and those within it."""

    def __init__(self, kind: Descriptor) -> None:
        self._kind = kind
        self._costs: dict[str, int] = {}
        self._texts: dict[str, int] = {}  # of the members that are always there, as JSON
        self._name_bytes = 0  # of the longest name
        self._add(kind)
        self._bytes_of_byte = max(_NUMBER_BYTES, max(self._costs.values()) // 2)
        self._text_of_byte = max(_PACKED_TEXT_BYTES, self._name_bytes + _MEMBER_TEXT_BYTES + max(self._texts.values()))

    def __repr__(self) -> str:
        return f"MessageBounds({self._kind.full_name}, {self._bytes_of_byte} bytes of each byte)"

    def check(self, value: bytes, text_bytes_max: float = math.inf) -> None:
        """Raises Undecodable if the message takes too much memory, or has more JSON, about.

        Damaged bytes are left to the library.
        """
        size_bytes = len(value) + 1
        if size_bytes * self._bytes_of_byte <= VALUE_BYTES_MAX and size_bytes * self._text_of_byte <= text_bytes_max:
            return
        memory, text = self._measure(value)
        if memory > VALUE_BYTES_MAX:
            raise Undecodable("too_large", f"the value takes more than {VALUE_BYTES_MAX:,} bytes of memory")
        if text > text_bytes_max:
            raise Undecodable("too_large", "the value has too many bytes as JSON")

    def _add(self, kind: Descriptor) -> None:
        if kind.full_name in self._costs:
            return
        names = [len(field.name) for field in kind.fields]
        always = [len(field.name) for field in kind.fields if not field.has_presence]
        self._costs[kind.full_name] = _MESSAGE_BYTES + _FIELD_BYTES * len(names) + _MEMBER_BYTES * len(always)
        self._texts[kind.full_name] = sum(always) + _MEMBER_TEXT_BYTES * (1 + len(always))
        self._name_bytes = max([self._name_bytes, *names])
        for member in kind.fields:
            if member.message_type is not None:
                self._add(member.message_type)

    def _measure(self, value: bytes) -> tuple[int, int]:
        """Returns the bytes of memory, up to the limit and a little more, and those of the JSON so far."""
        total = self._costs[self._kind.full_name] + len(value)
        text = self._texts[self._kind.full_name] + len(value)
        left: list[tuple[int, int, Descriptor]] = [(0, len(value), self._kind)]
        while left and total <= VALUE_BYTES_MAX:
            at, end, kind = left.pop()
            while at < end:
                tag, at = _varint(value, at, end)
                wire, field = tag & 7, kind.fields_by_number.get(tag >> 3)
                total += _NUMBER_BYTES
                text += 0 if field is None else _MEMBER_TEXT_BYTES + len(field.name)
                if wire == 0:
                    _, at = _varint(value, at, end)
                elif wire in (1, 5):
                    at += 8 if wire == 1 else 4
                elif wire == 2:
                    size, at = _varint(value, at, end)
                    if field is not None and field.message_type is not None:
                        total += self._costs[field.message_type.full_name]
                        text += self._texts[field.message_type.full_name]
                        left.append((at, min(at + size, end), field.message_type))
                    elif field is not None and field.is_repeated:
                        total += size * _NUMBER_BYTES if field.is_packed else size
                        text += size * _PACKED_TEXT_BYTES if field.is_packed else 0
                    at += size
                elif wire == 3 and field is not None and field.message_type is not None:
                    total += self._costs[field.message_type.full_name]  # a group: its fields follow
                    text += self._texts[field.message_type.full_name]
                if total > VALUE_BYTES_MAX:
                    break
        return total, text


def _varint(value: bytes, at: int, end: int) -> tuple[int, int]:
    """Returns a number and where it ends; the end of the value if it is damaged."""
    number = shift = 0
    while at < end and shift < 7 * _VARINT_BYTES_MAX:
        byte = value[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
    return 0, end
