"""One task: a run of a topic's records becomes data files and dead letters. Called by Spark, by tests, by nobody else.

A pure function of the order and of the store's immutable objects: whoever runs it, and however often, makes the same
files under the same names. So retries, speculation and zombies are harmless, and what a killed task left behind is
what the next one would have written.

Memory: one chapter (chapters.py) and a copy of it while it is sorted by hour.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.decode.blocks import DeadLetter, own_timestamp, table_schema
from spark_ingest.decode.event_time import HOUR_US
from spark_ingest.decode.json_types import Members, merge_members
from spark_ingest.errors import LostRecords
from spark_ingest.output import names
from spark_ingest.output.table_files import StoredFile, dead_letter_table, parquet_bytes, sha256, store_once
from spark_ingest.plan import Order
from spark_ingest.protocol.chapters import SEEN_MEMBERS_MAX, Chapter, chapters
from spark_ingest.source.cut import Range

PUTS_AT_ONCE = 8  # a task that meets many hours writes many small files, and waits for the store most of the time


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


def run_task(
    order: Order,
    source: ObjectStore,
    output: ObjectStore,
    clock: Callable[[], float] = time.monotonic,
    puts_at_once: int = PUTS_AT_ONCE,
) -> TaskResult:
    """Read, convert, store. Raises what chapters and table_files raise; then nothing counts as done."""
    started = clock()
    coming = chapters(order, source)
    parts = []
    while (chapter := _next_chapter(order, coming)) is not None:
        parts.append(_written(order, chapter, output, puts_at_once))
    whole = reduce(_and, parts)
    absent = order.task.record_range - whole.rows - whole.bad
    return msgspec.structs.replace(whole, absent=absent, seconds=round(clock() - started, 3))


def _next_chapter(order: Order, coming: Iterator[Chapter]) -> Chapter | None:
    try:
        with _no_garbage_collection():
            return next(coming, None)
    except NoSuchObject as error:
        hint = "was it removed by retention, or is this another store? Abandon the plan to go on without it"
        raise LostRecords(f"{order.task.topic}: {error.detail}, though the plan needs it", hint=hint) from error


def _written(order: Order, chapter: Chapter, output: ObjectStore, puts_at_once: int) -> TaskResult:
    """One chapter, stored."""
    table = pa.Table.from_batches(chapter.rows, schema=table_schema(order))
    name = names.data_file_name(order.task.topic, chapter.ranges, order.number)
    return TaskResult(
        task=order.task.task,
        topic=order.task.topic,
        ranges=tuple(order.task.ranges),
        rows=table.num_rows,
        bad=sum(one.last_offset - one.offset + 1 for one in chapter.dead),
        absent=0,
        fallbacks=chapter.fallbacks,
        reasons=_counted(chapter.dead),
        seen=chapter.seen,
        files=tuple(_store_all(output, _data_files(order, table, name), puts_at_once)),
        dead_letters=tuple(_store_all(output, _dead_letter_files(order, chapter.dead, name), puts_at_once)),
        read_bytes=chapter.read_bytes,
        seconds=0.0,
    )


def _and(one: TaskResult, other: TaskResult) -> TaskResult:
    """What two chapters found together."""
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
    )


def _data_files(order: Order, table: pa.Table, name: str) -> list[_File]:
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
    prefix = names.table_prefix(order.task.topic)
    return [
        _File(prefix + names.hour_directory(int(hours[start])) + name, table.slice(start, end - start))
        for start, end in pairwise(cuts)
    ]


def _dead_letter_files(order: Order, dead: Sequence[DeadLetter], name: str) -> list[_File]:
    by_day: dict[str, list[DeadLetter]] = {}
    for letter in sorted(dead, key=lambda one: (one.partition, one.offset)):
        by_day.setdefault(names.day_directory(own_timestamp(letter.timestamp)), []).append(letter)
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
    counts: Counter[str] = Counter()
    for letter in dead:
        counts[letter.reason] += letter.last_offset - letter.offset + 1
    return dict(counts)


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
