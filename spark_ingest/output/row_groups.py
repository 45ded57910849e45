"""Puts row groups of Parquet files into another file as they are, without decoding a page.

A row group is one range of bytes. Its description in the footer, a Thrift struct in the compact protocol, has positions
in the file; they are moved, and all other fields keep their bytes. Indexes of pages and Bloom filters, which are not in
the range, are left out.

Invariant: a file has row groups of its own schema only, byte by byte the one of its footer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

MAGIC = b"PAR1"
_I16, _I64, _BINARY, _LIST, _SET, _MAP, _STRUCT = 4, 6, 8, 9, 10, 11, 12  # types of the compact protocol
_BOOLEANS, _FIXED = (1, 2), {3: 1, 7: 8, 13: 16}  # a field of these types has no bytes, or a number of them
_LONG_LIST = 15

# The fields of the structs of parquet.thrift that are read or changed here.
_SCHEMA, _ROWS, _ROW_GROUPS = 2, 3, 4  # FileMetaData
_COLUMNS, _GROUP_ROWS, _GROUP_START, _ORDINAL = 1, 3, 5, 7  # RowGroup
_CHUNK_START, _META, _INDEXES = 2, 3, range(4, 8)  # ColumnChunk
_SIZE, _DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE, _BLOOM = 7, 9, 10, 11, range(14, 16)  # ColumnMetaData


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a struct, with the bytes of its value."""

    number: int
    kind: int
    data: bytes


