"""The 61 bytes before the records of a batch: read, checked, stamped. engine/format/batch.py is the rest of the format.

Append, replication, fetch of stored batches and tiering read only these bytes. Layout: engine/format/FORMAT.md.
Invariant: the checksum excludes base offset and leader epoch, so the leader stamps them and re-encodes nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

import penstock_codec
from engine.errors import BatchTooLarge, CorruptBatch, InvalidBatch

HEADER_BYTES = 61
MAGIC = 2
PREFIX_BYTES = 12  # base offset and length, which `batch_length` does not count
NO_PRODUCER = -1
NO_TIMESTAMP = -1  # the latest time of a client's batch that leaves the time to the leader
KEYED_PRODUCER = -2  # the first record of such a batch carries an entry of ours: engine/format/keyed_batch.py
CODEC_MASK = 0b111

Buffer = bytes | bytearray | memoryview

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHAIN = struct.Struct(">qi4xbI2xi")  # base offset, length, magic, checksum, last offset delta
_I64 = struct.Struct(">q")
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_I16 = struct.Struct(">h")
_SEQUENCE = struct.Struct(">qhi")  # producer id, producer epoch, base sequence
_LENGTH_AT = 8
_LEADER_EPOCH_AT = 12
_MAGIC_AT = 16
CRC_AT = 17
CRC_COVERS_FROM = 21
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
_COUNT_AT = 57
_LOG_APPEND_TIME = 0b1000
CONTROL = 0b10_0000
_KNOWN_ATTRIBUTES = CODEC_MASK | _LOG_APPEND_TIME
_LENGTH_MIN = HEADER_BYTES - PREFIX_BYTES

assert _HEADER.size == HEADER_BYTES


class Codec(IntEnum):
    """Compression of a batch's records, as numbered in its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Header(NamedTuple):
    """The 61 bytes before the records. Offsets are positions in the partition, timestamps milliseconds."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return PREFIX_BYTES + self.batch_length

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """True for a batch about the log itself, without records for consumers: engine/format/control_batch.py."""
        return bool(self.attributes & CONTROL)


_as_header = tuple.__new__  # NamedTuple's `_make` without its count of the members
_LENGTH, _MAGIC, _CRC = (Header._fields.index(name) for name in ("batch_length", "magic", "crc"))


def read_header(buffer: Buffer, position: int = 0) -> Header:
    """Returns the header at a position. The caller ensures that 61 bytes are there. Checks nothing."""
    return _as_header(Header, _HEADER.unpack_from(buffer, position))


def read_headers(batches: Iterable[Buffer]) -> list[Header]:
    """Returns the headers of batches. Checks nothing."""
    new, unpack = _as_header, _HEADER.unpack_from
    return [new(Header, unpack(batch)) for batch in batches]


def walk(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, Header]]:
    """Yields the position and header of each whole batch of a run; stops silently before an incomplete one.

    Raises InvalidBatch for bytes that cannot be a header: the length is too small or the magic is not 2.
    """
    end, unpack = len(buffer), _HEADER.unpack_from
    while position + HEADER_BYTES <= end:
        header = _as_header(Header, unpack(buffer, position))
        length = header.batch_length
        if header.magic != MAGIC or length < HEADER_BYTES - PREFIX_BYTES:
            raise InvalidBatch(f"no batch header at byte {position}: magic {header.magic}, length {length}")
        behind = position + PREFIX_BYTES + length
        if behind > end:
            return
        yield position, header
        position = behind


def is_compressed(batches: Buffer) -> bool:
    """True if a batch of a run is compressed: then its size does not bound the time that decoding takes."""
    native = penstock_codec.native
    compressed = None if native is None else native.is_compressed(batches)
    return _is_compressed_plainly(batches) if compressed is None else compressed


def _is_compressed_plainly(batches: Buffer) -> bool:
    return any(header.attributes & CODEC_MASK for _, header in walk(batches))


def has_append_time(header: Header) -> bool:
    """True if the leader's time, which is the header's latest, is that of every record."""
    return bool(header.attributes & _LOG_APPEND_TIME)


def has_no_records(batches: Buffer) -> bool:
    """True if a run of whole batches has nothing for consumers: control batches, and what compaction left empty.

    Usually checks one header.
    """
    if _I32.unpack_from(batches, _COUNT_AT)[0] and not _I16.unpack_from(batches, _ATTRIBUTES_AT)[0] & CONTROL:
        return False
    return all(header.is_control or header.record_count == 0 for _, header in walk(batches))


def without_control(batches: bytes | bytearray) -> bytes | bytearray:
    """Returns a run of whole batches without control batches: a token is secret to writers."""
    pieces, taken = [], 0
    for position, header in walk(batches):
        if header.is_control:
            pieces.append(batches[taken:position])
            taken = position + header.size_bytes
    return b"".join([*pieces, batches[taken:]]) if pieces else batches


def checked_headers(data: memoryview, position: int, batches_max: int) -> tuple[list[Header], int]:
    """Returns the headers of the whole batches from a position on, each with a valid CRC, and where the last one ends.

    One tight loop, since a follower runs it for every batch. Raises InvalidBatch, CorruptBatch.
    """
    headers: list[Header] = []
    end, unpack, new = len(data), _HEADER.unpack_from, tuple.__new__
    while len(headers) < batches_max and position + HEADER_BYTES <= end:
        fields = unpack(data, position)
        behind = position + PREFIX_BYTES + fields[_LENGTH]
        if fields[_MAGIC] != MAGIC or behind < position + HEADER_BYTES:
            raise InvalidBatch(f"no batch header at byte {position} of a copy")
        if behind > end:
            break
        if crc32c(data[position + CRC_COVERS_FROM : behind]) != fields[_CRC]:
            raise CorruptBatch(f"a copied batch of offset {fields[0]} fails its checksum")
        headers.append(new(Header, fields))
        position = behind
    return headers, position


class ValidRun(NamedTuple):
    """Contiguous batches: where the first requested one begins, where they end, and the offset that follows.

    `is_bounded`: the bound on batches ended them; else a bad batch or the end of the bytes did.
    """

    begin: int
    end: int
    next_offset: int
    is_bounded: bool = False


def valid_batches(data: Buffer, start_offset: int, offset: int, batches_max: int) -> ValidRun:
    """Check a run of batches whose first one must have base offset `start_offset`; stop at the first bad batch.

    A batch is bad if its header cannot follow the one before, if it is incomplete, or if its checksum is wrong. Batches
    that end at or below `offset` are not returned: only their headers are checked.
    """
    native = penstock_codec.native
    run = None if native is None else native.valid_batches(data, start_offset, offset, batches_max)
    return valid_batches_plainly(data, start_offset, offset, batches_max) if run is None else ValidRun(*run)


def valid_batches_plainly(data: Buffer, start_offset: int, offset: int, batches_max: int) -> ValidRun:
    """Returns what `valid_batches` returns, without the compiled codec. One tight loop: every read runs it."""
    end, unpack, view = len(data), _CHAIN.unpack_from, memoryview(data)
    begin, position, expected, left = 0, 0, start_offset, batches_max
    while position + HEADER_BYTES <= end:
        if not left:
            return ValidRun(begin, position, expected, is_bounded=True)
        base_offset, length, magic, crc, last_delta = unpack(data, position)
        behind = position + PREFIX_BYTES + length
        if base_offset != expected or magic != MAGIC or last_delta < 0 or length < _LENGTH_MIN or behind > end:
            break
        next_offset = base_offset + last_delta + 1
        if next_offset <= offset:
            begin = behind
        elif crc32c(view[position + CRC_COVERS_FROM : behind]) != crc:
            break
        position, expected, left = behind, next_offset, left - 1
    return ValidRun(begin, position, expected)


def begins_batch(data: Buffer, position: int, base_offset: int) -> bool:
    """True if the bytes at a position look like the header of a batch of that offset."""
    if position + HEADER_BYTES > len(data):
        return False
    return bool(_I64.unpack_from(data, position)[0] == base_offset and data[position + _MAGIC_AT] == MAGIC)


def has_valid_crc(buffer: Buffer, position: int, header: Header) -> bool:
    """True if the batch's CRC-32C, over everything from the attributes to its end, equals the stored one."""
    covered = memoryview(buffer)[position + CRC_COVERS_FROM : position + header.size_bytes]
    return bool(crc32c(covered) == header.crc)


