"""Reads one key of a compacted partition at its owner, by an index of the last offset of each key.

The index follows the log when it is asked: a read finds every record below the high watermark. Indexes are made at the
first read of a partition, share `table_memory_bytes`, and the one that was read the longest ago goes first.
Invariant: an answer is a record whose key is the requested one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from weakref import WeakKeyDictionary

from msgspec import Struct

from engine.compaction.key_index import KeyIndex, record_at, size_of
from engine.compaction.latest_offsets import HASH_KEY_BYTES
from engine.errors import InvalidBatch
from engine.format.batch import Record
from engine.format.batch_header import is_compressed
from engine.partition.partition import Partition
from gateway.fetch.context import ReadContext
from gateway.fetch.partition_reads import Answer, confirm_offset, read_chunk
from gateway.fetch.record_json import encode_lines, records_out
from gateway.fetch.request import JSON
from gateway.http.caching import STATUS, is_not_modified
from gateway.http.offload import OFF_LOOP_BYTES
from gateway.http.problems import Problem
from gateway.routing.router import Answering, PartitionCall

_PIECE_BYTES = 256 * 1024  # of the log, added to an index at once: 2 ms of a core
LOADING_S = 10.0  # of a request; the index remains and the next request continues


class TableKey(Struct, frozen=True):
    """A read of one key. `at_least`: the answer has the record at this offset, or a later one of its key."""

    key: bytes
    at_least: int | None = None
    wait_ms: int = 0
    value: str | None = None
    if_none_match: str | None = None
    leader_epoch: int = 0


READ_KEY: PartitionCall[TableKey, dict[str, str]] = PartitionCall("read_table_key", TableKey)


class Tables:
    """The indexes of this process's partitions."""

    def __init__(self, context: ReadContext, random_bytes: Callable[[int], bytes]) -> None:
        self._context = context
        self._random_bytes = random_bytes
        self._indexes: WeakKeyDictionary[Partition, KeyIndex] = WeakKeyDictionary()
        self._locks: WeakKeyDictionary[Partition, asyncio.Lock] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Tables({len(self._indexes)} partitions, {size_of(self._indexes.values())} bytes)"

    async def read_key(self, partition: Partition, wanted: TableKey) -> Answer:
        """Return the last record of a key. Raises Problem (unknown_key, topic_not_compacted, ...), EngineError."""
        if partition.offline is not None:
            raise partition.offline
        if not partition.settings.is_compacted:
            text = f"topic {partition.topic!r} has cleanup_policy=delete"
            raise Problem("topic_not_compacted", text)
        leader = self._context.partitions.replica(partition)
        leader.check_serves_reads(wanted.leader_epoch)
        leader.check_latest()
        if wanted.at_least is not None:
            await self._reach(partition, wanted.at_least, wanted.wait_ms)
        try:
            async with asyncio.timeout(LOADING_S):
                index = await self._followed(partition)
        except TimeoutError:
            text = f"the index of {partition.name} is read from the log"
            raise Problem("table_loading", text) from None
        record = await self._record(partition, wanted.key, index.find(wanted.key))
        return self._answer(partition, wanted, record)

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

    async def _followed(self, partition: Partition) -> KeyIndex:
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

    async def _record(self, partition: Partition, key: bytes, offset: int | None) -> Record | None:
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

    def _answer(self, partition: Partition, wanted: TableKey, record: Record | None) -> Answer:
        if record is None or record.value is None:
            text = f"the table has no such key in partition {partition.number}"
            raise Problem("unknown_key", text, partition=partition.number)
        topic_id = self._context.topics.topic(partition.topic).record.topic_id
        headers = {
            "ETag": f'W/"{partition.number}-{record.offset}-{topic_id[:8]}"',
            "Cache-Control": "no-cache",
            "Penstock-High-Watermark": str(partition.high_watermark),
            "Penstock-Leader-Epoch": str(partition.log.leader_epoch),
        }
        if is_not_modified(wanted.if_none_match, headers["ETag"]):
            return {STATUS: "304", **headers}, b""
        line = encode_lines(records_out([record], wanted.value))
        return headers | {"Content-Type": JSON}, b'{"partition":%d,%b' % (partition.number, line[1:].rstrip())


def table_calls(context: ReadContext, random_bytes: Callable[[int], bytes]) -> list[Answering]:
    """Returns the tables' calls to partitions of this process."""
    return [READ_KEY.by(Tables(context, random_bytes).read_key)]
