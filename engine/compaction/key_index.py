"""The last offset of each key of a partition, for readers of the table: follows the log from its start.

Not authoritative: a reader compares the key of the record at the offset, and finds none where compaction has removed a
tombstone. Compaction changes no offset, so the index remains valid; a truncation makes it void.
Invariant: every record below `end` is in the index. `add` runs in threads, one at a time: a reader that no longer waits
leaves its thread behind, and the next one adds the same records.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from threading import Lock

import penstock_codec
from engine.compaction.latest_offsets import LatestOffsets, new_latest_offsets
from engine.errors import InvalidBatch, TableTooLarge
from engine.format.batch import Buffer, Codec, Record, decode_one, read_header, unpacked, walk
from engine.format.batch_header import NO_PRODUCER, with_records

_BEGIN_BYTES = 4096


class KeyIndex:
    """The keys of one log in at most `memory_bytes`. `cuts` is the number of truncations that it has seen."""

    def __init__(self, memory_bytes: int, hash_key: bytes, cuts: int) -> None:
        self.end = 0
        self.cuts = cuts
        self._latest: LatestOffsets = new_latest_offsets(_BEGIN_BYTES, hash_key)
        self._memory_bytes = memory_bytes
        self._adding = Lock()

    def __repr__(self) -> str:
        return f"KeyIndex(end={self.end}, {self._latest})"

    @property
    def size_bytes(self) -> int:
        return self._latest.size_bytes

    def add(self, data: Buffer, next_offset: int) -> None:
        """Adds the keys of a run of batches that joins `end`. Raises TableTooLarge; those added so far may stay."""
        with self._adding:
            self._add(data)
            self.end = max(self.end, next_offset)

    def _add(self, data: Buffer) -> None:
        view = memoryview(data)
        for at, header in walk(view):
            if header.next_offset <= self.end or not header.record_count or header.is_control:
                continue
            while header.record_count > self._latest.room:
                if 2 * self.size_bytes > self._memory_bytes:
                    raise TableTooLarge(
                        f"the keys up to offset {header.base_offset} need more than {self._memory_bytes} bytes",
                        hint="raise table_memory_bytes",
                    )
                self._latest.grow()
            with suppress(InvalidBatch):  # no reader can decode it either
                self._latest.add(unpacked(view[at : at + header.size_bytes]), header)

    def find(self, key: bytes) -> int | None:
        """Returns the offset of the last record of a key below `end`; None if it has none."""
        return self._latest.find(key)


def record_at(data: Buffer, offset: int, decoded_bytes_max: int) -> Record | None:
    """Returns the record at an offset of a run of batches; None if compaction has removed it. Raises InvalidBatch."""
    view = memoryview(data)
    for at, header in walk(view):
        if header.next_offset > offset:
            batch = unpacked(view[at : at + header.size_bytes], decoded_bytes_max)
            return next((record for record in decode_one(_with_only(batch, offset)) if record.offset == offset), None)
    return None


def _with_only(batch: Buffer, offset: int) -> Buffer:
    """Returns a batch with the record at an offset alone: a batch may have many thousands."""
    if penstock_codec.native is None or (record_batch := penstock_codec.native.record_at(batch, offset)) is None:
        return batch
    record, number = record_batch
    producer_id = NO_PRODUCER if number else read_header(batch).producer_id
    return with_records(batch, record, Codec.NONE, 1, producer_id)


def size_of(indexes: Iterable[KeyIndex]) -> int:
    """Returns the bytes of indexes together."""
    return sum(index.size_bytes for index in indexes)