def check_client_batch(body: Buffer, *, batch_bytes_max: int) -> Header:
    """Accept exactly one batch made by a client, by its header and checksum (Kafka's LogValidator rules).

    Raises BatchTooLarge, InvalidBatch, CorruptBatch. Does not decode the records.
    """
    if len(body) > batch_bytes_max:
        raise BatchTooLarge(
            f"the batch has {len(body)} bytes, the topic allows {batch_bytes_max}", limit=batch_bytes_max
        )
    if len(body) < HEADER_BYTES:
        raise InvalidBatch(f"{len(body)} bytes are less than a batch header of {HEADER_BYTES}")
    header = read_header(body)
    if header.magic != MAGIC:
        raise InvalidBatch(f"magic is {header.magic}, only RecordBatch v2 (magic 2) is accepted")
    if header.size_bytes != len(body):
        raise InvalidBatch(
            f"the header announces {header.size_bytes} bytes, the body has {len(body)}",
            hint="send exactly one batch for one partition in a request",
        )
    if header.attributes & ~_KNOWN_ATTRIBUTES or header.codec > Codec.ZSTD:
        raise InvalidBatch(
            f"attributes {header.attributes:#06x} are reserved: transactional and control batches are rejected"
        )
    if header.producer_id < NO_PRODUCER:
        raise InvalidBatch(f"producer id {header.producer_id} is reserved; send -1 for no producer")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidBatch(
            f"producer id {header.producer_id}, epoch {header.producer_epoch}, base sequence {header.base_sequence}: a "
            "batch with a producer id needs an epoch and a sequence of at least 0"
        )
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise InvalidBatch(
            f"record count {header.record_count} and last offset delta {header.last_offset_delta} do not agree"
        )
    if not has_valid_crc(body, 0, header):
        raise CorruptBatch(f"the CRC-32C of the batch is not {header.crc:#010x}")
    return header


