"""Records out of stored batches (RecordBatch v2), each batch held against its checksum first: what `verify_crc` does.

A JSON answer carries no checksum, so a consumer that is to verify fetches the batches as they are stored and decodes
them here. The CRC-32C was made by the leader (or the client that made the batch) and covers keys, values, headers and
times; offsets lie outside, and are only seen to ascend. It is the client's one door to the record codec.

A batch is decoded as large as it says it is: the node has bounded that when it took it in (its topic's `verify`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import crc32c
from aiokafka.record.default_records import DefaultRecordBatch

from penstock.errors import ChecksumMismatch, ClientError
from penstock.records import Record

_HEADER = struct.Struct(">qiibIhi")  # base offset, length, leader epoch, magic, CRC, attributes, last offset delta
_HEADER_BYTES = 61
_PREFIX_BYTES = 12  # base offset and length, which the length does not count
_COVERED_FROM = 21  # the CRC covers everything behind itself
_MAGIC = 2
_CONTROL_BIT = 0x20  # a batch for the log's own use, which holds no records


class StoredRecord(Record):
    """A record with its bytes exactly as they are stored."""

    stored_key: bytes | None = None
    stored_value: bytes | None = None
    stored_headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def key(self) -> bytes | None:
        return self.stored_key

    @property
    def value(self) -> bytes | None:
        return self.stored_value if self.error is None else super().value

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self.stored_headers)


def decode_stored(body: bytes, topic: str, partition: int, offset: int) -> list[Record]:
    """The records from `offset` on; the first batch may begin before. Raises ChecksumMismatch, ClientError."""
    view, position, expected = memoryview(body), 0, 0
    records: list[Record] = []
    while position < len(view):
        where = f"{topic}/{partition} from offset {offset}, at byte {position}"
        if len(view) - position < _HEADER_BYTES:
            raise ClientError(f"the answer to a fetch of {where} is cut off")
        base_offset, length, _, magic, crc, attributes, last_delta = _HEADER.unpack_from(view, position)
        batch = view[position : position + _PREFIX_BYTES + length]
        if magic != _MAGIC or length < _HEADER_BYTES - _PREFIX_BYTES or len(batch) < _PREFIX_BYTES + length:
            raise ClientError(f"the answer to a fetch of {where} is no whole batch")
        if crc32c.crc32c(batch[_COVERED_FROM:]) != crc or base_offset < expected or last_delta < 0:
            raise ChecksumMismatch(f"{where}: the batch has changed since it was made")
        position += len(batch)
        expected = base_offset + last_delta + 1
        if expected > offset and not attributes & _CONTROL_BIT:
            records += _decoded(batch, topic, partition, base_offset, expected - 1, offset)
    return records


def _decoded(
    batch: memoryview, topic: str, partition: int, base_offset: int, last_offset: int, offset: int
) -> Sequence[Record]:
    try:
        return [
            StoredRecord(
                offset=record.offset,
                timestamp=-1 if record.timestamp is None else record.timestamp,
                topic=topic,
                partition=partition,
                stored_key=record.key,
                stored_value=record.value,
                stored_headers=tuple(record.headers),
            )
            for record in DefaultRecordBatch(bytes(batch))
            if record.offset >= offset
        ]
    except Exception:  # the codec's failures have no common root; the sum is right, so the batch was made like this
        first = max(base_offset, offset)
        return [
            StoredRecord(offset=first, last_offset=last_offset, topic=topic, partition=partition, error="undecodable")
        ]
