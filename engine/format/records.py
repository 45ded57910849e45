"""The records behind a batch's header: reads and writes them as engine/format/FORMAT.md describes.

The plain code here is the reading of the rules, without a path for special cases. The compiled codec does the same work
where it is there; what it declines is read and written here, so that one place says what is wrong.

Not here: decompression and checks of whole batches (engine/format/batch.py), and what the entries of keyed batches say
(engine/format/keyed_batch.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import penstock_codec
from engine.errors import InvalidBatch
from engine.format.batch_header import (
    HEADER_BYTES,
    KEYED_PRODUCER,
    NO_PRODUCER,
    Buffer,
    Codec,
    Header,
    has_append_time,
    new_batch,
    set_crc,
)
from engine.format.compiled_batch import finished

DECODED_BYTES_MAX = 256 * 1024 * 1024  # the maximum of `batch_decoded_bytes_max`: the bound without a known topic
NOT_SEQUENCED = (NO_PRODUCER, NO_PRODUCER, NO_PRODUCER)  # producer id, epoch and sequence of a batch without them

StoredHeader = tuple[str, bytes | None]
# A Row, or the plain tuple that the gateway makes instead: naming the fields would cost it 200 ns a record.
RowFields = tuple[int, bytes | None, bytes | None, list[StoredHeader]]
# The rows, the entry, and the producer id, epoch and first sequence of one batch.
BatchRows = tuple[list[RowFields], StoredHeader | None, tuple[int, int, int]]

_SLICE = 4096  # records per call of the compiled codec: about a millisecond in which no other thread runs


class Row(NamedTuple):
    """A record before it has an offset."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[StoredHeader]


