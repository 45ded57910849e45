"""The messages of one Protobuf type: the door to the library.

Members have the names of the .proto file. Numbers stay numbers, also 64-bit ones; an enum is its name, or its number if
it has none; bytes are base64 text; `google.protobuf` types have their JSON form, a Timestamp as text. A field without
presence (proto3) has its default, other absent fields are null.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from engine.encodings.protobuf_bounds import MessageBounds
from engine.encodings.registry import HEADER_BYTES, schema_id_of
from engine.encodings.undecodable import Undecodable

INDEXES_MAX = 100  # of nested messages, in the header of a registry
OWN_JSON = "google.protobuf."

Convert = Callable[[Any], Any]


class MessageKind:
    """A type of messages. Immutable; any thread may use it."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self._class: type[Message] = message_factory.GetMessageClass(descriptor)
        self._convert, self._bounds = _Converters().of(descriptor), MessageBounds(descriptor)

    def __repr__(self) -> str:
        return f"MessageKind({self.descriptor.full_name})"

    def parse(self, data: bytes, text_bytes_max: float = math.inf) -> Message:
        """Raises Undecodable, also for a message that has about more JSON."""
        self._bounds.check(data, text_bytes_max)
        try:
            return self._class.FromString(data)
        except DecodeError as error:
            raise Undecodable("not_protobuf", str(error)) from error

    def encode(self, text: bytes) -> bytes:
        """Returns the bytes of a message from its JSON. Raises Undecodable."""
        try:
            message: Message = json_format.Parse(text, self._class())
            return bytes(message.SerializeToString())
        except (json_format.ParseError, EncodeError, ValueError, RecursionError) as error:
            raise Undecodable("not_protobuf", type(error).__name__) from error

    def members(self, message: Message) -> dict[str, object]:
        """Returns what JSON is made of."""
        members: dict[str, object] = self._convert(message)
        return members


def indexes_of(value: bytes) -> tuple[list[int], int]:
    """Returns the indexes of a value's message in the header of a registry, and where the header ends.

    The header: a zero byte, the schema id, the count of the indexes and the indexes. Raises Undecodable.
    """
    if len(value) <= HEADER_BYTES or schema_id_of(value) is None:
        raise Undecodable("not_protobuf", "the value does not begin with the header of a schema registry")
    count, at = _varint(value, HEADER_BYTES)
    if count > 2 * INDEXES_MAX:
        raise Undecodable("not_protobuf", "the header of the schema registry is damaged")
    indexes = []
    for _ in range(count // 2):  # zigzag
        index, at = _varint(value, at)
        indexes.append(index // 2)
    return indexes or [0], at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(value) and shift < 35:
        number |= (value[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if not value[at - 1] & 128:
            return number, at
    raise Undecodable("not_protobuf", "the header of the schema registry is damaged")


class _Converters:
    """Makes a function for each message type, which turns a message into members."""

    def __init__(self) -> None:
        self._made: dict[str, Convert] = {}

    def of(self, kind: Descriptor) -> Convert:
        name = kind.full_name
        if name not in self._made:

            def later(message: Message) -> Any:  # for a field of a type within itself
                return self._made[name](message)

            self._made[name] = later
            self._made[name] = json_format.MessageToDict if name.startswith(OWN_JSON) else self._message(kind)
        return self._made[name]

    def _message(self, kind: Descriptor) -> Convert:
        plain = [field for field in kind.fields if not field.has_presence]
        present = [field for field in kind.fields if field.has_presence]
        always = [(field.name, self._field(field)) for field in plain]
        sometimes = [(field.name, self._field(field)) for field in present]

        def convert(message: Message) -> dict[str, object]:
            members = {name: convert_field(getattr(message, name)) for name, convert_field in always}
            for name, convert_field in sometimes:
                if message.HasField(name):
                    members[name] = convert_field(getattr(message, name))
            return members

        return convert

    def _field(self, field: FieldDescriptor) -> Convert:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            wrapped = self._single(kind.fields_by_name["value"])
            return lambda value: {_key(key): wrapped(value[key]) for key in value}
        single = self._single(field)
        if field.is_repeated:
            return lambda value: [single(item) for item in value]
        return single

    def _single(self, field: FieldDescriptor) -> Convert:
        if field.message_type is not None:
            return self.of(field.message_type)
        if field.enum_type is not None:
            names = {number: enum_value.name for number, enum_value in field.enum_type.values_by_number.items()}
            return lambda number: names.get(number, number)
        return _itself


def _key(key: object) -> object:
    return str(key).lower() if isinstance(key, bool) else key


def _itself(value: object) -> object:
    return value
