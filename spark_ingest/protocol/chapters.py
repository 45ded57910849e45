"""The records of an order become rows, in chapters: as much of the task as is held in memory at once.

A chapter ends after the batch with which its records weigh CHAPTER_BYTES before compression. That depends on the
stored bytes alone, so whoever runs the order makes the same chapters, and each gets files of its own.

Not a maker of files (task.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from engine.format.batch import Record
from engine.tiering.store.store import ObjectStore
from spark_ingest.decode.blocks import BlockMaker, DeadLetter
from spark_ingest.decode.json_types import Members, merge_members
from spark_ingest.plan import Order
from spark_ingest.source.cut import Place, Range, between
from spark_ingest.source.scan import Scanned, scan

CHAPTER_BYTES = 256 << 20  # about two to three times as much are held while it is sorted; part of GENERATION
_RECORD_BYTES = 128  # what a record's own columns weigh beside its bytes
BLOCK_RECORDS = 16_384  # large enough for Arrow, small enough that one bad value costs little
BLOCK_BYTES = 16 << 20
SEEN_MEMBERS_MAX = 1000


@dataclass(slots=True)
class Chapter:
    """Rows in the order of (partition, offset), and what else was found in `ranges`."""

    ranges: list[Range] = field(default_factory=list)
    rows: list[pa.RecordBatch] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    seen: Members = field(default_factory=list)
    fallbacks: int = 0
    read_bytes: int = 0


def chapters(order: Order, source: ObjectStore, chapter_bytes: int = CHAPTER_BYTES) -> Iterator[Chapter]:
    """Raises Corrupt, NoSuchObject, NoEventTime."""
    ranges = order.task.ranges
    begin: Place = (ranges[0].partition, ranges[0].start)
    gatherer, held_bytes = _Gatherer(order), 0
    for scanned in scan(source, order.task.slices):
        gatherer.add(scanned)
        held_bytes += scanned.decoded_bytes + _RECORD_BYTES * len(scanned.records)
        if held_bytes >= chapter_bytes:
            end = (scanned.source.partition, min(scanned.header.next_offset, scanned.source.end))
            yield gatherer.chapter(between(ranges, begin, end))
            begin, held_bytes = end, 0
    rest = between(ranges, begin, (ranges[-1].partition, ranges[-1].end))
    if rest:
        yield gatherer.chapter(rest)


class _Gatherer:
    """Collects records into blocks, and blocks into a chapter."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._chapter = Chapter()
        self._maker: BlockMaker | None = None
        self._partition = -1
        self._block: list[Record] = []
        self._block_bytes = 0

    def add(self, scanned: Scanned) -> None:
        if scanned.source.partition != self._partition:
            self._end_block()
            self._partition = scanned.source.partition
            self._maker = BlockMaker(self._order, self._partition)
        if scanned.undecodable is not None:
            self._chapter.dead.append(_undecodable(scanned))
        self._chapter.read_bytes += scanned.header.size_bytes
        self._block += scanned.records
        self._block_bytes += scanned.decoded_bytes
        if len(self._block) >= BLOCK_RECORDS or self._block_bytes >= BLOCK_BYTES:
            self._end_block()

    def chapter(self, ranges: list[Range]) -> Chapter:
        """What was gathered; begins the next one."""
        self._end_block()
        done, self._chapter = self._chapter, Chapter()
        done.ranges = ranges
        return done

    def _end_block(self) -> None:
        if self._block:
            assert self._maker is not None
            made, chapter = self._maker.make(self._block), self._chapter
            chapter.rows.append(made.rows)
            chapter.dead += made.dead
            chapter.seen = merge_members(chapter.seen, made.seen)[:SEEN_MEMBERS_MAX]
            chapter.fallbacks += made.fallbacks
        self._block, self._block_bytes = [], 0


def _undecodable(scanned: Scanned) -> DeadLetter:
    """The whole batch as a value; if its end is another slice's, that one tells of its own part."""
    header, wanted = scanned.header, scanned.source
    first, last = max(header.base_offset, wanted.start), min(header.next_offset, wanted.end) - 1
    why, raw = str(scanned.undecodable), bytes(scanned.raw)
    return DeadLetter(wanted.partition, first, last, header.max_timestamp, None, raw, (), "undecodable_batch", why)