class Record(NamedTuple):
    """One stored event. A null value is a tombstone; header names may repeat."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[StoredHeader]


def encode_values(
    values: Iterable[bytes],
    timestamp: int,
    codec: Codec = Codec.NONE,
    decoded_bytes_max: int = DECODED_BYTES_MAX,
    entry: StoredHeader | None = None,
) -> bytearray:
    """Encodes one batch of bare values, all with one timestamp, as `encode` does. Raises BatchTooLarge."""
    return encode([(timestamp, None, value, []) for value in values], codec, decoded_bytes_max, entry)


def encode(
    rows: Iterable[RowFields],
    codec: Codec = Codec.NONE,
    decoded_bytes_max: int = DECODED_BYTES_MAX,
    entry: StoredHeader | None = None,
    sequenced: tuple[int, int, int] = NOT_SEQUENCED,
) -> bytearray:
    """Encodes one batch at offset 0 of epoch 0, for the leader to stamp. Rows keep their order. Raises BatchTooLarge.

    With an `entry` it is a keyed batch, whose first record carries that header as its last. `sequenced`: its producer
    id, epoch and first sequence.
    """
    return encode_all([(list(rows), entry, sequenced)], codec, decoded_bytes_max)[0]


def encode_all(
    batches: list[BatchRows], codec: Codec = Codec.NONE, decoded_bytes_max: int = DECODED_BYTES_MAX
) -> list[bytearray]:
    """Encodes several batches, each as `encode` does. Raises BatchTooLarge."""
    native = penstock_codec.native
    made = None if native is None else native.encode_batches(batches)
    if made is None:
        made = [_write_batch(*batch) for batch in batches]
    return made if codec == Codec.NONE else [finished(batch, codec, decoded_bytes_max) for batch in made]


def _write_batch(rows: Sequence[RowFields], entry: StoredHeader | None, sequenced: tuple[int, int, int]) -> bytearray:
    """Returns the batch of some rows; the first has the entry as its last header."""
    records, base, latest = bytearray(), rows[0][0], max(row[0] for row in rows)
    for offset_delta, (timestamp, key, value, headers) in enumerate(rows):
        of_record = headers if offset_delta or entry is None else [*headers, entry]
        body = bytearray(1)  # the attributes, which are unused
        body += varint(timestamp - base) + varint(offset_delta)
        _write_bytes(body, key)
        _write_bytes(body, value)
        body += varint(len(of_record))
        for name, content in of_record:
            _write_bytes(body, name.encode())
            _write_bytes(body, content)
        records += varint(len(body)) + body
    producer_id, epoch, sequence = sequenced
    producer = (producer_id if entry is None else KEYED_PRODUCER, epoch, sequence)
    batch = new_batch(records, len(rows), base, latest, producer)
    set_crc(batch)
    return batch


def _write_bytes(to: bytearray, content: Buffer | None) -> None:
    if content is None:
        to += varint(-1)
    else:
        to += varint(len(content)) + content


def read_records(batch: Buffer, header: Header) -> Iterator[Record]:
    """Yields the records of a whole uncompressed batch as they are stored. Raises InvalidBatch."""
    position, count = HEADER_BYTES, 0
    while count < header.record_count:
        slice_records, native = min(_SLICE, header.record_count - count), penstock_codec.native
        compiled = None if native is None else native.read_records(batch, position, slice_records, Record)
        if compiled is None:
            records, position = _read_plainly(batch, position, slice_records, header)
        else:
            records, position = compiled
        yield from records
        count += slice_records
    if position != len(batch):
        raise InvalidBatch(f"the records of a batch end at byte {position}, the batch at {len(batch)}")


def _read_plainly(batch: Buffer, position: int, count: int, header: Header) -> tuple[list[Record], int]:
    """Returns this many records from a position on, and where they end. Raises InvalidBatch."""
    records = list[Record]()
    try:
        for _ in range(count):
            record, position = _read_record(batch, position, header)
            records.append(record)
    except (IndexError, UnicodeDecodeError) as error:
        raise InvalidBatch(f"the records of a batch cannot be decoded: {error}") from None
    return records, position


def _read_record(batch: Buffer, begin: int, header: Header) -> tuple[Record, int]:
    """Returns the record that begins here, and where it ends. Raises InvalidBatch, IndexError, UnicodeDecodeError."""
    length, position = read_varint(batch, begin)
    end = position + length
    if length < 1 or end > len(batch):
        raise InvalidBatch(f"the record at byte {begin} of a batch ends at {end}, the batch at {len(batch)}")
    time_delta, position = read_varint(batch, position + 1)  # behind the attributes, which are unused
    offset_delta, position = read_varint(batch, position)
    key, position = _read_bytes(batch, position)
    value, position = _read_bytes(batch, position)
    header_count, position = read_varint(batch, position)
    if header_count < 0:
        raise InvalidBatch(f"the record at byte {begin} of a batch has {header_count} headers")
    headers: list[StoredHeader] = []
    for _ in range(header_count):
        name, position = _read_bytes(batch, position)
        content, position = _read_bytes(batch, position)
        if name is None:
            raise InvalidBatch(f"the record at byte {begin} of a batch has a header without a name")
        headers.append((name.decode(), content))
    if position != end:
        raise InvalidBatch(f"the record at byte {begin} of a batch ends at {end}, its fields at {position}")
    timestamp = header.max_timestamp if has_append_time(header) else header.base_timestamp + time_delta
    if timestamp.bit_length() > 63:
        raise InvalidBatch(f"the record at byte {begin} of a batch has a timestamp of more than 64 bits")
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), end


def _read_bytes(batch: Buffer, position: int) -> tuple[bytes | None, int]:
    """Returns bytes behind their length, None for a negative length, and where they end. Raises IndexError."""
    length, position = read_varint(batch, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(batch):
        raise IndexError(f"bytes of a length of {length} at byte {position} end behind the batch")
    return bytes(batch[position:end]), end


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Returns a zig-zag varint, and where it ends. Raises IndexError if it is cut off, or has more than 64 bits."""
    raw = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
        if raw >> 64 or shift > 70:
            raise IndexError(f"the number before byte {position} has more than 64 bits")
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position


def varint(number: int) -> bytes:
    """Returns a number of 64 bits as a zig-zag varint."""
    raw, encoded = (number << 1) ^ (number >> 63), bytearray()
    while raw > 0x7F:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)
