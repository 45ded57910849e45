"""Runs one task: reads records of a topic, writes data files and dead letters.

The result depends only on the task's spec and on immutable objects of the store. Every attempt writes the same files
under the same names, so retries, speculative execution and zombie tasks are harmless.

Memory: one chunk (chunks.py), and a copy of it while it is sorted by directory.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import reduce
from typing import NamedTuple

import msgspec
import pyarrow as pa

from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.decode.blocks import DeadLetter, record_timestamp, table_schema
from spark_ingest.decode.json_types import merge_members
from spark_ingest.decode.time_counts import counts_of
from spark_ingest.errors import LostRecords
from spark_ingest.layout import DEFAULT, Layout
from spark_ingest.output import names
from spark_ingest.output.file_formats import file_bytes
from spark_ingest.output.splitting import split_rows
from spark_ingest.output.stored_file import StoredFile
from spark_ingest.output.table_files import dead_letter_table, repeating_leaves, sha256, store_once
from spark_ingest.plan import TaskSpec
from spark_ingest.protocol.chunks import Chunk, chunks
from spark_ingest.protocol.results import SEEN_MEMBERS_MAX, Misfits, TaskResult, TimeCounts, add_misfits, add_times
from spark_ingest.source.slices import Range

PUTS_AT_ONCE = 8  # a task of many hours writes many small files and mostly waits for the store


class _File(NamedTuple):
    key: str
    rows: pa.Table
    layout: Layout = DEFAULT
    repeating: Sequence[str] | None = None


def run_task(
    order: TaskSpec,
    source: ObjectStore,
    output: ObjectStore,
    clock: Callable[[], float] = time.monotonic,
    puts_at_once: int = PUTS_AT_ONCE,
) -> TaskResult:
    """Read, convert and store the records of a task.

    Raises Corrupt, LostRecords, NoEventTime, OutputConflict.
    """
    started = clock()
    coming = chunks(order, source)
    parts = []
    while (chunk := _next_chunk(order, coming)) is not None:
        parts.append(_write_chunk(order, chunk, output, puts_at_once))
    whole = reduce(_merge, parts)
    absent = order.task.record_range - whole.rows - whole.bad
    return msgspec.structs.replace(whole, absent=absent, seconds=round(clock() - started, 3))


def _next_chunk(order: TaskSpec, coming: Iterator[Chunk]) -> Chunk | None:
    try:
        with _no_garbage_collection():
            return next(coming, None)
    except NoSuchObject as error:
        hint = "retention removed it, or this is another store; abandon the plan to continue without it"
        raise LostRecords(f"{order.task.topic}: {error.detail}; the plan needs it", hint=hint) from error


def _write_chunk(order: TaskSpec, chunk: Chunk, output: ObjectStore, puts_at_once: int) -> TaskResult:
    """Stores the files of one chunk."""
    table = pa.Table.from_batches(chunk.rows, schema=table_schema(order))
    name = names.data_file_name(order.task.topic, chunk.ranges, order.number)
    return TaskResult(
        task=order.task.task,
        topic=order.task.topic,
        ranges=tuple(order.task.ranges),
        rows=table.num_rows,
        bad=sum(one.last_offset - one.offset + 1 for one in chunk.dead),
        absent=0,
        fallbacks=chunk.fallbacks,
        reasons=_counted(chunk.dead),
        seen=chunk.seen,
        files=tuple(_store_all(output, _data_files(order, table, chunk.ranges), puts_at_once)),
        dead_letters=tuple(_store_all(output, _dead_letter_files(order, chunk.dead, name), puts_at_once)),
        read_bytes=chunk.read_bytes,
        seconds=0.0,
        misfits={name: _misfits(table, name, count) for name, count in chunk.misfits.items()},
        filtered=chunk.filtered,
        times=TimeCounts(chunk.times, counts_of(table["_event_time"].cast(pa.int64()), 1000)),
    )


def _misfits(table: pa.Table, name: str, count: int) -> Misfits:
    return Misfits(count, count + table.num_rows - table[name].null_count)


def _merge(one: TaskResult, other: TaskResult) -> TaskResult:
    """Merges the results of two chunks."""
    return msgspec.structs.replace(
        one,
        rows=one.rows + other.rows,
        bad=one.bad + other.bad,
        fallbacks=one.fallbacks + other.fallbacks,
        reasons=dict(Counter(one.reasons) + Counter(other.reasons)),
        seen=merge_members(one.seen, other.seen)[:SEEN_MEMBERS_MAX],
        files=one.files + other.files,
        dead_letters=one.dead_letters + other.dead_letters,
        read_bytes=one.read_bytes + other.read_bytes,
        misfits=add_misfits(one.misfits, other.misfits),
        filtered=one.filtered + other.filtered,
        times=add_times(one.times, other.times),
    )


def _data_files(order: TaskSpec, table: pa.Table, ranges: Sequence[Range]) -> list[_File]:
    """Divides rows by directory, in the order of (directory, partition, offset)."""
    layout = order.recipe.layout
    name = names.data_file_name(order.task.topic, ranges, order.number, layout.extension)
    prefix, repeating = names.table_prefix(order.task.topic), repeating_leaves(table)
    return [_File(prefix + directory + name, rows, layout, repeating) for directory, rows in split_rows(table, layout)]


def _dead_letter_files(order: TaskSpec, dead: Sequence[DeadLetter], name: str) -> list[_File]:
    by_day: dict[str, list[DeadLetter]] = {}
    for letter in sorted(dead, key=lambda one: (one.partition, one.offset)):
        by_day.setdefault(names.day_directory(record_timestamp(letter.timestamp)), []).append(letter)
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
    data = store_once(output, file.key, file_bytes(file.rows, file.layout, file.repeating))
    places = [(file.rows["_partition"][at].as_py(), file.rows["_offset"][at].as_py()) for at in (0, -1)]
    return StoredFile(file.key, file.rows.num_rows, len(data), sha256(data), *places)


def _counted(dead: Sequence[DeadLetter]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for letter in dead:
        counts[letter.reason] += letter.last_offset - letter.offset + 1
    return dict(counts)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disables the garbage collector: records form no cycles, and collections would take a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
