"""A keyed batch: its request carried an Idempotency-Key or source positions; its header has producer id -2.

Its first record has one header after the client's own: an entry of 40 bytes with a hash of the key and of the request,
the time, and the number of partitions; or with a hash of the source's name and the range of its positions. A batch of
several requests has a row of 48 bytes there for each of them that has a key or a sequence: such an entry, and which of
the records are the request's; the base sequence in its header counts the rows. Records and entries are therefore one
batch: both survive, or neither does. Layout: engine/format/FORMAT.md.

engine/producers/key_window.py remembers keys, engine/producers/sources.py positions, and
engine/producers/append_validator.py decides about duplicates.
Invariants: consumers of records never get the entry (engine/format/batch.py leaves it out); consumers of stored batches
get the same records re-encoded (`shown`). An unreadable entry is ignored: it recognises no duplicate.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import penstock_codec
from engine.errors import InvalidBatch
from engine.format import batch as record_batch
from engine.format.batch import (
    DECODED_BYTES_MAX,
    HEADER_BYTES,
    KEYED_PRODUCER,
    NOT_SEQUENCED,
    RESERVED_PREFIX,
    Buffer,
    Codec,
    Header,
    StoredHeader,
)
from engine.format.batch_header import set_length
from engine.format.compiled_batch import finished
from engine.format.records import read_varint, varint

HASH_BYTES = 16
ENTRY_BYTES = 40
NAME = RESERVED_PREFIX + "-idempotency"

SOURCE_MARK = 0xFFFF  # in place of a partition count, which is 10,000 at most
SEQUENCE_MARK = 0xFFFE
ROW_BYTES = 48

_ENTRY = struct.Struct(f">{HASH_BYTES}s{HASH_BYTES}sH6s")
_RANGE = struct.Struct(">qq")  # in place of the request's hash
_ROW = struct.Struct(f">{HASH_BYTES}s{HASH_BYTES}sH6sII")
_SEQUENCE_ROW = struct.Struct(">qhi2xq8xH6xII")
_STORED_NAME = bytes([2 * len(NAME)]) + NAME.encode()  # with its length, as a varint
_STORED_BYTES = len(_STORED_NAME) + 1 + ENTRY_BYTES
_PEEK = struct.Struct(">8xi31xq")  # batch length and producer id
_PATTERN = struct.pack(">q", KEYED_PRODUCER)
_LOOK = 32  # batches to walk before considering a search
_SEARCH_BELOW_BYTES = 1024  # of an average batch: walking costs 0.3 us a batch, searching 0.03 us a kB, 0.6 if binary

assert _ENTRY.size == ENTRY_BYTES
assert _ROW.size == _SEQUENCE_ROW.size == ROW_BYTES


class KeyEntry(NamedTuple):
    """The entry of a keyed batch. `partitions`: the topic's partition count when the request was placed."""

    key_hash: bytes
    request_hash: bytes
    partitions: int
    time_ms: int


class SourceEntry(NamedTuple):
    """The entry of a batch with the outputs of the positions `first` to `last` of a source."""

    source_hash: bytes
    first: int
    last: int
    time_ms: int


