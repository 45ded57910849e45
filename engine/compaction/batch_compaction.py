"""Compacts one batch: keeps the bytes of the records that stay, below the same header.

A batch never changes its offsets. Records that stay keep their bytes, so their offset, time and headers too. Batches
remain a chain without gaps: an empty batch takes the offsets of batches of which nothing stays (decision 0023). So a
gap in a log is damage, before and after compaction.
Invariants: a control batch stays as it is; a sequenced batch that may still recognise a retry keeps its header, and a
keyed batch its first record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from engine.format import batch as record_batch
from engine.format.batch import KEYED_PRODUCER, Buffer, Codec, Header
from engine.format.batch_header import NO_PRODUCER, empty_batch, with_records
from engine.format.compression import pack_records
from engine.format.record_spans import RecordSpan, record_spans

Retains = Callable[[int, RecordSpan], bool]  # given the offset of a record


class Compacted(NamedTuple):
    """A compacted batch, the same object if every record stays; None if nothing does. `removed` counts records."""

    data: Buffer | None
    removed: int


def compact_batch(batch: memoryview, header: Header, retains: Retains, *, keeps_producers: bool) -> Compacted:
    """Drop the records that `retains` does not keep. Raises InvalidBatch.

    `keeps_producers`: a retry of this batch may still come, so its producer or its idempotency key must be found.
    """
    is_keyed = header.producer_id == KEYED_PRODUCER
    if header.is_control or header.record_count == 0:
        stays = header.is_control or (keeps_producers and header.producer_id >= 0)
        return Compacted(batch if stays else None, 0)
    whole = record_batch.unpacked(batch)
    kept: list[tuple[int, int]] = []
    count = 0
    keeps_first = is_keyed and keeps_producers
    for number, span in enumerate(record_spans(whole, header.record_count)):
        if retains(header.base_offset + span.offset_delta, span) or (number == 0 and keeps_first):
            count += 1
            if kept and kept[-1][1] == span.begin:
                kept[-1] = (kept[-1][0], span.end)
            else:
                kept.append((span.begin, span.end))
        elif number == 0 and is_keyed:
            is_keyed = False  # its entry goes with its first record
    removed = header.record_count - count
    if removed == 0:
        return Compacted(batch, 0)
    if count == 0 and not (keeps_producers and header.producer_id >= 0):
        return Compacted(None, removed)
    records = b"".join(whole[begin:end] for begin, end in kept)
    producer = NO_PRODUCER if header.producer_id == KEYED_PRODUCER and not is_keyed else header.producer_id
    codec, records = _packed(Codec(header.codec), records)
    return Compacted(with_records(batch, records, codec, count, producer), removed)


def _packed(codec: Codec, records: bytes) -> tuple[Codec, bytes]:
    """Returns the records as they were compressed before, or uncompressed where that is not larger."""
    if codec is not Codec.NONE:
        smaller = pack_records(codec.name.lower(), records)
        if len(smaller) < len(records):
            return codec, smaller
    return Codec.NONE, records


class RemovedRange:
    """The offsets of neighbouring batches of which nothing stays, to become one empty batch."""

    __slots__ = ("_epoch", "_latest", "_start", "end")

    def __init__(self, header: Header) -> None:
        self._start, self.end = header.base_offset, header.next_offset
        self._epoch, self._latest = header.leader_epoch, header.max_timestamp

    def __repr__(self) -> str:
        return f"RemovedRange({self._start}..{self.end})"

    def joins(self, header: Header) -> bool:
        """True if a batch can become a part of the same empty batch: an epoch begins at a batch."""
        return header.leader_epoch == self._epoch and header.next_offset - self._start <= _RANGE_MAX

    def add(self, header: Header) -> None:
        self.end = header.next_offset
        self._latest = max(self._latest, header.max_timestamp)

    def as_batch(self) -> bytearray:
        return empty_batch(self._start, self.end, self._epoch, self._latest)


_RANGE_MAX = 2**31 - 1  # a batch's last offset delta has 32 bits
