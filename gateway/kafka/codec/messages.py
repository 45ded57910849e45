"""Reads and writes messages by their tables: a reader or writer for each version is made once, when it is first used.

A message is a value with an attribute for each field of any version; what a version lacks has its default. Invariants:
nothing is reserved by an announced count or length before that many bytes are known to be there; bytes of records are
neither copied nor looked into, on their way in or out; tagged fields that are not known are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from gateway.kafka.codec.schema import Field, Versions, parse
from gateway.kafka.codec.tables import TABLES

Message = Any  # a value of the classes that `types_of` makes of the tables
Buffer = bytes | bytearray | memoryview

_FIXED = {"i8": "b", "i16": "h", "u16": "H", "i32": "i", "i64": "q", "f64": "d", "bool": "?", "uuid": "16s"}
_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")
_NO_UUID = bytes(16)
_VARINT_BYTES = 5
_LARGE_BYTES = 4096  # records from this size on are a piece of their own


class Malformed(Exception):
    """The bytes are not the message that they are said to be. The connection is closed."""


class Cursor:
    """A position in the bytes of one message."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: memoryview, position: int = 0) -> None:
        self.data = data
        self.position = position
        self.end = len(data)

    def __repr__(self) -> str:
        return f"Cursor({self.position} of {self.end})"

    def take(self, size: int) -> memoryview:
        """Returns the next bytes. Raises Malformed if they are not there."""
        begin = self.position
        behind = begin + size
        if size < 0 or behind > self.end:
            raise Malformed(f"{size} bytes are announced, {self.end - begin} are left")
        self.position = behind
        return self.data[begin:behind]

    def varint(self) -> int:
        """Returns an unsigned number of 32 bits. Raises Malformed."""
        value = shift = 0
        data, position, end = self.data, self.position, self.end
        for _ in range(_VARINT_BYTES):
            if position >= end:
                break
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return value
            shift += 7
        raise Malformed("a number does not end")

    def skip_tags(self) -> None:
        """Skips tagged fields. Raises Malformed."""
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


class Output:
    """The pieces of a message that is written: large records are pieces of their own."""

    __slots__ = ("pieces", "tail")

    def __init__(self) -> None:
        self.pieces: list[Buffer] = []
        self.tail = bytearray()

    def __repr__(self) -> str:
        return f"Output({self.size_bytes} bytes)"

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.pieces)) + len(self.tail)

    def add_records(self, records: Buffer) -> None:
        if len(records) < _LARGE_BYTES:
            self.tail += records
        else:
            self.pieces += (self.tail, records)
            self.tail = bytearray()

    def finished(self) -> list[Buffer]:
        """Returns all pieces. Nothing may be added to them."""
        return [*self.pieces, self.tail]


Read = Callable[[Cursor], Any]
Write = Callable[[Output, Any], None]
Append = Callable[[Cursor, list[Any]], None]


class Codec(NamedTuple):
    """The reader and the writer of one part of a message, and the fewest bytes that it takes."""

    read: Read
    write: Write
    least_bytes: int


class Direction(NamedTuple):
    """The requests or the responses of an API: their fields, and the classes of their structs by path."""

    fields: tuple[Field, ...]
    versions: Versions
    flexible: int
    types: dict[str, type[Any]]


@cache
def direction(api: str, *, is_request: bool) -> Direction:
    """Returns one direction of an API."""
    table = TABLES[api]
    versions = Versions(table.first, table.last)
    fields = parse(table.request if is_request else table.response, versions)
    types: dict[str, type[Any]] = {}
    _make_types(f"{api}{'Request' if is_request else 'Response'}", "", fields, types)
    return Direction(fields, versions, table.flexible, types)


def types_of(api: str) -> dict[str, type[Any]]:
    """Returns the classes of an API's response: by the names of the fields that have them, "" for the whole one."""
    return direction(api, is_request=False).types


@cache
def codec(api: str, version: int, *, is_request: bool) -> Codec:
    """Returns the codec of one version of a message."""
    way = direction(api, is_request=is_request)
    return _struct_codec(way, "", way.fields, version)


def read_message(api: str, version: int, data: memoryview, position: int = 0, *, is_request: bool = True) -> Message:
    """Returns the message that begins at a position. Raises Malformed."""
    try:
        return codec(api, version, is_request=is_request).read(Cursor(data, position))
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed(f"{api} {version}: {error}") from None


def write_message(api: str, version: int, message: Message, out: Output, *, is_request: bool = False) -> None:
    """Writes a message."""
    codec(api, version, is_request=is_request).write(out, message)


def _make_types(name: str, path: str, fields: Sequence[Field], types: dict[str, type[Any]]) -> None:
    members: list[Any] = [(field.name, Any, _default(field)) for field in fields]
    types[path] = msgspec.defstruct(name, members, gc=False)
    for field in fields:
        if field.fields:
            inner = f"{path}.{field.name}" if path else field.name
            _make_types(f"{name}.{field.name}", inner, field.fields, types)


