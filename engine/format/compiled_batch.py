"""Makes batches of what the compiled codec (penstock_codec) has found in a body, as engine/format/batch.py makes them.

A table of spans or rows is the codec's own, and fits only the body in which it was found.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from crc32c import crc32c

import penstock_codec
from engine.errors import BatchTooLarge
from engine.format.batch_header import CRC_AT, CRC_COVERS_FROM, HEADER_BYTES, Buffer, Codec, mark_compressed
from engine.format.compression import pack_records

_U32 = struct.Struct(">I")

StoredHeader = tuple[str, bytes | None]


class TextColumn(NamedTuple):
    """Texts as Arrow has them: 32-bit ends, bytes, and bits of those that are not null."""

    ends: memoryview
    data: memoryview
    is_there: memoryview
    null_count: int


def texts_of(column: TextColumn) -> list[bytes]:
    """Returns the texts that are not null."""
    ends = column.ends.cast("i")
    texts = [bytes(column.data[start:end]) for start, end in pairwise(ends)]
    if not column.null_count:
        return texts
    return [text for at, text in enumerate(texts) if column.is_there[at >> 3] >> (at & 7) & 1]


class Columns(NamedTuple):
    """The records of batches: 64-bit offsets and timestamps, texts, and 32-bit ends of each record's headers."""

    record_count: int
    offsets: memoryview
    timestamps: memoryview
    keys: TextColumn
    values: TextColumn
    header_ends: memoryview
    header_names: TextColumn
    header_values: TextColumn


def encode_spans(
    body: Buffer,
    spans: bytes,
    timestamp: int,
    codec: Codec,
    decoded_bytes_max: int,
    key: bytes | None = None,
    entry: StoredHeader | None = None,
) -> bytearray:
    """Encodes one batch of the values at spans of a body, all with one timestamp and key. Raises BatchTooLarge.

    With an `entry` it is a keyed batch, whose first record carries that header.
    """
    assert penstock_codec.native is not None
    header = None if entry is None else _stored_bytes(entry)
    batch = penstock_codec.native.encode_values(body, spans, timestamp, key, header)
    return finished(batch, codec, decoded_bytes_max)


def encode_objects(
    body: Buffer,
    rows: bytes,
    timestamp: int,
    key: bytes | None = None,
    entry: StoredHeader | None = None,
    *,
    are_lines: bool,
) -> tuple[bytearray, int, int]:
    """Encodes one batch of record objects of a body; `finished` completes it. `key`: of records that have none.

    Also return the number of records, and the size of the largest: key, value and headers.
    """
    assert penstock_codec.native is not None
    return penstock_codec.native.encode_objects(body, rows, are_lines, timestamp, key, entry and _stored_bytes(entry))


def finished(batch: bytearray, codec: Codec, decoded_bytes_max: int) -> bytearray:
    """Returns an uncompressed batch compressed, and with its checksum. Raises BatchTooLarge."""
    if codec != Codec.NONE:
        _check_decoded_bytes(len(batch) - HEADER_BYTES, decoded_bytes_max)
        batch[HEADER_BYTES:] = pack_records(codec.name.lower(), bytes(memoryview(batch)[HEADER_BYTES:]))
        mark_compressed(batch, codec)
    _U32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_COVERS_FROM:]))
    return batch


def _check_decoded_bytes(size_bytes: int, decoded_bytes_max: int) -> None:
    """Compresses nothing that a reader's bound would reject. Raises BatchTooLarge."""
    if size_bytes > decoded_bytes_max:
        text = f"a batch would have {size_bytes} bytes before compression, the topic allows {decoded_bytes_max}"
        raise BatchTooLarge(text, limit=decoded_bytes_max)


def can_read_columns(batch: Buffer) -> bool:
    """True if `read_columns` takes this uncompressed batch. Reads it to its end."""
    return penstock_codec.native is not None and penstock_codec.native.columns([batch], 0, 0) is not None


def read_columns(batches: list[Buffer], start: int, end: int) -> Columns:
    """Returns the records with offsets from `start` to `end` of uncompressed batches that `can_read_columns` takes."""
    assert penstock_codec.native is not None
    columns = penstock_codec.native.columns(batches, start, end)
    assert columns is not None
    count, offsets, timestamps, key, value, header_ends, name, header_value = columns
    texts = (TextColumn(*key), TextColumn(*value), header_ends, TextColumn(*name), TextColumn(*header_value))
    return Columns(count, offsets, timestamps, *texts)


class MemberKind(IntEnum):
    """The types of members that the compiled codec reads."""

    BOOLEAN = 0
    BIGINT = 1
    DOUBLE = 2
    STRING = 3
    STRUCT = 4
    NULL = 5


class Member(NamedTuple):
    """A member of JSON objects; of a struct, its own are `length` ones from the place `first`."""

    name: bytes
    kind: MemberKind
    first: int = 0
    length: int = 0


class MemberColumn(NamedTuple):
    """Values as Arrow has them: 64-bit numbers, a bit for each boolean, or texts with 32-bit ends."""

    ends: memoryview
    data: memoryview
    is_there: memoryview
    null_count: int


def read_members(
    ends: Buffer,
    data: Buffer,
    is_there: Buffer | None,
    first: int,
    count: int,
    members: list[Member],
    top_members: int,
    *,
    skips_others: bool,
) -> list[MemberColumn] | None:
    """Returns a column for each member of JSON objects, which are binaries as Arrow has them, from `first` on.

    The first `top_members` are those of the objects. None if the codec is not compiled, or a value is unusual: it has
    a member that is repeated or of another type, or one that is not described (unless the codec `skips_others`), or it
    is not an object.
    """
    if penstock_codec.native is None:
        return None
    described: list[tuple[bytes, int, int, int]] = members  # type: ignore[assignment]
    columns = penstock_codec.native.members(ends, data, is_there, first, count, described, top_members, skips_others)
    return None if columns is None else [MemberColumn(*column) for column in columns]


def has_held_numbers(texts: list[bytes | None]) -> bool:
    """Returns whether doubles hold all numbers of JSON texts but integers; False without the codec, or if unusual."""
    return penstock_codec.native is not None and penstock_codec.native.hold_numbers(texts)


def _stored_bytes(header: StoredHeader) -> bytes:
    """Encodes a header of ours, whose name and value are short: a length below 64 is a varint of one byte."""
    name, value = header
    assert value is not None
    assert max(len(name), len(value)) < 64
    return bytes([2 * len(name)]) + name.encode() + bytes([2 * len(value)]) + value
