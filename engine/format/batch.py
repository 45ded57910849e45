"""RecordBatch v2: the one byte format of disk, replica wire, object store, Spark and (as a media type) clients.

The only file that knows aiokafka's record codec. Its builder is outside aiokafka's `__all__`, so the version is pinned
and tests/engine/format/test_batch.py holds golden bytes. Layout: engine/format/FORMAT.md. Where the compiled codec
(penstock_codec) runs, it checks the records of clients here, and makes batches in compiled_batch.py.

Does not interpret records, and is not on the hot path: append, replication, fetch of stored batches and tiering read
the 61-byte header only. `encode` and `decode` walk records, in compiled code, for JSON bodies at the edge, Spark, tools
and tests; `check_records` walks those of a client's batch once. engine/format/batch_header.py handles the header; its
names are exported here too.

Invariant: the records of any batch are decoded within a bound, and reading them stays within their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, count, islice, pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

import penstock_codec
from engine.errors import DecodedTooLarge, InvalidBatch, RecordTooLarge
from engine.format.batch_header import HEADER_BYTES as HEADER_BYTES
from engine.format.batch_header import KEYED_PRODUCER as KEYED_PRODUCER
from engine.format.batch_header import MAGIC as MAGIC
from engine.format.batch_header import NO_PRODUCER, copy_position, mark_uncompressed, set_length
from engine.format.batch_header import PREFIX_BYTES as PREFIX_BYTES
from engine.format.batch_header import Buffer as Buffer
from engine.format.batch_header import Codec as Codec
from engine.format.batch_header import Header as Header
from engine.format.batch_header import check_client_batch as check_client_batch
from engine.format.batch_header import has_valid_crc as has_valid_crc
from engine.format.batch_header import mark_control as mark_control
from engine.format.batch_header import read_header as read_header
from engine.format.batch_header import read_headers as read_headers
from engine.format.batch_header import set_crc as set_crc
from engine.format.batch_header import stamp as stamp
from engine.format.batch_header import stamp_append_time as stamp_append_time
from engine.format.batch_header import stamp_sequence as stamp_sequence
from engine.format.batch_header import stamped as stamped
from engine.format.batch_header import walk as walk
from engine.format.compiled_batch import finished
from engine.format.decompression import SLACK_BYTES, Broken, DoesNotFit, unpack

# With the compiled codec few processes need aiokafka's, whose import takes a tenth of a process's start.
if TYPE_CHECKING or penstock_codec.native is None:
    from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

DECODED_BYTES_MAX = 256 * 1024 * 1024  # the maximum of `batch_decoded_bytes_max`: the bound without a known topic
MEDIA_TYPE = "application/vnd.penstock.recordbatch"
RESERVED_PREFIX = "__penstock"  # reserved header names; no consumer sees one of a keyed batch

NOT_SEQUENCED = (NO_PRODUCER, NO_PRODUCER, NO_PRODUCER)  # producer id, epoch and sequence of a batch without them
_UNBOUNDED = 1 << 30  # the builder otherwise stops at its own size; bodies are bounded before
_SLICE = 4096  # records per decoding step: about a millisecond in which no other thread runs
_SLACK = bytes(SLACK_BYTES)


class Record(Protocol):
    """One stored event, read-only. A null value is a tombstone; header names may repeat.

    A protocol, because the codec's own objects are returned: copying each into a type of ours costs two thirds of the
    decoding speed (measured: 1.0 M/s against 3.2 M/s).
    """

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


class Row(NamedTuple):
    """A record before it has an offset."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class _ConsumerRecord(NamedTuple):
    """A record as consumers see it, where the stored one differs."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


# A Row, or the plain tuple that the gateway makes instead: naming the fields would cost it 200 ns a record.
RowFields = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
StoredHeader = tuple[str, bytes | None]


# The rows, the entry and the `sequenced` of `encode`, for one of several batches.
BatchRows = tuple[list[RowFields], StoredHeader | None, tuple[int, int, int]]


def encode_values(
    values: Iterable[Buffer],
    timestamp: int,
    codec: Codec = Codec.NONE,
    decoded_bytes_max: int = DECODED_BYTES_MAX,
    entry: StoredHeader | None = None,
) -> bytearray:
    """Encode one batch of bare values, all with one timestamp: the NDJSON fast path. Raises BatchTooLarge.

    With an `entry` it is a keyed batch, whose first record carries that header.
    """
    builder = _builder(entry)
    append = builder.append
    headers: list[StoredHeader] = []
    deltas = count()
    if entry is not None:
        values = iter(values)
        append(next(deltas), timestamp, None, next(values), [entry])
    for delta, value in zip(deltas, values, strict=False):
        append(delta, timestamp, None, value, headers)
    return _built(builder, codec, decoded_bytes_max)


def encode(
    rows: Iterable[RowFields],
    codec: Codec = Codec.NONE,
    decoded_bytes_max: int = DECODED_BYTES_MAX,
    entry: StoredHeader | None = None,
    sequenced: tuple[int, int, int] = NOT_SEQUENCED,
) -> bytearray:
    """Encode one batch at offset 0 of epoch 0, for the leader to stamp. Rows keep their order. Raises BatchTooLarge.

    With an `entry` it is a keyed batch, whose first record carries that header as its last. `sequenced`: its producer
    id, epoch and first sequence.
    """
    builder = _builder(entry, sequenced)
    append = builder.append
    deltas = count()
    if entry is not None:
        rows = iter(rows)
        timestamp, key, value, headers = next(rows)
        append(next(deltas), timestamp, key, value, [*headers, entry])
    for delta, (timestamp, key, value, headers) in zip(deltas, rows, strict=False):
        append(delta, timestamp, key, value, headers)
    return _built(builder, codec, decoded_bytes_max)


def encode_all(
    batches: list[BatchRows], codec: Codec = Codec.NONE, decoded_bytes_max: int = DECODED_BYTES_MAX
) -> list[bytearray]:
    """Encode several batches, each as `encode` does. Raises BatchTooLarge."""
    native = penstock_codec.native
    if native is not None and codec == Codec.NONE and (made := native.encode_batches(batches)) is not None:
        return made
    return [encode(rows, codec, decoded_bytes_max, entry, sequenced) for rows, entry, sequenced in batches]


def re_encode(header: Header, records: Sequence[Record]) -> bytearray:
    """Encode a stored batch from its records as consumers see them: same offsets, times and codec; no producer id."""
    builder = _builder()
    for record in records:
        headers = list(record.headers)
        builder.append(record.offset - header.base_offset, record.timestamp, record.key, record.value, headers)
    data = _built(builder, Codec(header.codec), DECODED_BYTES_MAX)
    copy_position(data, header)
    return data


def unpacked(batch: Buffer, decoded_bytes_max: int = DECODED_BYTES_MAX) -> memoryview:
    """Return the batch with uncompressed records. Raises InvalidBatch."""
    return _unpacked(batch, read_header(batch), decoded_bytes_max)


def uncompressed(batch: Buffer, header: Header, decoded_bytes_max: int) -> memoryview:
    """Return a compressed batch with its records decompressed, without a valid checksum.

    Raises InvalidBatch, DecodedTooLarge.
    """
    whole = _unpacked(batch, header, decoded_bytes_max)
    set_length(whole)
    return whole


def check_records(batch: Buffer, *, record_bytes_max: int, decoded_bytes_max: int = DECODED_BYTES_MAX) -> None:
    """Check the records of a client's batch against its header, which `check_client_batch` must have checked.

    Raises InvalidBatch, DecodedTooLarge, RecordTooLarge.
    """
    header, native = read_header(batch), penstock_codec.native
    if header.codec != Codec.NONE:
        batch = _unpacked(batch, header, decoded_bytes_max)
    if native is None or not native.check_records(batch, record_bytes_max):
        _check_records_plainly(_with_slack(batch), header, record_bytes_max)


def _check_records_plainly(whole: memoryview, header: Header, record_bytes_max: int) -> None:
    """Checks what the compiled codec checks, and says what is wrong.

    Measured: 4.7 M records/s; the compiled reader alone takes a third of that time. Asking each record for its headers
    is faster than searching all bytes for a name.
    """
    may_be_too_large = len(whole) - HEADER_BYTES > record_bytes_max
    latest = header.max_timestamp
    try:
        for expected, record in enumerate(_reader(whole), header.base_offset):
            if record.offset != expected or not 0 <= record.timestamp <= latest:
                break
            if may_be_too_large and _record_bytes(record) > record_bytes_max:
                raise RecordTooLarge(
                    f"record {expected - header.base_offset} has {_record_bytes(record)} bytes, the topic allows "
                    f"{record_bytes_max}",
                    limit=record_bytes_max,
                )
            if record.headers and any(name.startswith(RESERVED_PREFIX) for name, _ in record.headers):
                raise InvalidBatch(
                    f"record {expected - header.base_offset} has a header that begins with {RESERVED_PREFIX}: "
                    "these names are reserved for the log"
                )
        else:
            return
    except (RecordTooLarge, InvalidBatch):
        raise
    except Exception as error:  # the codec's errors have no common base
        raise _undecodable(error) from error
    raise InvalidBatch(
        f"record {expected - header.base_offset} has offset delta {record.offset - header.base_offset} and timestamp "
        f"{record.timestamp}: deltas count up from 0, timestamps are 0 to the header's maximum, {latest}"
    )


def decode(batches: Buffer) -> list[Record]:
    """Decode every record of a run of whole batches, for consumers. Raises InvalidBatch."""
    view = memoryview(batches)
    records: list[Record] = []
    for position, header in walk(batches):
        records += decode_one(view[position : position + header.size_bytes])
    return records


def decode_one(batch: Buffer, decoded_bytes_max: int = DECODED_BYTES_MAX) -> list[Record]:
    """Decode the records of one batch for consumers; a control batch has none.

    Raises InvalidBatch if they cannot be decoded, or if their offsets differ from the header's.
    """
    return decode_sized(batch, decoded_bytes_max)[0]


def decode_sized(batch: Buffer, decoded_bytes_max: int, header: Header | None = None) -> tuple[list[Record], int]:
    """Decode as `decode_one` does; also return the size of the batch before compression, in bytes.

    `header` is the batch's, if the caller has read it.
    """
    header = header or read_header(batch)
    if header.is_control:
        return [], len(batch)
    return _decoded(batch, header, decoded_bytes_max)


def decode_control(batch: Buffer) -> list[Record]:
    """Decode the records of a control batch. Raises InvalidBatch."""
    return _decoded(batch, read_header(batch), DECODED_BYTES_MAX)[0]


def _decoded(batch: Buffer, header: Header, decoded_bytes_max: int) -> tuple[list[Record], int]:
    whole = _unpacked(batch, header, decoded_bytes_max)
    records: list[Record] = []
    try:
        reader = chain(_reader(whole))  # the reader must not be called after its end; chain never does
        while some := list(islice(reader, _SLICE)):
            records += some
    except Exception as error:  # the codec's errors have no common base
        raise _undecodable(error) from error
    _check_offsets(records, header)
    if header.producer_id == KEYED_PRODUCER and records:
        records[0] = _as_consumer_record(records[0])
    return records, len(whole)


def _as_consumer_record(record: Record) -> Record:
    headers = [(name, value) for name, value in record.headers if not name.startswith(RESERVED_PREFIX)]
    return _ConsumerRecord(record.offset, record.timestamp, record.key, record.value, headers)


def _unpacked(batch: Buffer, header: Header, bytes_max: int) -> memoryview:
    """Returns the batch, decompressed, with slack behind it: the compiled reader may read a few bytes beyond."""
    if header.codec == Codec.NONE:
        return _with_slack(batch)
    view = memoryview(batch)
    head = bytearray(view[:HEADER_BYTES])
    mark_uncompressed(head)
    try:
        return unpack(Codec(header.codec).name.lower(), view[HEADER_BYTES:], bytes_max, head)
    except DoesNotFit:
        raise DecodedTooLarge(
            f"the records of the batch unpack to more than {bytes_max} bytes", limit=bytes_max
        ) from None
    except (Broken, ValueError) as error:
        raise _undecodable(error) from error


def _with_slack(batch: Buffer) -> memoryview:
    return memoryview(b"".join((batch, _SLACK)))[: len(batch)]


def _undecodable(error: Exception) -> InvalidBatch:
    return InvalidBatch(f"the records of a batch cannot be decoded: {type(error).__name__}: {error}")


def _check_offsets(records: list[Record], header: Header) -> None:
    """A consumer continues behind the last record it received: a wrong record offset would misplace it."""
    offsets = [record.offset for record in records]
    is_dense = len(offsets) == header.next_offset - header.base_offset  # a header may claim two billion offsets
    if is_dense and offsets == list(range(header.base_offset, header.next_offset)):
        return  # nothing was compacted away
    is_within = not offsets or (header.base_offset <= offsets[0] and offsets[-1] < header.next_offset)
    if not is_within or any(first >= second for first, second in pairwise(offsets)):
        raise InvalidBatch(f"the records of the batch at {header.base_offset} do not have the offsets of its header")


def _record_bytes(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name.encode()) + len(value or b"") for name, value in record.headers)


def _reader(whole: Buffer) -> DefaultRecordBatch:
    from aiokafka.record.default_records import DefaultRecordBatch

    return DefaultRecordBatch(whole)


def _builder(
    entry: StoredHeader | None = None, sequenced: tuple[int, int, int] = NOT_SEQUENCED
) -> DefaultRecordBatchBuilder:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    producer_id, epoch, sequence = sequenced
    if entry is not None:
        producer_id = KEYED_PRODUCER
    return DefaultRecordBatchBuilder(MAGIC, 0, 0, producer_id, epoch, sequence, _UNBOUNDED)


def _built(builder: DefaultRecordBatchBuilder, codec: Codec, decoded_bytes_max: int) -> bytearray:
    batch: bytearray = builder.build()
    return batch if codec == Codec.NONE else finished(batch, codec, decoded_bytes_max)