def _default(field: Field) -> Any:
    text = field.default
    if text == "null":
        return None
    if field.is_array:
        return ()
    if field.type in _FIXED:
        if field.type == "uuid":
            return _NO_UUID
        if field.type == "bool":
            return text == "true"
        return int(text or 0)
    if field.type == "struct":
        return None
    return text or "" if field.type == "string" else b""


# Structs


def _struct_codec(way: Direction, path: str, fields: Sequence[Field], version: int) -> Codec:
    is_flexible = version >= way.flexible
    appends: list[Append] = []
    writes: list[Write] = []
    tagged: dict[int, tuple[int, Field, Codec]] = {}
    least_bytes = 1 if is_flexible else 0
    run: list[Field] = []  # fields of a fixed size, one behind the other

    def end_run() -> None:
        if run:
            appends.append(_append_fixed(run))
            writes.append(_write_fixed(run))
            run.clear()

    for index, field in enumerate(fields):
        if version not in field.versions or version in field.tagged:
            end_run()
            appends.append(_append_constant(_default(field)))
            if version in field.versions:
                assert field.tag is not None
                tagged[field.tag] = (index, field, _field_codec(way, path, field, version))
            continue
        if field.type in _FIXED and not field.is_array:
            run.append(field)
            least_bytes += struct.calcsize(_FIXED[field.type])
            continue
        end_run()
        of_field = _field_codec(way, path, field, version)
        least_bytes += of_field.least_bytes
        appends.append(_append_one(of_field.read))
        writes.append(_write_one(attrgetter(field.name), of_field.write))
    end_run()
    made = way.types[path]
    if is_flexible:
        writes.append(_write_tags(tagged))
    read = _read_struct(made, appends, tagged if is_flexible else None)
    return Codec(read, _write_struct(writes), least_bytes)


def _append_fixed(run: Sequence[Field]) -> Append:
    form = struct.Struct(">" + "".join(_FIXED[field.type] for field in run))
    unpack, size = form.unpack_from, form.size

    def append(cursor: Cursor, values: list[Any]) -> None:
        values += unpack(cursor.data, cursor.position)
        cursor.position += size

    return append


def _append_constant(value: Any) -> Append:
    return lambda _, values: values.append(value)


def _append_one(read: Read) -> Append:
    return lambda cursor, values: values.append(read(cursor))


def _read_struct(made: type[Any], appends: Sequence[Append], tagged: dict[int, Any] | None) -> Read:
    def read(cursor: Cursor) -> Any:
        values: list[Any] = []
        for append in appends:
            append(cursor, values)
        if tagged is not None:
            data, position = cursor.data, cursor.position
            if position < cursor.end and data[position] == 0:  # no tagged field, which is usual
                cursor.position = position + 1
            else:
                _read_tags(cursor, values, tagged)
        return made(*values)

    return read


def _read_tags(cursor: Cursor, values: list[Any], tagged: dict[int, tuple[int, Field, Codec]]) -> None:
    former = -1
    for _ in range(cursor.varint()):
        tag, size = cursor.varint(), cursor.varint()
        if tag <= former:
            raise Malformed(f"tag {tag} follows tag {former}")
        former, begin = tag, cursor.position
        inside = cursor.take(size)
        if tag in tagged:
            index, field, of_field = tagged[tag]
            one = Cursor(inside)
            values[index] = of_field.read(one)
            if one.position != size:
                raise Malformed(f"{field.name} does not take the {size} bytes of its tag")
        cursor.position = begin + size


def _write_fixed(run: Sequence[Field]) -> Write:
    pack = struct.Struct(">" + "".join(_FIXED[field.type] for field in run)).pack
    get = attrgetter(*(field.name for field in run))
    if len(run) == 1:

        def write_one(out: Output, value: Any) -> None:
            out.tail += pack(get(value))

        return write_one

    def write(out: Output, value: Any) -> None:
        out.tail += pack(*get(value))

    return write


def _write_one(get: Callable[[Any], Any], write: Write) -> Write:
    return lambda out, value: write(out, get(value))


def _write_struct(writes: Sequence[Write]) -> Write:
    def write_all(out: Output, value: Any) -> None:
        for write in writes:
            write(out, value)

    return write_all


def _write_tags(tagged: dict[int, tuple[int, Field, Codec]]) -> Write:
    """Writes the tagged fields that differ from their defaults."""
    if not tagged:
        return lambda out, _: out.tail.append(0)
    ordered = [
        (tag, attrgetter(field.name), _default(field), of_field.write)
        for tag, (_, field, of_field) in sorted(tagged.items())
    ]

    def write(out: Output, value: Any) -> None:
        present = [
            (tag, found, write)
            for tag, get, default, write in ordered
            if (found := get(value)) != default and found is not None and found != []
        ]
        _write_varint(out, len(present))
        for tag, found, write in present:
            inside = Output()
            write(inside, found)
            content = b"".join(inside.finished())
            _write_varint(out, tag)
            _write_varint(out, len(content))
            out.tail += content

    return write


