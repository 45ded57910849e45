"""Reads the records of slices with ranged GETs, as whole batches whose checksums are verified.

The manifest does not have the byte position of a slice, so the reader skips earlier batches by their headers. Where
they would be more than a piece, it begins at a batch that the index of the object names, if that batch is there. It
keeps one piece and one batch in memory: it fetches a piece, yields its whole batches and keeps the incomplete rest.

A batch with a wrong checksum raises Corrupt. It is never yielded and never skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine.errors import Corrupt, InvalidBatch
from engine.format.batch import (
    DECODED_BYTES_MAX,
    HEADER_BYTES,
    Codec,
    Header,
    Record,
    decode_one,
    has_valid_crc,
    read_header,
    uncompressed,
    walk,
)
from engine.format.compiled_batch import can_read_columns, read_columns, texts_of
from engine.tiering.manifest.aux_object import decode_aux
from engine.tiering.manifest.json_reading import UnsupportedFormat
from engine.tiering.manifest.keys import aux_key_of
from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.source.replaced import Replacements
from spark_ingest.source.slices import Slice

PIECE_BYTES = 8 << 20
REPLACED_PIECE_BYTES = 256 << 10  # of an object in which a slice is a small part
_RESTORE = "restore the object from a replica; nothing was committed"


@dataclass(frozen=True, slots=True)
class ScannedBatch:
    """The records of one stored batch that are within a slice, and the size of the batch before compression.

    `undecodable` is the reason if a batch with a valid checksum cannot be decoded. `plain` is the uncompressed batch if
    the compiled codec can read it; else `decoded` has its records.
    """

    source: Slice
    header: Header
    record_count: int
    raw: memoryview
    decoded_bytes: int
    decoded: list[Record]
    plain: memoryview | None = None
    undecodable: str | None = None

    def values(self) -> list[bytes]:
        """Returns the values of the records that have one, decoded at each call."""
        if self.plain is None:
            return [record.value for record in self.decoded if record.value is not None]
        return texts_of(read_columns([self.plain], self.source.start, self.source.end).values)


def scan(store: ObjectStore, slices: Iterable[Slice], piece_bytes: int = PIECE_BYTES) -> Iterator[ScannedBatch]:
    """Yields every batch with an offset within the slices, in order. Raises Corrupt, NoSuchObject.

    An object that is gone is read from the one that has replaced it; what it yields is the same.
    """
    replacements = Replacements(store)
    for piece in slices:
        reached = piece.start
        try:
            for header, raw in _batches(store, piece, piece_bytes):
                if header.next_offset > piece.start and header.base_offset < piece.end:
                    yield _decoded(piece, header, raw)
                    reached = header.next_offset
        except NoSuchObject:
            other = replacements.slice_of(piece, reached)
            for header, raw in _batches(store, other, min(piece_bytes, REPLACED_PIECE_BYTES)):
                if header.next_offset > reached and header.base_offset < piece.end:
                    yield _decoded(piece, header, raw)


def _decoded(slice_: Slice, header: Header, raw: memoryview) -> ScannedBatch:
    if not has_valid_crc(raw, 0, header):
        raise Corrupt(
            f"{slice_.key}: the batch at offset {header.base_offset} fails its checksum",
            hint=_RESTORE,
        )
    if header.is_control:
        return ScannedBatch(slice_, header, 0, raw, len(raw), [])
    try:
        plain = raw if header.codec == Codec.NONE else uncompressed(raw, header, DECODED_BYTES_MAX)
        if can_read_columns(plain):
            count = min(header.next_offset, slice_.end) - max(header.base_offset, slice_.start)
            return ScannedBatch(slice_, header, count, raw, len(plain), [], plain)
        records = decode_one(plain)
        if len(records) != header.record_count:
            raise InvalidBatch(f"the header announces {header.record_count} records, there are {len(records)}")
    except InvalidBatch as error:
        return ScannedBatch(slice_, header, 0, raw, len(raw), [], undecodable=error.detail)
    records = _within(slice_, records)
    return ScannedBatch(slice_, header, len(records), raw, len(plain), records)


def _within(slice_: Slice, records: list[Record]) -> list[Record]:
    if records and records[0].offset >= slice_.start and records[-1].offset < slice_.end:
        return records
    return [record for record in records if slice_.start <= record.offset < slice_.end]


def _batches(store: ObjectStore, slice_: Slice, piece_bytes: int) -> Iterator[tuple[Header, memoryview]]:
    position, offset = _look_up(store, slice_, piece_bytes)
    if position:
        batches = _batches_from(store, slice_, piece_bytes, position, offset)
        try:
            first = next(batches, None)
        except Corrupt:
            first = None
        if first is not None and first[0].base_offset == offset:
            yield first
            yield from batches
            return
    yield from _batches_from(store, slice_, piece_bytes, 0, slice_.base_offset)


def _look_up(store: ObjectStore, slice_: Slice, piece_bytes: int) -> tuple[int, int]:
    """Returns position and offset of a batch at or before the start of a slice; those of the object without an index.

    The index may be wrong: its reader checks that the batch is there.
    """
    whole = (0, slice_.base_offset)
    if (
        slice_.size_bytes * (slice_.start - slice_.base_offset) // (slice_.end_offset - slice_.base_offset)
        < piece_bytes
    ):
        return whole
    try:
        aux = decode_aux(store.get(aux_key_of(slice_.key)), slice_.key)
    except (NoSuchObject, Corrupt, UnsupportedFormat):
        return whole
    if (aux.base_offset, aux.end_offset, aux.size_bytes) != (slice_.base_offset, slice_.end_offset, slice_.size_bytes):
        return whole
    return aux.index.batch_at_or_before(slice_.start)


def _batches_from(
    store: ObjectStore, slice_: Slice, piece_bytes: int, position: int, offset: int
) -> Iterator[tuple[Header, memoryview]]:
    fetched, reached = position, offset
    rest = b""
    while fetched < slice_.size_bytes:
        read_bytes = max(piece_bytes, _missing_bytes(rest))
        piece = store.get(slice_.key, fetched, min(fetched + read_bytes, slice_.size_bytes))
        if not piece:
            raise Corrupt(f"{slice_.key} ends at byte {fetched}, the manifest says {slice_.size_bytes}")
        fetched += len(piece)
        for buffer in _buffers(rest, piece):
            consumed = 0
            for at, header in _walk(slice_.key, buffer):
                is_first_empty = (
                    not header.record_count and reached == slice_.base_offset
                )  # may begin in an earlier object
                if header.base_offset < reached and not is_first_empty:
                    raise Corrupt(f"{slice_.key}: offset {header.base_offset} follows {reached - 1}", hint=_RESTORE)
                consumed, reached = at + header.size_bytes, header.next_offset
                yield header, buffer[at:consumed]
                if reached >= slice_.end:
                    return
            rest = bytes(buffer[consumed:])
    raise Corrupt(
        f"{slice_.key} ends after offset {reached - 1}, the manifest says {slice_.end_offset - 1}", hint=_RESTORE
    )


def _buffers(rest: bytes, piece: bytes) -> list[memoryview]:
    """Returns the incomplete batch with its rest, then the other batches of the piece, which are not copied."""
    missing = _missing_bytes(rest) if len(rest) >= HEADER_BYTES else len(piece)
    if not rest or missing >= len(piece):
        return [memoryview(rest + piece)]
    view = memoryview(piece)
    return [memoryview(b"".join((rest, view[:missing]))), view[missing:]]


def _walk(key: str, buffer: memoryview) -> Iterator[tuple[int, Header]]:
    try:
        yield from walk(buffer)
    except InvalidBatch as error:
        raise Corrupt(f"{key}: {error.detail}", hint=_RESTORE) from error


def _missing_bytes(rest: bytes) -> int:
    """Returns the bytes missing from an incomplete batch. A batch may be larger than a piece."""
    if len(rest) < HEADER_BYTES:
        return HEADER_BYTES
    return read_header(rest).size_bytes - len(rest)
