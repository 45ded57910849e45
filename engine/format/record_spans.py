"""Walks the records of an uncompressed batch by their bytes: where each begins and ends, and its key.

Compaction keeps or drops a record by its bytes and decodes nothing else of it. Layout: engine/format/FORMAT.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from engine.errors import InvalidBatch
from engine.format.batch import HEADER_BYTES, Buffer, read_header, unpacked
from engine.format.records import read_varint


class RecordSpan(NamedTuple):
    """The bytes of one record in its batch, from its length on. `offset_delta` counts from the batch's base offset."""

    begin: int
    end: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool


def record_spans(batch: Buffer, count: int) -> Iterator[RecordSpan]:
    """Yields the records of a whole batch; its header announces `count`. Raises InvalidBatch."""
    position, end, last_delta = HEADER_BYTES, len(batch), read_header(batch).last_offset_delta
    try:
        for _ in range(count):
            begin = position
            length, position = read_varint(batch, position)
            behind = position + length
            if length < 1 or behind > end:
                raise InvalidBatch(f"a record at byte {begin} of a batch ends at {behind}, the batch at {end}")
            _, position = read_varint(batch, position + 1)  # attributes and timestamp delta
            offset_delta, position = read_varint(batch, position)
            if not 0 <= offset_delta <= last_delta:
                raise InvalidBatch(f"a record at byte {begin} of a batch is not within its offsets")
            key_bytes, position = read_varint(batch, position)
            key = None
            if key_bytes >= 0:
                key = bytes(batch[position : position + key_bytes])
                position += key_bytes
            value_bytes, position = read_varint(batch, position)
            if position + max(value_bytes, 0) > behind:
                raise InvalidBatch(f"the key and the value of a record at byte {begin} are longer than the record")
            yield RecordSpan(begin, behind, offset_delta, key, value_bytes < 0)
            position = behind
    except IndexError:
        raise InvalidBatch(f"the records of a batch end at byte {end}, within a record") from None
    if position != end:
        raise InvalidBatch(f"the records of a batch end at byte {position}, the batch at {end}")


def first_without_key(batch: Buffer, decoded_bytes_max: int) -> int | None:
    """Returns the number in its batch of the first record without a key; None if each has one. Raises InvalidBatch."""
    count = read_header(batch).record_count
    spans = record_spans(unpacked(batch, decoded_bytes_max), count)
    return next((number for number, span in enumerate(spans) if span.key is None), None)