def _write_varint(out: Output, value: int) -> None:
    tail = out.tail
    while value >= 0x80:
        tail.append(value & 0x7F | 0x80)
        value >>= 7
    tail.append(value)


# Fields of other sizes


def _field_codec(way: Direction, path: str, field: Field, version: int) -> Codec:
    is_flexible, may_be_null = version >= way.flexible, version in field.nullable
    if field.type == "struct":
        inner = f"{path}.{field.name}" if path else field.name
        one = _struct_codec(way, inner, field.fields, version)
        if not field.is_array:
            return _nullable_struct(one) if may_be_null else one
    elif field.type in _FIXED:
        single = field._replace(name="", is_array=False)
        one = _fixed_codec(single)
    else:
        one = _bytes_codec(field.type, is_flexible=is_flexible, may_be_null=may_be_null and not field.is_array)
    if not field.is_array:
        return one
    return _array_codec(one, is_flexible=is_flexible, may_be_null=may_be_null)


def _fixed_codec(field: Field) -> Codec:
    form = struct.Struct(">" + _FIXED[field.type])
    unpack, pack, size = form.unpack_from, form.pack, form.size

    def read(cursor: Cursor) -> Any:
        (value,) = unpack(cursor.data, cursor.position)
        cursor.position += size
        return value

    def write(out: Output, value: Any) -> None:
        out.tail += pack(value)

    return Codec(read, write, size)


def _nullable_struct(one: Codec) -> Codec:
    """Returns the codec of a struct with a byte before it: 1, or -1 for null (KIP-893)."""

    def read(cursor: Cursor) -> Any:
        return None if cursor.take(1)[0] >= 0x80 else one.read(cursor)

    def write(out: Output, value: Any) -> None:
        if value is None:
            out.tail.append(0xFF)
        else:
            out.tail.append(1)
            one.write(out, value)

    return Codec(read, write, 1)


def _length_reader(kind: str, *, is_flexible: bool) -> Callable[[Cursor], int]:
    """Returns the reader of a length, which is -1 for null."""
    if is_flexible:
        return lambda cursor: cursor.varint() - 1
    form = _I16 if kind == "string" else _I32
    unpack, size = form.unpack_from, form.size

    def read(cursor: Cursor) -> int:
        (length,) = unpack(cursor.data, cursor.position)
        cursor.position += size
        return length  # type: ignore[no-any-return]

    return read


def _length_writer(kind: str, *, is_flexible: bool) -> Callable[[Output, int], None]:
    if is_flexible:
        return lambda out, length: _write_varint(out, length + 1)
    pack = (_I16 if kind == "string" else _I32).pack

    def write(out: Output, length: int) -> None:
        out.tail += pack(length)

    return write


def _bytes_codec(kind: str, *, is_flexible: bool, may_be_null: bool) -> Codec:
    read_length = _length_reader(kind, is_flexible=is_flexible)
    write_length = _length_writer(kind, is_flexible=is_flexible)

    def take(cursor: Cursor) -> memoryview | None:
        length = read_length(cursor)
        if length < 0:
            if length == -1 and may_be_null:
                return None
            raise Malformed(f"a length is {length}")
        return cursor.take(length)

    def read_string(cursor: Cursor) -> str | None:
        taken = take(cursor)
        return None if taken is None else str(taken, "utf-8")

    def read_bytes(cursor: Cursor) -> bytes | None:
        taken = take(cursor)
        return None if taken is None else bytes(taken)

    def write(out: Output, value: Any) -> None:
        if value is None:
            assert may_be_null, "this version has no null here"
            write_length(out, -1)
            return
        content = value.encode() if kind == "string" else value
        write_length(out, len(content))
        if kind == "records":
            out.add_records(content)
        else:
            out.tail += content

    read: Read = {"string": read_string, "bytes": read_bytes, "records": take}[kind]
    return Codec(read, write, 1 if is_flexible else 2 if kind == "string" else 4)


def _array_codec(one: Codec, *, is_flexible: bool, may_be_null: bool) -> Codec:
    read_length = _length_reader("array", is_flexible=is_flexible)
    write_length = _length_writer("array", is_flexible=is_flexible)
    read_one, write_one, least_bytes = one
    assert least_bytes > 0, "a count must be bounded by the bytes that are left"

    def read(cursor: Cursor) -> Any:
        count = read_length(cursor)
        if count < 0:
            if count == -1 and may_be_null:
                return None
            raise Malformed(f"a count is {count}")
        left = cursor.end - cursor.position
        if count * least_bytes > left:
            raise Malformed(f"{count} elements are announced, {left} bytes are left")
        return [read_one(cursor) for _ in range(count)]

    def write(out: Output, value: Any) -> None:
        if value is None:
            assert may_be_null, "this version has no null here"
            write_length(out, -1)
            return
        write_length(out, len(value))
        for each in value:
            write_one(out, each)

    return Codec(read, write, 1 if is_flexible else 4)