_Struct = list[_Field]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group: its bytes, where they were in its file, and its description."""

    data: memoryview
    start: int
    rows: int
    fields: _Struct


@dataclass(frozen=True, slots=True)
class ParquetParts:
    """A file: the fields of its footer, the bytes of its schema, and its row groups; None for one that is empty or not
    in one piece.
    """

    footer: _Struct
    schema: bytes
    row_groups: Sequence[RowGroup | None]


def parts_of(data: bytes) -> ParquetParts:
    """Returns the parts of a Parquet file that Arrow has opened."""
    end = len(data) - len(MAGIC) - 4
    footer_bytes = int.from_bytes(data[end : end + 4], "little")
    footer, _ = _read_struct(data[end - footer_bytes : end], 0)
    schema = next(field.data for field in footer if field.number == _SCHEMA)
    groups = next((_structs(field.data) for field in footer if field.number == _ROW_GROUPS), [])
    return ParquetParts(footer, schema, [_row_group(memoryview(data), group) for group in groups])


def joined(own_file: bytes, copied: Sequence[tuple[int, RowGroup]]) -> bytes:
    """Returns `own_file` with more row groups, each behind that number of its own rows, which end a row group."""
    parts = parts_of(own_file)
    pieces, groups, size = [memoryview(MAGIC)], list[bytes](), len(MAGIC)
    ordered = _ordered(parts.row_groups, copied)
    for group in ordered:
        groups.append(_write_struct(_moved_group(group, size, len(groups))))
        pieces.append(group.data)
        size += len(group.data)
    listed = _Field(_ROW_GROUPS, _LIST, _list_head(len(groups), _STRUCT) + b"".join(groups))
    rows = _Field(_ROWS, _I64, _integer(sum(group.rows for group in ordered)))
    changed = {_ROWS: rows, _ROW_GROUPS: listed}
    footer = _write_struct([changed.get(field.number, field) for field in parts.footer])
    return b"".join([*pieces, footer, len(footer).to_bytes(4, "little"), MAGIC])


def _ordered(own_groups: Sequence[RowGroup | None], copied: Sequence[tuple[int, RowGroup]]) -> list[RowGroup]:
    groups, rows, coming = list[RowGroup](), 0, list(copied)
    for group in own_groups:
        assert group is not None
        while coming and coming[0][0] <= rows:
            groups.append(coming.pop(0)[1])
        groups.append(group)
        rows += group.rows
    return [*groups, *(group for _, group in coming)]


def _row_group(data: memoryview, fields: _Struct) -> RowGroup | None:
    """Returns None if there are no rows, or the columns are not one after the other."""
    rows = next(_value(field.data) for field in fields if field.number == _GROUP_ROWS)
    if not rows:
        return None
    columns = next(_structs(field.data) for field in fields if field.number == _COLUMNS)
    metas = [field for column in columns for field in column if field.number == _META]
    ranges = sorted(_range_of(_read_struct(meta.data, 0)[0]) for meta in metas)
    start, end = ranges[0][0], ranges[-1][1]
    if len(ranges) != len(columns) or any(group_range[1] != other[0] for group_range, other in pairwise(ranges)):
        return None
    return RowGroup(data[start:end], start, rows, fields)


def _range_of(meta: _Struct) -> tuple[int, int]:
    values = {
        field.number: _value(field.data) for field in meta if field.number in (_SIZE, _DATA_PAGE, _DICTIONARY_PAGE)
    }
    start = min(filter(None, (values.get(_DICTIONARY_PAGE), values[_DATA_PAGE])))
    return start, start + values[_SIZE]


def _moved_group(group: RowGroup, start: int, ordinal: int) -> _Struct:
    by = start - group.start

    def moved(field: _Field) -> _Field:
        return _Field(field.number, field.kind, _integer(_value(field.data) + by)) if _value(field.data) else field

    def chunk(field: _Field) -> _Field | None:
        if field.number == _META:
            return _Field(field.number, field.kind, _write_struct(_changed(_read_struct(field.data, 0)[0], meta)))
        return None if field.number in _INDEXES else moved(field) if field.number == _CHUNK_START else field

    def meta(field: _Field) -> _Field | None:
        is_place = field.number in (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE)
        return None if field.number in _BLOOM else moved(field) if is_place else field

    def of_group(field: _Field) -> _Field:
        if field.number == _COLUMNS:
            columns = [_write_struct(_changed(column, chunk)) for column in _structs(field.data)]
            return _Field(field.number, field.kind, _list_head(len(columns), _STRUCT) + b"".join(columns))
        if field.number == _ORDINAL:
            return _Field(field.number, field.kind, _integer(ordinal))
        return moved(field) if field.number == _GROUP_START else field

    return _changed(group.fields, of_group)


def _changed(fields: _Struct, change: Callable[[_Field], _Field | None]) -> _Struct:
    return [made for field in fields if (made := change(field)) is not None]


def _structs(data: bytes) -> list[_Struct]:
    """Returns the structs of a list."""
    count, _, at = _read_list_head(data, 0)
    structs = []
    for _ in range(count):
        fields, at = _read_struct(data, at)
        structs.append(fields)
    return structs


def _read_struct(data: bytes, at: int) -> tuple[_Struct, int]:
    fields, number = [], 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            zigzag, at = _read_varint(data, at)
            number = (zigzag >> 1) ^ -(zigzag & 1)
        kind = head & 15
        end = at if kind in _BOOLEANS else _end_of(data, at, kind)
        fields.append(_Field(number, kind, data[at:end]))
        at = end
    return fields, at + 1


def _end_of(data: bytes, at: int, kind: int) -> int:
    """Returns where the value ends that begins at this byte. A boolean in a list has a byte."""
    if kind in _FIXED or kind in _BOOLEANS:
        return at + _FIXED.get(kind, 1)
    if kind == _BINARY:
        size, at = _read_varint(data, at)
        return at + size
    if kind in (_LIST, _SET):
        count, element, at = _read_list_head(data, at)
        for _ in range(count):
            at = _end_of(data, at, element)
        return at
    if kind == _STRUCT:
        while head := data[at]:
            at += 1
            if not head >> 4:
                at = _read_varint(data, at)[1]
            if head & 15 not in _BOOLEANS:
                at = _end_of(data, at, head & 15)
        return at + 1
    if kind == _MAP:
        raise ValueError("parquet.thrift has no map")
    return _read_varint(data, at)[1]


def _read_list_head(data: bytes, at: int) -> tuple[int, int, int]:
    head = data[at]
    count, at = (head >> 4, at + 1) if head >> 4 < _LONG_LIST else _read_varint(data, at + 1)
    return count, head & 15, at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) & 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1


def _value(data: bytes) -> int:
    zigzag, _ = _read_varint(data, 0)
    return (zigzag >> 1) ^ -(zigzag & 1)


def _integer(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else ~(value << 1))


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _list_head(count: int, kind: int) -> bytes:
    return bytes([count << 4 | kind]) if count < _LONG_LIST else bytes([_LONG_LIST << 4 | kind]) + _varint(count)


def _write_struct(fields: _Struct) -> bytes:
    made, last = bytearray(), 0
    for field in fields:
        step = field.number - last
        made += bytes([step << 4 | field.kind]) if 0 < step < 16 else bytes([field.kind]) + _integer(field.number)
        made += field.data
        last = field.number
    return bytes(made) + b"\0"
