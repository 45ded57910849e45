"""Compacts one batch: keeps the bytes of the records that stay, below the same header.

A batch never changes its offsets. Records that stay keep their bytes, so their offset, time and headers too. Batches
remain a chain without gaps: an empty batch takes the offsets of removed batches (decision 0023). So a
gap in a log is damage, before and after compaction.
Invariants: a control batch stays as it is; a sequenced batch that may still recognise a retry keeps its header, and a
keyed batch its first record. That record loses its value once it is superseded: with it, the key would return when its
tombstone has expired.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.compaction.latest_offsets import Kept, LatestOffsets
from engine.errors import InvalidBatch
from engine.format import batch as record_batch
from engine.format.batch import HEADER_BYTES, KEYED_PRODUCER, Buffer, Codec, Header
from engine.format.batch_header import NO_PRODUCER, empty_batch, with_records
from engine.format.compression import pack_records
from engine.format.keyed_batch import first_record_end, first_without_value


class Compacted(NamedTuple):
    """A compacted batch, the same object if every record stays; None if nothing does. `removed` counts records."""

    data: Buffer | None
    removed: int


def compact_batch(
    batch: memoryview, header: Header, latest: LatestOffsets, tombstones_expired_below: int, *, keeps_producers: bool
) -> Compacted:
    """Drops the records that have a later one of their key, and expired tombstones. An undecodable batch stays.

    `keeps_producers`: a retry of this batch may still come, so its producer or its idempotency key must be found.
    """
    is_keyed = header.producer_id == KEYED_PRODUCER
    is_sequenced = header.producer_id >= 0
    if header.is_control or header.record_count == 0:
        stays = header.is_control or (keeps_producers and is_sequenced)
        return Compacted(batch if stays else None, 0)
    try:
        whole = record_batch.unpacked(batch)
        compacted = latest.kept(whole, header, tombstones_expired_below, keeps_first=False)
    except InvalidBatch:
        return Compacted(batch, 0)
    removed = header.record_count - compacted.record_count
    if is_keyed and keeps_producers and not compacted.has_first:
        first = first_without_value(whole)
        removed -= first == whole[HEADER_BYTES : first_record_end(whole)]  # it had no value
        compacted = Kept(b"".join((first, compacted.records)), compacted.record_count + 1, has_first=True)
    if removed == 0:
        return Compacted(batch, 0)
    if compacted.record_count == 0 and not (keeps_producers and is_sequenced):
        return Compacted(None, removed)
    producer_id = (
        NO_PRODUCER if is_keyed and not compacted.has_first else header.producer_id
    )  # the entry went with the first
    codec, records = _packed(Codec(header.codec), compacted.records)
    return Compacted(with_records(batch, records, codec, compacted.record_count, producer_id), removed)


def _packed(codec: Codec, records: Buffer) -> tuple[Codec, Buffer]:
    """Returns the records as they were compressed before, or uncompressed where that is not larger."""
    if codec is not Codec.NONE:
        smaller = pack_records(codec.name.lower(), bytes(records))
        if len(smaller) < len(records):
            return codec, smaller
    return Codec.NONE, records


class RemovedRange:
    """The offsets of neighbouring removed batches, to become one empty batch."""

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