class SequenceEntry(NamedTuple):
    """The producer of a request in a batch of several, its first sequence, and the latest time of its records."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    latest_ms: int


RequestFields = tuple[KeyEntry | SourceEntry | SequenceEntry, int, int]  # of a RequestEntry, which is one


class RequestEntry(NamedTuple):
    """The entry of one request of a batch: its records are `record_count` ones from the `first` on, counted from 0."""

    entry: KeyEntry | SourceEntry | SequenceEntry
    first: int
    record_count: int


def stored_rows(entries: Sequence[RequestFields]) -> StoredHeader:
    """Returns the header for the first record of a batch of several requests. Only some may have an entry."""
    native = penstock_codec.native
    packed = None if native is None else native.pack_entries(entries, SEQUENCE_MARK)
    return NAME, pack_entries(entries) if packed is None else packed


def pack_entries(entries: Sequence[RequestFields]) -> bytes:
    """Returns the rows of these entries. The twin of the compiled `pack_entries`."""
    pack, pack_sequence, pieces = _ROW.pack, _SEQUENCE_ROW.pack, list[bytes]()
    for entry, first, count in entries:
        if type(entry) is KeyEntry:
            key_hash, request_hash, partitions, time_ms = entry
            pieces.append(pack(key_hash, request_hash, partitions, time_ms.to_bytes(6, "big"), first, count))
        else:
            assert type(entry) is SequenceEntry, "a request with source positions has a batch of its own"
            pieces.append(pack_sequence(*entry, SEQUENCE_MARK, first, count))
    return b"".join(pieces)


def keys_in(entries: Sequence[RequestFields]) -> tuple[dict[bytes, KeyEntry], int]:
    """Returns the keys of a batch by their hashes, the first of each, and the number of its requests with a key."""
    native = penstock_codec.native
    keys = None if native is None else native.keys_in(entries)
    return keys_in_plainly(entries) if keys is None else keys


def keys_in_plainly(entries: Sequence[RequestFields]) -> tuple[dict[bytes, KeyEntry], int]:
    """Returns what `keys_in` does. The twin of the compiled `keys_in`."""
    keys = [entry for entry, _, _ in entries if type(entry) is KeyEntry]
    by_hash: dict[bytes, KeyEntry] = {}
    for entry in keys:
        by_hash.setdefault(entry.key_hash, entry)
    return by_hash, len(keys)


def stored_entry(entry: KeyEntry | SourceEntry) -> StoredHeader:
    """Returns the header for the first record (`encode` and `encode_values` of engine/format/batch.py)."""
    time_ms = entry.time_ms.to_bytes(6, "big")
    if isinstance(entry, SourceEntry):
        return NAME, _ENTRY.pack(entry.source_hash, _RANGE.pack(entry.first, entry.last), SOURCE_MARK, time_ms)
    return NAME, _ENTRY.pack(entry.key_hash, entry.request_hash, entry.partitions, time_ms)


def read_entries(batch: Buffer) -> list[RequestEntry]:
    """Returns the entries of a whole keyed batch; none if they are not readable."""
    header = record_batch.read_header(batch)
    try:
        whole = record_batch.unpacked(batch)
        end = first_record_end(whole)
        data = bytes(whole[max(HEADER_BYTES, end - tail_bytes(header)) : end])
    except (InvalidBatch, IndexError):
        return []
    return entries_in(header, data)


def first_record_end(start: Buffer) -> int:
    """Returns where the first record of an uncompressed batch ends, from its first bytes. Raises IndexError."""
    length, position = read_varint(start, HEADER_BYTES)
    return position + length


def tail_bytes(header: Header) -> int:
    """Return the size of the entries of a keyed batch with the name of their header, at the end of its first record."""
    if header.base_sequence < 0:
        return _STORED_BYTES
    size_bytes = ROW_BYTES * header.base_sequence
    return len(_STORED_NAME) + len(varint(size_bytes)) + size_bytes


def entries_in(header: Header, tail: bytes) -> list[RequestEntry]:
    """Returns the entries in the last `tail_bytes` of the first record of a keyed batch; none in another form."""
    count, record_count = header.base_sequence, header.last_offset_delta + 1
    size_bytes = ENTRY_BYTES if count < 0 else ROW_BYTES * count
    if len(tail) != tail_bytes(header) or not size_bytes or not tail.startswith(_STORED_NAME + varint(size_bytes)):
        return []
    if count < 0:
        return [RequestEntry(_as_entry(*_ENTRY.unpack(tail[-ENTRY_BYTES:])), 0, record_count)]
    entries = [
        RequestEntry(_as_entry(*fields), first, count) for *fields, first, count in _ROW.iter_unpack(tail[-size_bytes:])
    ]
    are_within = all(entry.record_count and entry.first + entry.record_count <= record_count for entry in entries)
    return entries if are_within else []


def _as_entry(
    key_hash: bytes, request_hash: bytes, partitions: int, time: bytes
) -> KeyEntry | SourceEntry | SequenceEntry:
    time_ms = int.from_bytes(time, "big")
    if partitions == SOURCE_MARK:
        first, last = _RANGE.unpack(request_hash)
        return SourceEntry(key_hash, first, last, time_ms)
    if partitions == SEQUENCE_MARK:
        row = b"".join((key_hash, request_hash, bytes(ROW_BYTES - 2 * HASH_BYTES)))
        return SequenceEntry(*_SEQUENCE_ROW.unpack(row)[:4])
    return KeyEntry(key_hash, request_hash, partitions, time_ms)


def has_keyed(batches: Buffer) -> bool:
    """True if a run of whole batches may hold a keyed one. Costs far less than reading them.

    Walks large batches header by header; among small ones it searches for the eight bytes, which a value may contain
    too:
    a false positive only costs a look at the batches.
    """
    position, end = 0, len(batches)
    walked = 0
    while position + HEADER_BYTES <= end:
        length, producer_id = _PEEK.unpack_from(batches, position)
        if producer_id == KEYED_PRODUCER:
            return True
        position += record_batch.PREFIX_BYTES + max(length, 0)
        walked += 1
        if walked % _LOOK == 0 and position < _SEARCH_BELOW_BYTES * walked and not isinstance(batches, memoryview):
            return _has_pattern(batches, position)
    return False


def _has_pattern(batches: bytes | bytearray, position: int) -> bool:
    """Searches for the pattern's last byte first, which is ten times as fast: UTF-8 has no such byte."""
    for _ in range(_LOOK):
        position = batches.find(_PATTERN[-1:], position)
        if position < 0 or batches[max(0, position + 1 - len(_PATTERN)) : position + 1] == _PATTERN:
            return position >= 0
        position += 1
    return batches.find(_PATTERN, position - len(_PATTERN)) >= 0


