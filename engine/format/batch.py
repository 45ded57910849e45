"""RecordBatch v2: the one byte format of disk, replica wire, object store, Spark and (as a media type) clients.

Layout: engine/format/FORMAT.md. engine/format/batch_header.py handles the header, engine/format/records.py the records
behind it; their names are exported here too. This file decompresses, decodes and checks whole batches.

Does not interpret records, and is not on the hot path: append, replication, fetch of stored batches and tiering read
the 61-byte header only. `decode` walks records for JSON answers at the edge, Spark, tools and tests; `check_records`
walks those of a client's batch once.

Invariant: the records of any batch are decoded within a bound, and reading them stays within their bytes.
"""

from __future__ import annotations

from itertools import pairwise

import penstock_codec
from engine.errors import DecodedTooLarge, InvalidBatch, RecordTooLarge
from engine.format.batch_header import HEADER_BYTES as HEADER_BYTES
from engine.format.batch_header import KEYED_PRODUCER as KEYED_PRODUCER
from engine.format.batch_header import MAGIC as MAGIC
from engine.format.batch_header import NO_TIMESTAMP as NO_TIMESTAMP
from engine.format.batch_header import PREFIX_BYTES as PREFIX_BYTES
from engine.format.batch_header import Buffer as Buffer
from engine.format.batch_header import Codec as Codec
from engine.format.batch_header import Header as Header
from engine.format.batch_header import check_client_batch as check_client_batch
from engine.format.batch_header import has_valid_crc as has_valid_crc
from engine.format.batch_header import mark_control as mark_control
from engine.format.batch_header import mark_uncompressed, set_length, stamped_max_timestamp
from engine.format.batch_header import read_header as read_header
from engine.format.batch_header import read_headers as read_headers
from engine.format.batch_header import set_crc as set_crc
from engine.format.batch_header import stamp as stamp
from engine.format.batch_header import stamp_append_time as stamp_append_time
from engine.format.batch_header import stamp_sequence as stamp_sequence
from engine.format.batch_header import stamped as stamped
from engine.format.batch_header import walk as walk
from engine.format.decompression import Broken, DoesNotFit, unpack
from engine.format.records import DECODED_BYTES_MAX as DECODED_BYTES_MAX
from engine.format.records import NOT_SEQUENCED as NOT_SEQUENCED
from engine.format.records import BatchRows as BatchRows
from engine.format.records import Record as Record
from engine.format.records import Row as Row
from engine.format.records import RowFields as RowFields
from engine.format.records import StoredHeader as StoredHeader
from engine.format.records import encode as encode
from engine.format.records import encode_all as encode_all
from engine.format.records import encode_values as encode_values
from engine.format.records import read_records

MEDIA_TYPE = "application/vnd.penstock.recordbatch"
RESERVED_PREFIX = "__penstock"  # reserved header names; no consumer sees one of a keyed batch


def unpacked(batch: Buffer, decoded_bytes_max: int = DECODED_BYTES_MAX) -> memoryview:
    """Returns the batch with uncompressed records. Raises InvalidBatch."""
    return _unpacked(batch, read_header(batch), decoded_bytes_max)


def uncompressed(batch: Buffer, header: Header, decoded_bytes_max: int) -> memoryview:
    """Returns a compressed batch with its records decompressed, without a valid checksum.

    Raises InvalidBatch, DecodedTooLarge.
    """
    whole = _unpacked(batch, header, decoded_bytes_max)
    set_length(whole)
    return whole


def check_records(batch: Buffer, *, record_bytes_max: int, decoded_bytes_max: int = DECODED_BYTES_MAX) -> None:
    """Checks the records of a client's batch against its header, which `check_client_batch` must have checked.

    Raises InvalidBatch, DecodedTooLarge, RecordTooLarge.
    """
    header, native = read_header(batch), penstock_codec.native
    if header.codec != Codec.NONE:
        batch = _unpacked(batch, header, decoded_bytes_max)
    if native is None or not native.check_records(batch, record_bytes_max):
        _check_records_plainly(batch, header, record_bytes_max)


def _check_records_plainly(whole: Buffer, header: Header, record_bytes_max: int) -> None:
    """Checks what the compiled codec checks, and says what is wrong."""
    latest = header.max_timestamp
    for number, record in enumerate(read_records(whole, header)):
        if record.offset != header.base_offset + number or not 0 <= record.timestamp <= latest:
            raise InvalidBatch(
                f"record {number} has offset delta {record.offset - header.base_offset} and timestamp "
                f"{record.timestamp}: deltas count up from 0, timestamps are 0 to the header's maximum, {latest}"
            )
        if (size_bytes := _record_bytes(record)) > record_bytes_max:
            raise RecordTooLarge(
                f"record {number} has {size_bytes} bytes, the topic allows {record_bytes_max}", limit=record_bytes_max
            )
        if any(name.startswith(RESERVED_PREFIX) for name, _ in record.headers):
            raise InvalidBatch(
                f"record {number} has a header that begins with {RESERVED_PREFIX}: these names are reserved for the log"
            )


def with_true_max_timestamp(batch: Buffer, decoded_bytes_max: int) -> bytearray | None:
    """Returns the batch with the latest time of its records in its header; None if it has that.

    Raises InvalidBatch, DecodedTooLarge.
    """
    header = read_header(batch)
    latest = max((record.timestamp for record in decode_one(batch, decoded_bytes_max)), default=header.max_timestamp)
    return None if latest == header.max_timestamp else stamped_max_timestamp(batch, latest)


def decode(batches: Buffer) -> list[Record]:
    """Decodes every record of a run of whole batches, for consumers. Raises InvalidBatch."""
    view = memoryview(batches)
    records: list[Record] = []
    for position, header in walk(batches):
        records += decode_one(view[position : position + header.size_bytes])
    return records


def decode_one(batch: Buffer, decoded_bytes_max: int = DECODED_BYTES_MAX) -> list[Record]:
    """Decodes the records of one batch for consumers; a control batch has none.

    Raises InvalidBatch if they cannot be decoded, or if their offsets differ from the header's.
    """
    return decode_sized(batch, decoded_bytes_max)[0]


def decode_sized(batch: Buffer, decoded_bytes_max: int, header: Header | None = None) -> tuple[list[Record], int]:
    """Decodes as `decode_one` does; also return the size of the batch before compression, in bytes.

    `header` is the batch's, if the caller has read it.
    """
    header = header or read_header(batch)
    if header.is_control:
        return [], len(batch)
    return _decoded(batch, header, decoded_bytes_max)


def decode_control(batch: Buffer) -> list[Record]:
    """Decodes the records of a control batch. Raises InvalidBatch."""
    return _decoded(batch, read_header(batch), DECODED_BYTES_MAX)[0]


def _decoded(batch: Buffer, header: Header, decoded_bytes_max: int) -> tuple[list[Record], int]:
    whole = _unpacked(batch, header, decoded_bytes_max)
    records = list(read_records(whole, header))
    _check_offsets(records, header)
    if header.producer_id == KEYED_PRODUCER and records:
        records[0] = _as_consumer_record(records[0])
    return records, len(whole)


def _as_consumer_record(record: Record) -> Record:
    headers = [(name, value) for name, value in record.headers if not name.startswith(RESERVED_PREFIX)]
    return record._replace(headers=headers)


def _unpacked(batch: Buffer, header: Header, bytes_max: int) -> memoryview:
    """Returns the batch, decompressed."""
    if header.codec == Codec.NONE:
        return memoryview(batch)
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