def stamp(batch: bytearray, base_offset: int, leader_epoch: int) -> None:
    """Writes base offset and leader epoch; the checksum stays valid."""
    _I64.pack_into(batch, 0, base_offset)
    _I32.pack_into(batch, _LEADER_EPOCH_AT, leader_epoch)


def stamped(batch: bytes | bytearray, base_offset: int, leader_epoch: int, pieces: list[Buffer]) -> Header:
    """Adds the batch with the leader's base offset and epoch to the pieces to be written. Returns its header.

    A batch made here is stamped in place. A client's batch, in bytes, is unchanged behind a new head: copying it would
    cost as much as writing it.
    """
    if isinstance(batch, bytearray):
        head = batch
        pieces.append(head)
    else:
        head = bytearray(batch[:HEADER_BYTES])
        pieces += (head, memoryview(batch)[HEADER_BYTES:])
    _I64.pack_into(head, 0, base_offset)
    _I32.pack_into(head, _LEADER_EPOCH_AT, leader_epoch)
    return _as_header(Header, _HEADER.unpack_from(head))


def stamp_append_time(batch: bytearray, now_ms: int) -> None:
    """Sets the timestamp of every record to the broker's time (`timestamp_type=append`); updates the checksum."""
    attributes = _I16.unpack_from(batch, _ATTRIBUTES_AT)[0]
    _I16.pack_into(batch, _ATTRIBUTES_AT, attributes | _LOG_APPEND_TIME)
    _I64.pack_into(batch, _MAX_TIMESTAMP_AT, now_ms)
    set_crc(batch)


def stamped_max_timestamp(batch: Buffer, latest_ms: int) -> bytearray:
    """Returns a copy of the batch with this latest time of its records."""
    data = bytearray(batch)
    _I64.pack_into(data, _MAX_TIMESTAMP_AT, latest_ms)
    set_crc(data)
    return data


