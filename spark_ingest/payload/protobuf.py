"""The decoder of Protobuf messages, by a descriptor set (`protoc --include_imports --descriptor_set_out`).

Members have the names of the .proto file. Numbers stay numbers, also 64-bit ones; an enum is its name, or its number if
it has none; bytes are base64 text; `google.protobuf` types have their JSON form, a Timestamp as text. A field without
presence (proto3) has its default, other absent fields are null.

Options: `descriptor_set` (base64), `message`, `framing` (`bare`, or `registry`: five bytes and message indexes first).
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from spark_ingest.payload.protobuf_bounds import MessageBounds
from spark_ingest.payload.undecodable import Undecodable
from spark_ingest.types.declared_types import array, decimal, struct
from spark_ingest.types.json_types import DEPTH_MAX, Members, Type

INDEXES_MAX = 100  # of nested messages, in the header of a registry
_OWN_JSON = "google.protobuf."
_TYPES_OF_OWN = {  # in JSON; the types of the others come from values; 64-bit integers are text
    "Timestamp": "timestamp",
    "BytesValue": "binary",
    "BoolValue": "boolean",
    "DoubleValue": "double",
    "FloatValue": "double",
    "Int32Value": "bigint",
    "UInt32Value": "bigint",
    **dict.fromkeys(("Duration", "FieldMask", "StringValue", "Int64Value", "UInt64Value"), "string"),
}
_UINT64 = decimal(20, 0)  # no bigint holds the larger half of these
_TYPES = {
    **dict.fromkeys((FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT), "double"),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64), _UINT64),
    **dict.fromkeys((FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_ENUM), "string"),
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_BYTES: "binary",
}  # others are bigints

Convert = Callable[[Any], Any]


def decoder_of(options: Mapping[str, Any]) -> Callable[[bytes], dict[str, object]]:
    """Raises ValueError if the descriptor set is damaged or does not have the message."""
    return _Protobuf(options)


class _Protobuf:
    def __init__(self, options: Mapping[str, Any]) -> None:
        self._kind = _message_class(b64decode(options["descriptor_set"]), options["message"])
        self._is_framed = options.get("framing") == "registry"
        descriptor = self._kind.DESCRIPTOR
        self._convert, self._bounds = _Converters().of(descriptor), MessageBounds(descriptor)
        self._members: Members = _Types().members(descriptor) if not descriptor.full_name.startswith(_OWN_JSON) else []

    def __call__(self, value: bytes) -> dict[str, object]:
        data = _unframe(value) if self._is_framed else value
        self._bounds.check(data)
        try:
            message = self._kind.FromString(data)
        except DecodeError as error:
            raise Undecodable("not_protobuf", str(error)) from error
        members: dict[str, object] = self._convert(message)
        return members

    def declared(self, _value: bytes) -> Members:
        """Returns the types of the message, the same object for each value."""
        return self._members


def _message_class(descriptor_set: bytes, name: str) -> type[Message]:
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file:
            pool.Add(file)
        message_class: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError as error:
        raise ValueError(f"the descriptor set has no message {name!r}; write its full name") from error
    except (DecodeError, TypeError) as error:
        raise ValueError(f"the descriptor set is not usable: {error}; write it with --include_imports") from error
    return message_class


def _unframe(value: bytes) -> bytes:
    """Returns the bytes after the header: a zero byte, the schema id, and the indexes of the message."""
    if len(value) < 6 or value[0]:
        raise Undecodable("not_protobuf", "the value does not begin with the header of a schema registry")
    count, at = _varint(value, 5)
    if count > 2 * INDEXES_MAX:
        raise Undecodable("not_protobuf", "the header of the schema registry is damaged")
    for _ in range(count // 2):  # zigzag
        _, at = _varint(value, at)
    return value[at:]


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
            self._made[name] = json_format.MessageToDict if name.startswith(_OWN_JSON) else self._message(kind)
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


class _Types:
    """Makes the types of the fields of messages."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, int], Type] = {}
        self._open: set[str] = set()

    def members(self, kind: Descriptor, depth: int = 0) -> Members:
        self._open.add(kind.full_name)
        members = [[field.name, self._field(field, depth + 1)] for field in kind.fields]
        self._open.discard(kind.full_name)
        return members

    def _field(self, field: FieldDescriptor, depth: int) -> Type:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return "null"
        if field.is_repeated:
            return "json" if depth >= DEPTH_MAX else array(self._single(field, depth + 1))
        return self._single(field, depth)

    def _single(self, field: FieldDescriptor, depth: int) -> Type:
        kind = field.message_type
        if kind is None:
            return _TYPES.get(field.type, "bigint")
        if kind.full_name.startswith(_OWN_JSON):
            return _TYPES_OF_OWN.get(kind.full_name.removeprefix(_OWN_JSON), "null")
        if kind.full_name in self._open or depth >= DEPTH_MAX:
            return "null" if kind.full_name in self._open else "json"
        if (kind.full_name, depth) not in self._by_name:
            self._by_name[kind.full_name, depth] = struct(self.members(kind, depth))
        return self._by_name[kind.full_name, depth]


def _key(key: object) -> object:
    return str(key).lower() if isinstance(key, bool) else key


def _itself(value: object) -> object:
    return value