def shown(batches: bytes | bytearray) -> bytes | bytearray:
    """Returns a run of whole batches as consumers get it: keyed ones without entry and producer id.

    Leaves a damaged or unreadable batch as it is, so that its checksum still shows the damage.
    """
    pieces: list[Buffer] = []
    taken = 0
    for position, header in record_batch.walk(batches):
        if header.producer_id == KEYED_PRODUCER and record_batch.has_valid_crc(batches, position, header):
            pieces.append(memoryview(batches)[taken:position])
            taken = position + header.size_bytes
            pieces.append(_without_entry(memoryview(batches)[position:taken], header))
    if not pieces:
        return batches
    pieces.append(memoryview(batches)[taken:])
    return b"".join(pieces)


def _without_entry(batch: memoryview, header: Header) -> Buffer:
    try:
        data = _spliced(record_batch.unpacked(batch), header)
        return data if header.codec == Codec.NONE else finished(data, Codec(header.codec), DECODED_BYTES_MAX)
    except (InvalidBatch, IndexError):
        return batch


def _spliced(batch: memoryview, header: Header) -> bytearray:
    """Copies all but the first record without decoding. Raises IndexError."""
    length, begin = read_varint(batch, HEADER_BYTES)
    end = begin + length
    kept_end = end - tail_bytes(header)
    if not entries_in(header, bytes(batch[max(begin, kept_end) : end])):
        raise IndexError("no entry")
    count_at = _header_count_at(batch, begin)
    header_count, headers_at = read_varint(batch, count_at)
    body = bytes(batch[begin:count_at]) + varint(header_count - 1) + bytes(batch[headers_at:kept_end])
    data = bytearray(batch[:HEADER_BYTES])
    data += varint(len(body)) + body
    data += batch[end:]
    set_length(data)
    record_batch.stamp_sequence(data, *NOT_SEQUENCED)
    return data


def first_without_value(batch: memoryview) -> Buffer:
    """Returns the first record of an uncompressed sound batch with a null value, and its key, headers and entry.

    The same bytes if its value is null.
    """
    length, begin = read_varint(batch, HEADER_BYTES)
    end = begin + length
    value_at = _value_at(batch, begin)
    value_bytes, value_begin = read_varint(batch, value_at)
    if value_bytes < 0:
        return batch[HEADER_BYTES:end]
    body = bytes(batch[begin:value_at]) + varint(-1) + bytes(batch[value_begin + value_bytes : end])
    return varint(len(body)) + body


def _value_at(batch: memoryview, begin: int) -> int:
    """Skips attributes, two deltas and key of the record whose body begins here."""
    _, position = read_varint(batch, begin + 1)
    _, position = read_varint(batch, position)
    length, position = read_varint(batch, position)
    return position + max(length, 0)


def _header_count_at(batch: memoryview, begin: int) -> int:
    """Skips attributes, two deltas, key and value of the record whose body begins here."""
    length, position = read_varint(batch, _value_at(batch, begin))
    return position + max(length, 0)
