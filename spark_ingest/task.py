"""One task: a run of a topic's records becomes data files and dead letters. Called by Spark, by tests, by nobody else.

A pure function of the order and of the store's immutable objects: whoever runs it, and however often, makes the same
files under the same names. So retries, speculation and zombies are harmless, and what a killed task left behind is
what the next one would have written.

Memory: a task's rows are held until they are sorted by hour; cut.py bounds a task by bytes and by records.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from engine.batch import Record
from engine.tiering.store import NoSuchObject, ObjectStore
from spark_ingest import names
from spark_ingest.blocks import BlockMaker, DeadLetter, own_timestamp, table_schema
from spark_ingest.cut import Range, Slice
from spark_ingest.errors import LostRecords
from spark_ingest.event_time import HOUR_US
from spark_ingest.json_types import Members, merge_members
from spark_ingest.plan import Order
from spark_ingest.scan import Scanned, scan
from spark_ingest.table_files import StoredFile, dead_letter_table, parquet_bytes, sha256, store_once

BLOCK_RECORDS = 16_384  # large enough for Arrow, small enough that one bad value costs little
BLOCK_BYTES = 16 << 20
PUTS_AT_ONCE = 8  # a task that meets many hours writes many small files, and waits for the store most of the time
SEEN_MEMBERS_MAX = 1000


class TaskResult(msgspec.Struct, frozen=True):
    """What a task found and wrote. rows + bad + absent is the length of its ranges.

    `bad` are dead letters, counted by records; `absent` are offsets that hold no record (compacted away); `seen` are
    types of members that have no column yet.
    """

    task: int
    topic: str
    ranges: tuple[Range, ...]
    rows: int
    bad: int
    absent: int
    fallbacks: int
    reasons: dict[str, int]
    seen: Members
    files: tuple[StoredFile, ...]
    dead_letters: tuple[StoredFile, ...]
    read_bytes: int
    seconds: float


class _File(NamedTuple):
    key: str
    rows: pa.Table


@dataclass(slots=True)
class _Harvest:
    batches: list[pa.RecordBatch] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    seen: Members = field(default_factory=list)
    fallbacks: int = 0
    read_bytes: int = 0


def run_task(
    order: Order,
    source: ObjectStore,
    output: ObjectStore,
    clock: Callable[[], float] = time.monotonic,
    puts_at_once: int = PUTS_AT_ONCE,
) -> TaskResult:
    """Read, convert, store. Raises what scan, blocks and table_files raise; then nothing counts as done."""
    started = clock()
    try:
        with _no_garbage_collection():
            harvest = _harvest(order, source)
    except NoSuchObject as error:
        hint = "was it removed by retention, or is this another store? Abandon the plan to go on without it"
        raise LostRecords(f"{order.task.topic}: {error.detail}, though the plan needs it", hint=hint) from error
    table = pa.Table.from_batches(harvest.batches, schema=table_schema(order))
    files = _store_all(output, _data_files(order, table), puts_at_once)
    letters = _store_all(output, _dead_letter_files(order, harvest.dead), puts_at_once)
    bad = sum(one.last_offset - one.offset + 1 for one in harvest.dead)
    return TaskResult(
        task=order.task.task,
        topic=order.task.topic,
        ranges=tuple(order.task.ranges),
        rows=table.num_rows,
        bad=bad,
        absent=order.task.record_range - table.num_rows - bad,
        fallbacks=harvest.fallbacks,
        reasons=_counted(harvest.dead),
        seen=harvest.seen,
        files=tuple(files),
        dead_letters=tuple(letters),
        read_bytes=harvest.read_bytes,
        seconds=round(clock() - started, 3),
    )


def _harvest(order: Order, source: ObjectStore) -> _Harvest:
    harvest = _Harvest()
    for partition, group in groupby(order.task.slices, key=lambda one: one.partition):
        maker = BlockMaker(order, partition)
        for records in _blocks(source, group, harvest):
            block = maker.make(records)
            harvest.batches.append(block.rows)
            harvest.dead += block.dead
            harvest.seen = merge_members(harvest.seen, block.seen)[:SEEN_MEMBERS_MAX]
            harvest.fallbacks += block.fallbacks
    return harvest


def _blocks(source: ObjectStore, slices: Iterable[Slice], harvest: _Harvest) -> Iterator[list[Record]]:
    """Records in blocks of bounded size. A batch that cannot be decoded becomes one dead letter."""
    block: list[Record] = []
    block_bytes = 0
    for scanned in scan(source, slices):
        harvest.read_bytes += scanned.header.size_bytes
        if scanned.undecodable is not None:
            harvest.dead.append(_undecodable(scanned))
        block += scanned.records
        block_bytes += scanned.header.size_bytes
        if len(block) >= BLOCK_RECORDS or block_bytes >= BLOCK_BYTES:
            yield block
            block, block_bytes = [], 0
    if block:
        yield block


def _undecodable(scanned: Scanned) -> DeadLetter:
    """The whole batch as a value; if its end is another slice's, that one tells of its own part."""
    header, wanted = scanned.header, scanned.source
    first, last = max(header.base_offset, wanted.start), min(header.next_offset, wanted.end) - 1
    why, raw = str(scanned.undecodable), bytes(scanned.raw)
    return DeadLetter(wanted.partition, first, last, header.max_timestamp, None, raw, (), "undecodable_batch", why)


