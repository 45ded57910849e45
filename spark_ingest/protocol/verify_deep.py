"""Reads every committed file: checks its digest, its rows, its directory, and that each offset occurs exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.layout import PERIOD_US, layout_of_key
from spark_ingest.output import names
from spark_ingest.output.file_formats import Unreadable, read_places
from spark_ingest.output.table_files import sha256
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.results import StoredFile, TaskResult

_GETS_AT_ONCE = 8


class _Read(NamedTuple):
    """One file's offsets as triples of partition, first and last, and its problems."""

    places: list[tuple[int, int, int]]
    problems: list[str]


def verify_deep(
    output: ObjectStore, commits: Iterable[Commit], is_retired: Callable[[str], bool] = lambda _: False
) -> Iterator[str]:
    """Yields problems, task by task. Skips retired files, and the offsets of a task that has any."""
    with ThreadPoolExecutor(_GETS_AT_ONCE) as pool:
        for commit in commits:
            for result in commit.results:
                files = [one for one in result.files if not is_retired(one.key)]
                dead = [one for one in result.dead_letters if not is_retired(one.key)]
                rows = pool.map(lambda one, number=commit.number: _read_rows(output, one, number), files)
                letters = pool.map(lambda one: _read_letters(output, one), dead)
                reads = [*rows, *letters]
                yield from (problem for read in reads for problem in read.problems)
                is_whole = len(reads) == len(result.every_file)
                if is_whole and not any(read.problems for read in reads):
                    yield from _of_places(commit, result, [place for read in reads for place in read.places])


def _read_rows(output: ObjectStore, file: StoredFile, number: int) -> _Read:
    layout = layout_of_key(file.key)
    table, problems = _read(output, file, lambda data: read_places(data, layout))
    if table is None:
        return _Read([], problems)
    times = np.asarray(table["_event_time"].cast(pa.int64()))
    periods = np.unique(times // PERIOD_US[layout.period]).tolist()
    if len(periods) != 1 or names.period_directory(layout.period, periods[0]) not in file.key:
        problems.append(f"{file.key} has events of other {layout.period}s")
    if table["_ingest_commit"].unique().to_pylist() != [number]:
        problems.append(f"{file.key} has rows of other commits")
    offsets = table["_offset"].to_pylist()
    return _Read(list(zip(table["_partition"].to_pylist(), offsets, offsets, strict=True)), problems)


def _read_letters(output: ObjectStore, file: StoredFile) -> _Read:
    table, problems = _read(output, file, lambda data: pq.read_table(pa.BufferReader(data)))
    if table is None:
        return _Read([], problems)
    columns = [table[name].to_pylist() for name in ("_partition", "_offset", "_last_offset")]
    return _Read(list(zip(*columns, strict=True)), problems)


def _read(
    output: ObjectStore, file: StoredFile, read: Callable[[bytes], pa.Table]
) -> tuple[pa.Table | None, list[str]]:
    try:
        data = output.get(file.key)
        if sha256(data) != file.sha256:
            return None, [f"{file.key} differs from the committed file: its SHA-256 is different"]
        table = read(data)
    except NoSuchObject:
        return None, [f"{file.key} is missing"]
    except (pa.ArrowInvalid, Unreadable) as error:
        return None, [f"{file.key} cannot be read: {error}"]
    if table.num_rows != file.rows:
        return None, [f"{file.key} has {table.num_rows} rows, {file.rows} were committed"]
    return table, []


def _of_places(commit: Commit, result: TaskResult, places: list[tuple[int, int, int]]) -> Iterator[str]:
    """Checks that each offset of the task's ranges occurs once, except offsets without a record."""
    found = 0
    for one in result.ranges:
        mine = sorted((first, last) for partition, first, last in places if partition == one.partition)
        found += sum(last - first + 1 for first, last in mine)
        reached = one.start
        for first, last in mine:
            if first < reached or last >= one.end:
                yield (
                    f"commit {commit.number}: {result.topic} partition {one.partition} offset {first} "
                    + ("comes twice" if first < reached else "is outside the range")
                )
            reached = last + 1
    offsets = sum(one.end - one.start for one in result.ranges)
    if found != offsets - result.absent:
        yield f"commit {commit.number} task {result.task}: {offsets - result.absent} records, {found} are in its files"
