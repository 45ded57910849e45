"""Decodes records of stored batches (RecordBatch v2) after verifying each batch's checksum, for `verify_crc`.

A JSON answer has no checksum, so a verifying consumer fetches the batches as they are stored and decodes them here. The
CRC-32C was computed by the leader, or by the client that made the batch. It covers keys, values, headers and times. It
does not cover offsets, which are only checked to ascend. The format is Kafka's; this decoder has what a client needs of
it, so that no Kafka client is required.

The decompressed size is not bounded here: the node bounded it when it stored the batch (its topic's `verify`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import crc32c

from penstock.errors import ChecksumMismatch, ClientError
from penstock.records import Record
from penstock.transport.compression import decompress

_HEADER = struct.Struct(">qiibIhi")  # base offset, length, leader epoch, magic, CRC, attributes, last offset delta
_TIMES = struct.Struct(">qq")  # base timestamp, largest timestamp, in milliseconds
_TIMES_AT = 27
_COUNT = struct.Struct(">i")
_COUNT_AT = 57
_HEADER_BYTES = 61
_PREFIX_BYTES = 12  # base offset and length, which `length` does not count
_COVERED_FROM = 21  # the CRC covers everything after itself
_MAGIC = 2
_CODEC_BITS = 0x07
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")  # by the number in the codec bits
_LOG_APPEND_TIME_BIT = 0x08  # every record has the largest timestamp
_CONTROL_BIT = 0x20  # a control batch of the log itself, without records


class StoredRecord(Record):
    """A record with its bytes exactly as they are stored."""

    stored_key: bytes | None = None
    stored_value: bytes | None = None
    stored_headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def key(self) -> bytes | None:
        return self.stored_key

    def _stored_value(self) -> bytes | None:
        return self.stored_value if self.error is None else super()._stored_value()

    def _stored_headers(self) -> list[tuple[str, bytes | None]]:
        return list(self.stored_headers)


def decode_stored(body: bytes, topic: str, partition: int, offset: int) -> list[Record]:
    """Decodes the records from `offset` on; the first batch may begin before. Raises ChecksumMismatch, ClientError."""
    view, position, expected = memoryview(body), 0, 0
    records: list[Record] = []
    while position < len(view):
        where = f"{topic}/{partition} from offset {offset}, at byte {position}"
        if len(view) - position < _HEADER_BYTES:
            raise ClientError(f"the answer to a fetch of {where} is cut off")
        base_offset, length, _, magic, crc, attributes, last_delta = _HEADER.unpack_from(view, position)
        batch = view[position : position + _PREFIX_BYTES + length]
        if magic != _MAGIC or length < _HEADER_BYTES - _PREFIX_BYTES or len(batch) < _PREFIX_BYTES + length:
            raise ClientError(f"the answer to a fetch of {where} ends within a batch")
        if crc32c.crc32c(batch[_COVERED_FROM:]) != crc or base_offset < expected or last_delta < 0:
            raise ChecksumMismatch(f"{where}: the checksum of the batch does not match")
        position += len(batch)
        expected = base_offset + last_delta + 1
        if expected > offset and not attributes & _CONTROL_BIT:
            records += _decode_batch(batch, topic, partition, base_offset, expected - 1, offset)
    return records


def _decode_batch(
    batch: memoryview, topic: str, partition: int, base_offset: int, last_offset: int, offset: int
) -> Sequence[Record]:
    try:
        return [
            StoredRecord(
                offset=at,
                timestamp=timestamp,
                topic=topic,
                partition=partition,
                stored_key=key,
                stored_value=value,
                stored_headers=headers,
            )
            for at, timestamp, key, value, headers in _fields(bytes(batch), base_offset)
            if at >= offset
        ]
    except Exception:  # decompressors share no base class; the checksum is right, so the batch was made like this
        first = max(base_offset, offset)
        return [
            StoredRecord(offset=first, last_offset=last_offset, topic=topic, partition=partition, error="undecodable")
        ]


class _Fields(NamedTuple):
    """The fields of a stored record."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def _fields(batch: bytes, base_offset: int) -> Iterator[_Fields]:
    """Yields the records of one batch. Raises ValueError, IndexError or a decompressor's error for a malformed one."""
    attributes = _HEADER.unpack_from(batch)[5]
    base_timestamp, largest_timestamp = _TIMES.unpack_from(batch, _TIMES_AT)
    data = decompress(batch[_HEADER_BYTES:], _CODECS[attributes & _CODEC_BITS])
    at = 0
    for _ in range(_COUNT.unpack_from(batch, _COUNT_AT)[0]):
        length, at = _varint(data, at)
        end = at + length
        timestamp_delta, at = _varint(data, at + 1)  # after an attributes byte, which is unused
        offset_delta, at = _varint(data, at)
        key, at = _bytes(data, at)
        value, at = _bytes(data, at)
        header_count, at = _varint(data, at)
        headers = []
        for _ in range(header_count):
            name, at = _bytes(data, at)
            content, at = _bytes(data, at)
            headers.append(((name or b"").decode(), content))
        if at != end:
            raise ValueError("the length of a record does not match its fields")
        timestamp = largest_timestamp if attributes & _LOG_APPEND_TIME_BIT else base_timestamp + timestamp_delta
        yield _Fields(base_offset + offset_delta, timestamp, key, value, tuple(headers))
    if at != len(data):
        raise ValueError("the batch has more bytes than records")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads a zigzag varint. Returns its value and its end."""
    byte = data[at]
    at += 1
    if byte < 0x80:  # most are one byte
        return (byte >> 1) ^ -(byte & 1), at
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift > 63:
            raise ValueError("a varint of more than ten bytes")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Reads a length and that many bytes; a length of -1 is None. Returns the bytes and their end."""
    length, at = _varint(data, at)
    if length < 0:
        return None, at
    end = at + length
    if end > len(data):
        raise ValueError("a field ends after its batch")
    return data[at:end], end
