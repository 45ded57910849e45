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

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from engine.encodings.protobuf_message import OWN_JSON, MessageKind, indexes_of
from spark_ingest.types.declared_types import array, decimal, struct
from spark_ingest.types.json_types import DEPTH_MAX, Members, Type

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


def decoder_of(options: Mapping[str, Any]) -> Callable[[bytes], dict[str, object]]:
    """Raises ValueError if the descriptor set is damaged or does not have the message."""
    return _Protobuf(options)


class _Protobuf:
    def __init__(self, options: Mapping[str, Any]) -> None:
        self._kind = MessageKind(_descriptor(b64decode(options["descriptor_set"]), options["message"]))
        self._is_framed = options.get("framing") == "registry"
        descriptor = self._kind.descriptor
        self._members: Members = _Types().members(descriptor) if not descriptor.full_name.startswith(OWN_JSON) else []

    def __call__(self, value: bytes) -> dict[str, object]:
        return self._kind.members(self._kind.parse(value[indexes_of(value)[1] :] if self._is_framed else value))

    def declared(self, _value: bytes) -> Members:
        """Returns the types of the message, the same object for each value."""
        return self._members


def _descriptor(descriptor_set: bytes, name: str) -> Descriptor:
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file:
            pool.Add(file)
        descriptor: Descriptor = pool.FindMessageTypeByName(name)
    except KeyError as error:
        raise ValueError(f"the descriptor set has no message {name!r}; write its full name") from error
    except (DecodeError, TypeError) as error:
        raise ValueError(f"the descriptor set is not usable: {error}; write it with --include_imports") from error
    return descriptor


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
        if kind.full_name.startswith(OWN_JSON):
            return _TYPES_OF_OWN.get(kind.full_name.removeprefix(OWN_JSON), "null")
        if kind.full_name in self._open or depth >= DEPTH_MAX:
            return "null" if kind.full_name in self._open else "json"
        if (kind.full_name, depth) not in self._by_name:
            self._by_name[kind.full_name, depth] = struct(self.members(kind, depth))
        return self._by_name[kind.full_name, depth]
