"""Reads compacted partitions as tables at their owner, by an index of the last offset of each key.

The index follows the log when it is asked: a read finds every record below the high watermark. Indexes are made at the
first read of a partition, share `table_memory_bytes`, and the one that was read the longest ago goes first.
Invariants: (1) a read of a key returns a record with this key; (2) the last rows of each key in all
pieces of a read are the table at the end of the read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

from msgspec import Struct

from engine.compaction.key_index import KeyIndex, record_at, size_of
from engine.compaction.latest_offsets import HASH_KEY_BYTES
from engine.errors import InvalidBatch
from engine.format.batch import Record
from engine.format.batch_header import is_compressed
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from gateway.connections.read_budget import RENDERED_COPIES
from gateway.fetch.context import ReadContext
from gateway.fetch.partition_reads import Answer
from gateway.fetch.reader import confirm_offset, count_bytes, read_chunk
from gateway.fetch.record_json import Bounds, Decoded, RecordOut, decode_stored, encode_lines, records_out
from gateway.fetch.request import JSON
from gateway.http.caching import STATUS, is_not_modified, revalidated
from gateway.http.offload import OFF_LOOP_BYTES
from gateway.http.problems import Problem
from gateway.routing.router import Answering, PartitionCall
from gateway.tables.rows import rows_of

_PIECE_BYTES = 256 * 1024  # of the log, added to an index at once: 2 ms of a core
ROW_COST = 8  # times that of rendering stored records: each key is looked up
LOADING_S = 10.0  # of a request; the index remains and the next request continues


class TableKey(Struct, frozen=True):
    """A read of one key. `at_least`: the answer has the record at this offset, or a later one of its key."""

    key: bytes
    at_least: int | None = None
    wait_ms: int = 0
    value: str | None = None
    if_none_match: str | None = None
    leader_epoch: int = 0


class TablePiece(Struct, frozen=True):
    """A read of the rows from an offset on, up to `end`; None: the high watermark of now.

    `at_least`: the partition must have this high watermark, which the read waits for. `with_deletes`: rows that have
    been deleted are among them, for readers that may have them.
    """

    offset: int
    end: int | None
    max_bytes: int
    value: str | None = None
    with_deletes: bool = False
    at_least: int = 0
    wait_ms: int = 0
    leader_epoch: int = 0


class PieceRead(Struct, frozen=True, array_like=True):
    """How far a read came, and the offset at which it ends. The rows are its body, one a line."""

    next_offset: int
    end: int
    high_watermark: int
    row_count: int


READ_KEY: PartitionCall[TableKey, dict[str, str]] = PartitionCall("read_table_key", TableKey)
READ_ROWS: PartitionCall[TablePiece, PieceRead] = PartitionCall("read_table_rows", TablePiece)


class Span(NamedTuple):
    """The part of a log that a piece reads."""

    offset: int
    end: int


class Tables:
    """The indexes of this process's partitions."""

    def __init__(self, context: ReadContext, random_bytes: Callable[[int], bytes]) -> None:
        self._context = context
        self._random_bytes = random_bytes
        self._indexes: WeakKeyDictionary[Partition, KeyIndex] = WeakKeyDictionary()
        self._locks: WeakKeyDictionary[Partition, asyncio.Lock] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Tables({len(self._indexes)} partitions, {size_of(self._indexes.values())} bytes)"

    async def read_key(self, partition: Partition, request: TableKey) -> Answer:
        """Returns the last record of a key. Raises Problem (unknown_key, topic_not_compacted, ...), EngineError."""
        self._check(partition, request.leader_epoch)
        if request.at_least is not None:
            await self._reach(partition, request.at_least, request.wait_ms)
        index = await self._load_index(partition)
        record = await self._read_record(partition, request.key, index.find(request.key))
        return self._answer(partition, request, record)

    async def read_rows(self, partition: Partition, request: TablePiece) -> tuple[PieceRead, bytes]:
        """Returns the rows of a part of the log. Raises Problem (topic_not_compacted, ...), EngineError."""
        self._check(partition, request.leader_epoch)
        for required_end in (request.at_least, request.end or 0, request.offset):
            if required_end > partition.high_watermark:
                await self._reach(partition, required_end - 1, request.wait_ms)
        index = await self._load_index(partition)
        end = partition.high_watermark if request.end is None else request.end
        offset = max(request.offset, partition.log.log_start)
        if offset >= end:
            return PieceRead(offset, end, partition.high_watermark, 0), b""
        async with self._context.local_budget.hold(request.max_bytes * RENDERED_COPIES):
            chunk = await read_chunk(self._context, partition, offset, request.max_bytes)
            if chunk is None:
                return PieceRead(end, end, partition.high_watermark, 0), b""
            read = partial(self._rows, partition, chunk, Span(offset, end), request, index)
            size_bytes = OFF_LOOP_BYTES if is_compressed(chunk.data) else ROW_COST * len(chunk.data)
            decoded = await self._context.offload.by_size(size_bytes, read)
        count_bytes(self._context, partition, len(chunk.data))
        piece = PieceRead(decoded.next_offset, end, partition.high_watermark, len(decoded.outs))
        return piece, encode_lines(decoded.outs)

    def _rows(
        self, partition: Partition, chunk: Chunk, span: Span, request: TablePiece, index: KeyIndex
    ) -> Decoded[RecordOut]:
        def show(records: Sequence[Record]) -> list[RecordOut]:
            rows = rows_of(records, index.find, span.end, with_deletes=request.with_deletes)
            return records_out(rows, request.value)

        bounds = Bounds(None, partition.settings.batch_decoded_bytes_max, self._context.settings.fetch_bytes_max)
        return decode_stored(chunk.data, span.offset, chunk.next_offset, bounds, show)

    def _check(self, partition: Partition, leader_epoch: int) -> None:
        if partition.offline is not None:
            raise partition.offline
        if not partition.settings.is_compacted:
            text = f"topic {partition.topic!r} has cleanup_policy=delete"
            raise Problem("topic_not_compacted", text)
        leader = self._context.partitions.replica(partition)
        leader.check_serves_reads(leader_epoch)
        leader.check_latest()

    async def _load_index(self, partition: Partition) -> KeyIndex:
        """Returns the index of a partition up to its high watermark. Raises Problem table_loading."""
        try:
            async with asyncio.timeout(LOADING_S):
                return await self._update_index(partition)
        except TimeoutError:
            text = f"the index of {partition.name} is read from the log"
            raise Problem("table_loading", text) from None

    async def _reach(self, partition: Partition, offset: int, wait_ms: int) -> None:
        """Waits until the record at an offset is committed. Raises Problem offset_above_high_watermark."""
        deadline = asyncio.get_running_loop().time() + wait_ms / 1000
        context, watermark = self._context, partition.watermark
        if wait_ms > 0 and watermark.position <= offset and not context.lifecycle.is_draining:
            with context.long_polls.waiting(), suppress(TimeoutError):
                await watermark.polls.wait_until(deadline, offset + 1)
        if watermark.position <= offset:
            context.partitions.replica(partition).check_serves_reads()
            await confirm_offset(context, partition, offset + 1)

    async def _update_index(self, partition: Partition) -> KeyIndex:
        """Returns the index of a partition up to its high watermark."""
        index = self._indexes.get(partition)
        if index is not None and index.cuts == partition.cuts and index.end >= partition.high_watermark:
            self._indexes[partition] = self._indexes.pop(partition)  # the last one that was read
            return index
        async with self._locks.setdefault(partition, asyncio.Lock()):
            index = self._indexes.pop(partition, None)
            if index is None or index.cuts != partition.cuts:
                index = KeyIndex(
                    self._context.settings.table_memory_bytes, self._random_bytes(HASH_KEY_BYTES), partition.cuts
                )
            self._indexes[partition] = index
            while index.end < partition.high_watermark and index.cuts == partition.cuts:
                offset = max(index.end, partition.log.log_start)
                async with self._context.local_budget.hold(_PIECE_BYTES):
                    chunk = await read_chunk(self._context, partition, offset, _PIECE_BYTES)
                    if chunk is None:
                        break
                    await self._context.offload.in_thread(partial(index.add, chunk.data, chunk.next_offset))
                self._make_room(index)
            return index

    def _make_room(self, used: KeyIndex) -> None:
        memory_bytes = self._context.settings.table_memory_bytes
        while size_of(self._indexes.values()) > memory_bytes:
            oldest = next(iter(self._indexes))
            if self._indexes[oldest] is used:
                break
            del self._indexes[oldest]

    async def _read_record(self, partition: Partition, key: bytes, offset: int | None) -> Record | None:
        """Returns the record at an offset if it has the key; None if compaction has removed it."""
        if offset is None or offset < partition.log.log_start:
            return None
        chunk = await read_chunk(self._context, partition, offset, 1)
        if chunk is None:
            return None
        size_bytes = OFF_LOOP_BYTES if is_compressed(chunk.data) else len(chunk.data)
        find = partial(record_at, chunk.data, offset, partition.settings.batch_decoded_bytes_max)
        try:
            record = await self._context.offload.by_size(size_bytes, find)
        except InvalidBatch:
            raise Problem("records_damaged", f"offset {offset} of {partition.name} cannot be decoded") from None
        return record if record is not None and record.key == key else None

    def _answer(self, partition: Partition, request: TableKey, record: Record | None) -> Answer:
        if record is None or record.value is None:
            text = f"the table has no such key in partition {partition.number}"
            raise Problem("unknown_key", text, partition=partition.number)
        topic_id = self._context.topics.topic(partition.topic).record.topic_id
        headers = {
            "ETag": f'W/"{partition.number}-{record.offset}-{topic_id[:8]}"',
            **revalidated(is_private=self._context.settings.is_authenticated),
            "Penstock-High-Watermark": str(partition.high_watermark),
            "Penstock-Leader-Epoch": str(partition.log.leader_epoch),
        }
        if is_not_modified(request.if_none_match, headers["ETag"]):
            return {STATUS: "304", **headers}, b""
        line = encode_lines(records_out([record], request.value))
        return headers | {"Content-Type": JSON}, b'{"partition":%d,%b' % (partition.number, line[1:].rstrip())


def table_calls(context: ReadContext, random_bytes: Callable[[int], bytes]) -> list[Answering]:
    """Returns the tables' calls to partitions of this process."""
    tables = Tables(context, random_bytes)
    return [READ_KEY.by(tables.read_key), READ_ROWS.by(tables.read_rows)]
