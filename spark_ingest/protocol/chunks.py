"""Converts the records of a task to rows, in chunks: the part of the task that is in memory at once.

A chunk ends when its records reach CHUNK_BYTES before compression: after a batch, or within one that is larger than a
block. Records whose columns may take more than their bytes, because most are null or arrays have many elements, count
with the bytes of the columns. This depends on the stored bytes and the plan alone, so every attempt of a task has the
same chunks. Each chunk has its own files (task.py writes them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import pyarrow as pa

from engine.tiering.store.store import ObjectStore
from spark_ingest.decode.blocks import BlockMaker, DeadLetter, runs_of_bytes, value_sizes
from spark_ingest.decode.record_columns import columns_of
from spark_ingest.decode.time_counts import PERIOD_MS, counts_of
from spark_ingest.decode.value_costs import ValueCosts
from spark_ingest.plan import TaskSpec
from spark_ingest.protocol.results import SEEN_MEMBERS_MAX, add_counts
from spark_ingest.source.scan import ScannedBatch, scan
from spark_ingest.source.slices import PartitionOffset, Range, between
from spark_ingest.types.json_types import Members, merge_members

CHUNK_BYTES = 256 << 20  # sorting needs two to three times as much memory; a change needs a new GENERATION
_RECORD_BYTES = 128  # for a record's own columns, beside its bytes
BLOCK_RECORDS = 16_384  # large enough for Arrow, small enough that one bad value costs little
BLOCK_BYTES = 16 << 20
_LETTER_BYTES = 512  # for a dead letter, beside its record


@dataclass(slots=True)
class Chunk:
    """Rows in the order of (partition, offset), dead letters and counts of `ranges`."""

    ranges: list[Range] = field(default_factory=list)
    rows: list[pa.RecordBatch] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    seen: Members = field(default_factory=list)
    fallbacks: int = 0
    misfits: Counter[str] = field(default_factory=Counter)
    filtered: int = 0
    read_bytes: int = 0
    times: dict[int, int] = field(default_factory=dict)
    batches: Counter[int] = field(default_factory=Counter)


def chunks(order: TaskSpec, source: ObjectStore, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """Yields the chunks of a task. Raises Corrupt, NoSuchObject, NoEventTime."""
    ranges = order.task.ranges
    begin: PartitionOffset = (ranges[0].partition, ranges[0].start)
    costs = ValueCosts(order.schema.members)
    builder, held_bytes = _ChunkBuilder(order), 0
    for scanned in scan(source, order.task.slices):
        builder.read(scanned.header.size_bytes)
        for part, size_bytes in _split_large(order, costs, scanned):
            builder.add(part, size_bytes)
            held_bytes += size_bytes + _RECORD_BYTES * part.record_count
            letters_bytes = _LETTER_BYTES * builder.dead_letters if order.bounds_records else 0
            if held_bytes + letters_bytes >= chunk_bytes:
                end = (part.source.partition, min(part.header.next_offset, part.source.end))
                yield builder.chunk(between(ranges, begin, end))
                begin, held_bytes = end, 0
    rest = between(ranges, begin, (ranges[-1].partition, ranges[-1].end))
    if rest:
        yield builder.chunk(rest)


class _ChunkBuilder:
    """Collects records into blocks, and blocks into a chunk."""

    def __init__(self, order: TaskSpec) -> None:
        self._order = order
        self._chunk = Chunk()
        self._maker: BlockMaker | None = None
        self._partition = -1
        self._block: list[ScannedBatch] = []
        self._block_records = self._block_bytes = 0

    @property
    def dead_letters(self) -> int:
        """The dead letters of the chunk, without those of the block that has not ended."""
        return len(self._chunk.dead)

    def read(self, size_bytes: int) -> None:
        self._chunk.read_bytes += size_bytes

    def add(self, scanned: ScannedBatch, size_bytes: int) -> None:
        if scanned.source.partition != self._partition:
            self._end_block()
            self._partition = scanned.source.partition
            self._maker = BlockMaker(self._order, self._partition)
        if scanned.undecodable is not None:
            letter = _undecodable(scanned)
            self._chunk.dead.append(letter)
            count = letter.last_offset - letter.offset + 1
            times = counts_of(pa.array([letter.timestamp] * count, pa.int64()))
            self._chunk.times = add_counts(self._chunk.times, times)
            self._chunk.batches[scanned.header.max_timestamp // PERIOD_MS] += count
        if scanned.record_count:
            self._chunk.batches[scanned.header.max_timestamp // PERIOD_MS] += scanned.record_count
            self._block.append(scanned)
        self._block_records += scanned.record_count
        self._block_bytes += size_bytes
        if self._block_records >= BLOCK_RECORDS or self._block_bytes >= BLOCK_BYTES:
            self._end_block()

    def chunk(self, ranges: list[Range]) -> Chunk:
        """Returns the finished chunk and starts the next one."""
        self._end_block()
        done, self._chunk = self._chunk, Chunk()
        done.ranges = ranges
        return done

    def _end_block(self) -> None:
        if self._block:
            assert self._maker is not None
            records, chunk = columns_of(self._block), self._chunk
            chunk.times = add_counts(chunk.times, counts_of(records.timestamps))
            for made in self._maker.make(records):
                chunk.rows.append(made.rows)
                chunk.dead += made.dead
                chunk.seen = merge_members(chunk.seen, made.seen)[:SEEN_MEMBERS_MAX]
                chunk.fallbacks += made.fallbacks
                chunk.misfits.update(made.misfits)
                chunk.filtered += made.filtered
        self._block, self._block_records, self._block_bytes = [], 0, 0


def _split_large(order: TaskSpec, costs: ValueCosts, scanned: ScannedBatch) -> Iterator[tuple[ScannedBatch, int]]:
    """Yields a batch with its size in memory, in parts of about a block if it is larger."""
    count = scanned.record_count
    if not order.bounds_records:
        yield scanned, max(scanned.decoded_bytes, costs.row_bytes * count if order.counts_columns else 0)
        return
    texts = b""
    if costs.counts_texts:
        texts = bytes(scanned.plain) if scanned.plain is not None else b"\n".join(scanned.values())
    size_bytes = max(scanned.decoded_bytes, costs.columns(texts, count))
    if size_bytes <= BLOCK_BYTES or count < 2:
        yield scanned, size_bytes
    else:
        yield from _parts(costs, scanned)


def _parts(costs: ValueCosts, scanned: ScannedBatch) -> list[tuple[ScannedBatch, int]]:
    records, source = columns_of([scanned]), scanned.source
    payload_sizes = value_sizes(records.values)
    shared = max(0, scanned.decoded_bytes - int(payload_sizes.sum())) // len(records)  # keys, headers, lengths
    columns = [costs.columns(value.as_py() or b"", 1) for value in records.values] if costs.counts_texts else []
    sizes = np.maximum(payload_sizes + shared, columns or costs.row_bytes)
    offsets, parts = np.asarray(records.offsets), []
    for first, last in runs_of_bytes(sizes, BLOCK_BYTES):
        start = source.start if not first else int(offsets[first])
        end = source.end if last == len(sizes) else int(offsets[last])
        piece = msgspec.structs.replace(source, start=start, end=end)
        decoded = scanned.decoded[first:last]
        part = replace(scanned, source=piece, record_count=last - first, decoded=decoded)
        parts.append((part, int(sizes[first:last].sum())))
    return parts


def _undecodable(scanned: ScannedBatch) -> DeadLetter:
    """Returns a dead letter with the whole batch as its value, for the offsets within this slice."""
    header, piece = scanned.header, scanned.source
    first, last = max(header.base_offset, piece.start), min(header.next_offset, piece.end) - 1
    why, raw = str(scanned.undecodable), bytes(scanned.raw)
    return DeadLetter(piece.partition, first, last, header.max_timestamp, None, raw, (), "undecodable_batch", why)