def stamp_sequence(batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Writes producer id, epoch and base sequence; updates the checksum."""
    _SEQUENCE.pack_into(batch, PRODUCER_ID_AT, producer_id, producer_epoch, base_sequence)
    set_crc(batch)


def mark_control(batch: bytearray) -> None:
    """Marks the batch as a control batch; updates the checksum."""
    _I16.pack_into(batch, _ATTRIBUTES_AT, _I16.unpack_from(batch, _ATTRIBUTES_AT)[0] | CONTROL)
    set_crc(batch)


def set_crc(batch: bytearray) -> None:
    """Recompute the checksum after a change of covered bytes."""
    _U32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_COVERS_FROM:]))


def mark_compressed(batch: bytearray, codec: Codec) -> None:
    """Mark the records of an uncompressed batch as compressed, and set its length. Invalidates its checksum."""
    attributes = _I16.unpack_from(batch, _ATTRIBUTES_AT)[0]
    _I16.pack_into(batch, _ATTRIBUTES_AT, attributes | codec)
    set_length(batch)


def set_length(batch: bytearray | memoryview) -> None:
    """Sets the length in the header to that of the batch."""
    _I32.pack_into(batch, _LENGTH_AT, len(batch) - PREFIX_BYTES)


def with_records(batch: Buffer, records: Buffer, codec: int, count: int, producer_id: int) -> bytearray:
    """Returns the batch with some of its records, compressed by that codec; its offsets and times stay."""
    data = bytearray(memoryview(batch)[:HEADER_BYTES])
    data += records
    attributes = _I16.unpack_from(data, _ATTRIBUTES_AT)[0]
    _I16.pack_into(data, _ATTRIBUTES_AT, attributes & ~CODEC_MASK | codec)
    set_length(data)
    if producer_id == NO_PRODUCER:
        _SEQUENCE.pack_into(data, PRODUCER_ID_AT, NO_PRODUCER, NO_PRODUCER, NO_PRODUCER)
    else:
        _I64.pack_into(data, PRODUCER_ID_AT, producer_id)
    _I32.pack_into(data, _COUNT_AT, count)
    set_crc(data)
    return data


def new_batch(
    records: Buffer, count: int, base_timestamp: int, max_timestamp: int, producer: tuple[int, int, int]
) -> bytearray:
    """Returns an uncompressed batch at offset 0, without a valid checksum. `producer`: its id, epoch and sequence."""
    fields = (0, HEADER_BYTES - PREFIX_BYTES + len(records), -1, MAGIC, 0, 0, count - 1, base_timestamp, max_timestamp)
    data = bytearray(_HEADER.pack(*fields, *producer, count))
    data += records
    return data


def empty_batch(base_offset: int, next_offset: int, leader_epoch: int, timestamp: int) -> bytearray:
    """Returns a batch that takes offsets and has no record: its records were removed."""
    fields = (base_offset, HEADER_BYTES - PREFIX_BYTES, leader_epoch, MAGIC, 0, 0, next_offset - base_offset - 1)
    unused = (NO_PRODUCER, NO_PRODUCER, NO_PRODUCER)
    data = bytearray(_HEADER.pack(*fields, timestamp, timestamp, *unused, 0))
    set_crc(data)
    return data


def beginning_at(batches: bytes | bytearray, offset: int) -> bytes | bytearray:
    """Returns a run of batches from an offset on, if that is within its first batch and this one is empty.

    A follower's log ends between two batches that its leader has compacted into one.
    """
    header = read_header(batches)
    if header.base_offset == offset or header.record_count:
        return batches
    first = empty_batch(offset, header.next_offset, header.leader_epoch, header.max_timestamp)
    return first + memoryview(batches)[header.size_bytes :]


def mark_uncompressed(head: bytearray) -> None:
    """Marks the records behind this header as uncompressed. Invalidates its checksum."""
    attributes = _I16.unpack_from(head, _ATTRIBUTES_AT)[0]
    _I16.pack_into(head, _ATTRIBUTES_AT, attributes & ~CODEC_MASK)