def _data_files(order: Order, table: pa.Table) -> list[_File]:
    """The rows of every hour, in order of hours; within one, in order of (partition, offset)."""
    if not table.num_rows:
        return []
    hours = np.asarray(table["_event_time"].cast(pa.int64())) // HOUR_US
    if np.any(hours[1:] < hours[:-1]):
        by_hour = np.argsort(hours, kind="stable")
        table, hours = table.take(pa.array(by_hour)), hours[by_hour]
    cuts = [0, *(np.flatnonzero(hours[1:] != hours[:-1]) + 1).tolist(), len(hours)]
    if len(cuts) > 2:
        table = table.combine_chunks()
    name = names.data_file_name(order.task.topic, order.task.ranges, order.number)
    prefix = names.table_prefix(order.task.topic)
    return [
        _File(prefix + names.hour_directory(int(hours[start])) + name, table.slice(start, end - start))
        for start, end in pairwise(cuts)
    ]


def _dead_letter_files(order: Order, dead: Sequence[DeadLetter]) -> list[_File]:
    by_day: dict[str, list[DeadLetter]] = {}
    for letter in sorted(dead, key=lambda one: (one.partition, one.offset)):
        by_day.setdefault(names.day_directory(own_timestamp(letter.timestamp)), []).append(letter)
    name = names.data_file_name(order.task.topic, order.task.ranges, order.number)
    prefix = names.dead_letters_prefix(order.task.topic)
    return [_File(prefix + day + name, dead_letter_table(order, letters)) for day, letters in sorted(by_day.items())]


def _store_all(output: ObjectStore, files: Sequence[_File], puts_at_once: int) -> list[StoredFile]:
    if len(files) < 2 or puts_at_once < 2:
        return [_store(output, one) for one in files]
    with ThreadPoolExecutor(puts_at_once) as pool:
        try:
            return list(pool.map(lambda one: _store(output, one), files))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _store(output: ObjectStore, file: _File) -> StoredFile:
    data = store_once(output, file.key, parquet_bytes(file.rows))
    places = [(file.rows["_partition"][at].as_py(), file.rows["_offset"][at].as_py()) for at in (0, -1)]
    return StoredFile(file.key, file.rows.num_rows, len(data), sha256(data), *places)


def _counted(dead: Sequence[DeadLetter]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for letter in dead:
        counts[letter.reason] = counts.get(letter.reason, 0) + letter.last_offset - letter.offset + 1
    return counts


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Records make no cycles, but so many objects that the collector would take a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
