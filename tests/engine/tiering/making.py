"""Segments, entries and manifests for the tests, as the log and the shipper create them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from engine.format.batch import Record, Row, decode_one, encode, read_header, stamp
from engine.tiering.manifest.manifest import FOLD_ENTRIES, Manifest, ManifestEntry, append, fold, oldest_run
from engine.tiering.shipping.local_log import LocalLog, SealedSegment
from spark_ingest.source.scan import ScannedBatch

PREFIX = "cluster/topic/0123456789abcdef0123456789abcdef/0/"


def batch(base_offset: int, count: int = 3, *, epoch: int = 1, timestamp: int | None = None, size: int = 50) -> bytes:
    """A batch of `count` records whose times grow by one; the first is ten times the offset by default."""
    first = base_offset * 10 if timestamp is None else timestamp
    rows = [Row(first + at, b"key", b"%0*d" % (size, base_offset + at), []) for at in range(count)]
    made = encode(rows)
    stamp(made, base_offset, epoch)
    return bytes(made)


def segment_bytes(base_offset: int, batches: int = 4, count: int = 3, *, epoch: int = 1, size: int = 50) -> bytes:
    offsets = range(base_offset, base_offset + batches * count, count)
    return b"".join(batch(offset, count, epoch=epoch, size=size) for offset in offsets)


def records_of(scanned: ScannedBatch) -> list[Record]:
    """Return the records that ingestion takes from a batch."""
    records = scanned.decoded if scanned.plain is None else decode_one(scanned.plain)
    return [one for one in records if scanned.source.start <= one.offset < scanned.source.end]


def offsets_of(scanned: ScannedBatch) -> list[int]:
    return [record.offset for record in records_of(scanned)]


def write_segment(directory: Path, data: bytes) -> SealedSegment:
    """Write a sealed segment file of complete batches."""
    base, end, position = read_header(data).base_offset, 0, 0
    while position < len(data):
        header = read_header(data, position)
        end, position = header.next_offset, position + header.size_bytes
    path = directory / f"{base:020d}.log"
    path.write_bytes(data)
    return SealedSegment(base, end, str(path), len(data))


def local_log(sealed: Sequence[SealedSegment], **positions: int) -> LocalLog:
    """Return a log whose sealed segments are all committed, with nothing else."""
    start = sealed[0].base_offset if sealed else 0
    end = sealed[-1].end_offset if sealed else 0
    local = LocalLog(
        log_start=start, local_log_start=start, log_end=end, high_watermark=end, durable_end=end, sealed=tuple(sealed)
    )
    return replace(local, **positions)  # type: ignore[arg-type]


def entry(base: int, end: int, epoch: int = 1) -> ManifestEntry:
    key = f"{PREFIX}{base:020d}-{epoch}-{base:032x}"
    return ManifestEntry(
        base_offset=base,
        end_offset=end,
        leader_epochs=((epoch, base),),
        min_timestamp_ms=base * 10,
        max_timestamp_ms=end * 10,
        size_bytes=(end - base) * 100,
        crc32c=base % 2**32,
        record_count=end - base,
        key=key + ".log",
        aux_key=key + ".aux",
    )


def entries(count: int, base: int = 0, width: int = 10) -> Iterable[ManifestEntry]:
    return (entry(at, at + width) for at in range(base, base + count * width, width))


def manifest_of(count: int, *, generation: int = 7) -> Manifest:
    """A manifest of many entries, folded as by the shipper. Sub-manifests are not stored."""
    made = Manifest(PREFIX, generation, leader_epoch=1, writer="writer", log_start=0)
    for one in entries(count):
        made = append(made, one)
        if made.is_due_to_fold:
            made = fold(made, oldest_run(made), f"{PREFIX}folded/{len(made.folded)}.json", FOLD_ENTRIES)
    return made
