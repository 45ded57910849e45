"""The values that name a schema of a registry in their first bytes: whether they follow it, and their JSON.

A value begins with a zero byte and the id of its schema in four bytes; one of Protobuf has the indexes of its message
next. The libraries of Avro and Protobuf are imported with the first schema of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from engine.encodings.json_text import text_of
from engine.encodings.registry import HEADER_BYTES, RegisteredSchema, Registry
from engine.encodings.undecodable import Undecodable
from engine.errors import EngineError
from engine.schemas.value_schema import ValueSchema

if TYPE_CHECKING:
    from engine.encodings.avro_json import AvroWriter
    from engine.encodings.avro_schema import AvroSchema
    from engine.encodings.protobuf_file import ProtobufFile

QUICK_BYTES = 2 << 20  # of memory that decoded values of Avro may take: some 25,000 members, 10 ms
REQUEST_BYTES_MAX = 4 << 30  # the same of a request's values: some 50 million members, half a minute of a thread
QUICK_UNITS = 512 * 1024  # of a JSON Schema: about 2 ms
BAD_VALUE = (Undecodable, EOFError, ValueError, RecursionError)
_INSTALL = "pip install 'penstock-server[formats]'"
_NO_JSON = (UnicodeDecodeError, TypeError, RecursionError, ValueError, msgspec.MsgspecError)


class FramedValues(Protocol):
    """The values of one schema. Any thread may use it."""

    def find_wrong(self, values: Mapping[int, bytes]) -> Iterator[tuple[int, str]]:
        """Yields the index of each value that does not follow the schema, and why, without a part of the value."""

    def do_surely_follow(self, values: Mapping[int, bytes]) -> bool:
        """Returns whether values follow the schema, as far as that is seen in a few milliseconds."""

    def text(self, value: bytes, bytes_max: int) -> bytes:
        """Returns the JSON of a value. Raises Undecodable, also for one that has more bytes of it."""

    def encode(self, text: bytes) -> bytes:
        """Returns the value of JSON, without the id in front. Raises Undecodable."""


class RegisteredValues(NamedTuple):
    """The schema of an id: its type, the subjects that have it, and its values."""

    kind: str
    subjects: frozenset[str]
    values: FramedValues


def find_registered(registry: Registry, schema_id: int) -> RegisteredValues | None:
    """Returns what an id names; None if the registry does not have it. Raises RegistryUnavailable, ValueError."""
    registered = registry.schema(schema_id)
    if registered is None:
        return None
    try:
        values = _values_of(registry, schema_id, registered)
    except ModuleNotFoundError as error:
        raise ValueError(f"the node lacks the library {error.name}: {_INSTALL}") from None
    return RegisteredValues(registered.schemaType, registry.subjects(schema_id), values)


def _values_of(registry: Registry, schema_id: int, registered: RegisteredSchema) -> FramedValues:
    """Raises RegistryUnavailable, ValueError, ModuleNotFoundError."""
    match registered.schemaType:
        case "AVRO":
            from engine.encodings.avro_schema import registered_avro

            return _AvroValues(registered_avro(registry, registered, is_trusted=False))
        case "PROTOBUF":
            from engine.encodings.protobuf_file import ProtobufFile

            return _ProtobufValues(ProtobufFile(registry, schema_id))
        case "JSON":
            if registered.references:
                raise ValueError("a JSON Schema with references to others is not supported")
            try:
                return _JsonValues(ValueSchema(registered.schema))
            except EngineError as error:
                raise ValueError(str(error)) from None
    raise ValueError(f"the type {registered.schemaType} is not supported")


class _Binary:
    """Values that are checked by parsing them."""

    def parse(self, value: bytes) -> object:
        """Raises Undecodable."""
        raise NotImplementedError

    def find_wrong(self, values: Mapping[int, bytes]) -> Iterator[tuple[int, str]]:
        for index, value in values.items():
            try:
                self.parse(value)
            except Undecodable as error:
                yield index, error.message.partition(":")[0]  # behind it may be bytes of the value

    def do_surely_follow(self, values: Mapping[int, bytes]) -> bool:
        return next(self.find_wrong(values), None) is None


class _AvroValues(_Binary):
    def __init__(self, schema: AvroSchema) -> None:
        from engine.encodings.avro_schema import read_avro

        self._schema = schema
        self._read = read_avro
        self._writer: AvroWriter | None = None  # since the first value that is encoded

    def parse(self, value: bytes) -> object:
        return self._read(value[HEADER_BYTES:], self._schema)

    def find_wrong(self, values: Mapping[int, bytes]) -> Iterator[tuple[int, str]]:
        """Ends with a refusal once values may have become more members than a thread should make for one request."""
        left: float = REQUEST_BYTES_MAX
        for index, value in values.items():
            left -= self._bytes_max(value)
            if left < 0:
                yield index, "the values of the request have too many members together: send fewer"
                return
            yield from super().find_wrong({index: value})

    def _bytes_max(self, value: bytes) -> float:
        """Returns how much memory a value may take, by its schema if that bounds it."""
        bytes_max = self._schema.shape.bytes_max(len(value))
        if bytes_max == math.inf:
            with suppress(*BAD_VALUE):  # it is refused where it is parsed
                return self._schema.measure.memory_of(value[HEADER_BYTES:])
            return 0
        return bytes_max

    def do_surely_follow(self, values: Mapping[int, bytes]) -> bool:
        bytes_max = sum(self._schema.shape.bytes_max(len(value)) for value in values.values())
        return bytes_max <= QUICK_BYTES and super().do_surely_follow(values)

    def text(self, value: bytes, bytes_max: int) -> bytes:
        return _text_of(self._read(value[HEADER_BYTES:], self._schema, bytes_max), bytes_max)

    def encode(self, text: bytes) -> bytes:
        from engine.encodings.avro_json import AvroWriter

        if self._writer is None:
            self._writer = AvroWriter(self._schema.tree)
        return self._writer.write(text)


class _ProtobufValues(_Binary):
    def __init__(self, file: ProtobufFile) -> None:
        self._file = file

    def parse(self, value: bytes) -> object:
        return self._file.parse(value)[1]

    def encode(self, text: bytes) -> bytes:
        return self._file.encode(text)

    def text(self, value: bytes, bytes_max: int) -> bytes:
        kind, message = self._file.parse(value, bytes_max)
        try:
            members = kind.members(message)
        except _NO_JSON as error:  # its text may have a part of the value
            raise Undecodable("no_json", f"the value has no JSON: {type(error).__name__}") from None
        return _text_of(members, bytes_max)


class _JsonValues:
    def __init__(self, schema: ValueSchema) -> None:
        self._schema = schema

    def find_wrong(self, values: Mapping[int, bytes]) -> Iterator[tuple[int, str]]:
        indexes = list(values)
        for violation in self._schema.violations(_bodies(values), is_null_allowed=False):
            yield indexes[violation.record], f"{violation.pointer or 'the whole value'}: {violation.text}"

    def do_surely_follow(self, values: Mapping[int, bytes]) -> bool:
        return self._schema.do_values_follow(_bodies(values), QUICK_UNITS, is_null_allowed=False)

    def encode(self, text: bytes) -> bytes:
        for violation in self._schema.violations([text], is_null_allowed=False):
            raise Undecodable("schema_mismatch", f"{violation.pointer or 'the whole value'}: {violation.text}")
        return text

    def text(self, value: bytes, bytes_max: int) -> bytes:
        text = _check_bytes(value[HEADER_BYTES:], bytes_max)
        try:
            msgspec.json.decode(text)
            text.decode()
        except _NO_JSON:
            raise Undecodable("not_json", "the value is not JSON") from None
        return text


def _bodies(values: Mapping[int, bytes]) -> list[bytes]:
    return [value[HEADER_BYTES:] for value in values.values()]


def _text_of(value: object, bytes_max: int) -> bytes:
    try:
        return _check_bytes(text_of(value), bytes_max)
    except _NO_JSON as error:
        raise Undecodable("no_json", f"the value has no JSON: {error}") from None


def _check_bytes(text: bytes, bytes_max: int) -> bytes:
    if len(text) > bytes_max:
        raise Undecodable("too_large", f"the value has more than {bytes_max:,} bytes as JSON")
    return text
