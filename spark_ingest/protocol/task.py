"""Runs one task: reads records of a topic, writes data files and dead letters.

The result depends only on the task's spec and on immutable objects of the store. Every attempt writes the same files
under the same names, so retries, speculative execution and zombie tasks are harmless.

Memory: one chunk (chunks.py), and a copy of it while it is sorted by directory. Each chunk has its own files, unless
the table has a target for the size of files: then files grow from chunk to chunk (rolling_files.py).
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
from spark_ingest.decode.time_counts import counts_of
from spark_ingest.errors import IngestRefused, LostRecords
from spark_ingest.layout import DEFAULT, PARQUET, Layout
from spark_ingest.output import names
from spark_ingest.output.file_formats import file_bytes
from spark_ingest.output.rolling_files import EndedFile, RollingFiles, chunk_bytes_for
from spark_ingest.output.splitting import split_rows
from spark_ingest.output.stored_file import StoredFile
from spark_ingest.output.table_files import (
    dead_letter_table,
    incompressible_leaves,
    is_small,
    repeating_leaves,
    sha256,
    store_once,
)
from spark_ingest.plan import TaskSpec
from spark_ingest.protocol.chunks import Chunk, chunks
from spark_ingest.protocol.results import (
    SEEN_MEMBERS_MAX,
    Misfits,
    TaskResult,
    TimeCounts,
    add_counts,
    add_misfits,
    add_times,
)
from spark_ingest.source.slices import Range, between
from spark_ingest.types.json_types import merge_members

PUTS_AT_ONCE = 8  # a task of many hours writes many small files and mostly waits for the store
_LETTERS_BYTES = 16 << 20  # of dead letters that are held for one file


class _File(NamedTuple):
    """`encode` returns the bytes. `first` and `last` are pairs of partition and offset."""

    key: str
    encode: Callable[[], bytes]
    rows: int
    first: tuple[int, int]
    last: tuple[int, int]


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
    target = order.recipe.layout.file_bytes
    coming = chunks(order, source, chunk_bytes_for(target)) if target else chunks(order, source)
    files = _RollingOutput(order) if target else _ChunkOutput(order)
    parts = []
    while (chunk := _next_chunk(order, coming)) is not None:
        table = pa.Table.from_batches(chunk.rows, schema=table_schema(order))
        chunk.rows = []
        ended = files.add(table, chunk)
        parts.append(_result(order, chunk, table, *(_store_all(output, some, puts_at_once) for some in ended)))
    rest = [_store_all(output, some, puts_at_once) for some in files.finish()]
    whole = reduce(_merge, parts)
    return msgspec.structs.replace(
        whole,
        files=(*whole.files, *rest[0]),
        dead_letters=(*whole.dead_letters, *rest[1]),
        absent=order.task.record_range - whole.rows - whole.bad,
        seconds=round(clock() - started, 3),
    )


def _next_chunk(order: TaskSpec, coming: Iterator[Chunk]) -> Chunk | None:
    try:
        with _no_garbage_collection():
            return next(coming, None)
    except NoSuchObject as error:
        hint = (
            "retention removed it, or this is another store; penstock tier repair finds a copy, if there is one, and "
        )
        hint += "penstock ingest abandon drops the plan"
        raise LostRecords(f"{order.task.topic}: {error.detail}; the plan needs it", hint=hint) from error


class _ChunkOutput:
    """Makes the files of each chunk: data files and dead letters."""

    def __init__(self, order: TaskSpec) -> None:
        self._order = order

    def add(self, table: pa.Table, chunk: Chunk) -> tuple[list[_File], list[_File]]:
        name = names.data_file_name(self._order.task.topic, chunk.ranges, self._order.number)
        return _data_files(self._order, table, chunk.ranges), _dead_letter_files(self._order, chunk.dead, name)

    def finish(self) -> tuple[list[_File], list[_File]]:
        return [], []


class _RollingOutput:
    """Makes files of the target size, and gathers dead letters. Raises IngestRefused with another PyArrow."""

    def __init__(self, order: TaskSpec) -> None:
        if order.arrow != pa.__version__:
            text = f"{order.task.topic}: the plan was made for files of PyArrow {order.arrow}, this is {pa.__version__}"
            raise IngestRefused(text, hint="finish it with that release, or abandon the plan")
        self._order = order
        self._files = RollingFiles(order)
        self._letters: list[DeadLetter] = []
        first = order.task.ranges[0]
        self._begin = self._end = (first.partition, first.start)

    def add(self, table: pa.Table, chunk: Chunk) -> tuple[list[_File], list[_File]]:
        ended = self._files.add(table, chunk.ranges, chunk.read_bytes)
        self._letters += chunk.dead
        self._end = (chunk.ranges[-1].partition, chunk.ranges[-1].end)
        held = sum(512 + len(letter.value or b"") for letter in self._letters)
        return [_grown(file) for file in ended], self._dead_letters() if held >= _LETTERS_BYTES else []

    def finish(self) -> tuple[list[_File], list[_File]]:
        return [_grown(file) for file in self._files.finish()], self._dead_letters()

    def _dead_letters(self) -> list[_File]:
        if not self._letters:
            return []
        ranges = between(self._order.task.ranges, self._begin, self._end)
        letters, self._letters, self._begin = self._letters, [], self._end
        name = names.data_file_name(self._order.task.topic, ranges, self._order.number)
        return _dead_letter_files(self._order, letters, name)


def _grown(ended: EndedFile) -> _File:
    return _File(ended.key, ended.file.finish, ended.file.rows, ended.first, ended.last)


def _result(
    order: TaskSpec,
    chunk: Chunk,
    table: pa.Table,
    files: Sequence[StoredFile],
    dead_letters: Sequence[StoredFile],
) -> TaskResult:
    """Returns the result of a chunk."""
    return TaskResult(
        task=order.task.task,
        topic=order.task.topic,
        ranges=tuple(order.task.ranges),
        rows=table.num_rows,
        bad=sum(letter.last_offset - letter.offset + 1 for letter in chunk.dead),
        absent=0,
        fallbacks=chunk.fallbacks,
        reasons=_counted(chunk.dead),
        seen=chunk.seen,
        files=tuple(files),
        dead_letters=tuple(dead_letters),
        read_bytes=chunk.read_bytes,
        seconds=0.0,
        misfits={name: _misfits(table, name, count) for name, count in chunk.misfits.items()},
        filtered=chunk.filtered,
        times=TimeCounts(
            chunk.times,
            counts_of(table["_event_time"].cast(pa.int64()), 1000),
            add_counts(chunk.batches, {}),
        ),
    )


def _misfits(table: pa.Table, name: str, count: int) -> Misfits:
    return Misfits(count, count + table.num_rows - table[name].null_count)


def _merge(left: TaskResult, other: TaskResult) -> TaskResult:
    """Merges the results of two chunks."""
    return msgspec.structs.replace(
        left,
        rows=left.rows + other.rows,
        bad=left.bad + other.bad,
        fallbacks=left.fallbacks + other.fallbacks,
        reasons=dict(Counter(left.reasons) + Counter(other.reasons)),
        seen=merge_members(left.seen, other.seen)[:SEEN_MEMBERS_MAX],
        files=left.files + other.files,
        dead_letters=left.dead_letters + other.dead_letters,
        read_bytes=left.read_bytes + other.read_bytes,
        misfits=add_misfits(left.misfits, other.misfits),
        filtered=left.filtered + other.filtered,
        times=add_times(left.times, other.times),
    )


def _data_files(order: TaskSpec, table: pa.Table, ranges: Sequence[Range]) -> list[_File]:
    """Divides rows by directory, in the order of (directory, partition, offset)."""
    layout = order.recipe.layout
    name = names.data_file_name(order.task.topic, ranges, order.number, layout)
    prefix, repeating = names.table_prefix(order.task.topic), repeating_leaves(table)
    parts, incompressible = list(split_rows(table, layout)), list[str]()
    if layout.format == PARQUET and any(is_small(rows) for _, rows in parts):
        incompressible = incompressible_leaves(table, layout.codec, repeating)
    return [_whole(prefix + directory + name, rows, layout, repeating, incompressible) for directory, rows in parts]


def _whole(
    key: str,
    rows: pa.Table,
    layout: Layout = DEFAULT,
    repeating: Sequence[str] | None = None,
    incompressible: Sequence[str] = (),
) -> _File:
    first, last = ((rows["_partition"][at].as_py(), rows["_offset"][at].as_py()) for at in (0, -1))
    return _File(key, lambda: file_bytes(rows, layout, repeating, incompressible), rows.num_rows, first, last)


def _dead_letter_files(order: TaskSpec, dead: Sequence[DeadLetter], name: str) -> list[_File]:
    by_day: dict[str, list[DeadLetter]] = {}
    for letter in sorted(dead, key=lambda letter: (letter.partition, letter.offset)):
        by_day.setdefault(names.day_directory(record_timestamp(letter.timestamp)), []).append(letter)
    prefix = names.dead_letters_prefix(order.task.topic)
    return [_whole(prefix + day + name, dead_letter_table(order, letters)) for day, letters in sorted(by_day.items())]


def _store_all(output: ObjectStore, files: Sequence[_File], puts_at_once: int) -> list[StoredFile]:
    if len(files) < 2 or puts_at_once < 2:
        return [_store(output, file) for file in files]
    with ThreadPoolExecutor(puts_at_once) as pool:
        try:
            return list(pool.map(lambda file: _store(output, file), files))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _store(output: ObjectStore, file: _File) -> StoredFile:
    data = store_once(output, file.key, file.encode())
    return StoredFile(file.key, file.rows, len(data), sha256(data), file.first, file.last)


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
