"""Takes from stored batches the records that pass a filter, below the same headers.

Records keep their bytes, so their offset, time and headers too; a batch without any is dropped. A batch that
cannot be decoded stays as it is: a reader must learn of it. The reader of the batches has verified their checksums.
"""

from __future__ import annotations

from typing import NamedTuple

import penstock_codec
from engine.errors import InvalidBatch
from engine.format import batch as record_batch
from engine.format.batch import KEYED_PRODUCER, Buffer, Codec, Header
from engine.format.batch_header import NO_PRODUCER, with_records
from engine.format.record_spans import record_spans
from engine.partition.reader import Chunk
from gateway.filters.record_filter import RecordFilter


class FilteredSpan(NamedTuple):
    """The bytes of the records that pass, their number, and whether the first of the batch is among them."""

    records: Buffer
    record_count: int
    has_first: bool


def filter_batches(chunk: Chunk, conditions: RecordFilter, decoded_bytes_max: int) -> Chunk:
    """Returns the chunk with only the records that pass, and the same `next_offset`.

    A batch stays compressed where all of its records pass.
    """
    data, pieces, taken = chunk.data, list[Buffer](), 0
    view = memoryview(data)
    for position, header in record_batch.walk(data):
        batch = view[position : position + header.size_bytes]
        passed = _filter_batch(batch, header, conditions, decoded_bytes_max)
        if passed is batch:
            continue
        pieces.append(view[taken:position])
        if passed is not None:
            pieces.append(passed)
        taken = position + header.size_bytes
    if not taken:
        return chunk
    pieces.append(view[taken:])
    return Chunk(b"".join(pieces), chunk.next_offset)


def _filter_batch(batch: memoryview, header: Header, conditions: RecordFilter, decoded_bytes_max: int) -> Buffer | None:
    """Returns the batch with the records that pass, the same object if all do; None if none does."""
    if header.is_control or not header.record_count:
        return None
    try:
        is_plain = header.codec == Codec.NONE
        whole = batch if is_plain else record_batch.uncompressed(batch, header, decoded_bytes_max)
        span = _filter_records(whole, header, conditions)
    except InvalidBatch:
        return batch
    if span.record_count == header.record_count:
        return batch
    if span.record_count == 0:
        return None
    has_lost_entry = header.producer_id == KEYED_PRODUCER and not span.has_first
    producer_id = NO_PRODUCER if has_lost_entry else header.producer_id
    return with_records(batch, span.records, Codec.NONE, span.record_count, producer_id)


def _filter_records(whole: memoryview, header: Header, conditions: RecordFilter) -> FilteredSpan:
    """Returns the records of an uncompressed batch that pass. Raises InvalidBatch."""
    if penstock_codec.native is not None and conditions.compiled is not None:
        matches = penstock_codec.native.filter_records(whole, conditions.compiled)
        if matches is not None:
            return FilteredSpan(*matches)
    return filter_plainly(whole, header, conditions)


def filter_plainly(whole: memoryview, header: Header, conditions: RecordFilter) -> FilteredSpan:
    """Returns what the compiled codec returns where it does not decline. Raises InvalidBatch."""
    pieces = list[Buffer]()
    has_first = False
    records = record_batch.decode_one(whole)
    for number, (span, record) in enumerate(zip(record_spans(whole, header.record_count), records, strict=True)):
        if conditions.passes(record):
            pieces.append(whole[span.begin : span.end])
            has_first |= number == 0
    return FilteredSpan(b"".join(pieces), len(pieces), has_first)
